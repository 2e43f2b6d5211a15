"""Modules whose parameters are made by their first call."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
from beside_eager import assert_module_as_eager, assert_same
from torch import nn

import thunder

MODULES: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)),
    "convolution": lambda: nn.Sequential(nn.LazyConv2d(2, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(3)),
    "transposed": lambda: nn.Sequential(nn.LazyConvTranspose2d(2, 3), nn.LazyInstanceNorm2d(affine=True)),
}


@pytest.mark.parametrize("name", MODULES)
def test_first_call_makes_the_parameters_and_later_ones_are_compiled(name: str) -> None:
    eager, module = MODULES[name](), MODULES[name]()
    compiled = thunder.jit(module, fullgraph=True)
    x = torch.randn(2, 3, 5, 5)
    for call in range(3):
        results = []
        for each in (eager, compiled):
            torch.manual_seed(0)
            results.append(each(x))
            results[-1].sum().backward()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert_same(results[1], results[0], f"call {call}")
        assert_module_as_eager(module, eager)
    assert thunder.cache_misses(compiled) == 1
    assert thunder.cache_hits(compiled) == 1


def test_lazy_module_becomes_what_it_becomes_in_eager() -> None:
    compiled = thunder.jit(nn.LazyLinear(3))
    x = torch.randn(2, 5)
    assert isinstance(compiled, nn.LazyLinear)
    expected = compiled(x)
    assert isinstance(compiled, thunder.ThunderModule)
    assert isinstance(compiled, nn.Linear)
    assert not isinstance(compiled, nn.LazyLinear)
    assert (type(compiled).__name__, compiled.in_features) == ("Linear", 5)
    assert_same(compiled(x), expected, "second call")
    assert_same(copy.deepcopy(compiled)(x), expected, "copy")
    assert thunder.cache_misses(compiled) == 1


def test_first_call_that_fails_leaves_the_module_lazy() -> None:
    compiled = thunder.jit(nn.Sequential(nn.LazyLinear(3), nn.Linear(2, 2)))
    with pytest.raises(RuntimeError):
        compiled(torch.randn(2, 5))
    compiled[1] = nn.Linear(3, 2)
    assert compiled(torch.randn(2, 5)).shape == (2, 2)


def test_lazy_module_inside_of_a_function_is_refused_by_name() -> None:
    module = nn.LazyLinear(3)
    with pytest.raises(NotImplementedError, match="lazy module"):
        thunder.jit(lambda x: module(x), fullgraph=True)(torch.randn(2, 5))
