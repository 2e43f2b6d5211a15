"""The objects that scripts hold: what makes them, what programs do with them, what changes them between calls."""

from __future__ import annotations

import dataclasses

# Classes and functions that every script may use.
LIBRARY: dict[str, str] = {
    "Twice": """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        ctx.save_for_backward(t)
        return t * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2 + 0 * ctx.saved_tensors[0]
""",
    "Pair": """
class Pair(torch.autograd.Function):
    @staticmethod
    def forward(t, u):
        return t + u, t * u

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, h):
        t, u = ctx.saved_tensors
        return (g * 3).sum_to_size(t.shape), (g * 5).sum_to_size(u.shape) if ctx.needs_input_grad[1] else None
""",
    "Inplace": """
class Inplace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        ctx.mark_dirty(t)
        return t.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 2 if g.sum() > 0 else g
""",
    "helper": """
def helper(t, n=2.0, cache=[], *, sign=1):
    cache.append(n)
    return t * n * sign
""",
    "rows": """
def rows(t, count, kind=None):
    if not t.dim():
        return t
    index = torch.arange(count) % max(t.shape[0], 1)
    made = (t if t.shape[0] else t.new_ones(1, *t.shape[1:])).detach()[index]
    if kind == "apart" and made.dim() == 2:
        made = torch.cat([made, made], 1)[:, 1:-1]
    elif kind == "in a buffer" and made.dim() == 2:
        made = torch.cat([made, made.new_zeros(16 - count, made.shape[1])]).t().contiguous()[:, :count].t()
    return made.requires_grad_(t.requires_grad)
""",
    "half": "half = functools.partial(helper, n=0.5)",
    "compose": """
def compose(*functions):
    def composed(t):
        for function in functions:
            t = function(t)
        return t
    return composed
""",
    "Point": 'Point = collections.namedtuple("Point", "x y")',
    "box_of": """
def box_of(t):
    return types.SimpleNamespace(value=t, made=True)
""",
    "Scaled": """
class Scaled:
    depth = 0

    def __init__(self, factor):
        self.factor = factor

    def __enter__(self):
        Scaled.depth += 1
        return self

    def __exit__(self, kind, error, trace):
        Scaled.depth -= 1
        return kind is KeyError
""",
    "Doubling": """
class Doubling(torch.overrides.TorchFunctionMode):
    seen = 0

    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        Doubling.seen += 1
        Doubling.given = [type(argument).__name__ for argument in args]
        return function(*args, **(kwargs or {}))
""",
    "Shifting": """
class Shifting(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result + 1 if function is torch.Tensor.mul or function is torch.tanh else result
""",
    "Dispatched": """
class Dispatched(torch.utils._python_dispatch.TorchDispatchMode):
    seen = 0

    def __torch_dispatch__(self, function, kinds, args=(), kwargs=None):
        Dispatched.seen += function is not torch.ops.aten.detach.default
        return function(*args, **(kwargs or {}))
""",
    "Renaming": """
class Renaming(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, function, kinds, args=(), kwargs=None):
        if function is torch.ops.aten.sin.default:
            function = torch.ops.aten.cos.default
        return function(*args, **(kwargs or {}))
""",
    "Noted": """
class Noted(torch.Tensor):
    given = []

    @classmethod
    def __torch_function__(cls, function, kinds, args=(), kwargs=None):
        Noted.given = [function.__name__] + [type(argument).__name__ for argument in args]
        return super().__torch_function__(function, kinds, args, kwargs or {})
""",
}


@dataclasses.dataclass(frozen=True)
class Object:
    """One object: what makes it, lines of programs about it, and lines that change it between calls."""

    setup: str
    lines: str
    changes: str


