"""Backwards and hooks that no trace can hold run as the program's own Python, at each backward, as in eager."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_same
from torch import nn
from torch.autograd import Function

import thunder

Jit = Callable[[Callable[..., Any]], Callable[..., Any]]


def leaf(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def assert_log_as_eager(program: Callable[[Jit], list[Any]]) -> None:
    """Check that a program that calls and differentiates what `jit` gives it notes the same as in eager."""
    logs = []
    for jit in (lambda function: function, thunder.jit):
        torch.manual_seed(0)
        logs.append([item.detach() if isinstance(item, torch.Tensor) else item for item in program(jit)])
    assert_same(logs[1], logs[0], program.__name__)


def backward_of(function: Callable[..., Any], *, times: int = 3, scales: Any = (1.0, 5.0, -1.0)) -> list[Any]:
    """Call a function of one tensor and differentiate it, with other data each time."""
    noted: list[Any] = []
    for i in range(times):
        a = leaf(3, seed=i)
        result = function(a)
        (result * scales[i % len(scales)]).sum().backward()
        noted += [result, a.grad]
    return noted


def doubling(backward: Callable[..., Any], save: bool = False) -> type[Function]:
    """Return a Function that doubles, with this backward."""

    class Doubled(Function):
        calls = 0

        @staticmethod
        def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
            if save:
                ctx.save_for_backward(a, None, a.exp())
            return a * 2

    Doubled.backward = staticmethod(backward)  # type: ignore[method-assign]
    return Doubled


def branches_on_saved(jit: Jit) -> list[Any]:
    function = doubling(lambda ctx, g: g * 2 if ctx.saved_tensors[0].sum() > 0 else g * 3, save=True)
    return backward_of(jit(lambda a: function.apply(a * 1).sin()))


def branches_on_gradient(jit: Jit) -> list[Any]:
    function = doubling(lambda ctx, g: g / g.norm() if g.abs().max() > 1 else g)
    return backward_of(jit(lambda a: function.apply(a.cos()).sin()))


def reads_a_number(jit: Jit) -> list[Any]:
    function = doubling(lambda ctx, g: g * ctx.saved_tensors[2].sum().item(), save=True)
    return backward_of(jit(lambda a: function.apply(a).sin()))


def differentiates_inside(jit: Jit) -> list[Any]:
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            a = ctx.saved_tensors[0].detach().requires_grad_()
            b = a.sin()
        return torch.autograd.grad(b, a, g)[0] * 2

    function = doubling(backward, save=True)
    return backward_of(jit(lambda a: function.apply(a * 2)))


def calls_backward_of_a_module(jit: Jit) -> list[Any]:
    torch.manual_seed(0)
    layer = nn.Linear(3, 3)

    class Recomputed(Function):
        @staticmethod
        def forward(ctx: Any, module: nn.Module, a: torch.Tensor) -> torch.Tensor:
            ctx.module = module
            ctx.save_for_backward(a)
            with torch.no_grad():
                return module(a)

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:  # type: ignore[override]
            a = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                b = ctx.module(a)
            torch.autograd.backward(b, g)
            return None, a.grad

    noted = backward_of(jit(lambda a: Recomputed.apply(layer, a).sin()))
    return [*noted, layer.weight.grad, layer.bias.grad]


def has_objects_in_its_context(jit: Jit) -> list[Any]:
    class Holder:
        def __init__(self, held: torch.Tensor) -> None:
            self.held = held

    class Held(Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor, factor: int) -> torch.Tensor:
            ctx.holder, ctx.factor, ctx.table = Holder(a.exp()), factor, {"a": [a * 2, 3]}
            ctx.scale = lambda g: g * factor
            return a * factor

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:  # type: ignore[override]
            if g.sum() > 0:
                g = g * 2
            return ctx.scale(g) * ctx.holder.held * ctx.table["a"][0] * ctx.table["a"][1] * ctx.factor, None

    function, noted = jit(Held.apply), []
    for factor in (2, 3, 2):
        a = leaf(3, seed=factor)
        (function(a, factor) * (factor - 2.5)).sum().backward()
        noted.append(a.grad)
    return noted


def writes_to_its_context(jit: Jit) -> list[Any]:
    class Counted(Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
            ctx.count = [1]
            return a * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            ctx.count[0] += 1
            return g * ctx.count[0]

    function, noted = jit(Counted.apply), []
    for _ in range(2):
        a = leaf(3)
        b = function(a)
        b.sum().backward(retain_graph=True)
        b.sum().backward()
        noted.append(a.grad)
    return noted


def has_effects_in_order(jit: Jit) -> list[Any]:
    seen: list[Any] = []

    class Noted(Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor, name: str) -> torch.Tensor:
            ctx.name = name
            return a * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:  # type: ignore[override]
            seen.append(ctx.name)
            return g * len(ctx.name), None

    noted = backward_of(jit(lambda a: Noted.apply(Noted.apply(a, "a").sin(), "bb") + Noted.apply(a, "ccc")))
    return [*noted, *seen]


def reads_state_of_the_backward(jit: Jit) -> list[Any]:
    scale = [2.0]
    function, noted = doubling(lambda ctx, g: g * scale[0]), []
    compiled = jit(function.apply)
    for i in range(4):
        a, scale[0] = leaf(3, seed=i), 2.0
        b = compiled(a)
        scale[0] = 10.0 + i
        b.sum().backward()
        noted.append(a.grad)
    return noted


def writes_to_an_outside_tensor(jit: Jit) -> list[Any]:
    total = torch.zeros(3)
    function = doubling(lambda ctx, g: g * total.add_(g))
    return [*backward_of(jit(function.apply)), total]


def prints(jit: Jit) -> list[Any]:
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        print("backward")
        return g * 3

    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        noted = backward_of(jit(doubling(backward).apply))
    return [*noted, text.getvalue()]


def raises(jit: Jit) -> list[Any]:
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        if torch.isnan(g).any():
            raise ValueError("not a number")
        return g * 2

    function, noted = jit(doubling(backward).apply), []
    for value in (1.0, float("nan"), 2.0):
        a = leaf(3)
        try:
            (function(a) * value).sum().backward()
        except ValueError as error:
            noted.append(str(error))
        noted.append(a.grad)
    return noted


def gives_wrong_gradients(jit: Jit) -> list[Any]:
    noted: list[Any] = []
    for backward in (lambda ctx, g: (g, g), lambda ctx, g: g.sum().expand(5), lambda ctx, g: "a"):
        function = jit(doubling(backward).apply)
        for _ in range(2):
            a = leaf(3)
            b = function(a)
            try:
                b.sum().backward()
            except (RuntimeError, TypeError) as error:
                noted.append((type(error), str(error)))
    return noted


def has_no_backward(jit: Jit) -> list[Any]:
    class Forward(Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
            return a * 2

    result = jit(Forward.apply)(leaf(3))
    with pytest.raises(NotImplementedError, match="implement either the backward"):
        result.sum().backward()
    return [result]


def gets_none_for_results_that_nobody_differentiated(jit: Jit) -> list[Any]:
    class Two(Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor) -> Any:
            ctx.set_materialize_grads(False)
            return a * 2, a * 3

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:  # type: ignore[override]
            if g is None or h is None:
                return h * 30 if g is None else g * 20
            return g * 2 + h * 3

    function, first = jit(Two.apply), jit(lambda a: Two.apply(a * 1)[0].sin())
    noted = []
    for used in ((1, 0), (0, 1), (1, 1)):
        a = leaf(3)
        sum((b * flag).sum() for b, flag in zip(function(a), used, strict=True) if flag).backward()
        noted.append(a.grad)
    a = leaf(3)
    first(a).sum().backward()
    return [*noted, a.grad]


def returns_all_kinds_of_things(jit: Jit) -> list[Any]:
    class Mixed(Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor, mode: str) -> Any:
            ordered, index = a.sort()
            ctx.mark_non_differentiable(index, constant := a * 2)
            ctx.save_for_backward(index)
            ctx.mode = mode
            return ordered, 5, None, index, constant, "s", a > 0

        @staticmethod
        def backward(ctx: Any, g: Any, *others: Any) -> Any:  # type: ignore[override]
            seen.append([type(other) for other in others])
            return torch.zeros_like(g).scatter_(0, ctx.saved_tensors[0], g * len(ctx.mode)), None

    seen: list[Any] = []
    function, noted = jit(Mixed.apply), []
    for mode in ("a", "bb", "a"):
        a = leaf(4)
        results = function(a, mode)
        results[0].square().sum().backward()
        noted += [*results, a.grad, results[4].requires_grad]
    return [*noted, *seen]


def saves_inputs_and_results(jit: Jit) -> list[Any]:
    class Saves(Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor, b: Any) -> Any:
            c = a.exp()
            ctx.save_for_backward(a, None, c, b)
            return c

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:  # type: ignore[override]
            a, nothing, c, b = ctx.saved_tensors
            seen.append((nothing, b is None, ctx.needs_input_grad, float(a.sum())))
            return g * c * a, g if ctx.needs_input_grad[1] else None

    seen: list[Any] = []
    function, noted = jit(lambda a, b: Saves.apply(a * 2, b) + 1), []
    for b in (None, torch.ones(3), leaf(3)):
        a = leaf(3, seed=1)
        function(a, b).sum().backward()
        noted += [a.grad, None if b is None else b.grad]
    return [*noted, *seen]


def notices_writes_to_what_was_saved(jit: Jit) -> list[Any]:
    function = jit(doubling(lambda ctx, g: g * ctx.saved_tensors[0].sum().item(), save=True).apply)
    noted = []
    for _ in range(2):
        a = leaf(3)
        b = a * 1
        c = function(b)
        with torch.no_grad():
            b.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            c.sum().backward()
        noted.append(b)
    return noted


def is_another_one_later(jit: Jit) -> list[Any]:
    function = doubling(lambda ctx, g: g * 2)
    compiled = jit(lambda a: function.apply(a).sin())
    noted = backward_of(compiled)
    function.backward = staticmethod(lambda ctx, g: g * 9)
    noted += backward_of(compiled)
    function.forward = staticmethod(lambda ctx, a: a * 5)  # type: ignore[method-assign]
    return noted + backward_of(compiled)


def looks_at_data_in_forward_and_backward(jit: Jit) -> list[Any]:
    class Scaled(Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
            ctx.most = a.abs().max().item()
            return a * (2 if ctx.most > 1 else 3)

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return g * ctx.most

    return backward_of(jit(lambda a: Scaled.apply(a / 2).sin()))


def returns_its_argument(jit: Jit) -> list[Any]:
    class Same(Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
            return a

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            seen.append(1)
            return g * 7

    seen: list[Any] = []
    noted = backward_of(jit(lambda a: Same.apply(a * 2).sin())) + backward_of(jit(lambda a: Same.apply(a) * 1))
    return [*noted, *seen]


def is_in_the_forward_of_another(jit: Jit) -> list[Any]:
    inner = doubling(lambda ctx, g: g * float(g.sum()))

    class Outer(Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
            return inner.apply(a) * 2

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return inner.apply(g) * float(g.sum())

    return backward_of(jit(lambda a: Outer.apply(a) + inner.apply(a)))


def is_not_differentiated(jit: Jit) -> list[Any]:
    function = doubling(lambda ctx, g: g * g.sum().item())
    compiled = jit(function.apply)
    with torch.no_grad():
        first = compiled(leaf(3))
    second = compiled(leaf(3).detach())
    return [first, first.requires_grad, second.requires_grad, *backward_of(compiled)]


FUNCTIONS = [
    branches_on_saved,
    branches_on_gradient,
    reads_a_number,
    differentiates_inside,
    calls_backward_of_a_module,
    has_objects_in_its_context,
    writes_to_its_context,
    has_effects_in_order,
    reads_state_of_the_backward,
    writes_to_an_outside_tensor,
    prints,
    raises,
    gives_wrong_gradients,
    has_no_backward,
    gets_none_for_results_that_nobody_differentiated,
    returns_all_kinds_of_things,
    saves_inputs_and_results,
    notices_writes_to_what_was_saved,
    is_another_one_later,
    looks_at_data_in_forward_and_backward,
    returns_its_argument,
    is_in_the_forward_of_another,
    is_not_differentiated,
]


@pytest.mark.parametrize("program", FUNCTIONS, ids=lambda program: program.__name__)
def test_function_whose_backward(program: Callable[[Jit], list[Any]]) -> None:
    assert_log_as_eager(program)


def on_an_input(jit: Jit) -> list[Any]:
    seen: list[Any] = []

    def program(a: torch.Tensor) -> torch.Tensor:
        a.register_hook(lambda g: (seen.append(1), g * 2)[1])
        a.register_hook(lambda g: g + 1).remove()
        return a.sin()

    noted = backward_of(jit(program))
    compiled, a = jit(program), leaf(3)
    compiled(a * 2).sum().backward()
    for _ in range(2):
        compiled(a).sum().backward()
    return [*noted, a.grad, *seen]


def on_a_parameter(jit: Jit) -> list[Any]:
    torch.manual_seed(0)
    layer, seen, grads = nn.Linear(3, 3), [], []

    def program(a: torch.Tensor) -> torch.Tensor:
        layer.weight.register_hook(lambda g: seen.append(float(g.sum())))
        layer.bias.register_post_accumulate_grad_hook(lambda p: grads.append(p.grad.clone()))
        return layer(a)

    return [*backward_of(jit(program)), layer.weight.grad, *seen, *grads]


def on_an_intermediate_with_effects(jit: Jit) -> list[Any]:
    seen: list[Any] = []

    def shrink(g: torch.Tensor) -> Any:
        seen.append(float(g.norm()))
        return g / g.norm() if g.norm() > 1 else None

    def program(a: torch.Tensor) -> torch.Tensor:
        b = a.sin()
        c = b.cos()
        b.register_hook(shrink)
        b.register_hook(lambda g: seen.append("second"))
        c.register_hook(lambda g: seen.append("c"))
        return c + b

    return [*backward_of(jit(program)), *seen]


def that_keep_gradients(jit: Jit) -> list[Any]:
    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)
            self.gradient: Any = None
            self.activation: Any = None

        def forward(self, a: torch.Tensor) -> torch.Tensor:
            b = self.layer(a).relu()
            b.register_hook(self.keep)
            self.activation = b
            return b.sum()

        def keep(self, g: torch.Tensor) -> None:
            self.gradient = g

    torch.manual_seed(0)
    module, noted = Watched(), []
    compiled = jit(module)
    for i in range(3):
        compiled(leaf(2, 3, seed=i)).backward()
        noted += [module.gradient, module.activation]
    return noted


def of_whole_modules(jit: Jit) -> list[Any]:
    torch.manual_seed(0)
    module, seen = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)), []
    module[0].register_full_backward_hook(lambda m, inputs, outputs: (inputs[0] * 3,))
    module[1].register_full_backward_pre_hook(lambda m, outputs: (outputs[0] * 5,))
    module.register_full_backward_hook(lambda m, inputs, outputs: seen.append((inputs[0].sum(), outputs[0].sum())))
    compiled = jit(module)
    noted = backward_of(compiled)
    handle = module[2].register_full_backward_hook(lambda m, inputs, outputs: seen.append(len(outputs)))
    noted += backward_of(compiled)
    handle.remove()
    noted += backward_of(compiled)
    return [*noted, *(p.grad for p in module.parameters()), *seen]


def of_all_modules(jit: Jit) -> list[Any]:
    torch.manual_seed(0)
    module, seen = nn.Sequential(nn.Linear(3, 4), nn.Tanh()), []
    compiled = jit(module)
    hooks = torch.nn.modules.module
    for register in (hooks.register_module_full_backward_hook, hooks.register_module_forward_hook):
        handle = register(lambda m, *_: seen.append(type(m).__name__))
        backward_of(compiled)
        handle.remove()
        backward_of(compiled)
    return seen


def that_raise(jit: Jit) -> list[Any]:
    def fails(g: torch.Tensor) -> None:
        raise ValueError("no gradient for you")

    def program(a: torch.Tensor) -> torch.Tensor:
        b = a.sin()
        b.register_hook(fails)
        return b.cos()

    compiled = jit(program)
    for _ in range(2):
        result = compiled(leaf(3))
        with pytest.raises(ValueError, match="no gradient for you"):
            result.sum().backward()
    return [result]


class Tripled(torch.autograd.Function):
    """Looks at a gradient, and keeps an attribute for it."""

    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> Any:
        ctx.factor = 3
        return a * 3, a.detach().sum(), b + 1

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor, _: Any, h: torch.Tensor) -> Any:  # type: ignore[override]
        return (g * ctx.factor, h) if g.sum() > 0 else (g - ctx.factor, h * 2)


def that_compute_on_results_of_functions(jit: Jit) -> list[Any]:
    def program(a: torch.Tensor) -> torch.Tensor:
        b, c, d = Tripled.apply(a, a.sin())
        b.register_hook(lambda g: g * 5)
        b.register_hook(lambda g: g + 1)
        d.register_hook(lambda g: g * b)
        return b * d + c

    compiled = jit(program)
    return [result for size in (3, 3, 1, 0) for result in backward_of(lambda a, size=size: compiled(a[:size]))]


def that_compute_inside_of_hooked_modules(jit: Jit) -> list[Any]:
    class Hooked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)
            self.layer.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 3,))

        def forward(self, a: torch.Tensor) -> torch.Tensor:
            b = self.layer(a)
            b.register_hook(lambda g: g * 5)
            return b.sin()

    torch.manual_seed(0)
    module = Hooked()
    compiled = jit(module)
    noted = [result for _ in range(3) for result in backward_of(compiled)]
    return [*noted, *(p.grad for p in module.parameters())]


HOOKS = [
    on_an_input,
    on_a_parameter,
    on_an_intermediate_with_effects,
    that_keep_gradients,
    of_whole_modules,
    of_all_modules,
    that_raise,
    that_compute_on_results_of_functions,
    that_compute_inside_of_hooked_modules,
]


@pytest.mark.parametrize("program", HOOKS, ids=lambda program: program.__name__)
def test_hooks(program: Callable[[Jit], list[Any]]) -> None:
    assert_log_as_eager(program)


def test_backward_that_only_computes_is_compiled() -> None:
    function = doubling(lambda ctx, g: g * ctx.saved_tensors[0].cos(), save=True)
    compiled = thunder.jit(function.apply, fullgraph=True)
    compiled(leaf(3)).sum().backward()
    assert "cos" in str(thunder.last_backward_traces(compiled)[-1])


def test_function_that_saves_a_leaf_made_inside_is_refused() -> None:
    class Kept(Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                a = a.detach().requires_grad_()
                ctx.save_for_backward(a, b := a.sin())
            return b.detach()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            ctx.saved_tensors[1].backward(g * g.sum().item())
            return ctx.saved_tensors[0].grad

    with pytest.raises(NotImplementedError):
        thunder.jit(Kept.apply, fullgraph=True)(leaf(3))


def test_dirty_argument_that_is_a_view_is_refused() -> None:
    class Doubles(Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
            ctx.mark_dirty(a.mul_(2))
            return a

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return g * 2

    def program(a: torch.Tensor) -> torch.Tensor:
        b = a * 1
        Doubles.apply(b[0])
        return b

    with pytest.raises(NotImplementedError, match=r"(?s)mark_dirty.*line"):
        thunder.jit(program, fullgraph=True)(leaf(3, 2))

    log = []
    for jit in (thunder.jit, lambda function: function):
        function = jit(lambda a: Doubles.apply(a).sin())
        for _ in range(2):
            a = leaf(3)
            b = a * 1
            (function(b).sum() + b.sum()).backward()
            log += [a.grad, b.detach()]
    torch.testing.assert_close(log[:4], log[4:])


def test_write_to_a_view_that_a_function_gave_is_refused() -> None:
    class Flat(Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
            return a.view(-1)

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return g.view(2, 3)

    with pytest.raises(NotImplementedError):
        thunder.jit(lambda a: Flat.apply(a * 2).mul_(3), fullgraph=True)(leaf(2, 3))


def test_backward_that_looks_at_data_is_refused_by_fullgraph() -> None:
    function = doubling(lambda ctx, g: g * g.sum().item())
    with pytest.raises(NotImplementedError, match=r"(?s)the backward of Doubled.*line"):
        thunder.jit(lambda a: function.apply(a), fullgraph=True)(leaf(3))


@pytest.mark.parametrize("scale", [lambda kept: len(kept), lambda kept: kept[0], lambda kept: sum(kept)])
@pytest.mark.parametrize("make", [float, torch.tensor])
def test_list_that_is_kept_on_a_context_and_changes_before_the_backward(
    scale: Callable[[Any], Any], make: Callable[[float], Any]
) -> None:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, kept: list[Any]) -> torch.Tensor:
            ctx.kept = kept
            return x * len(kept)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            return gradient * scale(ctx.kept), None

    def gradients(function: Callable[..., Any]) -> list[torch.Tensor]:
        found = []
        for _ in range(2):
            x, kept = torch.ones(2, requires_grad=True), [make(1.0)]
            y = function(x, kept)
            kept.insert(0, make(5.0))
            found.append(torch.autograd.grad(y.sum(), x)[0])
        return found

    ours, eager = gradients(thunder.jit(Scaled.apply)), gradients(Scaled.apply)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(ours, eager, strict=True))


class AsksForGradMode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * (2 if torch.is_grad_enabled() else 1)


def hook_asks_for_grad_mode(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.register_hook(lambda gradient: gradient * (2 if torch.is_grad_enabled() else 1))
    return y * 3


@pytest.mark.parametrize("program", [AsksForGradMode.apply, hook_asks_for_grad_mode])
def test_backward_that_asks_for_the_grad_mode(program: Callable[..., torch.Tensor]) -> None:
    compiled = thunder.jit(program)
    for create_graph in (False, True, False):
        x = torch.ones(2, requires_grad=True)
        eager = torch.autograd.grad(program(x).sum(), x, create_graph=create_graph)[0]
        ours = torch.autograd.grad(compiled(x).sum(), x, create_graph=create_graph)[0]
        assert torch.equal(ours, eager)


class Reversible(Function):
    """Keeps its output alone, as layers of RevNet and Reformer do, and differentiates what it recomputes."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, f: nn.Module, g: nn.Module) -> torch.Tensor:
        ctx.f, ctx.g = f, g
        left, right = x.chunk(2, -1)
        left = left + f(right)
        out = torch.cat([left, right + g(left)], -1)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (left, right), (d_left, d_right) = ctx.saved_tensors[0].chunk(2, -1), gradient.chunk(2, -1)
        with torch.enable_grad():
            left = left.detach().requires_grad_()
            of_left = ctx.g(left)
            of_left.backward(d_right)
        right, d_left = right - of_left.detach(), d_left + left.grad
        with torch.enable_grad():
            right = right.detach().requires_grad_()
            torch.autograd.backward(ctx.f(right), d_left)
        return torch.cat([d_left, d_right + right.grad], -1), None, None


class ReversibleNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4)]
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.sin()
        for f, g in zip(self.layers[::2], self.layers[1::2], strict=True):
            x = Reversible.apply(x, f, g)
        return self.head(x).mean(0)


class LooksAtGradient(Function):
    """Decides on data in its backward, and has a result without a gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.save_for_backward(x, weight)
        ctx.rows = x.shape[0]
        places = x.argmax(-1)
        ctx.mark_non_differentiable(places)
        return x * weight, places, x.sum(0)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: Any, of_sum: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        gradient = gradient * 2 if float(gradient.sum()) > 0 else gradient
        return gradient * weight + of_sum, (gradient * x).sum(0) / ctx.rows


class TimesRows(Function):
    """Has a backward that only computes."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.rows = x.shape[0]
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * ctx.rows


def _then_another(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    made, places, total = LooksAtGradient.apply(x.sin(), weight)
    return (TimesRows.apply(made) + total).cos() * places[:, None]


def _after_another(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    made, _, _ = LooksAtGradient.apply(TimesRows.apply(x), weight)
    again, _, total = LooksAtGradient.apply(made[:-1], weight)
    return torch.cat([again, made]) * total


def _without_gradient(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = LooksAtGradient.apply(x, weight)[2]
    return LooksAtGradient.apply(x, weight)[0] * scale


@pytest.mark.skipif(sys.version_info < (3, 11), reason="symbols need Python 3.11")
@pytest.mark.parametrize("function", [_then_another, _after_another, _without_gradient])
def test_a_backward_that_runs_as_python_is_of_all_sizes(function: Callable[..., torch.Tensor]) -> None:
    compiled = thunder.jit(function)
    for rows in (5, 7, 3, 9, 1, 2, 0, 8):
        x, weight = leaf(rows, 4), leaf(4)
        if rows == 0 and function is _after_another:
            continue
        results = []
        for each in (compiled, function):
            x.grad = weight.grad = None
            result = each(x, weight)
            result.sum().backward()
            results.append([result.detach(), x.grad, weight.grad])
        assert_same(results[0], results[1], function.__name__)
    assert thunder.compile_stats(compiled)["specializations"] <= 4, thunder.explain_misses(compiled)
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


@pytest.mark.skipif(sys.version_info < (3, 11), reason="symbols need Python 3.11")
def test_a_reversible_network_has_one_program_for_all_batches() -> None:
    torch.manual_seed(0)
    model = ReversibleNet()
    compiled = thunder.jit(model)
    counts = []
    for rows in (5, 7, 3, 9, 2, 1, 0, 6):
        x = leaf(rows, 8)
        results = []
        for each in (compiled, model):
            x.grad = None
            model.zero_grad()
            result = each(x)
            result.sum().backward()
            results.append([result.detach(), x.grad, *(parameter.grad for parameter in model.parameters())])
        torch.testing.assert_close(results[0], results[1], equal_nan=True)
        counts.append(thunder.compile_stats(compiled)["specializations"])
    assert counts == [1, 2, 2, 2, 2, 3, 4, 4]
