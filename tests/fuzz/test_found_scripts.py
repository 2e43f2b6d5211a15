"""Scripts that random ones were reduced to, and that failed: each shows the same compiled and in eager."""

from __future__ import annotations

import pytest

from tests.fuzz.scripts import compare

pytestmark = pytest.mark.filterwarnings("ignore")

_CALLS = """
f = jit(program)
with seen():
    r0 = f(x)
with seen():
    r1 = f(x)
"""
# name: a script, or what goes before two calls of `program` with `x`
_SCRIPTS = {
    "input that is copied to a result after it is written to": """
x = torch.tensor([-1.0, -2.0])
def program(x):
    before = x * 1
    x.add_(1)
    return before, before * 1
""",
    "NaN made inside, which is another object at each call": """
x, seen_before = torch.ones(2), set()
def program(x):
    seen_before.add(float("nan"))
    return x * 2
""",
    "NaN from outside, which stays the same object": """
x, seen_before, nan = torch.ones(2), set(), float("nan")
def program(x):
    seen_before.add(nan)
    return x * 2
""",
    "input that is refused in a try and shares memory with what is written to after it": """
base = torch.ones(3).requires_grad_() * 1
x = base.detach()
def program(x):
    try:
        y = x + base
    except Exception:
        y = x * 2
    x.add_(1)
    return y
""",
    "view made under no_grad, which requires grad as what it shows": """
x = nn.Parameter(torch.ones(3))
def program(x):
    with torch.no_grad():
        return x.broadcast_to(2, 3).requires_grad, x[0].requires_grad, (x * 2).requires_grad
""",
    "view of an input that requires grad from then on": """
x = torch.ones(2, 2)
def program(x):
    view = x.reshape(-1)
    x.requires_grad_()
    return view, x
""",
    "tensor that required grad for a while under no_grad": """
x, w = torch.ones(2), nn.Parameter(torch.ones(2))
def program(x):
    with torch.no_grad():
        y = x * w
        y.requires_grad_()
        y.tanh_()
        y.requires_grad_(False)
        return y
""",
    "parameter made in inference mode": """
x = torch.ones(2)
def program(x):
    with torch.inference_mode():
        return nn.Parameter(x.clone())
""",
    "method that makes a tensor of the user's class": """
class Tagged(torch.Tensor): pass
x = torch.ones(2)
def program(x):
    return x.as_subclass(Tagged).new_tensor([1.0]), x.as_subclass(Tagged).new(2).shape
""",
    "input that a backward needs, written by way of another input": """
x, w = torch.ones(3), nn.Parameter(torch.ones(3))
y = x[:1]
def program(x, y):
    product = x * w
    y += 1
    return product
f = jit(program)
with seen():
    r0 = f(x, y)
with seen():
    backward(r0)
""",
    "error that kernels for the meta device do not raise": """
x = torch.ones(3, device="meta")
reached = []
def program(x):
    with contextlib.suppress(RuntimeError):
        torch.zeros(2, dtype=torch.uint8, device="meta").mul_(1.5)
        reached.append(1)
        x.expand(2, 3).add_(1)
        reached.append(2)
    return x * 2
""",
    "leaf that random numbers are written to": """
x = nn.Parameter(torch.ones(3))
def program(x):
    with contextlib.suppress(RuntimeError):
        x.normal_()
    return x * 2
""",
    "view of a leaf that is written to": """
leaf = nn.Parameter(torch.ones(3))
x = leaf.unsqueeze(0)
def program(x):
    with contextlib.suppress(RuntimeError):
        x.add_(1)
    return x * 2
""",
    "view of a leaf, after a view of a result": """
def program(x):
    x.add_(1)
    return x * 2
f = jit(program)
leaf = nn.Parameter(torch.ones(3))
x, y = leaf.unsqueeze(0), (leaf * 2).unsqueeze(0)
with seen():
    r0 = f(y)
with seen():
    r1 = f(x)
with seen():
    with torch.no_grad():
        r2 = f(x)
""",
    "number as out=": """
x = 3
def program(x):
    return torch.add(x, x, out=x)
""",
    "tensor that functionalize leaves behind": """
x = torch.ones(2)
class Box: pass
box = Box()
box.value = torch.ones(1)
def program(x):
    y = box.value.add_(3) * 2
    box.value = x
    return y
f = jit(program)
r0 = torch.func.functionalize(lambda x: f(x))(x)
r1 = f(x)
del box.value
with seen():
    pass
""",
    "running statistics before an operation that raises": """
x, norm = torch.tensor([[0.125, 0.0, 0.0], [0.0, 2.0, 3.0]]), nn.BatchNorm1d(3)
def program(x):
    F.nll_loss(norm(x).reshape(-1), torch.tensor([77]))
""",
    "view of an input that is resized": """
x = torch.arange(6.0).reshape(2, 3)
def program(x):
    view = x[None]
    x.resize_(2, 2)
    return view
""",
    "filled by a mask, transposed and requires grad": """
x = nn.Parameter(torch.ones(2, 3)).t()
def program(x):
    y = x * 2
    y.masked_fill_(x > 2, 0.5)
    z = x * 2
    z.scatter_(-1, torch.zeros_like(x, dtype=torch.long), 0.5)
    return y, z
""",
    "copy, which has a version counter of its own": """
x = torch.ones(2)
def program(x):
    return copy.copy(x)
f = jit(program)
with seen():
    r0 = f(x)
with seen():
    x.add_(1)
with seen():
    with torch.inference_mode():
        r1 = f(x)
""",
    "custom function under a function mode": """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        return t * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2
class Counting(torch.overrides.TorchFunctionMode):
    count = 0
    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        Counting.count += 1
        return function(*args, **kwargs or {})
x = nn.Parameter(torch.ones(2))
def program(x):
    with Counting():
        return Twice.apply(x)
""",
    "gradients of a gradient, which requires grad where it depends on what does": """
x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
def program(x, w):
    return x * 2, x * w, (x * w).sum(), torch.relu(x), x.exp() + w, F.softmax(x, 0), x.detach() * w
f = jit(program)
for i in range(7):
    with seen():
        r0 = f(x, w)
        r1 = torch.autograd.grad(r0[i].sum(), [x, w], create_graph=True, allow_unused=True)
    with seen():
        r0 = f(x, w)
        ones = [torch.ones_like(r0[i], requires_grad=True)]
        r1 = torch.autograd.grad(r0[i], [x, w], ones, create_graph=True, allow_unused=True)
        del ones
del r0
""",
    "gradients of a gradient of several results": """
x, w = torch.ones(2, 3, requires_grad=True), torch.ones(3, requires_grad=True)
def program(x, w):
    with torch.no_grad():
        scale = w * 2
    return x * scale, F.layer_norm(x, (3,), w), F.dropout(x, 0.5), x.amax(0), x.sort(0)[0] * 3
f = jit(program)
for mask in range(1, 32):
    with seen():
        r0 = f(x, w)
        results = [result.sum() for i, result in enumerate(r0) if mask >> i & 1]
        r1 = torch.autograd.grad(results, [x, w], create_graph=True, allow_unused=True)
    del r0, results
""",
    "gradient of an input that is resized": """
x = torch.ones(2, 3)
def program(x):
    x.grad = x.clone()
    x.resize_(2, 2)
""",
    "retain_grad on an input that retains its gradient, then on one that does not": """
x = torch.ones(2, requires_grad=True)
y = x + 2
y.retain_grad()
def program(x, y):
    y.retain_grad()
    return y
f = jit(program)
r0 = f(x, y)
y = x + 2
r1 = f(x, y)
with seen():
    backward(r1)
""",
    "requires_grad_(False) on an input that another input is a view of": """
x = torch.ones(2)
y = x[1:]
def program(x, y):
    x.requires_grad_(not x.requires_grad)
    return y * 3
f = jit(program)
for _ in range(3):
    with seen():
        r0 = f(x, y)
del r0
""",
    "detach_ of a tensor without a history, whose view is returned": """
x = torch.ones(2, 1)
def program(x):
    v = x.view(-1)
    x.detach_()
    return v
f = jit(program)
r0 = f(x)
with seen():
    r0.mul_(2)
""",
    "keys of a dict that is emptied and filled again": """
table = {"a": 1, "b": 2}
def program():
    table.pop("c", None)
    table.clear()
    table.update(c=3)
    table.setdefault("d")
f = jit(program)
for _ in range(3):
    with seen():
        f()
""",
    "random numbers before an operation that fails, in a program that looked at data": """
x = torch.ones(3)
def program(x):
    if x.sum() > 50:
        return x
    v = torch.rand(2)
    try:
        torch.linalg.inv(torch.zeros(2, 2))
    except RuntimeError:
        v = v + 1
    return v
f = jit(program)
for _ in range(3):
    with seen():
        r0 = f(x)
""",
    "a leaf made inside, returned with a view of it": """
x = torch.tensor([[2.0]])
def program(x):
    v = nn.Parameter(x.clone())
    return v, v.expand(3, 1)
f = jit(program)
r0 = f(x)
with seen():
    backward(r0)
""",
    "a product with itself in place, and its backward": """
x = torch.tensor([0.5, 2.0], requires_grad=True)
def program(x):
    v = x * 3
    v.mul_(v)
    return v
f = jit(program)
r0 = f(x)
with seen():
    backward(r0)
""",
    "a second backward through a product with a number": """
x = torch.tensor([0.5, 2.0], requires_grad=True)
def program(x):
    v = (x * 2.5).sum()
    for _ in range(2):
        try:
            v.backward()
        except RuntimeError:
            pass
f = jit(program)
with seen():
    f(x)
""",
    "a write to an input that retains its gradient": """
x = torch.tensor([0.5, 2.0], requires_grad=True)
y = x * 1
y.retain_grad()
def program(y):
    y.add_(1)
    return y * 2
f = jit(program)
with seen():
    r0 = f(y)
with seen():
    backward(r0)
""",
    "t_ under no_grad": """
x = torch.ones(3, 2, requires_grad=True)
def program(x):
    v = x * 2
    with torch.no_grad():
        v.t_()
    return v
f = jit(program)
r0 = f(x)
with seen():
    backward(r0)
""",
    "the version of a deep copy": """
x = torch.ones(2)
def program(x):
    return copy.deepcopy(x.detach())._version, copy.deepcopy(x)
f = jit(program)
for _ in range(2):
    with seen():
        r0 = f(x)
""",
    "an array that becomes read-only": """
grid = np.ones(2)
def program():
    grid.fill(1)
f = jit(program)
with seen():
    f()
grid.setflags(write=False)
with seen():
    f()
""",
    "an inference tensor that is written to in inference mode": """
x = torch.ones(1)
table = {"b": torch.ones(1)}
def program(x):
    with torch.inference_mode():
        table["b"].add_(1)
        x = x * 2
    table.update(b=x)
f = jit(program)
for _ in range(3):
    with seen():
        f(x)
""",
    "hooks on inputs that a backward does not reach": """
x = torch.tensor([0.5], requires_grad=True)
leaf = torch.tensor([2.0], requires_grad=True)
y = leaf * 3
gradients = []
y.register_hook(lambda g: gradients.append(g))
leaf.register_hook(lambda g: gradients.append(g))
def program(x, y, leaf):
    return x * 2, y * 3, leaf * 2
f = jit(program)
r0 = f(x, y, leaf)
with seen():
    r0[0].sum().backward(retain_graph=True)
with seen():
    r0[1].sum().backward(retain_graph=True)
with seen():
    r0[2].sum().backward()
""",
    "hooks on outputs of one node, of which a backward reaches some": """
x = torch.tensor([0.5], requires_grad=True)
leaf = torch.tensor([2.0], requires_grad=True)
u, v = (leaf * torch.ones(2)).unbind()
gradients = []
u.register_hook(lambda g: gradients.append(("u", g)))
v.register_hook(lambda g: gradients.append(("v", g)))
def program(x, u, v):
    return x * u, v * 3
f = jit(program)
r0 = f(x, u, v)
with seen():
    r0[0].sum().backward(retain_graph=True)
with seen():
    r0[1].sum().backward(retain_graph=True)
""",
    "hooks that were spared, in a backward that goes another way": """
class First(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2, None
x = torch.tensor([0.5], requires_grad=True)
y = torch.tensor([2.0], requires_grad=True)
gradients = []
y.register_hook(lambda g: gradients.append(g))
y.register_post_accumulate_grad_hook(lambda leaf: gradients.append("accumulated"))
def program(x, y):
    return x * 2, y * 3
f = jit(program)
r0 = f(x, y)
with seen():
    r0[0].sum().backward(retain_graph=True)
with seen():
    First.apply(x, y).sum().backward()
with seen():
    r0[1].sum().backward(retain_graph=True)
with seen():
    (r0[0] + y).sum().backward(retain_graph=True)
""",
    "grad of a complex result": """
x = torch.ones(2, dtype=torch.complex64)
def program(x):
    try:
        return func.grad(lambda t: t.sum())(x)
    except RuntimeError:
        return x
f = jit(program)
with seen():
    r0 = f(x)
""",
    "tensor that left a gradient, which is found again": """
x, kept = torch.zeros(3), []
def program(x):
    kept.append(func.grad(lambda row: row.sum())(x))
    return x * 2
f = jit(program)
with contextlib.suppress(Exception):
    torch.func.jacrev(f)(x)
r0 = f(x)
del kept, r0
with seen():
    pass
""",
    "array that is written to between calls, in a program that looks at data": """
x, grid = torch.tensor([3.0, 0.5, -2.0]), np.array([0.5, -1.0, 2.0])
def program(x, grid):
    product = x * torch.tensor(grid)
    while product.sum() > 50:
        pass
    return product
f = jit(program)
with seen():
    r0 = f(x, grid)
grid *= 2
with seen():
    r1 = f(x, grid)
""",
    "array over the memory of a tensor that is written to": """
x, array = torch.tensor([-2.0, 1.0]), np.ones(2)
def program(x, array):
    x.add_(1)
    return array + 1
f = jit(program)
with seen():
    r0 = f(x, array)
with seen():
    r1 = f(x, x.numpy())
with seen():
    r2 = f(torch.zeros(2), array)
""",
    "tensors of two memories over one array, one of which is written to": """
array = np.ones(2)
x, y = torch.from_numpy(array), torch.from_numpy(array)
def program(x, y):
    x.add_(1)
    return y * 2
f = jit(program)
with seen():
    r0 = f(torch.ones(2), y)
with seen():
    r1 = f(x, y)
""",
    "operation that draws random numbers and raises": """
x = torch.ones(2, 2, dtype=torch.complex64)
def program(x):
    for draw in (F.dropout, torch.Tensor.random_, torch.Tensor.bernoulli_, lambda x: torch.randint(0, 0, (1,))):
        try:
            draw(x)
        except RuntimeError as error:
            print(error)
    return torch.rand(1)
""",
    "hook on a view that is returned": """
leaf = nn.Parameter(torch.ones(2, 2))
x = leaf
def program(x):
    view = x.view(4)
    view.register_hook(lambda gradient: gradient * 2)
    computed = (x * 3).t()
    computed.register_hook(lambda gradient: gradient * 5)
    return view, view[0], computed
f = jit(program)
for i in range(3):
    with seen():
        r0 = f(x)
        backward(r0[i])
""",
    "view under no_grad of a leaf made inside": """
x = torch.ones(2, 2)
def program(x):
    leaf = x.detach().requires_grad_()
    with torch.no_grad():
        return leaf.view(-1)
""",
    "hook, and a tensor made of tensors, under a function mode": """
class Counting(torch.overrides.TorchFunctionMode):
    count = 0
    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        Counting.count += 1
        return function(*args, **kwargs or {})
x = torch.ones(2, requires_grad=True)
def program(x):
    with Counting():
        y = x * 2
        y.register_hook(lambda gradient: gradient * 2)
        return y * torch.tensor([x.sum(), 2.0]), torch.FloatTensor([x.detach().sum(), 1.0])
""",
    "gradient by what an input was computed from outside": """
x = torch.ones(2, requires_grad=True)
y, z = x * 3, torch.ones(2, requires_grad=True) * 3
def program(x, y):
    return torch.autograd.grad((x * y).sum(), x)
f = jit(program)
with seen():
    r0 = f(x, z)
with seen():
    r1 = f(x, y)
with seen():
    r2 = f(x, z)
""",
    "gradients by what nobody asks for": """
x, w = torch.ones(2, requires_grad=True), nn.Parameter(torch.tensor(2.0))
def program(x, w):
    return x * w
f = jit(program)
with seen():
    r0 = f(x, w)
x = x.detach().to("meta").requires_grad_()
with seen():
    r1 = f(x, w)
with seen():
    r2 = torch.autograd.grad(r1.sum(), x)
""",
    "variable that is assigned anew after a checkpoint that reads it": """
x = torch.tensor([2.0, 3.0], requires_grad=True)
def program(x):
    product = checkpoint(lambda t: t * x, x, use_reentrant=False)
    x = product
    return x * 2
f = jit(program)
with seen():
    r0 = f(x)
    backward(r0)
""",
    "gradients of a reentrant checkpoint, with a graph": """
x = torch.tensor([2.0, 3.0], requires_grad=True)
def program(x, reentrant):
    return checkpoint(torch.sin, x, use_reentrant=reentrant)
f = jit(program)
with seen():
    backward(f(x, True), create_graph=True)
with seen():
    backward(f(x, False), create_graph=True)
""",
    "input that is detached in place, and that is a view at some calls": """
def program(x):
    try:
        x.detach_()
    except RuntimeError:
        return x * 2
    return x * 3
f = jit(program)
with seen():
    r0 = f(torch.ones(2))
x = torch.ones(2, 2)[0]
with seen():
    r1 = f(x)
x = torch.ones(2, 2)[0].requires_grad_()
with seen():
    r2 = f(x)
""",
    "one of several views that is used after a write to their memory": """
x = torch.ones(2, 3, requires_grad=True)
def program(x):
    try:
        for row in x.unbind(0):
            row.detach().add_(0.5)
            product = row * 2
    except RuntimeError:
        return x * 3
    return product
""",
    "tensor on the meta device that is made inside of data": """
x = torch.ones(2)
def program(x):
    with torch.device("meta"):
        return torch.tensor([1.0, 2.0]), torch.tensor(3, device="meta"), x.new_tensor([1.0])
f = jit(program)
with seen():
    r0 = f(x)
with seen():
    r1 = f(x)
x = x.to("meta")
with seen():
    r2 = f(x)
with seen():
    r3 = f(x)
""",
    "foreach with a leaf among the targets": """
x, y = torch.ones(2), torch.ones(2, requires_grad=True)
def program(x, y):
    for targets in ([x, y], [y]):
        try:
            torch._foreach_add_(targets, 1)
        except RuntimeError:
            pass
    with torch.no_grad():
        torch._foreach_mul_([x, y], 3)
    return x * y
""",
    "input resized and turned": """
x, y = torch.ones(1, 3), torch.ones(3, 1)
def program(x, y):
    x.resize_(2)
    x.unsqueeze_(0)
    y.t_()
    y.resize_(2)
    return x + y
""",
    "gradient of what is turned afterwards": """
x = torch.ones(2, 3)
def program(x):
    x = x * 2
    x.grad = x.clone()
    x.unsqueeze_(0)
    return x
""",
    "gradients stop at data, detach and copies": """
x = torch.ones(2, 3, requires_grad=True)
def program(x):
    return [copy.copy(x) * 2, x.data.requires_grad_() * 2, x.detach().requires_grad_() * 3, copy.copy(x * 2) * 1]
f = jit(program)
for i in range(4):
    with seen():
        r0 = f(x)
        backward(r0[i])
""",
    "complex gradient of real numbers": """
class Times(torch.autograd.Function):
    @staticmethod
    def forward(t, u):
        return t * u
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
    @staticmethod
    def backward(ctx, g):
        t, u = ctx.saved_tensors
        return g * u, g * t
x, y = torch.ones(3, dtype=torch.complex64), torch.ones(3, requires_grad=True)
def program(x, y):
    return Times.apply(x, y)
f = jit(program)
with seen():
    r0 = f(x, y)
    backward(r0)
""",
    "hook on an argument of a function that is differentiated": """
x = torch.tensor([2.0, 3.0])
def program(x):
    def inner(t):
        t.register_hook(lambda gradient: gradient * 10)
        return (t * t).sum()
    return func.grad(inner)(x), func.vjp(inner, x)[1](torch.ones(()))
""",
    "view made under no_grad of what requires grad, written to and returned": """
x = torch.ones(2, 2, requires_grad=True)
def program(x):
    with torch.no_grad():
        view, row = x[0], (x * 2)[0]
        view.add_(1)
        row.mul_(3)
    return view, row
f = jit(program)
with seen():
    r0 = f(x)
with seen():
    r1 = r0[1] * 2
with seen():
    r2 = r0[0] * 2
""",
    "pullback of torch.func that is returned": """
x = torch.tensor([2.0, 3.0])
def program(x):
    return torch.func.vjp(torch.sin, x)[1]
f = jit(program)
with seen():
    r0 = f(x)(torch.ones(2))
with seen():
    r1 = f(x * 2)(torch.ones(2))
""",
    "versions of shallow copies": """
x = torch.ones(2)
def program(x):
    product = x * 2
    product.add_(1)
    leaf = product.detach().requires_grad_()
    return [copy.copy(each)._version for each in (product, leaf, nn.Parameter(product))]
""",
    "hook after a derivative forward": """
x = torch.ones(2, requires_grad=True)
def program(x):
    y = 3 * x
    torch.func.jvp(lambda t: t * 2, (x,), (x,))
    y.register_hook(lambda g: g * 2)
    return y
f = jit(program)
with seen():
    r0 = f(x)
    backward(r0)
""",
    "gradient of what is written over": """
w, v = torch.tensor([1.0, torch.inf], requires_grad=True), torch.ones(2, requires_grad=True)
x = torch.ones(2, requires_grad=True)
def program(w, v, x):
    y, z = w * w, v * 2
    y.copy_(x)
    z[:] = x
    return [y, z]
f = jit(program)
for i in range(2):
    with seen():
        r0 = f(w, v, x)
        backward(r0[i])
""",
    "zeros with a sign and bounds": """
x = torch.tensor([0.0, -0.0] * 16)
def program(x):
    x = x * 1.5
    return [x.clamp(min=-0.0) * 1.5, x.clamp(min=0.0) * 1.5, x.clamp(-1, -0.0) * 1.5, x.clamp_max(0.0) * 1.5]
f = jit(program)
with seen():
    r0 = [str(t.tolist()) for t in f(x)]
""",
    "dtypes that only the kernel refuses, in a try after a write": """
x, y, z = torch.ones(1, 3, dtype=torch.bfloat16), torch.ones(3), torch.ones(3)
def program(x, y, z):
    z.mul_(2)
    z *= 3
    with contextlib.suppress(RuntimeError):
        F.linear(x, y)
    return z * 2
""",
    "input resized of which there are views": """
x = torch.tensor([[1.5, 2.0]])
def program(x):
    row = x[0]
    x.resize_(2)
    return row * 1
""",
    "detach in place in inference mode": """
x = torch.ones(2)
def program(x):
    with torch.inference_mode():
        x.detach_()
    return x
f = jit(program)
with seen():
    r0 = torch.autograd.functional.vjp(lambda x: f(x), x, torch.ones(2))
""",
    "strides of a batch norm after a hessian": """
x, norm = torch.ones(3, 2).t() * 1, nn.BatchNorm1d(3)
def program(x):
    torch.func.hessian(lambda t: t ** 3)(x[0])
    return norm(x)
""",
    "view under no_grad of a leaf that is a view": """
x = torch.zeros(6)[()].requires_grad_()
def program(x):
    view = x.view(-1)
    nn.init.zeros_(view)
    return -view
""",
    "hook on what is detached in place afterwards": """
x = torch.ones(2, requires_grad=True)
def program(x):
    y = torch.autograd.grad((x * x).sum(), [x], create_graph=True)[0]
    y.register_hook(lambda g: print(1))
    y.detach_()
    return y
""",
    "shapes that follow from data, with gradients and then without": """
x = torch.tensor([1.0, -1.0, 2.0], requires_grad=True)
def program(x):
    return x[x > 0]
f = jit(program)
for grad in (True, False, True, False):
    with seen(), torch.set_grad_enabled(grad):
        r0 = f(x)
    with seen():
        backward(r0)
""",
    "hook on the result of a checkpoint": """
x = torch.ones(2, requires_grad=True)
def program(x, reentrant):
    y = checkpoint(torch.sin, x, use_reentrant=reentrant)
    y.register_hook(lambda g: g + 1)
    return y * 1
f = jit(program)
for reentrant in (True, False):
    with seen():
        r0 = f(x, reentrant)
        backward(r0)
""",
    "hooks inside of a checkpoint": """
x, log = torch.ones(2, requires_grad=True), []
def program(x, effect):
    def part(t):
        h = t.sin()
        h.register_hook((lambda g: log.append(1)) if effect else (lambda g: g + 1))
        return h * 2
    y = checkpoint(part, x, use_reentrant=False)
    y.mul_(2)
    return y
f = jit(program)
for effect in (False, True):
    with seen():
        r0 = f(x, effect)
        backward(r0)
""",
    "gradients stop at copies of copies": """
x = torch.ones(2, requires_grad=True)
def program(x):
    first = x.data.requires_grad_()
    second = first.data.requires_grad_()
    return [first * 1, second * 2, copy.copy(copy.copy(x)) * 3]
f = jit(program)
for i in range(3):
    with seen():
        r0 = f(x)
        backward(r0[i])
""",
    "view of a number that is read from data": """
x, y = torch.tensor([[2.0, -0.25, 0.0]], dtype=torch.float16), torch.tensor([[1.5, -1.0, -0.25]])
def program(x, y):
    smallest = sorted(x.flatten().tolist())[0]
    z = y.exp()
    try:
        F.bilinear(x, y, torch.ones(2, 3, 3))
    except RuntimeError:
        y[x > 0] = smallest
        z = torch.rand(3) + z
        z.detach().add_(0)
        y.detach().add_(smallest)
    y.reshape(-1)[1:] = 0
    return z
""",
    "view of an input that is squeezed in place afterwards": """
x = torch.tensor([])
def program(x):
    data = x.data
    x.squeeze_()
    return data
""",
    "out= that is read, and too small for the result": """
x, y = torch.ones(3), torch.tensor(0.5)
def program(x, y):
    torch.add(x, y, out=y)
f = jit(program)
with seen():
    r0 = f(x, y)
""",
    "part of an expanded input that is written to, after another input": """
x, y = torch.ones(2), torch.tensor([[-1.0]]).expand(2, 1)
def program(x, y):
    nn.init.zeros_(x)
    for row in y:
        row.put_(torch.tensor([0]), torch.tensor([5.0]))
f = jit(program)
with seen():
    r0 = f(x, y)
""",
    "random numbers for no elements": """
x = torch.ones(3)[:0]
w = nn.Parameter(torch.ones(3)[:0])
def program(x):
    x.normal_()
    with contextlib.suppress(RuntimeError):
        w.normal_()
""",
    "view of what is told to require grad afterwards, in an operation": """
x = torch.ones(1, 2)
def program(x):
    for row in x:
        pass
    made = torch.ones(2)
    part = made[:1]
    made.requires_grad_()
    x.requires_grad_()
    return row * 2, part * 2, part.requires_grad
""",
    "error of an index that is read for a write, after a write to another input": """
x, z, table = torch.ones(3), torch.zeros(3), torch.ones(3)
def program(x, z, table, i):
    try:
        x.mul_(2)
        z.copy_(table[i])
    except IndexError:
        return x * 3
    return x.sin()
f = jit(program)
for i in (0, 7):
    with seen():
        r0 = f(x, z, table, torch.arange(3) + i)
""",
    "part outside of a tensor's memory that nothing reads": """
x = torch.tensor([])
def program(x):
    x.as_strided((1, 1), (1, 1))
""",
    "backward again through what a backward inside went through": """
x, w = torch.tensor([[1.5]], requires_grad=True), torch.ones(1, requires_grad=True)
def program(x):
    y = x * 0
    (y * w).sum().backward()
    return x, y, w
f = jit(program)
with seen():
    r0 = f(x)
with seen():
    backward(r0)
with seen():
    torch.autograd.grad(r0[1].sum(), x)
with seen():
    torch.autograd.grad(r0[1].sum(), w)
""",
    "size that a function mode is told of": """
names = []
class Naming(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        names.append(function.__name__)
        return function(*args, **(kwargs or {}))
def program(x):
    with Naming():
        return torch.tensor(x.shape[0]), torch.full((2,), x.shape[0]), x.add(x, alpha=x.shape[0])
f = jit(program)
for rows in (4, 3, 5):
    x = torch.ones(rows)
    with seen():
        r0 = f(x)
""",
}


@pytest.mark.parametrize("name", _SCRIPTS)
def test_script(name: str) -> None:
    text = _SCRIPTS[name]
    outcome = compare.check(text if "jit(" in text else text + _CALLS)
    assert outcome.kind == "same", outcome.message
