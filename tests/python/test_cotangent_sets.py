"""A backward is made for the cotangents that come, and computes what eager does with the others undefined."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import thunder


def last_backward(compiled: Any) -> str:
    return str(thunder.last_backward_traces(compiled)[-1])


def operators(compiled: Any) -> list[str]:
    return [symbol.name for symbol in thunder.last_backward_traces(compiled)[-1].bound_symbols]


def leaves(*values: torch.Tensor) -> list[torch.Tensor]:
    return [value.detach().clone().requires_grad_() for value in values]


def gradients(program: Any, inputs: list[torch.Tensor], which: tuple[int, ...]) -> list[torch.Tensor | None]:
    inputs = leaves(*inputs)
    outputs = program(*inputs)
    chosen = [outputs[i] for i in which]
    return list(torch.autograd.grad(chosen, inputs, [torch.ones_like(y) for y in chosen], allow_unused=True))


def same(got: list[torch.Tensor | None], expected: list[torch.Tensor | None]) -> None:
    assert [g is None for g in got] == [e is None for e in expected]
    for g, e in zip(got, expected, strict=True):
        if g is not None:
            torch.testing.assert_close(g, e, equal_nan=False)


def symmetric(x: torch.Tensor) -> torch.Tensor:
    return x + x.mT


class TwoOutputs(torch.autograd.Function):
    """It takes both cotangents at once."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return first * x.cos() - second * x.sin()


def hooked(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = x.exp()
    y.register_hook(lambda gradient: gradient + 1)
    return y * 2, x.sin()


ONE = torch.ones(3)
SQUARE = torch.arange(9.0).reshape(3, 3).sin()
PROGRAMS: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "arcsin": (lambda x: (x.arcsin(), x * 2), [ONE]),
    "shared": (lambda x, w: ((h := x.sin() * w), h.exp(), w.log()), [SQUARE, SQUARE.abs() + 1]),
    "views": (lambda x: (x.mT, x[0], x.reshape(-1) * 2), [SQUARE]),
    "same tensor twice": (lambda x: ((y := x.exp()), y, y.sin()), [SQUARE]),
    "input returned": (lambda x, w: (x * w, x, w.exp()), [SQUARE, SQUARE]),
    "split": (lambda x: (*x.split(1), x.sum()), [SQUARE]),
    "max": (lambda x: (x.max(0).values, x.max(1).values.exp()), [SQUARE]),
    "eigenvalues that are equal": (lambda x: torch.linalg.eigh(symmetric(x)), [torch.eye(3)]),
    "singular values that are equal": (lambda x: torch.linalg.svd(x), [torch.eye(3)]),
    "slogdet": (lambda x: (*torch.linalg.slogdet(x), x.exp()), [SQUARE + 2 * torch.eye(3)]),
    "std_mean": (lambda x: torch.std_mean(x), [ONE]),
    "layer norm with its statistics": (
        lambda x, w: torch.native_layer_norm(x, [3], w, None, 1e-5),
        [SQUARE, ONE],
    ),
    "function with two outputs": (lambda x: TwoOutputs.apply(x), [SQUARE]),
    "hook": (hooked, [SQUARE]),
    "checkpoint": (
        lambda x, w: (checkpoint(lambda a, b: (a @ b).tanh(), x, w, use_reentrant=False), (x * w).exp()),
        [SQUARE, SQUARE],
    ),
    "writes": (lambda x: ((y := x.clone()).mul_(3), y.exp(), x.sin()), [SQUARE]),
    "data": (lambda x: (x.log(), x * 3 if x.sum() > 0 else x), [ONE * 0 + 0.5]),
    "nothing saved": (lambda x, w: (x + w, x - w, w * 2), [SQUARE, SQUARE]),
}


