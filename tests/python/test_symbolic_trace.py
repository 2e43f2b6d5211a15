"""torch.fx traces Python: it sees a compiled function or module as it sees what was compiled."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder

Jit = Callable[[Any], Any]


def plain(function: Any, **_: Any) -> Any:
    return function


def function_itself(jit: Jit) -> Any:
    return jit(lambda x, scale=2.0: torch.sin(x) * scale)


def function_inside(jit: Jit) -> Any:
    inner = jit(lambda x, y: x + y.relu())
    return lambda x: inner(x, y=x * 2) - 1


def proxies_in_containers(jit: Jit) -> Any:
    inner = jit(lambda tensors, named: tensors[0] + tensors[1] * named["a"])
    return lambda x: inner([x, x * 2], {"a": x})


def module_itself(jit: Jit) -> Any:
    return jit(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))


class Outer(nn.Module):
    def __init__(self, jit: Jit) -> None:
        super().__init__()
        self.inner = jit(nn.Linear(2, 2))
        self.function = jit(torch.nn.functional.gelu)
        self.scale = nn.Parameter(torch.rand(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.inner(x)) * self.scale


class Method(nn.Module):
    def __init__(self, jit: Jit) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(2))
        self.scaled = jit(self.scaled)  # type: ignore[method-assign]

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scaled(x) + self.scaled(torch.ones(2))


PROGRAMS = [function_itself, function_inside, proxies_in_containers, module_itself, Outer, Method]


def call_once(program: Any) -> None:
    program(torch.rand(2, 2))


@pytest.mark.parametrize("jit", [thunder.jit, lambda function: thunder.jit(function, fullgraph=True)])
@pytest.mark.parametrize("runs_first", [False, True])
@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_traces_what_was_compiled(make: Any, runs_first: bool, jit: Jit) -> None:
    torch.manual_seed(0)
    expected = torch.fx.symbolic_trace(make(plain))
    torch.manual_seed(0)
    program = make(jit)
    if runs_first:
        call_once(program)
    with warnings.catch_warnings():
        warnings.simplefilter("error", thunder.EagerFallbackWarning)
        traced = torch.fx.symbolic_trace(program)
    assert str(traced.graph) == str(expected.graph)
    x = torch.rand(3, 2)
    torch.testing.assert_close(traced(x), expected(x))


def test_is_compiled_afterwards() -> None:
    function = thunder.jit(lambda x: torch.sin(x) * 2)
    torch.fx.symbolic_trace(function)
    function(torch.rand(2))
    assert thunder.cache_misses(function) == 1
    assert function.__class__ is type(function)


def test_error_while_tracing_leaves_the_class_alone() -> None:
    function = thunder.jit(lambda x: 1 if x > 0 else 2)
    with pytest.raises(torch.fx.proxy.TraceError):
        torch.fx.symbolic_trace(function)
    assert function.__class__ is type(function)
