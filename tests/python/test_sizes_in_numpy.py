"""Numbers that NumPy makes of sizes are sizes of its own type: equal to eager, and one program for all of them."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

import thunder

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="symbols need Python 3.11")

ROWS = (4, 5, 7, 8, 11, 3, 1, 2, 0)


def kinds(value: Any) -> Any:
    """Return a structure with the types of what it consists of."""
    if isinstance(value, tuple | list | dict):
        items = value.items() if isinstance(value, dict) else value
        return type(value), [kinds(item) for item in items]
    if isinstance(value, Tensor | numpy.ndarray):
        return type(value), value.dtype, value.tolist()
    return type(value), repr(value)


def outcome(function: Callable[[Tensor], Any], x: Tensor) -> Any:
    try:
        return kinds(function(x))
    except (RuntimeError, IndexError, ZeroDivisionError, ValueError) as error:
        return type(error)


# Programs that use such a number, with the specializations that numbers of rows from two on need.
PROGRAMS: dict[str, tuple[Callable[[Tensor], Any], int]] = {
    "reshape": (lambda x: x.reshape(numpy.prod(x.shape)), 2),
    "int": (lambda x: x.reshape(int(numpy.prod(x.shape))), 2),
    "view": (lambda x: x.view(numpy.prod(x.shape[:1]), -1) * 2, 2),
    "list": (lambda x: torch.zeros([numpy.prod(x.shape), 2]), 2),
    "factor": (lambda x: (x * numpy.prod(x.shape), numpy.sum(x.shape) * x, x.int() * numpy.prod(x.shape)), 2),
    "divisor": (lambda x: x / numpy.prod(x.shape), 2),
    "fill": (lambda x: torch.full((numpy.sum(x.shape),), numpy.prod(x.shape)), 2),
    "position": (lambda x: x[numpy.prod(x.shape) // 6], 3),
    "shape": (lambda x: torch.Size([numpy.prod(x.shape), 2]), 2),
    "stored": (lambda x: {"sizes": [numpy.prod(x.shape), x.shape[0], numpy.min([x.shape[0], 100])]}, 2),
    "arithmetic": (
        lambda x: (
            numpy.prod(x.shape) * 2 + 1,
            numpy.prod(x.shape) // 3,
            x.shape[0] * numpy.sum(x.shape) % 7,
            [-numpy.sum(x.shape), abs(numpy.sum(x.shape)), ~numpy.sum(x.shape), numpy.sum(x.shape) << 2],
            divmod(numpy.sum(x.shape), 3),
        ),
        2,
    ),
    "largest": (lambda x: (numpy.max(x.shape), numpy.min(x.shape)), 3),
    "floats": (lambda x: (float(numpy.prod(x.shape)), math.sqrt(numpy.prod(x.shape)), math.floor(x.shape[0])), 2),
    "compared": (lambda x: (numpy.prod(x.shape) > 2, x.shape[0] == numpy.prod(x.shape), not numpy.sum(x.shape)), 3),
}

# Programs that look at the number itself.
LOOKING: dict[str, Callable[[Tensor], Any]] = {
    "numpy's floats": lambda x: (numpy.prod(x.shape) / 2, numpy.prod(x.shape) * 0.5, 2.0 - numpy.sum(x.shape)),
    "powers": lambda x: (numpy.sum(x.shape) ** 2, numpy.sum(x.shape) ** 0.5, numpy.sum(x.shape) ** 5),
    "functions": lambda x: (numpy.sqrt(numpy.prod(x.shape)), round(numpy.prod(x.shape)), numpy.cumsum(x.shape)),
    "type": lambda x: (type(numpy.prod(x.shape)), isinstance(numpy.prod(x.shape), int), numpy.prod(x.shape).dtype),
    "class": lambda x: (isinstance(numpy.prod(x.shape), numpy.integer), numpy.prod(x.shape).__class__),
    "text": lambda x: (str(numpy.prod(x.shape)), repr(numpy.prod(x.shape)), f"{numpy.prod(x.shape)}"),
    "methods": lambda x: (numpy.prod(x.shape).item(), numpy.prod(x.shape).astype(numpy.float32)),
    "index": lambda x: (operator.index(numpy.prod(x.shape)), sum(range(numpy.prod(x.shape))), hash(numpy.sum(x.shape))),
    "arrays": lambda x: (numpy.arange(3) * numpy.prod(x.shape), numpy.prod(x.shape) * numpy.arange(3)),
    "data": lambda x: x.sum().item() * numpy.prod(x.shape),
    "key": lambda x: {numpy.prod(x.shape): 1},
    "none": lambda x: (numpy.prod(x.shape) == None, hasattr(numpy.prod(x.shape), "rows")),  # noqa: E711
    "keywords": lambda x: (numpy.prod(x.shape, axis=0), numpy.prod(x.shape, dtype=numpy.float32)),
    "other ints": lambda x: numpy.prod([x.shape[0], 2]) * numpy.prod([2, 3]),
    "zero": lambda x: numpy.prod(x.shape) // (x.shape[1] - 3),
}


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_of_numpy_are_sizes(name: str) -> None:
    function, count = PROGRAMS[name]
    compiled: Any = thunder.jit(function)
    for rows in ROWS:
        x = torch.rand(rows, 3)
        assert outcome(compiled, x) == outcome(function, x)
        if rows == 11:
            assert thunder.compile_stats(compiled)["specializations"] <= count, thunder.explain_shapes(compiled)
    assert thunder.compile_stats(compiled)["eager_calls"] <= 2


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("name", LOOKING)
def test_programs_that_look_at_such_numbers_see_those_of_numpy(name: str) -> None:
    compiled: Any = thunder.jit(LOOKING[name])
    for rows in ROWS:
        x = torch.rand(rows, 3)
        assert outcome(compiled, x) == outcome(LOOKING[name], x)


def test_gradients_of_programs_with_numbers_of_numpy() -> None:
    def function(x: Tensor) -> Tensor:
        return (x.reshape(numpy.prod(x.shape)) * numpy.sum(x.shape)).sin()

    compiled = thunder.jit(function)
    for rows in ROWS:
        mine = torch.randn(rows, 3, requires_grad=True)
        theirs = mine.detach().clone().requires_grad_()
        compiled(mine).sum().backward()
        function(theirs).sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad)
