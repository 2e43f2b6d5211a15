"""Run Python code in thunder's bytecode interpreter. Needs no torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import ParamSpec, TypeVar

try:
    _native = importlib.import_module("thunder._interpreter")
except ModuleNotFoundError:
    from thunder._check import load_extension

    _native = load_extension()

__all__ = ["interpret"]

P = ParamSpec("P")
T = TypeVar("T")


def interpret(callable: Callable[P, T], /) -> Callable[P, T]:
    """Return a callable that does what ``callable`` does, executed by thunder's interpreter.

    Every Python function that runs in this thread until the call returns is interpreted, also when C code calls it
    (``sorted(key=…)``, properties, ``__index__``). A generator, coroutine or asynchronous generator that the call
    returns is interpreted whenever it is resumed.

    Raises:
        TypeError: ``callable`` cannot be called.
    """
    interpreted: Callable[P, T] = _native.interpret(callable)
    return interpreted
