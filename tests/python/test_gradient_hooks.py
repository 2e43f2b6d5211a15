"""Hooks on gradients that a program registers while it runs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager, assert_same
from programs import Function, named, parametrize, x
from small_modules import mlp, sequence
from torch import nn

import thunder


def hooks_scale(a: torch.Tensor) -> Any:
    b = a.sin()
    b.register_hook(lambda gradient: gradient * 3)
    return (b * a).exp()


def hooks_registered_after_a_use(a: torch.Tensor) -> Any:
    b = a.sin()
    c = b.exp()
    b.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
    return c + b


def hooks_in_order(a: torch.Tensor) -> Any:
    b = a.sin()
    b.register_hook(lambda gradient: gradient + 1)
    b.register_hook(lambda gradient: gradient * gradient)
    b.register_hook(lambda gradient: None)
    return b * 2


def hooks_read_tensors(a: torch.Tensor) -> Any:
    scale = a.exp()
    b = a * 2
    b.register_hook(lambda gradient: gradient * scale + b + torch.tensor([1.0, 2.0, 3.0, 4.0]))
    return b.cos()


def hooks_removed(a: torch.Tensor) -> Any:
    b = a.sin()
    b.register_hook(lambda gradient: gradient * 100).remove()
    return b * 2


def hooks_on_parts(a: torch.Tensor) -> Any:
    first, *_, last = a.sin().unbind(0)
    first.register_hook(lambda gradient: gradient * 3)
    last.register_hook(lambda gradient: gradient * 5)
    return first * last


def hooks_on_result(a: torch.Tensor) -> Any:
    b = a * 2
    b.register_hook(lambda gradient: gradient * 7)
    return b


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
        return a * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient * 20


def hooks_on_result_of_autograd_function(a: torch.Tensor) -> Any:
    b = Doubled.apply(a.sin())
    c = b.exp()
    b.register_hook(lambda gradient: gradient * 3)
    return c


def hooks_and_backward_inside(a: torch.Tensor) -> Any:
    seen = []
    b = a.sin()
    b.register_hook(lambda gradient: seen.append(gradient.sum()))
    b.register_hook(lambda gradient: gradient * 2)
    (b * a).sum().backward()
    return seen


def hooks_and_both_backwards(a: torch.Tensor) -> Any:
    b = a.sin()
    b.register_hook(lambda gradient: gradient * 2)
    c = (b * a).sum()
    (gradient,) = torch.autograd.grad(c, a, retain_graph=True)
    return c, gradient


def hooks_read_a_later_tensor(a: torch.Tensor) -> Any:
    b = a * 2
    c = b.exp()
    b.register_hook(lambda gradient: gradient * c)
    return c


def hooks_on_an_input(a: torch.Tensor) -> Any:
    a.register_hook(lambda gradient: gradient * 2)
    return a * 2


PROGRAMS = [f for name, f in sorted(globals().items()) if name.startswith("hooks_")]


@parametrize([named(f) for f in PROGRAMS])
def test_hook_on_a_tensor_made_inside(program: Function) -> None:
    assert_as_eager(program, x())


def refused_keeps(a: torch.Tensor) -> Any:
    kept: list[torch.Tensor] = []
    b = a * 2
    b.register_hook(kept.append)
    return b.exp(), kept


def refused_on_leaf(a: torch.Tensor) -> Any:
    b = a.detach().requires_grad_()
    b.register_hook(lambda gradient: gradient * 2)
    return b * 2


REFUSED = [f for name, f in sorted(globals().items()) if name.startswith("refused_")]


@parametrize([named(f) for f in REFUSED])
def test_hook_that_the_trace_cannot_hold_is_refused(program: Function) -> None:
    with pytest.raises(NotImplementedError, match="register_hook"):
        thunder.jit(program, fullgraph=True)(x())


class Watched(nn.Module):
    """A module whose full backward hooks write down and change gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()
        self.seen: list[Any] = []
        self.inner[2].register_full_backward_hook(self.see)
        self.inner[2].register_full_backward_pre_hook(lambda module, gradients: (gradients[0] * 2,))

    def see(self, module: nn.Module, inputs: Any, outputs: Any) -> Any:
        self.seen.append((inputs[0].shape, outputs[0].abs().sum()))
        return (inputs[0] * 3,)

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        return self.inner(a)


def test_full_backward_hooks_of_modules_run_in_a_backward_inside() -> None:
    def step(module: Watched, a: torch.Tensor) -> torch.Tensor:
        loss = module(a).square().sum()
        loss.backward()
        return loss.detach()

    module = Watched()
    eager = copy.deepcopy(module)
    compiled = thunder.jit(step)
    for _ in range(2):
        a = sequence()
        torch.testing.assert_close(compiled(module, a), step(eager, a))
        assert_same([p.grad for p in module.parameters()], [p.grad for p in eager.parameters()], "gradient")
        assert_same(module.seen, eager.seen, "seen")