OBJECTS: dict[str, Object] = {
    "numbers": Object(
        "numbers = [1, 0, 1]",
        """
f | {new} = {f} * numbers[0]
f | {new} = {f}.flatten()[numbers]
f | {new} = {f}[numbers]
f | {new} = {f}.new_tensor(numbers).sum() + {f}
f | {new} = torch.tensor(numbers).sum() + {f}
f | {new} = {f}.reshape(numbers[0], -1)
f | {new} = {f}.sum(numbers[1:2])
f | {new} = {f} + torch.as_tensor(numbers, dtype=torch.float32).mean()
f | {new} = {f} * np.array(numbers).sum()
f | {new} = {f} + np.asarray(numbers).mean()
f | {new} = torch.cat([{f}.flatten()] * len(numbers)).sum()
f | {new} = {f}.repeat(numbers[:1] * 3)
f | {new} = {f} * (1 in numbers)
f | {new} = {f} * (numbers == [1, 0, 1])
f | {new} = {f} * sorted(numbers)[-1] + numbers.count(1)
f | {new} = {f} * float("".join(map(str, numbers)))
f | {new} = {f} + sum(number * 2 for number in numbers)
f | {new} = {f} * len(f"{{numbers}}")
f | {new} = {f} * math.fsum(numbers) + math.prod(numbers)
f | {new} = {f} * max(enumerate(numbers))[0]
f | {new} = {f} + tuple(reversed(numbers))[0]
f | {new} = {f} + bytes(numbers)[0]
f | {new} = {f} + dict(enumerate(numbers))[0]
f | {new} = {f} * int(set(numbers) == {{0, 1}})
f | {new} = {f}.index_select(0, torch.tensor(numbers) % max({f}.shape[0], 1))
f | {new} = torch.full(numbers[:1], 2.0) * {f}
f | {new} = {f}.flip(numbers[1:2])
f | {new} = {f}.permute(numbers[:2])
f | {new} = {f} + itertools.accumulate(numbers).__next__()
f | {new} = {f} * operator.itemgetter(0, 1)(numbers)[0]
f | {new} = {f} * functools.reduce(operator.add, numbers)
f | {new} = {f} + np.cumsum(numbers)[-1] * torch.ones(1)
f | {new} = {f} + np.dot(numbers, numbers)
- | {f}[numbers[:2]].add_(1)
- | {w}[numbers] = 3.0
- | {w}[numbers[1]] = 7
- | numbers.append({k})
- | numbers[0] = {k}
- | numbers.extend([1, {k}])
- | numbers.insert(0, {k})
- | numbers.sort()
- | numbers.reverse()
- | numbers += [{k}]
- | numbers[:] = [{k}, 0]
- | numbers.append({n})
n | {new} = numbers.pop()
n | {new} = numbers.pop(0) if numbers else 0
n | {new} = numbers[-1]
n | {new} = numbers * 2 == [1, 0, 1, 1, 0, 1]
- | del numbers[-1:]
- | numbers.clear()
- | numbers.remove(1)
n | {new} = [number for number in numbers if number]
""",
        """
numbers[0] = 0
numbers.append(1)
numbers[:] = [0, 0, 1]
numbers.reverse()
numbers = [0, 1]
numbers = (1, 0, 1)
numbers[0] = True
numbers[1] = 1.0
numbers[:] = []
""",
    ),
    "given": Object(
        'given = tuple([float("1.5"), "a b".upper(), (int("300"), 2)])',
        """
f | {new} = {f} * given[0]
f | {new} = {f} * given[2][0]
f | {new} = {f} * len(given)
f | {new} = {f} * (y is given)
f | {new} = {f} * (given[2] is given[-1])
n | {new} = given
n | {new} = given[2]
n | {new} = [given, given[2]]
n | {new} = {{"given": given}}
n | {new} = given[1].lower()
n | {new} = given + (1,)
- | outside.append(given)
- | outside[:] = [given[2]]
""",
        """
given = tuple([float("1.5"), "a b".upper(), (int("300"), 2)])
given = (1.5, "A B", given[2])
given = (2.5, "c", (1, 2))
y = given
""",
    ),
    "file": Object(
        """
class Log(io.StringIO):
    def add(self, text):
        self.write(text)
        self.lines = getattr(self, "lines", 0) + 1

file = Log()
""",
        """
f | {new} = {f} * len(file.getvalue())
f | {new} = {f} + file.tell()
f | {new} = {f} * getattr(file, "lines", 2)
- | file.write("ab")
- | file.add("c")
- | file.seek(0)
- | file.truncate(1)
n | {new} = file.getvalue()
""",
        """
file.write("x")
file.add("y")
file = Log()
""",
    ),
    "stack": Object(
        "stack = [torch.tensor([1.0, -2.0, 0.5]), torch.ones(3)]",
        """
f | {new} = {f} + stack[0]
f | {new} = sum(stack) * {f}
f | {new} = torch.stack(stack).sum(0) + {f}
f | {new} = torch.cat(stack)
f | {new} = stack[-1].mul_(2)
f | {new} = stack.pop()
f | {new} = [t * 2 for t in stack][0]
f | {new} = {f} * len(stack)
f | {new} = {f} + torch.block_diag(*stack).sum()
- | stack.append({f})
- | stack[0] = {f}
- | stack[0] = stack[0] + 1
- | stack[0].add_({n})
- | stack.append(stack[0])
- | stack.reverse()
- | stack.clear()
- | stack[0], stack[-1] = stack[-1], stack[0]
- | torch._foreach_mul_(stack, 2.0)
- | for each in stack: each.add_(1)
n | {new} = any(t is x for t in stack)
n | {new} = stack[0] is stack[-1]
""",
        """
stack.append(torch.zeros(3))
stack[0] = stack[1]
stack[0] = x
stack.reverse()
stack[0].mul_(3)
stack[1] = stack[0][:1]
stack[0].requires_grad_()
stack[:] = [torch.ones(2, 3)]
""",
    ),
    "table": Object(
        'table = {"a": 1.5, "b": torch.tensor([1.0, 2.0, 3.0]), 3: "x"}',
        """
f | {new} = {f} * table["a"]
f | {new} = {f} + table["b"]
f | {new} = {f} * table.get("c", 2)
f | {new} = {f} * len(table)
f | {new} = {f} + ("c" in table)
f | {new} = {f} * len([key for key in table if key != "a"])
f | {new} = {f} * len(list(table.values()))
f | {new} = {f} * table.setdefault("d", {n})
f | {new} = {f} * len(table.keys() & {{"a", "c"}})
f | {new} = {f} * sum(v for v in table.values() if isinstance(v, float))
f | {new} = {f} * {{**table, "z": 1}}["a"]
f | {new} = {f} * dict(table)["a"]
f | {new} = {f} + len(str(list(table)))
f | {new} = {f} + list(table).index("a")
f | {new} = {f} + types.MappingProxyType(table)["a"]
f | {new} = {f} * collections.ChainMap(table, {{}})["a"]
f | {new} = {f} * max([1], default=0) * ([*table] == ["a", "b", 3])
- | table["a"] = {n}
- | table["b"] = {f}
- | table["b"].add_(1)
- | table["c"] = {n}
- | table[{k}] = {f}
- | table.update(c={n}, b={f})
- | table.update({{3: {n}}})
- | table.pop("c", None)
- | table |= {{"c": {n}}}
- | del table["a"]
- | table.clear()
f | {new} = table.pop("b")
n | {new} = table.popitem()[0]
n | {new} = [*table.items()][0][0]
n | {new} = table["a"]
""",
        """
table["a"] = -2.0
table["a"] = 1
table["c"] = 3
table["b"] = torch.ones(1)
table["b"].zero_()
table = {"a": 4.0, "b": torch.zeros(3)}
table["a"] = table.pop("a")
table[3] = "y"
del table[3]
table = collections.OrderedDict(table)
table = collections.defaultdict(float, table)
""",
    ),
    "pair": Object(
        """
class Slotted:
    __slots__ = ("weight",)

class Weighted(Slotted):
    @property
    def weight(self):
        return super().weight * 2

    @weight.setter
    def weight(self, value):
        Slotted.weight.__set__(self, value)

class Pair(collections.namedtuple("Pair", "left right")):
    @property
    def left(self):
        return super().left + 1

class Appends:
    __call__ = staticmethod(outside.append)

weighted, appends = Weighted(), Appends()
weighted.weight = 2.0
pair = Pair(torch.tensor([0.5, -1.0, 2.0]), 3)
number = itertools.count().__next__
""",
        """
f | {new} = {f} * weighted.weight
f | {new} = {f} + pair.left
f | {new} = {f} * pair.right
f | {new} = {f} * number()
f | {new} = {f} * len(Slotted.__subclasses__())
f | {new} = Pair({f}, {n}).left
- | weighted.weight = {n}
- | weighted.weight = {f}
- | appends({n})
- | appends({f})
n | {new} = operator.mul(*(pair.right, {k}))
n | {new} = Pair(*pair).right
""",
        """
weighted.weight = 3.0
weighted.weight = torch.ones(3)
pair = Pair(torch.ones(3), 4)
pair = pair._replace(right=5)
number()
class Third(Slotted): pass
Appends.__call__ = staticmethod(lambda value: None)
""",
    ),
    "box": Object(
        """
@dataclasses.dataclass
class Box:
    value: torch.Tensor
    count: int = 0
    items: list = dataclasses.field(default_factory=list)
    factor = 2.0

    @property
    def double(self):
        return self.value * 2

    @double.setter
    def double(self, value):
        self.value = value / 2

    def scaled(self, by=1.0):
        self.count += 1
        return self.value * self.factor * by

    def __len__(self):
        return len(self.items)

box = Box(torch.tensor([0.5, -1.0, 2.0]))
""",
        """
f | {new} = {f} + box.value
f | {new} = {f} * box.count
f | {new} = {f} + box.double
f | {new} = box.scaled({n}) + {f}
f | {new} = {f} * box.factor
f | {new} = {f} * len(box)
f | {new} = {f} * (1 if box else 2)
f | {new} = dataclasses.replace(box, value={f}).value
f | {new} = {f} * getattr(box, "extra", 3)
f | {new} = {f} * len(vars(box))
f | {new} = operator.attrgetter("value")(box) + {f}
f | {new} = functools.partial(getattr, box)("value") + {f}
f | {new} = {f} * weakref.proxy(box).count
f | {new} = {f} * float("{0.count}".format(box))
f | {new} = {f} * box.scaled.__func__(box, 2.0)
- | box.value = {f}
- | box.value = box.value + {f}.sum()
- | box.value.add_({n})
- | box.value += 1
- | box.count += 1
- | box.count = {n}
- | box.items.append({f})
- | box.items.append({n})
- | box.double = {f}
- | box.extra = {n}
- | Box.factor = {n}
- | setattr(box, "name", {n})
- | box.__dict__["count"] = {k}
- | box.items = [*box.items, 1]
n | {new} = hasattr(box, "extra")
n | {new} = box == box
n | {new} = dataclasses.asdict(box)["count"]
n | {new} = repr(box.count)
""",
        """
box.value = torch.ones(3)
box.count += 1
box.count = 2.5
box.items.append(1)
Box.factor = 3.0
box.factor = 5.0
Box.scaled = lambda self, by=1.0: self.value - by
Box.double = property(lambda self: self.value * 3)
box = Box(torch.zeros(1), 3, [1])
box.extra = 4
Box.__len__ = lambda self: 2
box.value.requires_grad_()
box.value = x
Box.__getattribute__ = lambda self, name: 7 if name == "count" else object.__getattribute__(self, name)
box.scaled = lambda by=1.0: box.value + by
Box.__bool__ = lambda self: True
Box.__setattr__ = lambda self, name, value: object.__setattr__(self, name, value)
""",
    ),
    "net": Object(
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.0, -0.5, 2.0]))
        self.register_buffer("steps", torch.zeros(()))
        self.norm = nn.BatchNorm1d(3)
        self.drop = nn.Dropout(0.5)
        self.limit = 1.0

    def forward(self, t):
        self.steps += 1
        if self.training:
            t = t + 0.5
        return t * self.scale * self.limit

