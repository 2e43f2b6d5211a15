"""The backward of a compiled function below torch._dynamo.compiled_autograd: one call in its graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo import compiled_autograd

import thunder

Jit = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def fresh_graphs() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiling(graphs: list[torch.fx.GraphModule] | None = None) -> contextlib.AbstractContextManager[Any]:
    def compile_graph(graph: torch.fx.GraphModule) -> Any:
        if graphs is not None:
            graphs.append(graph)
        return torch.compile(graph, backend="eager")

    return compiled_autograd._enable(compile_graph)


def elementwise(jit: Jit) -> tuple[Any, list[torch.Tensor]]:
    function = jit(lambda x, y: (x.sin() * y).exp().sum())
    return function, [torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)]


def module(jit: Jit) -> tuple[Any, list[torch.Tensor]]:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LayerNorm(4), nn.Linear(4, 2))
    compiled, x = jit(model), torch.rand(5, 3, requires_grad=True)
    return lambda *_: compiled(x).square().sum(), [x, *model.parameters()]


def hooks(jit: Jit) -> tuple[Any, list[torch.Tensor]]:
    function, x = jit(lambda x: (x * 2, x.cos())), torch.rand(3, requires_grad=True)
    x.register_hook(lambda gradient: gradient * 3)

    def run(x: torch.Tensor) -> torch.Tensor:
        a, b = function(x)
        a.register_hook(lambda gradient: gradient * 5)
        return a.sum() + b.sum()

    return run, [x]


def hook_after_accumulation(jit: Jit) -> tuple[Any, list[torch.Tensor]]:
    function, x = jit(lambda x: x[1:]), torch.rand(4, requires_grad=True)

    def double(leaf: torch.Tensor) -> None:
        leaf.grad = leaf.grad * 2  # type: ignore[operator]

    x.register_post_accumulate_grad_hook(double)
    return lambda x: (function(x) * function(x * 2)).sum(), [x]


def several_programs(jit: Jit) -> tuple[Any, list[torch.Tensor]]:
    function = jit(lambda x, n: (x * n).relu() if n > 1 else x * n)
    return lambda x: sum(function(x, n).sum() for n in (0.5, 2, 3, 4.5)), [torch.rand(4, requires_grad=True)]


def number_from_data(jit: Jit) -> tuple[Any, list[torch.Tensor]]:
    function = jit(lambda x: (x * x.sum().item() if x.sum().item() > 0 else x).sum())
    return function, [torch.rand(4, requires_grad=True)]


def unused_output(jit: Jit) -> tuple[Any, list[torch.Tensor]]:
    function = jit(lambda x, y: (x.exp(), y.sin() * x))
    return lambda x, y: function(x, y)[0].sum(), [torch.rand(2, requires_grad=True), torch.rand(2, requires_grad=True)]


PROGRAMS = [
    elementwise, module, hooks, hook_after_accumulation, several_programs, number_from_data, unused_output,
]  # fmt: skip


def train(program: Any, jit: Jit, around: Callable[[], Any]) -> list[list[torch.Tensor | None]]:
    """Return the gradients of three steps, the second and third of which may use the graph of the first."""
    torch.manual_seed(0)
    function, leaves = program(jit)
    steps = []
    for step in range(1, 4):
        for leaf in leaves:
            leaf.grad = None
        loss = function(*leaves) * step
        with around():
            loss.backward()
        steps.append([None if leaf.grad is None else leaf.grad.clone() for leaf in leaves])
    return steps


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_gradients_as_in_eager(program: Any) -> None:
    expected = train(program, lambda function: function, contextlib.nullcontext)
    assert_same_gradients(train(program, thunder.jit, compiling), expected)


def assert_same_gradients(got: list[list[torch.Tensor | None]], expected: list[list[torch.Tensor | None]]) -> None:
    for step, (some, others) in enumerate(zip(got, expected, strict=True)):
        for gradient, other in zip(some, others, strict=True):
            assert (gradient is None) == (other is None), step
            if other is not None:
                torch.testing.assert_close(gradient, other)


def test_one_graph_serves_all_steps_of_a_program() -> None:
    graphs: list[torch.fx.GraphModule] = []
    train(module, thunder.jit, lambda: compiling(graphs))
    assert len(graphs) == 1


def test_other_programs_have_other_graphs() -> None:
    double, triple = thunder.jit(lambda x: x.sin() * 2), thunder.jit(lambda x: x.sin() * 3)
    x = torch.rand(3, requires_grad=True)
    for function, factor in ((double, 2), (triple, 3)):
        x.grad = None
        result = function(x).sum()
        with compiling():
            result.backward()
        torch.testing.assert_close(x.grad, factor * x.detach().cos())


def test_inside_of_torch_compile() -> None:
    model = nn.Linear(3, 2)
    compiled, x = thunder.jit(model), torch.rand(4, 3)

    def step(x: torch.Tensor) -> None:
        compiled(x).square().sum().backward()

    with torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(step, backend="eager")(x)
    weight = model.weight.detach().requires_grad_()
    (x @ weight.t() + model.bias.detach()).square().sum().backward()
    torch.testing.assert_close(model.weight.grad, weight.grad)


def test_second_backward_raises() -> None:
    x = torch.rand(3, requires_grad=True)
    loss = thunder.jit(lambda x: x.sin().sum())(x)
    with compiling():
        loss.backward()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()


def test_write_to_a_saved_input_raises() -> None:
    x = torch.rand(3, requires_grad=True)
    loss = thunder.jit(lambda x: x.sin().sum())(x)
    with torch.no_grad():
        x.mul_(2)
    with compiling(), pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("is_looked_at", [False, True])
def test_gradient_by_way_of_another_result(is_looked_at: bool) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.sin()
        return y, y * 2

    x = torch.rand(3, requires_grad=True)
    y, z = thunder.jit(program)(x)
    if is_looked_at:
        y.retain_grad()
    refused = pytest.raises(RuntimeError, match="by way of another result")
    with compiling(), refused if is_looked_at else contextlib.nullcontext():
        z.sum().backward()
    if not is_looked_at:
        torch.testing.assert_close(x.grad, 2 * x.detach().cos())


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_graph_that_thunder_compiles_calls_a_hook_with_effects_once() -> None:
    calls = []

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.register_hook(lambda gradient: (calls.append(1), gradient * len(calls))[1])
        return (y * 3).sum()

    x = torch.rand(3, requires_grad=True)
    loss = thunder.jit(program)(x)
    with compiled_autograd._enable(thunder.jit):
        loss.backward()
    assert len(calls) == 1
    torch.testing.assert_close(x.grad, torch.full((3,), 6.0))