def test_full_backward_hooks_of_modules_run_in_a_backward_outside() -> None:
    module = Watched()
    eager = copy.deepcopy(module)
    compiled = thunder.jit(module)
    for _ in range(2):
        a = sequence()
        compiled(a).square().sum().backward()
        eager(a).square().sum().backward()
        assert_same([p.grad for p in module.parameters()], [p.grad for p in eager.parameters()], "gradient")
        assert_same(module.seen, eager.seen, "seen")


def test_hook_on_a_node_is_refused_for_a_backward_outside() -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        b = a.exp()
        b.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 2,))
        return b * 2

    with pytest.raises(NotImplementedError, match="hooks on nodes"):
        thunder.jit(program, fullgraph=True)(x())


def test_hooks_on_a_result_come_after_those_of_the_program() -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        b = a * 1
        b.register_hook(lambda gradient: gradient + 1)
        return b

    outcomes = []
    for function in (program, thunder.jit(program)):
        a, seen = x(), []
        result = function(a)
        result.retain_grad()
        result.register_hook(seen.append)
        result.sum().backward()
        outcomes.append((result.grad, seen, a.grad))
    assert_same(outcomes[1], outcomes[0], "gradient")


def test_hook_on_an_input_that_requires_no_grad_afterwards() -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        a.register_hook(lambda gradient: gradient * 2)
        a.requires_grad_(False)
        return a * 2

    a = x()
    assert not thunder.jit(program)(a).requires_grad
    assert not a.requires_grad


def test_hook_on_a_result_that_a_backward_does_not_reach() -> None:
    def program(a: torch.Tensor) -> Any:
        b, c = a * 1, a * 2
        c.register_hook(lambda gradient: gradient * 3)
        return b, c

    outcomes = []
    for function in (program, thunder.jit(program)):
        a = x()
        b, c = function(a)
        outcomes.append([torch.autograd.grad(t.sum(), a, retain_graph=True)[0] for t in (b, c, b + c)])
    assert_same(outcomes[1], outcomes[0], "gradient")


def test_hook_from_outside_on_a_result_that_a_backward_does_not_reach() -> None:
    outcomes = []
    for function in (lambda a: (a * 2, a * 3), thunder.jit(lambda a: (a * 2, a * 3))):
        a, seen = x(), []
        b, c = function(a)
        handle = c.register_hook(lambda gradient, seen=seen: seen.append(gradient.tolist()) or gradient * 2)
        b.register_hook(lambda gradient, seen=seen: seen.append("b"))
        b.sum().backward(retain_graph=True)
        c.sum().backward(retain_graph=True)
        handle.remove()
        (b + c).sum().backward()
        outcomes.append((a.grad, seen))
    assert_same(outcomes[1], outcomes[0], "gradient")


