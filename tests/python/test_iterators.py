"""Iterators and generators from outside go on from call to call, and those that are returned are the caller's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import thunder

Program = Callable[[torch.Tensor], Any]


def counting() -> Iterator[int]:
    total = 0
    while True:
        total += (yield total) or 1


def started() -> Any:
    generator = counting()
    next(generator)
    return generator


SOURCES: dict[str, Callable[[], Any]] = {
    "list": lambda: iter([1, 2, 3, 4, 5, 6]),
    "dict": lambda: iter({1: 2, 3: 4, 5: 6, 7: 8}),
    "generator": started,
    "expression": lambda: (n for n in range(9)),
    "count": lambda: itertools.count(1),
    "chain": lambda: itertools.chain([1, 2], [3, 4, 5]),
    "map": lambda: map(int, "123456"),
    "tensor": lambda: iter(torch.arange(6.0)),
}
READS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "next": lambda it, x: x * next(it),
    "method": lambda it, x: x * it.__next__(),
    "loop": lambda it, x: next(x * n for n in it),
    "islice": lambda it, x: x * sum(itertools.islice(it, 2)),
    "zip": lambda it, x: [x * n for n, _ in zip(it, range(1), strict=False)],
    "membership": lambda it, x: x * ((2 in itertools.islice(it, 2)) + 1),
    "unpacking": lambda it, x: [x * n for n in (lambda a, b: (a, b))(*itertools.islice(it, 2))],
    "attribute": lambda it, x: x * (0 if next(it, None) is None else 1),
}


def run(program: Program, x: torch.Tensor) -> str:
    try:
        return repr(program(x))
    except Exception as error:
        return type(error).__name__


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("source", SOURCES)
def test_iterator_from_outside_goes_on(source: str, read: str) -> None:
    iterators = [SOURCES[source](), SOURCES[source]()]
    eager, traced = (lambda x, it=it: READS[read](it, x) for it in iterators)
    compiled = thunder.jit(traced)
    for _ in range(4):
        assert run(compiled, torch.ones(2)) == run(eager, torch.ones(2))


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_generator_from_outside_is_sent_to() -> None:
    eager, traced = started(), started()
    compiled = thunder.jit(lambda x: x * traced.send(2))
    for _ in range(3):
        assert compiled(torch.ones(2)).tolist() == (torch.ones(2) * eager.send(2)).tolist()
    with pytest.raises(NotImplementedError, match="iterator from outside"):
        thunder.jit(lambda x: x * traced.send(2), fullgraph=True)(torch.ones(2))


def generator_function(x: torch.Tensor) -> Iterator[torch.Tensor]:
    yield x
    yield x * 2


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize(
    "program",
    [
        lambda x: iter([x, x + 1]),
        lambda x: (x * n for n in range(3)),
        lambda x: zip([x, x + 1], [1, 2], strict=True),
        lambda x: map(torch.sin, [x, x + 1]),
        generator_function,
    ],
)
def test_iterator_that_is_returned_is_new_at_each_call(program: Program) -> None:
    compiled = thunder.jit(program)
    for call in range(3):
        x = torch.full((2,), float(call))
        assert repr(list(compiled(x))) == repr(list(program(x)))
