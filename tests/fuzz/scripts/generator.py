"""Makes the script of a seed: outside objects, a function or module, and calls of it between changes."""

from __future__ import annotations

import ast
import random
import re
import textwrap

from tests.fuzz.scripts.objects import LIBRARY, OBJECTS
from tests.fuzz.scripts.statements import BLOCKS, LINES, RISKY, SIZES

_NUMBERS = ("0", "1", "2.5", "-1", "0.5", "3", "True", "-0.0", "float('nan')", "1e-3", "float('inf')")
_NUMBER_WEIGHTS = (2, 4, 4, 3, 4, 2, 1, 1, 0.4, 1, 0.4)
_DTYPES = ("torch.float32", "torch.float64", "torch.bfloat16", "torch.float16")
_VALUES = ("0.5", "-1.0", "2.0", "0.0", "1.5", "-0.25", "3.0", "-2.0", "0.125")
_ODD_VALUES = ("float('nan')", "float('inf')", "-0.0", "1e20", "-float('inf')")
_INSTEAD = {
    "v": "x * 1",
    "n": "1",
    "a": "x.detach().numpy()",
    "i": "torch.tensor([1, 0, 2])",
    "b": "torch.tensor([True, False, True])",
    "r": "x",
}
_LIBRARY_NEEDS = {"half": ("helper",), "compose": ("helper",)}


def _table(text: str) -> list[tuple[str, str]]:
    lines = (line.partition("|") for line in text.strip().splitlines())
    return [(kind.strip(), template.strip()) for kind, _, template in lines]


class _Names:
    """The variables that a line may use, by kind."""

    def __init__(self) -> None:
        self.by_kind: dict[str, list[str]] = {"f": [], "i": [], "b": [], "n": [], "a": [], "any": []}

    def copy(self) -> _Names:
        names = _Names()
        names.by_kind = {kind: list(each) for kind, each in self.by_kind.items()}
        return names

    def add(self, kind: str, name: str) -> None:
        if name not in self.by_kind.setdefault(kind, []):
            self.by_kind[kind].append(name)