net = Net()
""",
        """
f | {new} = net({f})
f | {new} = net({f}) + net({f})
f | {new} = net.forward({f})
f | {new} = {f} * net.scale
f | {new} = {f} + net.steps
f | {new} = net.norm({f})
f | {new} = net.drop({f})
f | {new} = {f} * net.limit
f | {new} = sum(p.sum() for p in net.parameters()) + {f}
f | {new} = {f} * len(list(net.named_modules()))
f | {new} = {f} * len(net.state_dict())
f | {new} = copy.deepcopy(net)({f})
f | {new} = net.scale
f | {new} = net.scale.data
f | {new} = net.get_buffer("steps") + {f}
f | {new} = nn.Sequential(net, nn.Tanh())({f})
f | {new} = nn.Linear(3, 2)({f})
f | {new} = {f} * net.training
- | net.limit = {n}
- | net.steps.add_(1)
- | net.steps = net.steps + 1
- | net.train(not net.training)
- | net.eval()
- | net.zero_grad()
- | net.extra = {f}
- | net.extra = nn.Parameter({f}.detach().clone())
- | net.register_buffer("extra", {f}.detach())
- | net.scale.data.mul_(2)
- | net.scale.requires_grad_(False)
- | net.scale.grad = None
- | net({f}).sum().backward()
- | net.register_forward_hook(lambda module, args, output: output * 2)
- | net.scale = nn.Parameter(net.scale.detach() * 2)
- | net.half = nn.Identity()
- | for p in net.parameters(): p.grad = torch.ones_like(p)
- | torch.optim.SGD(net.parameters(), 0.1).step()
- | with torch.no_grad(): net.scale.add_(1)
- | nn.init.ones_(net.scale)
- | net.load_state_dict(net.state_dict())
n | {new} = net.training
n | {new} = [name for name, _ in net.named_parameters()][0]
""",
        """