def view_of_input(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    view = x[0]
    return view, (view * 3).sum()


def view_of_computed(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    view = (x * 2)[0]
    return view, (view * 3).sum()


def written_view(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    view = (x * 2)[0]
    view.mul_(2)
    return view, (view * 3).sum()


def one_of_several_views(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    view, _ = (x * 2).split(1)
    return view, (view * 3).sum()


def look_by_hook(view: torch.Tensor) -> None:
    view.register_hook(lambda gradient: None)


def look_by_hook_of_node(view: torch.Tensor) -> None:
    assert view.grad_fn is not None
    view.grad_fn.register_prehook(lambda gradients: None)


@pytest.mark.parametrize("look", [torch.Tensor.retain_grad, look_by_hook, look_by_hook_of_node])
@pytest.mark.parametrize("program", [view_of_input, view_of_computed, written_view, one_of_several_views])
def test_partial_gradient_of_a_returned_view_is_refused(program: Any, look: Any) -> None:
    compiled = thunder.jit(program)
    for _ in range(2):
        view, result = compiled(torch.ones(2, 3, requires_grad=True))
        look(view)
        view.sum().backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="by way of another result"):
            result.backward()


def test_gradients_of_returned_views_that_nothing_is_computed_from() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        view = x[0]
        return view.view(1, 3), view, (x[1] * 3).sum()

    def gradients(function: Any) -> list[torch.Tensor | None]:
        x = torch.ones(2, 3, requires_grad=True)
        part, view, result = function(x)
        part.retain_grad()
        view.retain_grad()
        (part.sum() + result).backward()
        return [part.grad, view.grad, x.grad]

    assert_equal = torch.testing.assert_close
    assert_equal(gradients(thunder.jit(program)), gradients(program))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_hook_on_an_accumulated_gradient_runs_once(count: int) -> None:
    def program(a: torch.Tensor, seen: list[str]) -> torch.Tensor:
        a.register_hook(lambda gradient: seen.append("gradient"))
        for i in range(count):
            a.register_post_accumulate_grad_hook(lambda leaf, i=i: seen.append(f"accumulated {i}"))
        return a * 2

    compiled = thunder.jit(program)
    for _ in range(2):
        logs: list[list[str]] = [[], []]
        for run, log in zip((compiled, program), logs, strict=True):
            run(x(), log).sum().backward()
        assert logs[0] == logs[1]


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("gives_input", [False, True])
def test_hook_on_a_view_of_an_input_behind_a_backward_inside_runs_in_a_later_one(gives_input: bool) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        flat = x.flatten()
        flat.register_hook(lambda g: g + 5)
        flat.sum().backward()
        return (x, flat) if gives_input else (flat, x * 1)

    gradients = []
    for function in (program, thunder.jit(program)):
        x = torch.tensor([[0.5, 1.5]], requires_grad=True)
        function(x)
        results = function(x)
        torch.autograd.backward(results, [torch.ones_like(result) for result in results])
        gradients.append(x.grad)
    assert torch.equal(gradients[0], gradients[1])


def test_gradient_of_a_result_behind_a_transform_inside_is_not_seen_in_part() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first = x * 1
        torch.func.hessian(lambda t: t**3)(first)
        return first, first * 1.0

    x = torch.tensor([[1.5]], requires_grad=True)
    first, second = thunder.jit(program)(x)
    first.register_hook(lambda g: g)
    with pytest.raises(RuntimeError, match="by way of another result"):
        (first + second).sum().backward()


@pytest.mark.parametrize("gives_sum", [False, True])
def test_hook_on_a_result_that_is_fed_by_a_view_runs_by_way_of_a_view_of_it(gives_sum: bool) -> None:
    factors: list[int] = []

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        flat = x.view(-1)
        total = flat.sum()
        total.register_hook(lambda g: g * len(factors))
        return (flat, total.view(1), total) if gives_sum else (flat, total.view(1))

    gradients = []
    for function in (program, thunder.jit(program)):
        x = torch.full((2, 2), 0.5, requires_grad=True)
        for _ in range(2):
            results = function(x)
            torch.autograd.backward(results, [torch.ones_like(result) for result in results])
        gradients.append(x.grad)
    assert torch.equal(gradients[0], gradients[1])


def hooked_between(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    shown = x.view(1, 2)
    first = shown * 2
    second = first * 1.5
    first.register_hook(lambda g: g.sin())
    return first, shown, second


def plain_between(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    shown = x.view(1, 2)
    first = shown * 2
    return first, shown, first * 1.5


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_hook_on_a_result_between_a_returned_view_and_another_result() -> None:
    gradients = []
    for function in (hooked_between, thunder.jit(hooked_between)):
        x = torch.tensor([1.0, -2.0], requires_grad=True)
        results = function(x)
        torch.autograd.backward(results, [torch.ones_like(result) for result in results])
        gradients.append(x.grad)
    assert torch.allclose(gradients[0], gradients[1])


@pytest.mark.parametrize("way", ["hook", "retain_grad", "grad"])
def test_gradient_of_a_result_between_a_returned_view_and_another_result_is_never_a_part(way: str) -> None:
    results = thunder.jit(plain_between)(torch.ones(2, requires_grad=True))
    total = sum(result.sum() for result in results)
    if way == "hook":
        results[0].register_hook(lambda g: None)
    elif way == "retain_grad":
        results[0].retain_grad()
    with pytest.raises(RuntimeError, match="by way of another result"):
        torch.autograd.grad(total, results[0]) if way == "grad" else total.backward()


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("on_input", [True, False])
def test_handle_that_is_returned_removes_the_hook(on_input: bool) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 2
        handle = (x if on_input else y).register_hook(lambda g: g * 3)
        return y, handle

    gradients = []
    for function in (program, thunder.jit(program)):
        for _ in range(2):
            x = torch.ones(3, requires_grad=True)
            y, handle = function(x)
            y.sum().backward(retain_graph=True)
            handle.remove()
            y.sum().backward()
            gradients.append(x.grad.tolist())
    assert gradients[:2] == gradients[2:]


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("method", ["squeeze_", "t_"])
def test_hook_on_a_tensor_that_is_turned_in_place_afterwards(method: str) -> None:
    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        y = x * weight
        y.register_hook(lambda g: g * 10)
        doubled = 2 * y
        getattr(y, method)()
        return doubled.sum() + y.sum()

    found = []
    for call in (function, thunder.jit(function)):
        weight = torch.ones(3, requires_grad=True)
        call(torch.arange(3.0).reshape(1, 3), weight).backward()
        found.append(weight.grad)
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("gives_tensor", [True, False])
def test_handle_that_is_returned_is_named(gives_tensor: bool) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 2
        handle = y.register_hook(lambda g: g * 3)
        return (y if gives_tensor else y.sin()), handle

    with pytest.raises(NotImplementedError, match="the handle of a hook that it registered"):
        thunder.jit(program, fullgraph=True)(torch.ones(3, requires_grad=True))