class Generator:
    """Makes the text of one script."""

    def __init__(self, seed: int, sizes: bool = False) -> None:
        self.random = random.Random(seed)
        self.sizes = sizes
        self.names = _Names()
        self.count = 0
        self.has_arrays = False
        self.objects = self.random.sample(list(OBJECTS), self.random.choice((1, 1, 2, 2, 3)))
        topics = self.random.sample(list(LINES), self.random.choice((1, 2, 2, 3)))
        self.lines = [_table(LINES[topic]) for topic in topics]
        self.lines += [_table(OBJECTS[name].lines) for name in self.objects] * 2
        self.lines.append(_table(LINES["arithmetic"]))
        if sizes:
            self.kind_of_rows = self.random.choice((None, None, "apart", "in a buffer"))
            self.objects = self.objects[:1]
            self.lines += [_table(SIZES)] * 4
        kinds = self.random.sample(list(BLOCKS), self.random.choice((1, 2, 3)))
        self.blocks = [line for kind in kinds for line in BLOCKS[kind].strip().splitlines()]
        self.has_odd_values = self.random.random() < 0.12
        self.written = self.random.random() < 0.5

    # --- inputs

    def value(self) -> str:
        return self.random.choice(_ODD_VALUES if self.has_odd_values and self.random.random() < 0.2 else _VALUES)

    def tensor(self, dtype: str, shape: tuple[int, ...]) -> str:
        """Return an expression; every number is written out."""
        if dtype in ("torch.int64", "torch.int32", "torch.uint8"):
            number = lambda: str(self.random.randrange(3))  # noqa: E731
        elif dtype == "torch.bool":
            number = lambda: self.random.choice(("True", "False"))  # noqa: E731
        else:
            number = self.value

        def nested(sizes: tuple[int, ...]) -> str:
            if not sizes:
                return number()
            return f"[{', '.join(nested(sizes[1:]) for _ in range(sizes[0]))}]"

        if 0 in shape:
            return f"torch.zeros({', '.join(map(str, shape))}, dtype={dtype})"
        suffix = "" if dtype in ("torch.float32", "torch.int64", "torch.bool") else f", dtype={dtype}"
        return f"torch.tensor({nested(shape)}{suffix})"

    def laid_out(self, dtype: str, shape: tuple[int, ...]) -> str:
        layout = self.random.choice(("plain",) * 6 + ("transposed", "strided", "offset", "expanded"))
        if layout == "transposed" and len(shape) == 2:
            return f"{self.tensor(dtype, shape[::-1])}.t()"
        if layout == "strided" and shape:
            return f"{self.tensor(dtype, (*shape[:-1], 2 * shape[-1]))}[..., ::2]"
        if layout == "offset" and shape:
            return f"{self.tensor(dtype, (shape[0] + 1, *shape[1:]))}[1:]"
        if layout == "expanded" and shape and not self.written:
            return f"{self.tensor(dtype, (1, *shape[1:]))}.expand({', '.join(map(str, shape))})"
        return self.tensor(dtype, shape)

    def make_inputs(self) -> list[str]:
        choose = self.random.choice
        rows = choose((2, 2, 2, 2, 3, 1, 0) if self.random.random() < 0.4 else (2,))
        rows = choose((3, 4, 5, 6, 7)) if self.sizes else rows
        full = (rows, 3)
        lines = []
        dtype = choose(("torch.float32",) * 8 + ("torch.float64", "torch.bfloat16", "torch.float16"))
        lines.append(f"x = {self.laid_out(dtype, full)}")
        kind = self.random.random()
        if kind < 0.35:
            lines.append("x.requires_grad_()")
        elif kind < 0.42:
            lines += ["leaf = x.requires_grad_()", "x = leaf * 1"]
        elif kind < 0.47:
            lines.append("x = nn.Parameter(x)")
        self.names.add("f", "x")
        for name in ("y", "z")[: self.random.choice((0, 1, 1, 2))]:
            other = choose(("shape", "shape", "shape", "alias", "int", "bool", "number"))
            if other == "shape":
                dtype = choose(("torch.float32",) * 6 + (*_DTYPES, "torch.complex64"))
                shape = choose((full, full, (3,), (rows, 1), (1, 3), (), (1,)))
                lines.append(f"{name} = {self.laid_out(dtype, shape)}")
                if self.random.random() < 0.2:
                    lines.append(f"{name}.requires_grad_()")
            elif other == "alias":
                views = ("x", "x[:1]", "x[1:]", "x.t()", "x.detach()", "x.view(-1)", "x[..., 1:]", "x.data", "x[0]")
                lines.append(f"{name} = {choose(views)}")
            elif other == "int":
                shape = choose((full, (3,), (2,), ()))
                lines.append(f"{name} = {self.laid_out(choose(('torch.int64', 'torch.int32', 'torch.uint8')), shape)}")
            elif other == "bool":
                lines.append(f"{name} = {self.laid_out('torch.bool', choose((full, (3,))))}")
            else:
                lines.append(f"{name} = {self.number()}")
            self.names.add({"int": "i", "bool": "b", "number": "n"}.get(other, "f"), name)
        return lines

    # --- lines

    def number(self) -> str:
        return self.random.choices(_NUMBERS, _NUMBER_WEIGHTS)[0]

    def fill(self, template: str, new: str = "v") -> str:
        """Return the text of a template, with variables chosen; `new` begins the name of the one that it defines."""

        def pick(found: re.Match[str]) -> str:
            if found[1] is None:
                return found[0][0]
            kind, names = found[1], self.names.by_kind
            choose = self.random.choice
            if kind == "new":
                return f"{new}{self.count}"
            if kind == "f":
                recent = names["f"][-3:] if self.random.random() < 0.5 else names["f"]
                return choose(recent)
            if kind == "w":
                return choose(names["f"])
            if kind == "t":
                return choose(names["f"] + names["i"] + names["b"])
            if kind in ("i", "b") and names[kind]:
                return choose(names[kind])
            if kind == "i":
                return "torch.tensor([1, 0, 2])"
            if kind == "b":
                return f"({choose(names['f'])} > 0)"
            if kind == "a":
                return choose(names["a"]) if names["a"] else f"{choose(names['f'])}.detach().numpy()"
            if kind == "n":
                return choose(names["n"]) if names["n"] and self.random.random() < 0.5 else self.number()
            if kind == "k":
                return self.random.choices("0123", (2, 4, 3, 1))[0]
            if kind == "d":
                return choose(_DTYPES)
            assert kind == "o", kind
            return choose(names["f"] + names["n"]) if names["n"] else choose(names["f"])

        return re.sub(r"\{(\w+)\}|\{\{|\}\}", pick, template)

    def line(self, table: list[tuple[str, str]]) -> str:
        kind, template = self.random.choice(table)
        while template[:3] in ("{i}", "{b}", "{a}") and not self.names.by_kind[template[1]]:
            kind, template = self.random.choice(table)
        new = "v" if kind == "f" else kind
        text = self.fill(template, new)
        if kind != "-":
            self.names.add(kind, f"{new}{self.count}")
            self.count += 1
        return text

    def statements(self, count: int, depth: int) -> list[str]:
        lines = []
        for _ in range(count):
            if depth < 3 and self.blocks and self.random.random() < 0.25:
                lines.append(self.block(depth))
            else:
                lines.append(self.line(self.random.choice(self.lines)))
        return lines

    def block(self, depth: int) -> str:
        """Return a compound statement. What it defines is not used behind it, unless it stands before it too."""
        template = self.random.choice(self.blocks)
        heads = [head.strip() for head in template.split(" | ")]
        lines: list[str] = []
        outside = self.names.copy()
        is_function = "def " in heads[0]
        for head in heads:
            self.names = outside.copy()
            # Nothing else in the script writes to the counter of an endless loop.
            head = head.replace("turn", f"turn{self.count}")
            self.count += "turn" in head
            text = self.fill(head).replace("\\n", "\n")
            if is_function:
                self.names.add("f", "t")
            for name, kind in (("row", "f"), ("value", "n"), ("number", "n"), ("one", "f"), ("given", "any")):
                if re.search(rf"\b{name}\b.* in ", text) or text.endswith(f"as {name}:"):
                    self.names.add(kind, name)
            body = self.statements(self.random.randrange(1, 4), depth + 1)
            if head.startswith(("try", "with contextlib.suppress")) or self.random.random() < 0.04:
                body.insert(self.random.randrange(len(body) + 1), self.line(_table(RISKY)))
            body += self.end_of_block(head, outside)
            lines += [text, textwrap.indent("\n".join(body), "    ")]
        self.names = outside
        return "\n".join([*lines, *(self.calls_of(lines) if is_function else ())])

    def end_of_block(self, head: str, outside: _Names) -> list[str]:
        chance = self.random.random()
        value = self.fill("{f}")
        if "def generate" in head:
            return [f"yield {value}", "yield 2.0"]
        if "def inner" in head:
            return [f"return {value} * 1"]
        lines = [f"{self.random.choice(outside.by_kind['f'])} = {value}"] if chance < 0.5 else []
        if head.startswith(("for", "while")) and (chance < 0.15 or head.startswith("while")):
            lines.append("break")
        elif head.startswith("for turn"):
            lines.append(f"if {head.split()[1]} > 1: break")
        elif chance > 0.97:
            lines.append(f"return {value}")
        return lines

    def calls_of(self, lines: list[str]) -> list[str]:
        found = re.search(r"def (\w+)\(", "\n".join(lines))
        assert found is not None
        name, value, new = found[1], self.fill("{f}"), f"v{self.count}"
        self.count += 1
        self.names.add("f", new)
        calls: tuple[str, ...] = (
            f"{name}({value})",
            f"{name}({value}) + {name}(x)",
            f"[{name}(t) for t in [{value}]][0]",
        )
        if name.startswith("generate"):
            calls = (f"next({name}())", f"list({name}())[0]", f"sum({name}())", f"[*{name}()][-1] * {value}")
        return [f"{new} = {self.random.choice(calls)}"]

    # --- the function

    def results(self) -> str:
        names = self.names.by_kind
        some = self.random.sample(names["f"], min(len(names["f"]), self.random.randrange(1, 4)))
        others = names["n"] + names["b"] + names["i"] + names["a"]
        some += self.random.sample(others, min(len(names["n"] + names["a"]), self.random.randrange(2)))
        if self.random.random() < 0.25:
            some.append(self.fill(self.random.choice(
                ("x", "{f}[:1]", "{f}.detach()", "{f}.view(-1)", "{f}.mT", "log", "None", "[{f}, {f}]", "outside",
                 "lambda: {f}", "(t for t in [{f}])", "iter([{f}])", "Point({f}, {n})", "{{'a': {f}}}", "{f}.shape",
                 "{f}.expand(2, *{f}.shape)", "box_of({f})", "{f}.dtype", "{f}.data", "{f}.numpy(force=True)")))
            )  # fmt: skip
        if "net" in self.objects and self.random.random() < 0.2:
            some.append(self.random.choice(("net", "net.scale", "net.steps")))
        shape = self.random.random()
        if shape < 0.2:
            return some[0]
        if shape < 0.6:
            return ", ".join(some)
        if shape < 0.8:
            return f"[{', '.join(some)}]"
        return "{" + ", ".join(f"{number!r}: {each}" for number, each in enumerate(some)) + "}"

    def function(self) -> tuple[list[str], str]:
        """Return the lines that define the function and jit it, and the arguments of its calls."""
        tensors = [name for name in "xyz" if any(name in each for each in self.names.by_kind.values())]
        objects = [name for name in self.objects if name not in ("others", "state", "SCALE")]
        passed = [name for name in objects if self.random.random() < 0.4]
        parameters = [*tensors, *passed]
        arguments = ", ".join(parameters)
        style = self.random.choice(("plain", "plain", "plain", "closure", "module", "keywords", "default", "method"))
        self.names.by_kind["n"] = list(self.names.by_kind["n"])
        body = ["log = []", *self.statements(self.random.randrange(2, 10), 0)]
        assigned = {name for name in ("SCALE", *objects) if re.search(rf"^\s*{name} [-+*|]?= ", "\n".join(body), re.M)}
        body = [f"global {', '.join(sorted(assigned - set(passed)))}"] * bool(assigned - set(passed)) + body
        body.append(f"return {self.results()}")
        indented = textwrap.indent("\n".join(body), "    ").splitlines()
        if style == "closure":
            inner = textwrap.indent("\n".join([f"def program({', '.join(tensors)}):", *indented]), "    ").splitlines()
            if not assigned:
                lines = [f"def make({', '.join(passed)}):", *inner, "    return program", ""]
                return [*lines, f"program = make({', '.join(passed)})", "f = jit(program)"], ", ".join(tensors)
        if style == "module":
            head = [
                "class Main(nn.Module):", "    def __init__(self):", "        super().__init__()",
                "        self.weight = nn.Parameter(torch.tensor([0.5, 2.0, -1.0]))", "",
                f"    def forward(self, {arguments}):", "        x = x * self.weight if x.dim() else x",
            ]  # fmt: skip
            return [*head, *textwrap.indent("\n".join(indented), "    ").splitlines(), "", "main = Main()",
                    "f = jit(main)"], arguments  # fmt: skip
        if style == "method":
            head = ["class Holder:", f"    def program(self, {arguments}):"]
            return [*head, *textwrap.indent("\n".join(indented), "    ").splitlines(), "", "holder = Holder()",
                    "f = jit(holder.program)"], arguments  # fmt: skip
        if style == "keywords" and len(parameters) > 1:
            names = ", ".join(parameters[1:])
            pairs = ", ".join(f"{name}={name}" for name in parameters[1:])
            return [f"def program(x, *, {names}):", *indented, "", "f = jit(program)"], f"x, {pairs}"
        if style == "default" and len(parameters) > 1:
            defaults = ", ".join(f"{name}={name}" for name in parameters[1:])
            return [f"def program(x, {defaults}):", *indented, "", "f = jit(program)"], "x"
        return [f"def program({arguments}):", *indented, "", "f = jit(program)"], arguments

    # --- the driver

    def steps(self, arguments: str) -> list[str]:
        """Return what is done with the jitted function: calls, changes, writes, backward passes."""
        lines: list[str] = []
        for number in range(self.random.randrange(4, 9) if self.sizes else self.random.randrange(2, 6)):
            if number:
                lines += self.change_of_sizes() if self.sizes else self.change()
            lines += self.around(f"r{number} = f({arguments})")
            if self.random.random() < 0.5:
                lines += self.after(f"r{number}")
        return lines

    def around(self, call: str) -> list[str]:
        """Return the step of a call, in one case of four inside of something."""
        if self.random.random() < 0.75:
            return ["with seen():", f"    {call}"]
        name, _, value = call.partition(" = ")
        around = self.random.choice(_AROUND)
        if "functionalize" in around and self.has_arrays:  # they are memory that nobody has: eager crashes
            return ["with seen():", f"    {call}"]
        if "CALL" in around:
            return ["with seen():", f"    {name} = {around.replace('CALL', value)}"]
        return ["with seen():", *(f"    {line}" for line in (around, f"    {call}"))]

    def change_of_sizes(self) -> list[str]:
        """Return a step that gives tensors other numbers of rows, and sometimes another change."""
        rows = self.random.choice((2, 3, 3, 4, 5, 6, 7, 8, 9, 12, 1, 0))
        each = self.random.choice(("x", "x", "x, y", "x, y, z", "y"))
        lines = [f"{name} = rows({name}, {rows}, {self.kind_of_rows!r})" for name in each.split(", ")]
        lines += self.change()[1:] if self.random.random() < 0.15 else []
        return [line for text in lines for line in ("with contextlib.suppress(Exception):", f"    {text.strip()}")]

    def change(self) -> list[str]:
        kind = self.random.random()
        if kind < 0.3:
            return []
        if kind < 0.7:
            changes = [each for name in self.objects for each in OBJECTS[name].changes.strip().splitlines() if each]
        else:
            changes = list(_CHANGES)
        return ["with contextlib.suppress(Exception):", f"    {self.random.choice(changes)}"]

    def after(self, result: str) -> list[str]:
        return ["with seen():", f"    {self.random.choice(_AFTER).replace('RESULT', result)}"]

    def make(self) -> str:
        """Return the script."""
        setup = self.make_inputs()
        function, arguments = self.function()
        self.has_arrays = any("numpy" in line for line in function)
        driver = self.steps(arguments)
        text = "\n".join([*(OBJECTS[name].setup.strip() for name in self.objects), *function, *driver])
        library = [name for name in LIBRARY if re.search(rf"\b{name}\b", text)]
        needed = {*library, *(need for name in library for need in _LIBRARY_NEEDS.get(name, ()))}
        parts = [LIBRARY[name].strip() for name in LIBRARY if name in needed]
        parts += ["outside = []", *setup, text]
        return "\n".join(parts) + "\n"