net.eval()
net.train()
net.limit = 3.0
net.scale = nn.Parameter(torch.ones(3))
net.scale.requires_grad_(False)
net.register_forward_hook(lambda module, args, output: output + 1)
net.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
net.register_full_backward_hook(lambda module, before, after: outside.append("hook"))
net.steps.zero_()
net.forward = lambda t: t - 1
Net.forward = lambda self, t: t * self.scale
net.norm = nn.Identity()
net.drop.p = 0.25
net.double().float()
net = Net()
net.scale.data = torch.ones(3)
net.register_buffer("steps", torch.ones(3))
net.zero_grad()
torch.nn.utils.parametrizations.weight_norm(net, "scale", dim=0)
Net.__call__ = lambda self, t: t + 9
nn.Module.__call__ = lambda self, *args: self.forward(*args) * 2
del net.steps; net.steps = 5
net.scale.register_hook(lambda g: g * 3)
net.requires_grad_(False)
net.to(torch.float64)
torch.nn.modules.module.register_module_forward_hook(lambda module, args, output: output).remove()
""",
    ),
    "counter": Object(
        """
def make_counter():
    count, seen = 0, []

    def counter(t, by=1):
        nonlocal count
        count += by
        seen.append(count)
        return t * count

    return counter

counter = make_counter()
""",
        """
