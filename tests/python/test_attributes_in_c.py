"""Attributes that code in C reads and writes: through partials, proxies, formats and functions that are called in C."""

from __future__ import annotations

import collections
import functools
import itertools
import operator
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder

Read = Callable[[Any], Any]


class Settings:
    """Has `value`, which tests change, and some special methods that read it."""

    def __init__(self) -> None:
        self.value = 2.0
        self.inner = types.SimpleNamespace(value=2.0)

    def read(self) -> float:
        return self.value

    def __getitem__(self, key: int) -> float:
        return self.value

    def __len__(self) -> int:
        return int(self.value)

    def __call__(self) -> float:
        return self.value

    def set(self, value: float) -> None:
        self.value = value
        self.inner.value = value


class Numbers(list[float]):
    """A list that weak references can be made of."""


class Table(dict[str, float]):
    """A dict that weak references can be made of."""


GET_ATTRIBUTE = object.__getattribute__.__get__
SET_ATTRIBUTE = object.__setattr__.__get__  # as classes of attrs set what they are made of

READS: dict[str, Read] = {
    "bound by a descriptor from outside": lambda o: GET_ATTRIBUTE(o)("value"),
    "partial of getattr": lambda o: functools.partial(getattr, o)("value"),
    "partial with the name": lambda o: functools.partial(getattr, o, "value")(),
    "partial of a partial": lambda o: functools.partial(functools.partial(getattr, o), "value")(),
    "partial of vars": lambda o: functools.partial(vars, o)()["value"],
    "partial of object.__getattribute__": lambda o: functools.partial(object.__getattribute__, o)("value"),
    "partial of a bound __getattribute__": lambda o: functools.partial(o.__getattribute__, "value")(),
    "partial of dict.get": lambda o: functools.partial(dict.get, vars(o), "value")(),
    "partial with keywords": lambda o: functools.partial(sorted, key=lambda each: -each)([o.value, 2.5])[0],
    "map of a partial": lambda o: next(map(functools.partial(getattr, o), ["value"])),
    "filter of a partial": lambda o: len(list(filter(functools.partial(operator.lt, 2.5), [o.value]))),
    "groupby of a partial": lambda o: next(itertools.groupby(["value"], functools.partial(getattr, o)))[0],
    "iter with an end": lambda o: next(iter(functools.partial(getattr, o, "value"), None)),
    "defaultdict": lambda o: collections.defaultdict(functools.partial(getattr, o, "value"))[1],
    "starmap": lambda o: next(itertools.starmap(getattr, [(o, "value")])),
    "reduce": lambda o: functools.reduce(getattr, ["value"], o),
    "MethodType": lambda o: types.MethodType(getattr, o)("value"),
    "str.format": lambda o: float("{.value}".format(o)),  # noqa: UP032
    "str.format of an attribute's attribute": lambda o: float("{.inner.value}".format(o)),  # noqa: UP032
    "partial of str.format": lambda o: float(functools.partial("{0.value}".format, o)()),
    "property.__get__": lambda o: property(operator.attrgetter("value")).__get__(o),
    "proxy": lambda o: weakref.proxy(o).value,
    "method of a proxy": lambda o: weakref.proxy(o).read(),
    "item of a proxy": lambda o: weakref.proxy(o)[0],
    "length of a proxy": lambda o: len(weakref.proxy(o)),
    "call of a proxy": lambda o: weakref.proxy(o)(),
    "getattr of a proxy": lambda o: getattr(weakref.proxy(o), "value", 7.0),
    "partial of a proxy": lambda o: functools.partial(getattr, weakref.proxy(o), "value")(),
}


@pytest.mark.parametrize("name", READS)
def test_what_code_in_c_reads_is_guarded(name: str) -> None:
    read = READS[name]

    def program(x: torch.Tensor, settings: Settings) -> torch.Tensor:
        return x * read(settings)

    settings, x = Settings(), torch.ones(2)
    compiled = thunder.jit(program, fullgraph=True)
    for value in (2.0, 3.0, 2.0):
        settings.set(value)
        assert torch.equal(compiled(x, settings), program(x, settings))
    assert thunder.cache_misses(compiled) == 2


def test_attributes_are_set_by_a_method_that_a_descriptor_bound() -> None:
    def program(x: torch.Tensor, settings: Settings) -> torch.Tensor:
        made = Settings()
        SET_ATTRIBUTE(made)("value", x + settings.value)
        SET_ATTRIBUTE(settings)("value", settings.value * 2)
        return made.value + settings.value

    plain, settings, x = Settings(), Settings(), torch.ones(2)
    compiled = thunder.jit(program, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(x, settings), program(x, plain))
        assert settings.value == plain.value


