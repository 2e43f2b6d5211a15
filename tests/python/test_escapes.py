"""Tensors that a function hands to objects from outside are there with their data after each call."""

from __future__ import annotations

import collections
import contextvars
import ctypes
import functools
import gc
import operator
import queue
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
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
        self.calls = 0
        self.history = [torch.zeros(3)]
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x
        self.calls += 1
        self.history.append(x)
        return x * self.calls


def attention_arguments() -> Escape:
    def put(box: list[Any], y: torch.Tensor) -> None:
        q = y.view(1, 1, 1, 3)
        box[:] = [torch.backends.cuda.SDPAParams(q, q, q, None, 0.0, False, False)]

    return stored(list, put, lambda box: box[0].query.flatten())


def scripted_module() -> Escape:
    return stored(lambda: torch.jit.script(Cache()), lambda module, y: module(y), lambda module: module.last)


def array_of_objects() -> Escape:
    def put(box: list[Any], y: torch.Tensor) -> None:
        held = np.empty(1, dtype=object)
        held[0] = y
        box[:] = [held]

    return stored(list, put, lambda box: box[0][0])


def finished_future() -> Escape:
    def put(box: list[Any], y: torch.Tensor) -> None:
        box[:] = [torch.futures.Future()]
        box[0].set_result(y)

    return stored(list, put, lambda box: box[0].value())


def kept_node() -> Escape:
    def put(box: list[Any], y: torch.Tensor) -> None:
        y.requires_grad_()
        box[:] = [(y * y).grad_fn]

    return stored(list, put, lambda box: box[0]._saved_self.detach())


def frame() -> Escape:
    def put(box: list[Any], y: torch.Tensor) -> None:
        box[:] = [sys._getframe()]

    return stored(list, put, lambda box: box[0].f_locals["y"])


def inside(make: Callable[[torch.Tensor], Any], get: Callable[[Any], torch.Tensor]) -> Escape:
    """An object that the function makes of the tensor, and leaves in a list."""
    return stored(list, lambda box, y: box.__setitem__(slice(None), [make(y)]), lambda box: get(box[0]))


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
    "object_in_c": attention_arguments,
    "scripted_module": scripted_module,
    "array_of_objects": array_of_objects,
    "array_of_objects_from_outside": lambda: stored(
        lambda: np.empty(1, dtype=object), lambda held, y: held.fill(y), lambda held: held[0]
    ),
    "future": finished_future,
    "py_object": lambda: inside(ctypes.py_object, lambda held: held.value),
    "py_object_from_outside": lambda: stored(
        lambda: ctypes.py_object(None), lambda held, y: setattr(held, "value", y), lambda held: held.value
    ),
    "list_of_torchscript": lambda: inside(lambda y: torch._C.ScriptList([y]), lambda held: held[0]),
    "bound_method": lambda: inside(lambda y: y.clone, lambda held: held()),
    "method_caller": lambda: inside(lambda y: operator.methodcaller("add", y), lambda held: held(torch.zeros(3))),
    "node": kept_node,
    "frame": frame,
}


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in ESCAPES.items()])
def test_tensor_handed_to_an_object_from_outside_has_its_data(make: Callable[[], Escape]) -> None:
    function, read = make()
    compiled = thunder.jit(lambda x: (function(x), x + 1)[1])
    for factor in (1.0, 3.0):
        x = torch.full((3,), factor)
        assert torch.equal(compiled(x), x + 1)
        assert torch.equal(read(), x * 2)


def test_state_of_a_scripted_module_is_that_of_eager() -> None:
    module = torch.jit.script(Cache())
    compiled = thunder.jit(lambda x: module(x) + 1)
    for calls in range(1, 4):
        x = torch.full((3,), float(calls))
        assert torch.equal(compiled(x), x * calls + 1)
        assert module.calls == calls
        assert torch.equal(module.history[-1], x)
        assert len(module.history) == 1 + calls


@pytest.mark.parametrize("is_patched", [False, True])
def test_mode_of_a_scripted_module_is_followed(is_patched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    own = torch._C.ScriptMethod.__call__
    if is_patched:  # as torch.testing does
        monkeypatch.setattr(torch._C.ScriptMethod, "__call__", lambda *arguments: own(*arguments))
    module = torch.jit.script(torch.nn.Dropout(1.0))
    compiled = thunder.jit(lambda x: module(x) + 1)
    for mode in (True, False, True):
        module.train(mode)
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 1.0 if mode else 2.0))


def test_escapes_have_a_reason() -> None:
    held = ctypes.py_object(None)
    compiled = thunder.jit(lambda x: setattr(held, "value", x * 2), fullgraph=True)
    with pytest.raises(NotImplementedError, match="a computed tensor is kept by an object"):
        compiled(torch.ones(3))


def test_cycles_that_a_program_leaves_are_no_escapes() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        cycle: list[Any] = [x * 2]
        cycle.append(cycle)
        return x + 1

    compiled = thunder.jit(function, fullgraph=True)
    gc.disable()
    try:
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    finally:
        gc.enable()