f | {new} = counter({f})
f | {new} = counter({f}, by={k})
f | {new} = make_counter()({f})
- | counter.calls = getattr(counter, "calls", 0) + 1
f | {new} = {f} * counter.__closure__[0].cell_contents
f | {new} = list(map(counter, [{f}, {f}]))[-1]
""",
        """
counter(1)
counter = make_counter()
counter.__defaults__ = (3,)
counter.__closure__[0].cell_contents = 7
counter.calls = 5
counter.__code__ = (lambda t, by=1: (count, seen) and t).__code__ if False else counter.__code__
make_counter = lambda: helper
counter = helper
""",
    ),
    "kept": Object(
        """
@functools.lru_cache(maxsize=None)
def kept(n, fill=1.0):
    return torch.full((3,), float(n)) * fill

@functools.cache
def notes(n):
    return [n]

@functools.lru_cache(maxsize=2)
def summed(t):
    return t.sum()
""",
        """
f | {new} = {f} + kept({k})
f | {new} = kept({k}, fill={k})
f | {new} = {f} * len(notes({k}))
f | {new} = {f} + summed(x)
f | {new} = {f} * kept(2).sum().item()
- | kept({k}).add_({n})
- | notes({k}).append({n})
- | notes({k}).append({f})
- | kept({k})[0] = {n}
n | {new} = notes(1)[-1] is notes(1)[0]
n | {new} = kept(1) is kept(1)
""",
        """