@pytest.mark.parametrize("rematerialize", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_set_of_cotangents_gives_the_gradients_of_eager(name: str, rematerialize: bool) -> None:
    program, inputs = PROGRAMS[name]
    compiled = thunder.jit(program, rematerialize=rematerialize)
    outputs = program(*leaves(*inputs))
    differentiable = [i for i, y in enumerate(outputs) if y.requires_grad]
    sets = [chosen for count in range(1, len(outputs) + 1) for chosen in combinations(differentiable, count)]
    compared = 0
    for which in sets + sets[::-1]:
        expected = gradients(program, inputs, which)
        if all(g is None or bool(g.isfinite().all()) for g in expected):
            same(gradients(compiled, inputs, which), expected)
            compared += 1
    assert compared > 0


def test_zero_times_infinity_is_not_added() -> None:
    x = torch.ones(1, requires_grad=True)
    thunder.jit(lambda x: (x.arcsin(), x * 2))(x)[1].sum().backward()
    assert x.grad is not None
    assert x.grad.item() == 2


def test_backward_of_the_loss_alone_makes_no_zeros_of_the_logits() -> None:
    def model(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = x @ w
        return logits.square().mean(), logits

    compiled = thunder.jit(model)
    x, w = leaves(SQUARE, SQUARE)
    compiled(x, w)[0].backward()
    assert "cotangent1" not in last_backward(compiled)
    assert not any("add" in name or "zeros" in name for name in operators(compiled))


def test_usual_first_step_runs_the_last_passes_once() -> None:
    compiled = thunder.jit(lambda x: (x.exp().sum(), x.sin()))
    x = leaves(SQUARE)[0]
    outputs = compiled(x)
    outputs[0].backward()
    runs = [run for run in thunder.compile_stats(compiled)["passes"] if run.trace == "backward"]
    assert [run.name for run in runs].count("lower") == 1
    compiled(x)[0].backward()
    assert len([run for run in thunder.compile_stats(compiled)["passes"] if run.trace == "backward"]) == len(runs)


def test_traces_are_those_of_the_backward_that_was_made_last() -> None:
    compiled = thunder.jit(lambda x: (x.exp(), x.sin()))
    x = leaves(SQUARE)[0]
    outputs = compiled(x)
    assert "cotangent0" in last_backward(compiled)
    assert "cotangent1" in last_backward(compiled)
    outputs[1].sum().backward()
    assert "cotangent0" not in last_backward(compiled)
    assert "cotangent1" in last_backward(compiled)


def test_backward_of_one_output_leaves_what_another_one_reads() -> None:
    compiled = thunder.jit(lambda x, w: (x.exp(), w.sigmoid() * 2))
    x, w = leaves(SQUARE, SQUARE)
    first, second = compiled(x, w)
    first.sum().backward()
    second.sum().backward()
    sigmoid = w.detach().sigmoid()
    torch.testing.assert_close([x.grad, w.grad], [x.detach().exp(), 2 * sigmoid * (1 - sigmoid)])
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        second.sum().backward()


def test_retained_graph_takes_other_cotangents() -> None:
    compiled = thunder.jit(lambda x: (x.exp() * x, x.exp().sin()))
    x = leaves(SQUARE)[0]
    first, second = compiled(x)
    eager_first, eager_second = (x.exp() * x, x.exp().sin())
    for outputs, expected in (((first,), (eager_first,)), ((second, first), (eager_second, eager_first))):
        ones = [torch.ones_like(y) for y in outputs]
        got = torch.autograd.grad(outputs, x, ones, retain_graph=True)
        torch.testing.assert_close(got, torch.autograd.grad(expected, x, ones, retain_graph=True))


def test_write_to_what_only_another_output_saved_is_allowed() -> None:
    compiled = thunder.jit(lambda x: (x.exp(), x * 2), rematerialize=False)
    x = leaves(SQUARE)[0]
    first, second = compiled(x)
    first.detach().zero_()
    second.sum().backward()
    assert x.grad is not None
    assert bool((x.grad == 2).all())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        first.sum().backward()


def test_input_that_no_cotangent_reaches_has_no_gradient() -> None:
    x, w = leaves(SQUARE, SQUARE)
    thunder.jit(lambda x, w: (x.exp(), w.sin()))(x, w)[0].sum().backward()
    assert x.grad is not None
    assert w.grad is None


def test_transforms_of_the_user_see_each_backward() -> None:
    seen = []

    class Look(thunder.transforms.Transform):
        def transform_trace_post_optimization(self, computation_trace: Any, **kwargs: Any) -> Any:
            seen.append(computation_trace.name)
            return computation_trace

    compiled = thunder.jit(lambda x: (x.exp(), x.sin()), transforms=[Look()])
    x = leaves(SQUARE)[0]
    outputs = compiled(x)
    assert seen == ["forward", "backward"]
    outputs[1].sum().backward()
    assert seen == ["forward", "backward", "forward", "backward"]
    torch.testing.assert_close(x.grad, x.detach().cos())


def test_error_of_a_transform_in_a_later_backward_reaches_the_caller() -> None:
    class Refuse(thunder.transforms.Transform):
        runs = 0

        def transform_trace_post_optimization(self, computation_trace: Any, **kwargs: Any) -> Any:
            self.runs += 1
            if self.runs > 2:
                raise LookupError("not again")
            return computation_trace

    compiled = thunder.jit(lambda x: (x.exp(), x.sin()), transforms=[Refuse()])
    x = leaves(SQUARE)[0]
    outputs = compiled(x)
    with pytest.raises(LookupError, match="not again"):
        outputs[1].sum().backward(retain_graph=True)
    (outputs[0].sum() + outputs[1].sum()).backward()
    torch.testing.assert_close(x.grad, x.detach().exp() + x.detach().cos())


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu")])
def test_backward_is_made_the_same_in_any_mode(context: Callable[[], Any]) -> None:
    compiled = thunder.jit(lambda x, w: (x @ w, (x @ w).tanh(), x.exp()))
    inputs = leaves(SQUARE, SQUARE)
    outputs = compiled(*inputs)
    with context():
        outputs[1].backward(torch.ones(3, 3))
    x, w = leaves(SQUARE, SQUARE)
    (x @ w).tanh().backward(torch.ones(3, 3))
    torch.testing.assert_close([i.grad for i in inputs], [x.grad, w.grad])


class CountingMode(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("scale", [2.0, 1j], ids=["real", "complex"])
def test_backward_that_is_first_asked_for_in_a_dispatch_mode(scale: complex) -> None:
    w = torch.tensor([0.5, -1.0], requires_grad=True)
    compiled = thunder.jit(lambda w: w.sin() * scale)
    gradients, seen = [], []
    for _ in range(2):
        mode = CountingMode()
        result = compiled(w)
        with mode:
            gradients += torch.autograd.grad(result, w, torch.ones_like(result))
        seen.append(mode.names)
    expected = torch.autograd.grad(w.sin() * scale, w, torch.ones_like(result))[0]
    assert seen[0] == seen[1]  # nothing that compiles
    for gradient in gradients:
        torch.testing.assert_close(gradient, expected)


def test_threads_that_need_different_backwards_at_once() -> None:
    compiled = thunder.jit(lambda x: tuple((x * k).sin() for k in range(1, 9)))
    compiled(leaves(SQUARE)[0])
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(5):
            x = leaves(SQUARE)[0]
            compiled(x)[k].sum().backward()
            if not torch.allclose(x.grad, (k + 1) * ((k + 1) * SQUARE).cos()):  # type: ignore[arg-type]
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