def test_attributes_of_a_class_that_code_in_c_reads_are_guarded() -> None:
    class Box:
        size = 2.0

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * float("{.size}".format(box))  # noqa: UP032

    box, x = Box(), torch.ones(2)
    compiled = thunder.jit(program, fullgraph=True)
    for owner, name, value in (
        (Box, "size", 3.0),
        (box, "size", 4.0),
        (Box, "__getattribute__", lambda self, name: 5.0),
    ):
        assert torch.equal(compiled(x), program(x))
        setattr(owner, name, value)
    assert torch.equal(compiled(x), program(x))


def test_positions_of_a_class_pattern_are_guarded() -> None:
    class Point:
        __match_args__: tuple[str, ...] = ("first",)
        first, last = 3.0, 7.0

    def program(x: torch.Tensor, point: Point) -> Any:
        try:
            match point:
                case Point(value):
                    return x * value
        except TypeError as error:
            return x, str(error)
        return x

    compiled, x = thunder.jit(program), torch.ones(2)
    for names in (("first",), ("last",), (), ("last",)):
        Point.__match_args__ = names
        assert str(compiled(x, Point())) == str(program(x, Point()))


def increment(settings: Any) -> Any:
    weakref.proxy(settings).value += 1
    return settings.value


def delete(settings: Any) -> Any:
    proxy = weakref.proxy(settings)
    proxy.other = 1
    del proxy.other
    return hasattr(settings, "other")


def append(numbers: Any) -> Any:
    weakref.proxy(numbers).append(3.0)
    return numbers[-1] + len(numbers)


def add_in_place(numbers: Any) -> Any:
    proxy = weakref.proxy(numbers)
    proxy += [4.0]
    return sum(numbers)


def count(table: Any) -> Any:
    proxy = weakref.proxy(table)
    proxy["calls"] = proxy.get("calls", 0) + 1
    return table["calls"]


@pytest.mark.parametrize(
    ("write", "make"),
    [(increment, Settings), (delete, Settings), (append, Numbers), (add_in_place, Numbers), (count, Table)],
)
def test_writes_by_way_of_a_proxy_happen_once_for_each_call(write: Read, make: Callable[[], Any]) -> None:
    compiled = thunder.jit(lambda x, target: x * write(target))
    ours, eager, x = make(), make(), torch.ones(2)
    for _ in range(3):
        assert torch.equal(compiled(x, ours), x * write(eager))
        assert list(ours) == list(eager) if make is not Settings else ours.value == eager.value


@pytest.mark.parametrize(
    "read",
    [
        lambda numbers: weakref.proxy(numbers)[0],
        lambda numbers: len(weakref.proxy(numbers)),
        lambda numbers: sum(weakref.proxy(numbers)),
        lambda numbers: 5.0 in weakref.proxy(numbers),
        lambda numbers: weakref.proxy(numbers) == [1.0, 2.0],
        lambda numbers: (weakref.proxy(numbers) * 2)[-1],
        lambda numbers: 1 if weakref.proxy(numbers) else 2,
        lambda numbers: max(number for number in weakref.proxy(numbers)),
    ],
)
def test_containers_behind_a_proxy_are_guarded(read: Read) -> None:
    compiled = thunder.jit(lambda x, numbers: x * read(numbers))
    numbers, x = Numbers([1.0, 2.0]), torch.ones(2)
    assert torch.equal(compiled(x, numbers), x * read(numbers))
    numbers[:] = [5.0, 2.0, 3.0]
    assert torch.equal(compiled(x, numbers), x * read(numbers))


def test_a_proxy_of_an_object_that_is_gone() -> None:
    holder = types.SimpleNamespace(proxy=weakref.proxy(Settings()))

    def program(x: torch.Tensor) -> tuple[torch.Tensor, str]:
        try:
            return x * holder.proxy.value, "there"
        except ReferenceError as error:
            return x * 1, str(error)

    compiled = thunder.jit(program)
    assert compiled(torch.ones(2))[1] == program(torch.ones(2))[1]
    kept = Settings()
    holder.proxy = weakref.proxy(kept)
    assert compiled(torch.ones(2))[1] == "there"


def test_a_partial_in_c_keeps_its_function_and_arguments() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        table = collections.defaultdict(functools.partial(torch.full, (2,), fill_value=3.0))
        return x + table["new"], table.default_factory

    total, factory = thunder.jit(program)(torch.ones(2))
    assert torch.equal(total, torch.full((2,), 4.0))
    assert factory.func is torch.full
    assert factory.keywords == {"fill_value": 3.0}