_AROUND = (
    "with torch.no_grad():", "with torch.no_grad():", "with torch.enable_grad():", "with torch.inference_mode():",
    'with torch.autocast("cpu", dtype=torch.bfloat16):', "with torch.set_grad_enabled(False):",
    "with torch.autograd.graph.saved_tensors_hooks(lambda t: outside.append(1) or t, lambda t: t):",
    "with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t):",
    'with torch.device("cpu"):', 'with torch.device("meta"):', "with torch.random.fork_rng():",
    "with torch.overrides.BaseTorchFunctionMode():", "with torch.utils._python_dispatch.TorchDispatchMode():",
    "with torch._C.DisableTorchFunction():", "with torch._C.DisableTorchFunctionSubclass():",
    "with torch.autograd.forward_ad.dual_level():", "with torch.profiler.profile():",
    "with torch.utils.flop_counter.FlopCounterMode(display=False):", "with torch.autograd.detect_anomaly(False):",
    "with torch.autograd.set_multithreading_enabled(False):",
    "torch.func.vmap(lambda x: CALL)(torch.stack([x, x]))",
    "torch.func.grad(lambda x: first(CALL).sum())(x)",
    "torch.func.jvp(lambda x: first(CALL), (x,), (torch.ones_like(x),))",
    "torch.func.vjp(lambda x: first(CALL), x)[0]",
    "torch.func.functionalize(lambda x: CALL)(x)",
    "torch.func.jacrev(lambda x: first(CALL))(x)",
    "checkpoint(lambda x: first(CALL), x, use_reentrant=False)",
    "[CALL for _ in range(2)]",
    "copy.deepcopy(f) and CALL",
    "CALL if torch.is_grad_enabled() else 1",
    "Twice.apply(first(CALL))",
    "torch.autograd.functional.vjp(lambda x: first(CALL).sum(), x)[1]",
    "with Doubling():", "with Shifting():", "with Dispatched():", "with Renaming():",
    "with Dispatched(), Dispatched():",
    "with torch.autograd.graph.save_on_cpu():", "with torch.autograd.graph.allow_mutation_on_saved_tensors():",
)  # fmt: skip
_CHANGES = (
    "x = x.detach()", "x.requires_grad_(not x.requires_grad)", "x = x.detach().requires_grad_()", "x = x.t()",
    "x = x[:1]", "x = x.double()", "x = x.detach().clone()", "x = x * 2", "x.data.mul_(-1)", "x = nn.Parameter(x)",
    "x = torch.cat([x, x])", "x = x[..., :1]", "x = torch.zeros_like(x)", "x.grad = None", "x = x.contiguous()",
    "x = x.to(torch.bfloat16)", "x = x.detach().to_sparse()", "x = x.detach().as_subclass(nn.Parameter)",
    "y = x", "y = x[0]", "y = x.view(-1)", "y = y.clone()", "y = 3", "y = None", "y = y + 1", "y = x.detach()",
    "x, y = y, x", "y = 2.5", "z = x", "z = y", "torch.manual_seed(3)", "x.detach().fill_(float('nan'))",
    "x = x.detach()[:0]", "x = x.detach().sum()", "x.detach().mul_(-2)", "outside.append(2)", "outside.clear()",
    "x = x.detach().numpy()", "x.tag = 3", "x.detach()[0] = -5", "x = -x", "x = x.conj()", "x = x.to('meta')",
    "x.grad = torch.ones_like(x)", "x = torch.inference_mode()(lambda: x * 2)()", "x.register_hook(lambda g: g * 2)",
    "x = x.detach().as_strided(x.shape, x.stride())", "x = x.unsqueeze(0)", "x = x.half()", "x = x.long()",
    "torch.set_default_dtype(torch.float64)", "torch.use_deterministic_algorithms(True)",
    "helper.__defaults__ = (3.0, [])",
    "helper = lambda t, n=1, **options: t - n", "program.__defaults__ = None", "main.weight.requires_grad_(False)",
    "main.weight = nn.Parameter(torch.ones(3))", "main.eval()", "main.double()",
    "Main.forward = lambda self, x, *rest: x",
    "Twice.forward = staticmethod(lambda ctx, t: ctx.save_for_backward(t) or t * 5)",
    "Holder.program = lambda self, x, *rest: x", "torch.Tensor.sum = torch.Tensor.mean", "x.retain_grad()",
    "torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(True)",
    "f = jit(f)", "f = copy.copy(f)", "f = functools.partial(f)", "x.__class__ = nn.Parameter",
)  # fmt: skip
_AFTER = (
    "backward(RESULT)", "backward(RESULT)", "backward(RESULT)", "backward(RESULT, retain_graph=True)",
    "backward(RESULT, create_graph=True)", "first(RESULT).add_(1)", "first(RESULT).detach().mul_(2)",
    "x.detach().add_(1)", "x.data.zero_()", "with torch.no_grad(): first(RESULT).mul_(3)",
    "first(RESULT).requires_grad_()", "backward(RESULT); backward(RESULT)",
    "second = torch.autograd.grad(first(RESULT).sum(), x, create_graph=True, allow_unused=True)",
    "backward(first(RESULT) * 2)", "backward([RESULT, x])", "first(RESULT).zero_()", "first(RESULT).t_()",
    "first(RESULT).register_hook(lambda g: g * 2); backward(RESULT)", "copied = copy.deepcopy(RESULT)",
    "backward((first(RESULT) ** 2).sum(), create_graph=True)", "first(RESULT).data.mul_(0)",
    "first(RESULT).retain_grad(); backward(RESULT)", "backward(first(RESULT).detach().requires_grad_() * x)",
    "x.add_(1); backward(RESULT)", "leaf.add_(1)", "first(RESULT).resize_(0)", "first(RESULT)[0] = 5; backward(RESULT)",
    "third = [t * 2 for t in RESULT]",
    "x.register_post_accumulate_grad_hook(lambda t: outside.append(t.grad.sum().item())); backward(RESULT)",
    "first(RESULT).register_hook(lambda g: outside.append(g.sum().item())); backward(RESULT)",
    "first(RESULT).register_hook(lambda g: 1 / 0); backward(RESULT)",
    "torch.autograd.graph.register_multi_grad_hook([x, first(RESULT)], lambda gs: outside.append(len(gs))); "
    "backward(RESULT)",
    "with Dispatched(): backward(RESULT)", "with Doubling(): backward(RESULT)",
    "with torch.no_grad(): backward(RESULT)",
    "with torch.inference_mode(): backward(RESULT)", 'with torch.autocast("cpu", enabled=False): backward(RESULT)',
    "first(RESULT).detach().numpy()[...] = 2", "backward(RESULT, inputs=[x])",
)  # fmt: skip


