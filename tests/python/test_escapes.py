"""Tensors that a function hands to objects from outside are there with their data after each call."""

from __future__ import annotations

import collections
import contextvars
import functools
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder

Escape = tuple[Callable[[torch.Tensor], Any], Callable[[], torch.Tensor]]
pytestmark = pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")


def exception() -> Escape:
    box: list[Any] = [None]

    def f(x: torch.Tensor) -> None:
        try:
            raise ValueError(x * 2)
        except ValueError as error:
            box[0] = error

    return f, lambda: box[0].args[0]


def closure() -> Escape:
    box: list[Any] = [None]

    def f(x: torch.Tensor) -> None:
        y = x * 2
        box[0] = lambda: y

    return f, lambda: box[0]()


def generator() -> Escape:
    box: list[Any] = [None]

    def f(x: torch.Tensor) -> None:
        y = x * 2

        def each() -> Any:
            yield y

        box[0] = each()

    return f, lambda: next(box[0])


def weak_reference() -> Escape:
    kept: list[Any] = []
    box: list[Any] = [None]

    def f(x: torch.Tensor) -> None:
        kept[:] = [x * 2]
        box[0] = weakref.ref(kept[0])

    return f, lambda: box[0]()


def stored(
    make: Callable[[], Any], put: Callable[[Any, torch.Tensor], Any], get: Callable[[Any], torch.Tensor]
) -> Escape:
    holder = make()
    return lambda x: put(holder, x * 2), lambda: get(holder)


class OnItself:
    """A descriptor that keeps the value itself."""

    def __set__(self, owner: Any, value: torch.Tensor) -> None:
        self.value = value

    def __get__(self, owner: Any, kind: Any = None) -> torch.Tensor:
        return self.value


class Owner:
    own = OnItself()


class Cache(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x
        return x


def attention_arguments() -> Escape:
    def put(box: list[Any], y: torch.Tensor) -> None:
        q = y.view(1, 1, 1, 3)
        box[:] = [torch.backends.cuda.SDPAParams(q, q, q, None, 0.0, False, False)]

    return stored(list, put, lambda box: box[0].query.flatten())


def scripted_module() -> Escape:
    return stored(lambda: torch.jit.script(Cache()), lambda module, y: module(y), lambda module: module.last)


ESCAPES: dict[str, Callable[[], Escape]] = {
    "exception": exception,
    "closure": closure,
    "generator": generator,
    "weak_reference": weak_reference,
    "queue": lambda: stored(queue.Queue, lambda held, y: held.put(y), lambda held: held.get()),
    "simple_queue": lambda: stored(queue.SimpleQueue, lambda held, y: held.put(y), lambda held: held.get()),
    "thread_local": lambda: stored(threading.local, lambda held, y: setattr(held, "y", y), lambda held: held.y),
    "deque": lambda: stored(collections.deque, lambda held, y: held.append(y), lambda held: held[-1]),
    "iterator": lambda: stored(dict, lambda held, y: held.update(y=iter([y])), lambda held: next(held["y"])),
    "partial": lambda: stored(
        dict, lambda held, y: held.update(y=functools.partial(torch.clone, y)), lambda held: held["y"]()
    ),
    "descriptor": lambda: stored(Owner, lambda held, y: setattr(held, "own", y), lambda held: held.own),
    "context_variable": lambda: stored(
        lambda: contextvars.ContextVar("y"), lambda held, y: held.set(y), lambda held: held.get()
    ),
}
ESCAPES["scripted_module"] = scripted_module
OPEN: dict[str, Callable[[], Escape]] = {
    "object_in_c": attention_arguments,
}
MARKED = [pytest.param(make, id=name) for name, make in ESCAPES.items()] + [
    pytest.param(make, id=name, marks=pytest.mark.xfail(strict=True, reason="keeps a tensor without data"))
    for name, make in OPEN.items()
]


@pytest.mark.parametrize("make", MARKED)
def test_tensor_handed_to_an_object_from_outside_has_its_data(make: Callable[[], Escape]) -> None:
    function, read = make()
    compiled = thunder.jit(lambda x: (function(x), x + 1)[1])
    for factor in (1.0, 3.0):
        x = torch.full((3,), factor)
        assert torch.equal(compiled(x), x + 1)
        assert torch.equal(read(), x * 2)
