"""Function modes, and a `__torch_function__`, inside of a program are told what eager tells them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder

Calls = list[tuple[str, list[str], dict[str, str]]]
told: Calls = []


def note(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
    kinds = [type(argument).__name__ for argument in args]
    told.append((function.__name__, kinds, {name: type(value).__name__ for name, value in (kwargs or {}).items()}))


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        note(function, args, kwargs)
        return function(*args, **(kwargs or {}))


class Told(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        note(function, args, kwargs)
        return super().__torch_function__(function, types, args, kwargs or {})


PROGRAMS: list[Callable[[torch.Tensor, float], Any]] = [
    lambda x, n: x * n,
    lambda x, n: n * x,
    lambda x, n: x**n,
    lambda x, n: x + (n + 1),
    lambda x, n: torch.add(x, x, alpha=n),
    lambda x, n: torch.addcmul(x, x, x, value=n),
    lambda x, n: torch.full_like(x, n),
    lambda x, n: x.new_full((2,), n),
    lambda x, n: x.clone().fill_(n),
    lambda x, n: x.clamp(n),
    lambda x, n: x.masked_fill(x > 0, n),
    lambda x, n: torch.where(x > 0, x, n),
    lambda x, n: x * x.sum().item(),
    lambda x, n: x + x.max().item() * n,
    lambda x, n: torch.tensor(x.tolist()) * n,
    lambda x, n: x.view(x.shape[0], 1) * x.shape[0],
    lambda x, n: x.new_tensor([1, 2]) * n,
]
MADE = [
    lambda x, n: torch.full((2,), n),
    lambda x, n: torch.tensor(n),
    lambda x, n: torch.scalar_tensor(n),
]


def under_mode(program: Any) -> Any:
    def run(x: torch.Tensor, n: float) -> Any:
        with Mode():
            return program(x, n)

    return run


def of_subclass(program: Any) -> Any:
    return lambda x, n: program(x.as_subclass(Told), n).as_subclass(torch.Tensor)


def calls_of(function: Any, sizes: bool) -> tuple[list[Calls], list[torch.Tensor]]:
    """Return what is told in each of several calls, in which the number, and with `sizes` the size, changes."""
    seen, results = [], []
    for i, n in enumerate((2.0, 0.5, 0.75, 0.75)):
        told.clear()
        results.append(function(torch.arange(1.0, 3 + i * sizes), n))
        seen.append(list(told))
    return seen, results


def check(program: Any, sizes: bool = False) -> None:
    expected = calls_of(program, sizes)
    seen, results = calls_of(thunder.jit(program), sizes)
    assert seen == expected[0]
    torch.testing.assert_close(results, expected[1])


@pytest.mark.parametrize("program", PROGRAMS + MADE)
def test_function_mode(program: Any) -> None:
    check(under_mode(program))


@pytest.mark.parametrize("program", PROGRAMS)
def test_subclass(program: Any) -> None:
    check(of_subclass(program))


@pytest.mark.parametrize("around", [under_mode, of_subclass])
def test_sizes(around: Any) -> None:
    check(around(lambda x, n: x.view(x.shape[0], 1) + x.shape[0] * n), sizes=True)


def test_subclass_that_hands_calls_on_leaves_numbers_open() -> None:
    class Plain(torch.Tensor):
        pass

    function = thunder.jit(lambda x, n: (x.as_subclass(Plain) * n).as_subclass(torch.Tensor))
    for n in (2.0, 0.5, 0.75, 0.25):
        torch.testing.assert_close(function(torch.ones(2), n), torch.full((2,), n))
    assert thunder.cache_misses(function) == 2