kept(1).add_(1)
kept(2)
notes(1).append(4)
notes(2)
kept = functools.cache(lambda n, fill=2.0: torch.ones(3) * n)
summed(x)
x.add_(1)
""",
    ),
    "SCALE": Object(
        "SCALE = 2.0",
        """
f | {new} = {f} * SCALE
f | {new} = {f} + globals()["SCALE"]
n | {new} = SCALE
f | {new} = {f} if SCALE > 1 else -{f}
f | {new} = {f}.clamp(max=SCALE)
f | {new} = torch.full((2,), SCALE)
""",
        """
SCALE = -1.0
SCALE = 2
SCALE = float("nan")
SCALE = -0.0
SCALE = torch.tensor(3.0)
SCALE = np.float32(1.5)
SCALE = True
globals().update(SCALE=0.5)
""",
    ),
    "grid": Object(
        "grid = np.array([0.5, -1.0, 2.0], dtype=np.float32)",
        """
f | {new} = {f} + torch.from_numpy(grid)
f | {new} = {f} * torch.tensor(grid)
f | {new} = {f} * grid[0]
f | {new} = {f} * float(grid.sum())
f | {new} = {f} + torch.as_tensor(grid)
f | {new} = {f}[..., grid[:1].astype(int)]
f | {new} = torch.from_numpy(grid)
f | {new} = {f}.new_tensor(grid)
f | {new} = torch.from_numpy(grid[::-1].copy())
f | {new} = {f} * grid.shape[0]
f | {new} = {f} * (grid > 0).sum()
f | {new} = {f} + torch.asarray(grid)
f | {new} = {f} + torch.tensor(np.sin(grid))
- | grid[0] = {n}
- | grid += 1
- | torch.from_numpy(grid).add_(1)
- | grid.fill({n})
n | {new} = grid[1]
n | {new} = grid.tolist()[0]
n | {new} = int(grid.argmax())
""",
        """
grid[0] = 3.0
grid *= 2
grid = np.array([1, 2, 3])
grid = grid[::-1]
grid.setflags(write=False)
grid = np.zeros(3, dtype=np.float32)
grid.sort()
""",
    ),
    "cell": Object(
        """
class Once:
    def __get__(self, owner, kind):
        owner.__dict__["made"] = owner.made_by() * 2
        return owner.made

class Named:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, owner, kind=None):
        return getattr(owner, self.name, 1.0)

    def __set__(self, owner, value):
        self.last = value
        setattr(owner, self.name, value)

class Cell:
    made = Once()
    size = Named()
    shared = []

    def __init__(self):
        self.hits = 0

    def made_by(self):
        return torch.ones(3) * self.size

    def __call__(self, t):
        self.hits += 1
        return t + self.hits

    def __getattr__(self, name):
        if name.startswith("auto"):
            return len(name)
        raise AttributeError(name)

    def __getitem__(self, key):
        return (self.hits, self.hits + 1, 2, 3)[key]

    def __add__(self, other):
        return other * 2

    def __radd__(self, other):
        return other * 3

    def __contains__(self, item):
        return self.hits > 1

    def __iter__(self):
        yield self.hits
        yield 2.0

    def __eq__(self, other):
        return isinstance(other, Cell)

    def __hash__(self):
        return 5

    @classmethod
    def build(cls, t):
        cls.shared.append(1)
        return t * len(cls.shared)

    @staticmethod
    def plain(t):
        return t - 1

    @functools.cached_property
    def cached(self):
        return torch.full((3,), 2.0)

    @functools.lru_cache(maxsize=4)
    def kept(self, n):
        return n + 1