def _first_line_of_program(text: str) -> int:
    first = 0
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            first = statement.lineno
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "f":
            break
    return first


def raising_lines(text: str) -> list[int]:
    """Return the lines at which calls of the script raise in eager: of the program where they lie below it."""
    from tests.fuzz.scripts.execute import execute

    run = execute(text, compiles=False)
    first = _first_line_of_program(text)
    lines = []
    for error in [*(step.error for step in run.steps), run.error]:
        last = None
        trace = error.__traceback__ if error is not None else None
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == "script.py" and (last is None or trace.tb_lineno >= first):
                last = trace.tb_lineno
            trace = trace.tb_next
        if last is not None:
            lines.append(last)
    return lines


def without_line(text: str, line: int) -> str | None:
    """Return the script without the innermost statement at a line."""
    tree = ast.parse(text)
    best: tuple[list[ast.stmt], ast.stmt] | None = None
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            for statement in block if isinstance(block, list) else ():
                if statement.lineno <= line <= statement.end_lineno:
                    best = (block, statement)
    if best is None:
        return None
    body, statement = best
    at = body.index(statement)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if isinstance(statement, ast.Return):
        statement.value = ast.Name("x")
    elif isinstance(statement, ast.Assign) and isinstance(target, ast.Name) and target.id[0] in _INSTEAD:
        instead = ast.parse(_INSTEAD[target.id[0]], mode="eval").body
        if ast.dump(statement.value) == ast.dump(instead):
            return None
        statement.value = instead
    elif len(body) > 1:
        del body[at]
    else:
        body[at] = ast.Pass()
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def generate(seed: int, sizes: bool = False) -> str | None:
    """Return the script of a seed; most of what raises in eager has been taken out of it."""
    generator = Generator(seed, sizes)
    text = ast.unparse(ast.parse(generator.make())) + "\n"
    keeps = generator.random.random() < 0.1
    for _ in range(25):
        lines = raising_lines(text)
        if not lines or (keeps and len(lines) < 2):
            break
        shorter = without_line(text, lines[0])
        if shorter is None:
            return None
        text = shorter
    return text
