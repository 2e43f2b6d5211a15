"""Fusion executors written in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager

import thunder
from thunder.extend import FusionExecutor

calls: list[str] = []


def values(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


def operators_of(traces: list[thunder.Trace]) -> list[str]:
    return [symbol.name for symbol in traces[-1].bound_symbols]


class Gluing(FusionExecutor):
    """Runs a region as the program that its trace prints."""

    def __init__(self, name: str = "gluing_tests") -> None:
        super().__init__(name)
        self.regions: list[thunder.Trace] = []
        for operation in (torch.sin, torch.cos, torch.mul, torch.exp):
            self.register_supported(operation, lambda *args, **kwargs: args[0].is_tensor)

    def fuse(self, region: thunder.Trace) -> Callable[..., Any]:
        self.regions.append(region)
        program = region.python_callable()

        def run(*tensors: torch.Tensor) -> Any:
            calls.append("fusion")
            return program(*tensors)

        return run


def test_fusion_executor_fuses_neighbours_in_forward_and_backward() -> None:
    executor = Gluing()
    compiled = assert_as_eager(
        lambda x, y: (x.sin() * y).exp().sum() + y.cos(), values(3), values(3), options={"executors": [executor]}
    )
    assert "prims.fusion" in operators_of(thunder.last_traces(compiled))
    assert "prims.fusion" in operators_of(thunder.last_backward_traces(compiled))
    assert "gluing_tests.fusion0" in str(thunder.last_traces(compiled)[-1])
    assert executor.regions[0].bound_symbols[0].name == "aten.sin.default"
    assert "fusion" in calls
    with torch.no_grad():
        x = torch.ones(3)
        torch.testing.assert_close(compiled(x, x), (x.sin() * x).exp().sum() + x.cos())


def test_printed_fusion_runs() -> None:
    compiled = thunder.jit(lambda x: x.sin().cos(), executors=[Gluing()])
    x = torch.randn(3)
    expected = compiled(x)
    torch.testing.assert_close(thunder.last_traces(compiled)[-1].python_callable()(x)[0], expected)


def test_exception_in_a_fusion_pass_names_the_executor() -> None:
    class Broken(Gluing):
        def fuse(self, region: thunder.Trace) -> Callable[..., Any]:
            raise ValueError("no compiler here")

    with pytest.raises(ValueError, match=r"(?s)no compiler here.*fusion pass of executor 'broken_tests'"):
        thunder.jit(lambda x: x.sin().cos(), executors=[Broken("broken_tests")])(torch.ones(3))


def test_fusion_of_wrong_shape_is_refused() -> None:
    class Broken(Gluing):
        def fuse(self, region: thunder.Trace) -> Callable[..., Any]:
            return lambda x: x.sum()

    with pytest.raises(RuntimeError, match=r"executor 'broken_tests'.*expected cpu f32\[3\].*got cpu f32\[\]"):
        thunder.jit(lambda x: x.sin().cos(), executors=[Broken("broken_tests")])(torch.ones(3))
