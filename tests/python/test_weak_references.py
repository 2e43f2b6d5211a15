"""Weak references that a function makes and stores: dictionaries and sets that hold their keys or values weakly."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder


class Key:
    pass


def count_in_weak_keys() -> tuple[Any, Any]:
    key, table = Key(), weakref.WeakKeyDictionary[Key, int]()

    def f(x: torch.Tensor) -> torch.Tensor:
        table[key] = table.get(key, 0) + 1
        return x * table[key]

    return f, lambda: list(table.values())


def add_to_weak_set() -> tuple[Any, Any]:
    keys, members = [Key(), Key()], weakref.WeakSet[Key]()

    def f(x: torch.Tensor) -> torch.Tensor:
        for key in keys:
            members.add(key)
        return x * len(members)

    return f, lambda: len(members)


def keep_as_weak_value() -> tuple[Any, Any]:
    value, table = Key(), weakref.WeakValueDictionary[str, Key]()

    def f(x: torch.Tensor) -> torch.Tensor:
        table["value"] = value
        return x + len(table)

    return f, lambda: [each is value for each in table.values()]


def refer_to_what_is_outside() -> tuple[Any, Any]:
    key = Key()
    made: list[weakref.ref[Key]] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        made.append(weakref.ref(key))
        return x + len(made)

    return f, lambda: [each() is key for each in made]


def refer_to_what_is_made_inside() -> tuple[Any, Any]:
    kept: list[Any] = []
    made: list[weakref.ref[Any]] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        key = Key()
        kept.append(key)
        made.append(weakref.ref(key))
        return x + len(made)

    return f, lambda: [each() is key for each, key in zip(made, kept, strict=True)]


@functools.singledispatch
def scaled(value: Any) -> Any:
    return value


def first_call_of_a_generic_function() -> tuple[Any, Any]:
    factor = iter((2, 3, 4, 5))

    def register() -> None:
        by = next(factor)
        scaled.register(torch.Tensor)(lambda value: value * by)

    register()
    return lambda x: scaled(x) + 1, register


def first_call_of_a_generic_method() -> tuple[Any, Any]:
    class Layer:
        @functools.singledispatchmethod
        def scaled(self, value: Any) -> Any:
            return value

        @scaled.register
        def _(self, value: torch.Tensor) -> torch.Tensor:
            return value * 2

        @scaled.register
        def _(self, value: int) -> int:
            return value * 3

    layer = Layer()
    return lambda x: layer.scaled(x) + layer.scaled(3), lambda: None


@pytest.mark.filterwarnings("error::thunder.EagerFallbackWarning")
@pytest.mark.parametrize(
    "make",
    [
        count_in_weak_keys,
        add_to_weak_set,
        keep_as_weak_value,
        refer_to_what_is_outside,
        refer_to_what_is_made_inside,
        first_call_of_a_generic_function,
        first_call_of_a_generic_method,
    ],
    ids=lambda make: make.__name__,
)
def test_weak_references_are_stored_as_in_eager(make: Callable[[], tuple[Any, Any]]) -> None:
    runs = []
    for compile_it in (False, True):
        scaled._clear_cache()  # type: ignore[attr-defined]
        function, state = make()
        called = thunder.jit(function) if compile_it else function
        runs.append([(called(torch.full((2,), float(i))).tolist(), state()) for i in range(3)])
    assert runs[0] == runs[1]


def test_what_a_key_refers_to_dies_with_its_last_user() -> None:
    table = weakref.WeakKeyDictionary[Key, int]()

    def f(x: torch.Tensor, key: Key) -> torch.Tensor:
        table[key] = 1
        return x + len(table)

    compiled = thunder.jit(f)
    key = Key()
    assert compiled(torch.zeros(1), key).item() == 1
    assert len(table) == 1
    del key
    assert len(table) == 0
    assert compiled(torch.zeros(1), Key()).item() == 1