cell = Cell()
""",
        """
f | {new} = cell({f})
f | {new} = {f} * cell.made
f | {new} = {f} * cell.size
f | {new} = {f} * cell.automatic
f | {new} = {f} * cell[{k}]
f | {new} = cell + {f}
f | {new} = {f} + cell
f | {new} = {f} * ({k} in cell)
f | {new} = sum(cell) * {f}
f | {new} = Cell.build({f})
f | {new} = cell.build({f})
f | {new} = Cell.plain({f})
f | {new} = {f} * cell.cached
f | {new} = {f} * cell.kept({k})
f | {new} = {f} * (cell == Cell())
f | {new} = {f} * {{cell: 4}}[Cell()]
f | {new} = {f} * Cell().size
f | {new} = Cell()({f})
- | cell.hits += 1
- | cell.size = {n}
- | cell.size = {f}
- | Cell.shared.append({n})
- | cell.own = {f}
- | del cell.hits
- | Cell.extra = {n}
n | {new} = cell.hits
n | {new} = [*cell][0]
n | {new} = isinstance(cell, Cell)
n | {new} = getattr(cell, "own", None) is None
""",
        """
cell.hits = 5
cell.size = 4.0
Cell.shared.append(2)
Cell.__call__ = lambda self, t: t - 3
Cell.plain = staticmethod(lambda t: t + 10)
Cell.build = classmethod(lambda cls, t: t)
Cell.__getitem__ = lambda self, key: (6, 6, 6, 6)[key]
Cell.__iter__ = lambda self: iter([1.0])
Cell.__add__ = lambda self, other: other
cell.cached = torch.zeros(3)
cell = Cell()
cell.__class__ = type("Other", (Cell,), {"size": 9.0})
Cell.__getattr__ = lambda self, name: 11
cell.automatic = 2
Cell.__contains__ = lambda self, item: True
del Cell.__iter__
Cell.kept.cache_clear()
""",
    ),
    "others": Object(
        """
queue = collections.deque([1.0, 2.0], maxlen=3)
names = {"a", "b"}
counts = collections.Counter("aab")
rows = collections.defaultdict(list)
ones = iter([1, 2, 3, 4, 5, 6, 7])
squares = (number ** 2 for number in range(9))
pair = Point(torch.tensor([1.0, 1.0, 0.0]), 3)
text = "ab"
frozen = types.MappingProxyType(counts)
memory = bytearray(b"ab")

class Color(enum.Enum):
    RED = 1
    BLUE = 2

color = Color.RED

class Slots:
    __slots__ = ("one", "two")

slots = Slots()
slots.one = 1.0

class MyList(list):
    def __getitem__(self, key):
        return super().__getitem__(key) * 2

mine = MyList([1, 2])

class Tagged(torch.Tensor):
    pass
""",
        """
f | {new} = {f} * queue[0]
f | {new} = {f} * len(names)
f | {new} = {f} * counts["a"]
f | {new} = {f} * len(rows["x"])
f | {new} = {f} * next(ones)
f | {new} = {f} * next(squares)
f | {new} = {f} * pair.x + pair.y
f | {new} = {f} * len(text)
f | {new} = {f} * frozen["a"]
f | {new} = {f} * memory[0]
f | {new} = {f} * color.value
f | {new} = {f} * slots.one
f | {new} = {f} * mine[0]
f | {new} = {f} * (color is Color.RED)
f | {new} = {f} * sum(queue)
f | {new} = {f} * ("a" in names)
f | {new} = {f} * len(counts.most_common())
f | {new} = {f} * hasattr(slots, "two")
f | {new} = {f} * sum(mine)
f | {new} = {f} * len(memory)
f | {new} = {f}.as_subclass(Tagged) * 2
f | {new} = torch.frombuffer(memory, dtype=torch.uint8).sum() * {f}
f | {new} = {f} * len(list(squares))
f | {new} = {f} + max(queue)
- | queue.append({n})
- | queue.append({f})
- | queue.rotate(1)
- | queue.popleft()
- | names.add({n})
- | names.discard("a")
- | counts["a"] += 1
- | counts.update("b")
- | rows["x"].append({f})
- | rows[{k}].append({n})
- | slots.two = {n}
- | slots.one = {f}
- | memory[0] = 9
- | mine.append({k})
- | mine[0] = {n}
- | names |= {{"c"}}
""",
        """
queue.append(5.0)
names.add("c")
counts["a"] = 7
rows["x"].append(1)
next(ones)
next(squares)
pair = pair._replace(y=4)
text = "abc"
memory[0] = 5
color = Color.BLUE
slots.one = -1.0
slots.two = 1
mine[0] = 8
MyList.__getitem__ = list.__getitem__
queue.clear()
ones = iter([3, 3])
names = frozenset(names)
squares = iter([5, 6])
Color.RED._value_ = 4
""",
    ),
    "state": Object(
        "drawn = torch.Generator().manual_seed(3)",
        """
f | {new} = torch.rand(3, generator=drawn) + {f}
f | {new} = {f} * torch.rand(2, generator=drawn).sum().item()
f | {new} = torch.randperm(3, generator=drawn) + {f}
- | drawn.manual_seed({k})
f | {new} = torch.zeros(3) + {f}
f | {new} = torch.ones(3, dtype=torch.get_default_dtype()) * {f}
f | {new} = torch.tensor(1.5) * {f}
f | {new} = {f} * torch.get_num_threads()
f | {new} = {f} * torch.are_deterministic_algorithms_enabled()
f | {new} = {f} * torch.is_grad_enabled()
f | {new} = {f} * torch.is_inference_mode_enabled()
f | {new} = {f} * torch.backends.mkldnn.enabled
f | {new} = {f} @ {f}.mT
f | {new} = torch.rand(3) + {f}
f | {new} = torch.sin({f})
f | {new} = {f}.cos()
f | {new} = F.gelu({f})
f | {new} = {f} * math.sqrt(2)
f | {new} = torch.randperm(3) + {f}
- | torch.manual_seed({k})
- | torch.set_default_dtype(torch.float64)
- | torch.set_default_dtype(torch.float32)
- | torch.use_deterministic_algorithms(True)
- | torch.use_deterministic_algorithms(False)
- | torch.set_grad_enabled(False)
- | torch.set_grad_enabled(True)
- | torch.set_autocast_enabled("cpu", True)
f | {new} = torch.einsum("ij,kj->ik", {f}, {f}) + torch.tensordot({f}, {f}, dims=([-1], [-1])).sum()
f | {new} = F.bilinear({f}, {f}, torch.ones(2, 3, 3))
f | {new} = F.nll_loss(torch.log_softmax({f}.reshape(1, -1), -1), torch.tensor([0]))
f | {new} = torch.linalg.multi_dot([{f}, {f}.mT, {f}])
f | {new} = F.scaled_dot_product_attention({f}[None], {f}[None], {f}[None])
f | {new} = F.conv1d({f}[None], torch.ones(1, {f}.shape[0], 1))
""",
        """
torch.set_default_dtype(torch.float64)
drawn.manual_seed(7)
drawn = torch.Generator().manual_seed(3)
torch.manual_seed(7)
torch.use_deterministic_algorithms(True)
torch.Tensor.cos = lambda self: self * 5
torch.sin = lambda t: t + 3
F.gelu = torch.relu

torch.set_default_device("meta")
torch.set_default_device("cpu")
torch.set_autocast_enabled("cpu", True)
torch.set_grad_enabled(False)
""",
    ),
}
