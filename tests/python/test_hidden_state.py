"""State that a program reaches by objects which no read shows: functions in tuples, keys, aliases of methods in C."""

from __future__ import annotations

import abc
import collections
import copy
import dataclasses
import datetime
import decimal
import enum
import functools
import hashlib
import importlib
import inspect
import itertools
import math
import operator
import re
import sys
import threading
import traceback
import types
import weakref
import zlib
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import thunder

Program = tuple[Callable[[torch.Tensor], Any], Callable[[], Any], Callable[[], Any]]


def counted() -> tuple[Callable[[torch.Tensor], torch.Tensor], list[float]]:
    """A function that reads and writes a list in its closure."""
    state = [2.0]

    def scaled(x: torch.Tensor) -> torch.Tensor:
        state.append(state[0])
        return x * state[0]

    return scaled, state


def of_holder(reach: Callable[[Any], Callable[[Any], Any]]) -> Callable[[], Program]:
    """A program that finds a function in what `reach` puts it into, and calls it; its list changes between calls."""

    def make() -> Program:
        function, state = counted()
        find = reach(function)
        return lambda x: find(x), lambda: state.__setitem__(0, state[0] + 1), lambda: list(state)

    return make


def in_tuple(function: Any) -> Any:
    pairs = (("first", function),)
    return lambda x: pairs[0][1](x)


def in_list_of_tuples(function: Any) -> Any:
    callbacks = [(0, function)]
    return lambda x: next(each(x) for _, each in callbacks)


def in_set(function: Any) -> Any:
    functions = {function}
    return lambda x: next(each(x) for each in functions)


def as_key(function: Any) -> Any:
    table = {function: "name"}
    return lambda x: next(key(x) for key in table)


def as_default(function: Any) -> Any:
    def call(x: torch.Tensor, functions: Any = (function,)) -> Any:
        return functions[0](x)

    return call


def as_property(function: Any) -> Any:
    class Scale:
        def __init__(self, x: Any) -> None:
            self.x = x

        @property
        def value(self) -> Any:
            return function(self.x)

    return lambda x: Scale(x).value


def in_enum(function: Any) -> Any:
    class Choice(enum.Enum):
        A = ("a", function)

    return lambda x: Choice.A.value[1](x)


class Item:
    k = 2.0


def of_key(hold: Callable[[Item], Any]) -> Callable[[], Program]:
    """A program that reads and writes an attribute of the one key or member of a container."""

    def make() -> Program:
        item = Item()
        held = hold(item)

        def f(x: torch.Tensor) -> torch.Tensor:
            for each in held:
                x = x * each.k
                each.k += 1
            return x

        return f, lambda: setattr(item, "k", item.k * 2), lambda: item.k

    return make


class Settings(dict):  # type: ignore[type-arg]
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__  # type: ignore[assignment]
    __delattr__ = dict.__delitem__  # type: ignore[assignment]
    __call__ = dict.get


def settings_by_attribute() -> Program:
    settings = Settings(k=2.0)

    def f(x: torch.Tensor) -> torch.Tensor:
        settings.count = settings.k + 1
        if "old" in settings:
            del settings.old
        return x * settings.k * settings("k") * settings.count

    def change() -> None:
        settings.update(k=settings["k"] + 1, old=1.0)

    return f, change, lambda: dict(settings)


def items_deleted_by_method() -> Program:
    table, items = {"k": 2.0}, [1.0]

    def f(x: torch.Tensor) -> torch.Tensor:
        table.__delitem__("k")
        dict.__delitem__(table, "n")
        items.__delitem__(0)
        return x * (len(table) + len(items))

    def change() -> None:
        table.update(k=1.0, n=2.0)
        items.append(3.0)

    change()
    return f, change, lambda: (dict(table), list(items))


def property_by_functions_in_c() -> Program:
    class Sized(list):  # type: ignore[type-arg]
        size = property(len, list.append)

    numbers = Sized([1, 2])

    def f(x: torch.Tensor) -> torch.Tensor:
        numbers.size = 5
        return x * numbers.size

    return f, lambda: numbers.append(1), lambda: list(numbers)


def substitution_with_a_callback() -> Program:
    table = {"a": 1}

    def shown(match: re.Match[str]) -> str:
        table["n"] = table.get("n", 0) + 1
        return str(table[match[0]])

    return lambda x: x * int(re.sub("a", shown, "a")), lambda: table.update(a=table["a"] + 1), lambda: dict(table)


def method_of_a_tensor() -> Program:
    total = torch.zeros(())
    add = total.add_
    return lambda x: x * add(1), lambda: total.mul_(2), total.clone


def method_of_a_parameter() -> Program:
    weight = torch.nn.Parameter(torch.ones(2))
    total = weight.sum

    def change() -> None:
        with torch.no_grad():
            weight.mul_(2)

    return lambda x: (x * total()).detach(), change, lambda: weight.detach().clone()


def next_of_an_iterator() -> Program:
    number, items = itertools.count(2).__next__, iter([1.0] * 20)
    item = items.__next__
    return lambda x: x * number() * item(), number, items.__length_hint__


def kept_super() -> Program:
    class Base:
        k = 2.0

        def scale(self) -> float:
            self.calls = getattr(self, "calls", 0) + 1
            return self.k

    class Derived(Base):
        def parent(self) -> Any:
            return super()

    item = Derived()
    parent = item.parent()
    return lambda x: x * parent.scale(), lambda: setattr(item, "k", item.k + 1), lambda: vars(item)


def subclasses() -> Program:
    class Base:
        pass

    made: list[type] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * len(Base.__subclasses__()) + len(Base.__base__.__name__)

    return f, lambda: made.append(type("Derived", (Base,), {})), lambda: len(made)


def static_method_in_c() -> Program:
    items, table = [1.0], {"k": 2.0}

    class Append:
        __call__ = staticmethod(items.append)

    class Get:
        __call__ = staticmethod(table.get)

    append, get = Append(), Get()

    def f(x: torch.Tensor) -> torch.Tensor:
        append(3.0)
        items.append.__call__(1.0)
        return x * len(items) * get("k") * operator.methodcaller("__call__", "k")(table.get)

    return f, lambda: table.update(k=table["k"] + 1), lambda: (list(items), dict(table))


def slots_behind_super() -> Program:
    class Slotted:
        __slots__ = ("weight",)

    class Derived(Slotted):
        def read(self) -> Any:
            return super().weight

        @property
        def weight(self) -> Any:
            return super().weight * 2

        @weight.setter
        def weight(self, value: Any) -> None:
            Slotted.weight.__set__(self, value)

    item = Derived()
    item.weight = 2.0
    return lambda x: x * item.read() * item.weight, lambda: setattr(item, "weight", item.read() + 1), item.read


def empty_slots_behind_super() -> Program:
    class Slotted:
        __slots__ = ("first", "second")

    class Derived(Slotted):
        def read(self) -> float:
            return getattr(super(), "first", 3.0)

        @property
        def second(self) -> float:
            try:
                return super().second
            except AttributeError:
                return 5.0

    item = Derived()

    def change() -> None:
        if item.read() == 3.0:
            item.first = 7.0
            Slotted.second.__set__(item, 11.0)
        else:
            del item.first
            Slotted.second.__delete__(item)

    return lambda x: x * item.read() * item.second, change, item.read


def slots_by_descriptors() -> Program:
    class Slotted:
        __slots__ = ("first", "second")

    item = Slotted()
    item.first, item.second = 1.0, 2.0

    def f(x: torch.Tensor) -> torch.Tensor:
        Slotted.first.__set__(item, item.first + 1)
        Slotted.second.__delete__(item)
        Slotted.second.__set__(item, 3.0)
        made = Slotted()
        Slotted.first.__set__(made, 2.0)
        return x * item.first * made.first

    return f, lambda: setattr(item, "first", item.first * 2), lambda: (item.first, item.second)


class Pair(collections.namedtuple("Pair", "first second")):
    @property
    def first(self) -> Any:
        return super().first * 2


def fields_behind_super() -> Program:
    held = [Pair(torch.ones(2), 3.0)]
    return (
        lambda x: x * held[0].first + held[0].second,
        lambda: held.__setitem__(0, Pair(held[0].first + 1, held[0].second + 1)),
        lambda: held[0].first.tolist(),
    )


T = TypeVar("T")


def made_of_generic_class(*bases: type) -> Callable[[], Program]:
    def make() -> Program:
        function, state = counted()

        class Box(*bases, Generic[T]):  # type: ignore[misc]
            def __init__(self, x: torch.Tensor) -> None:
                super().__init__()
                self.value = function(x)

        return lambda x: Box[int](x).value, lambda: state.__setitem__(0, state[0] + 1), lambda: list(state)

    return make


def generic_dataclass() -> Program:
    function, state = counted()

    @dataclasses.dataclass
    class Box(Generic[T]):
        value: T

        def __post_init__(self) -> None:
            self.value = function(self.value)  # type: ignore[arg-type, assignment]

    return lambda x: Box[int](x).value, lambda: state.__setitem__(0, state[0] + 1), lambda: list(state)  # type: ignore[arg-type, return-value]


def of_library(reach: Callable[[Callable[[], float]], Callable[[], float]]) -> Callable[[], Program]:
    """A program that has a function of the standard library call one which reads and writes a list."""

    def make() -> Program:
        state = [2.0]

        def number() -> float:
            state.append(state[0])
            return state[0]

        find = reach(number)
        return lambda x: x * find(), lambda: state.__setitem__(0, state[0] + 1), lambda: list(state)

    return make


def missing_member(number: Callable[[], float]) -> Callable[[], float]:
    class Choice(enum.Enum):
        FIRST = 1
        SECOND = 2

        @classmethod
        def _missing_(cls, _value: object) -> Choice:
            return cls.FIRST if number() < 4 else cls.SECOND

    return lambda: Choice(7).value


def member_made_inside(number: Callable[[], float]) -> Callable[[], float]:
    def find() -> float:
        class Choice(enum.Enum):
            FIRST = 1

            def __init__(self, value: int) -> None:
                self.weight = value * number()

        return Choice.FIRST.weight

    return find


def compared_members(number: Callable[[], float]) -> Callable[[], float]:
    class Value(list):  # type: ignore[type-arg]
        def __eq__(self, other: object) -> bool:
            return bool(number() < 4) == bool(self)

    class Choice(enum.Enum):
        FIRST = Value()
        SECOND = Value([1])

    value = Value([1, 2])
    return lambda: 2.0 if Choice(value) is Choice.FIRST else 3.0


def text_of_an_error(number: Callable[[], float]) -> Callable[[], float]:
    class Failure(Exception):
        def __str__(self) -> str:
            return f"{number()}"

    return lambda: float(traceback.format_exception_only(Failure())[0].split(": ")[1])


def signature(number: Callable[[], float]) -> Callable[[], float]:
    class Described:
        @property
        def __signature__(self) -> inspect.Signature:
            kind = inspect.Parameter.POSITIONAL_ONLY
            return inspect.Signature([inspect.Parameter(f"p{int(number())}", kind)])

        def __call__(self) -> None: ...

    described = Described()
    return lambda: float(next(iter(inspect.signature(described).parameters))[1:])


class Base:
    pass


class Derived(Base):
    def find(self) -> Any:
        return getattr(super(), "absent", 2.0)


class Between(Base):
    pass


class Furthest:
    factor = 2.0


class Last(Between, Furthest):
    def find(self) -> Any:
        return super().factor


def of_classes(kind: type, name: str, holder: type, values: list[Any]) -> Callable[[], Program]:
    """A program that calls `find` of an object; `name` of a class is set to the values in turn, and then deleted."""

    def make() -> Program:
        item, left = kind(), list(values)

        def change() -> None:
            if left:
                setattr(holder, name, left.pop(0))
            elif name in vars(holder):
                delattr(holder, name)

        return lambda x: x * item.find(), change, lambda: None

    return make


def gain_of_a_descriptor(method: str) -> Callable[[], Program]:
    def make() -> Program:
        class Value:
            pass

        class Holder:
            value = Value()

        item = Holder()
        if method == "__set__":
            Value.__get__ = lambda *_: 3.0  # type: ignore[attr-defined]
            vars(item)["value"] = 2.0
        given = {"__set__": lambda *_: None, "__get__": lambda *_: 3.0}[method]
        return (
            lambda x: x * (item.value if isinstance(item.value, float) else 2.0),
            lambda: setattr(Value, method, given),
            lambda: None,
        )

    return make


def method_bound_by_its_descriptor() -> Program:
    item: Any = types.SimpleNamespace(scale=2.0)

    def scaled(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.calls = getattr(self, "calls", 0) + 1
        return x * self.scale

    def change() -> None:
        item.scale += 1

    return lambda x: scaled.__get__(item, types.SimpleNamespace)(x), change, lambda: item.calls


def copied_by(method: str) -> Callable[[], Program]:
    def make() -> Program:
        class Kept:
            value = 2.0

        item, given = Kept(), {"__getstate__": lambda _: {"value": 3.0}, "__reduce__": lambda _: (Pair, (3.0, 1.0))}
        return (
            lambda x: x * getattr(copy.copy(item), "value", 5.0),
            lambda: setattr(Kept, method, given[method]),
            lambda: None,
        )

    return make


def same_numbers(make: Callable[[float], Any]) -> Callable[[], Program]:
    """A program that asks whether two of its objects are one."""

    def program() -> Program:
        first = make(3.0)
        held = [first, first]
        others = [make(3.0), first, make(3.0)]
        return (
            lambda x: x * (2 if held[0] is held[1] else 3) * (2 if held[0] in held[1:] else 3),
            lambda: held.__setitem__(1, others.pop() if others else first),
            lambda: None,
        )

    return program


PROGRAMS = {
    **{each.__name__: of_holder(each) for each in (in_tuple, in_list_of_tuples, in_set, as_key, as_default)},
    **{each.__name__: of_holder(each) for each in (as_property, in_enum)},
    "member of a set": of_key(lambda item: {item}),
    "key": of_key(lambda item: {item: 1}),
    "member of a WeakSet": of_key(lambda item: weakref.WeakSet([item])),
    "weak key": of_key(lambda item: weakref.WeakKeyDictionary({item: 1})),
    **{each.__name__: each for each in (settings_by_attribute, items_deleted_by_method, property_by_functions_in_c)},
    **{each.__name__: each for each in (substitution_with_a_callback, method_of_a_tensor, method_of_a_parameter)},
    **{each.__name__: each for each in (next_of_an_iterator, kept_super, subclasses, static_method_in_c)},
    **{each.__name__: each for each in (slots_by_descriptors, slots_behind_super, empty_slots_behind_super)},
    **{each.__name__: each for each in (fields_behind_super, generic_dataclass)},
    **{each.__name__: each for each in (method_bound_by_its_descriptor,)},
    **{f"copies by {each}": copied_by(each) for each in ("__getstate__", "__reduce__")},
    "absent behind super": of_classes(Derived, "absent", Base, [3.0, 4.0]),
    "nearer behind super": of_classes(Last, "factor", Between, [3.0]),
    **{f"class of a descriptor gains {each}": gain_of_a_descriptor(each) for each in ("__get__", "__set__")},
    "same float": same_numbers(lambda number: float(str(number))),
    "same integer": same_numbers(lambda number: int(number) + 10**9),
    "same string": same_numbers(lambda number: "-".join(["a b", str(number)])),
    "same NaN": same_numbers(lambda _: float("nan")),
    "generic class": made_of_generic_class(),
    "generic module": made_of_generic_class(torch.nn.Module),
    **{each.__name__: of_library(each) for each in (missing_member, member_made_inside, compared_members)},
    **{each.__name__: of_library(each) for each in (text_of_an_error, signature)},
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_state_behind_objects_that_no_read_shows(name: str) -> None:
    runs = []
    for compile_it in (False, True):
        function, change, look = PROGRAMS[name]()
        called = thunder.jit(function) if compile_it else function
        run = []
        for call in range(4):
            run.append((called(torch.full((2,), 1.0 + call)).tolist(), str(look())))
            change()
        runs.append(run)
    assert runs[0] == runs[1]


def test_functions_that_the_program_makes_are_its_own() -> None:
    def f(x: torch.Tensor) -> Any:
        kept: list[torch.Tensor] = []
        functions = (lambda y: kept.append(y * 2), lambda y: kept.append(y * 3))
        for each in functions:
            each(x)
        return kept

    compiled = thunder.jit(f)
    first, second = compiled(torch.ones(2)), compiled(torch.ones(2) * 2)
    assert [each.tolist() for each in first] == [[2.0, 2.0], [3.0, 3.0]]
    assert [each.tolist() for each in second] == [[4.0, 4.0], [6.0, 6.0]]
    assert first is not second
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("name", ["mul", "__mul__", "add_", "__radd__"])
@pytest.mark.parametrize("wrap", [lambda f: f, functools.partial], ids=["itself", "partial"])
def test_methods_of_tensors_that_are_compiled(name: str, wrap: Callable[[Any], Any]) -> None:
    found, runs = [], []
    for compile_it in (False, True):
        x = torch.full((3,), 3.0, requires_grad=True)
        tensor = x * 1 if name == "add_" else x
        method = wrap(getattr(tensor, name))
        called = thunder.jit(method) if compile_it else method
        first = called(2.0)
        with torch.no_grad():
            tensor.mul_(2.0)
        second = called(2.0)
        runs.append([first.tolist(), second.tolist(), second is tensor, tensor.tolist()])
        if name != "add_":
            second.sum().backward()
            found.append(x.grad.tolist())
    assert runs[0] == runs[1]
    assert found == found[:1] * len(found)


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_methods_of_containers_that_are_compiled() -> None:
    items: list[int] = []
    append, get = thunder.jit(items.append), thunder.jit({"k": 2}.__getitem__)
    for number in range(3):
        append(number)
        assert get("k") == 2
    assert items == [0, 1, 2]


class Value:
    v = 2.0


def of_container(make: Callable[[], Any], call: Any, change: Callable[[Any], Any]) -> Callable[[], Any]:
    """A callable in C that looks into a container, which changes between two calls."""

    def arguments() -> Any:
        held = make()
        return call, [(held,), lambda: change(held), (held,), (held,)]

    return arguments


def method_of_dict() -> Any:
    table = {"k": 1.0}
    return table.get, [("k",), lambda: table.update(k=2.0), ("k",)]


def attribute_by_name() -> Any:
    item = Value()
    return getattr, [(item, "v"), lambda: setattr(item, "v", 3.0), (item, "v")]


def next_by_method() -> Any:
    return iter([1, 2, 3]).__next__, [(), (), (), ()]


X = torch.arange(6.0).reshape(2, 3)
CALLABLES: dict[str, Callable[[], Any]] = {
    "torch.sum": lambda: (torch.sum, [(X, [0]), (X, [1]), (X, [0])]),
    "torch.reshape": lambda: (torch.reshape, [(X, [3, 2]), (X, [6])]),
    "view": lambda: (X.view, [([3, 2],), ([6],)]),
    "torch.tensor": lambda: (torch.tensor, [([1.0, 2.0],), ([3.0],)]),
    "torch.einsum": lambda: (torch.einsum, [("ij,kj->ik", X, X), ("ij,kj->ij", X, X)]),
    "sorted": lambda: (sorted, [([2, 1],), ([3, 2, 1],)]),
    "len": of_container(lambda: [1], len, lambda items: items.append(1)),
    "attrgetter": of_container(Value, operator.attrgetter("v"), lambda item: setattr(item, "v", 5.0)),
    **{each.__name__: each for each in (method_of_dict, attribute_by_name, next_by_method)},
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("name", CALLABLES)
def test_functions_in_c_that_are_compiled(name: str) -> None:
    runs = []
    for compile_it in (False, True):
        function, steps = CALLABLES[name]()
        called = thunder.jit(function) if compile_it else function
        run = []
        for step in steps:
            if callable(step):
                step()
                continue
            try:
                result = called(*step)
            except StopIteration:
                result = "StopIteration"
            run.append(result.tolist() if isinstance(result, torch.Tensor) else result)
        runs.append(run)
    assert runs[0] == runs[1]


def called_by_its_class(found: list[torch.Tensor]) -> Any:
    class Append:
        __call__ = staticmethod(found.append)

    return Append()


HOOKS: dict[str, Callable[[list[torch.Tensor]], Any]] = {
    "append": lambda found: found.append,
    "partial": lambda found: functools.partial(list.append, found),
    "MethodType": lambda found: types.MethodType(list.append, found),
    "class": called_by_its_class,
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("where", ["outside", "inside", "input"])
@pytest.mark.parametrize("kind", HOOKS)
def test_hooks_in_c_get_gradients(kind: str, where: str) -> None:
    runs = []
    for compile_it in (False, True):
        found: list[torch.Tensor] = []
        hook = HOOKS[kind](found)

        def f(x: torch.Tensor, hook: Any = hook) -> torch.Tensor:
            y = x * x
            (x if where == "input" else y).register_hook(hook)
            if where == "inside":
                (y * y).sum().backward()
            return y * y

        called = thunder.jit(f) if compile_it else f
        for size in (1.0, 2.0, 3.0):
            x = torch.full((2,), size, requires_grad=True)
            result = called(x)
            if where != "inside":
                result.sum().backward()
        runs.append([each.tolist() for each in found])
    assert runs[0] == runs[1]


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_two_hooks_in_one_call_are_refused_as_in_eager() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.register_hook([].append, [].extend)  # type: ignore[call-arg]
        return y

    for function in (f, thunder.jit(f)):
        with pytest.raises(TypeError, match="register_hook"):
            function(torch.ones(2, requires_grad=True))


def test_hooks_in_c_from_outside_get_gradients_that_are_computed_inside() -> None:
    runs = []
    for compile_it in (False, True):
        found: list[torch.Tensor] = []
        x = torch.ones(2, requires_grad=True)
        x.register_hook(found.append)

        def f(x: torch.Tensor) -> torch.Tensor:
            return torch.autograd.grad((x * x).sum(), x)[0] * 2

        called = thunder.jit(f) if compile_it else f
        results = [called(x).tolist() for _ in range(3)]
        runs.append([results, [each.tolist() for each in found]])
    assert runs[0] == runs[1]


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1

    @staticmethod
    def backward(context: Any, cotangent: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return cotangent * (2.0 if cotangent.requires_grad else 3.0)


def _hooked(tell: Callable[[torch.Tensor], bool]) -> Callable[[torch.Tensor], torch.Tensor]:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * x
        y.register_hook(lambda g: g * (2.0 if tell(g) else 3.0))
        return y * y

    return f


BACKWARDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "requires_grad": _hooked(lambda g: g.requires_grad),
    "grad_fn": _hooked(lambda g: g.grad_fn is not None),
    "is_leaf": _hooked(lambda g: not g.is_leaf),
    "is_grad_enabled": _hooked(lambda g: torch.is_grad_enabled()),
    "Function": lambda x: _Doubled.apply(x * x) ** 2,
}


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", BACKWARDS)
def test_backwards_that_ask_whether_they_make_a_graph(name: str, *, create_graph: bool) -> None:
    function = BACKWARDS[name]
    gradients = []
    for called in (function, thunder.jit(function)):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        gradients.append(torch.autograd.grad(called(x).sum(), x, create_graph=create_graph)[0].tolist())
    assert gradients[0] == gradients[1]


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2))
        self.calls, self.seen = 0, []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.total += x.mean(0)
        self.seen.append(x.sum())
        self.last = x * self.calls
        return x + self.total


AROUND: dict[str, Callable[[Any], Callable[[torch.Tensor], torch.Tensor]]] = {
    "itself": lambda inner: inner,
    "Sequential": lambda inner: torch.nn.Sequential(inner),
    "function": lambda inner: lambda x: inner(x) * 1,
    "partial": functools.partial,
    "forward": lambda inner: inner.forward,
}


@pytest.mark.parametrize("around", AROUND)
def test_state_of_a_compiled_module_in_what_is_compiled(around: str) -> None:
    runs = []
    for compile_it in (lambda f: f, thunder.jit):
        module = Counting()
        outer = compile_it(AROUND[around](compile_it(module)))
        run: list[Any] = [outer(torch.full((3, 2), size)).tolist() for size in (1.0, 2.0, 3.0)]
        run += [module.calls, module.total.tolist(), [each.item() for each in module.seen], module.last.tolist()]
        runs.append([*run, module(torch.ones(3, 2)).tolist()])
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    "around",
    [
        *AROUND.values(),
        lambda inner: lambda x: next(map(inner, [x])),
        lambda inner: lambda x: torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False),
    ],
    ids=[*AROUND, "map", "checkpoint"],
)
def test_settings_of_a_compiled_module_in_what_is_compiled(around: Any) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout())
    outer = thunder.jit(around(thunder.jit(module)))
    x = torch.ones(3, 4)
    outer(x)
    module.eval()
    torch.testing.assert_close(outer(x), module(x))
    module[0].weight = torch.nn.Parameter(torch.ones(4, 4))
    torch.testing.assert_close(outer(x), module(x))


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_memory_of_an_array_that_flat_shows() -> None:
    array = np.arange(6.0).reshape(2, 3)
    kept = array.flat

    def f(x: torch.Tensor) -> torch.Tensor:
        array.T.flat[1] = array.flat[1] + 1
        return x * array.flat[0] * kept[2] + float(array.flat[:2].sum())

    compiled, runs = thunder.jit(f), []
    for function in (f, compiled):
        array[:] = np.arange(6.0).reshape(2, 3)
        run = []
        for _ in range(3):
            run.append(function(torch.ones(2)).tolist())
            array[0, 0] += 1
        runs.append([*run, array.tolist()])
    assert runs[0] == runs[1]


def test_parameters_that_a_generic_class_uses_get_gradients() -> None:
    weight = torch.ones(3, requires_grad=True)

    class Box(Generic[T]):
        def __init__(self, x: torch.Tensor) -> None:
            self.value = x * weight

    box = thunder.jit(lambda x: Box[int](x).value, fullgraph=True)
    for call in range(2):
        box(torch.full((3,), 2.0 + call)).sum().backward()
    torch.testing.assert_close(weight.grad, torch.full((3,), 5.0))


def test_parameters_that_an_imported_module_uses_run_in_eager(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "scaled_on_import.py").write_text("import sys\nheld = sys.held_by_test\nheld.y = held.x * held.w\n")
    held = types.SimpleNamespace(w=torch.ones(3, requires_grad=True), x=None, y=None)
    monkeypatch.setattr("sys.held_by_test", held, raising=False)

    def f(x: torch.Tensor) -> Any:
        held.x = x
        sys.modules.pop("scaled_on_import", None)
        importlib.import_module("scaled_on_import")
        return held.y

    with pytest.warns(thunder.EagerFallbackWarning, match="requires grad is used by code"):
        assert thunder.jit(f)(torch.ones(3)).grad_fn is not None


MADE_IN_C: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "generator": (
        lambda: torch.Generator().manual_seed(3),
        lambda made: torch.rand(2, generator=made),
        lambda made: (made.initial_seed(), torch.rand(1, generator=made).item()),
    ),
    "clone of a generator": (
        lambda: torch.Generator().clone_state(),
        lambda made: torch.rand(2, generator=made),
        lambda made: torch.rand(1, generator=made).item(),
    ),
    "hash": (lambda: hashlib.md5(b"a"), lambda made: made.update(b"b"), lambda made: made.hexdigest()),
    "compressor": (zlib.compressobj, lambda made: made.compress(b"a" * 9), lambda made: made.flush()),
    "context of decimal": (
        lambda: decimal.getcontext().copy(),
        lambda made: setattr(made, "prec", made.prec + 1),
        lambda made: made.prec,
    ),
    "module": (lambda: types.ModuleType("a"), lambda made: setattr(made, "k", 1), lambda made: hasattr(made, "k")),
    "lock": (threading.Lock, lambda made: made.acquire(blocking=False), lambda made: made.locked()),
    "event": (threading.Event, lambda made: made.set(), lambda made: made.is_set()),
    "row of an array": (
        lambda: np.zeros(1, dtype=[("a", int)])[0],
        lambda made: made.__setitem__("a", 1),
        lambda made: made["a"],
    ),
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("where", ["returned", "stored"])
@pytest.mark.parametrize("name", MADE_IN_C)
def test_changeable_objects_that_code_in_c_makes_are_new_ones_at_each_call(name: str, where: str) -> None:
    make, change, look = MADE_IN_C[name]
    holder: Any = types.SimpleNamespace(held=None)

    def f(x: torch.Tensor) -> Any:
        if where == "returned":
            return x + 1, make()
        holder.held = make()
        return x + 1, None

    runs = []
    for called in (f, thunder.jit(f)):
        run, kept = [], []
        for _ in range(3):
            made = called(X)[1] if where == "returned" else (called(X), holder.held)[1]
            kept.append(made)
            change(made)
            run.append(look(made))
        runs.append((run, len({id(each) for each in kept})))
    assert runs[0] == runs[1]


IMMUTABLE: dict[str, Callable[[], Any]] = {
    "dtype": lambda: torch.result_type(torch.ones(1), 1),
    "device": lambda: torch.device("cpu"),
    "size": lambda: torch.Size([1, 2]),
    "date": lambda: datetime.datetime(2020, 1, 2) + datetime.timedelta(days=1),
    "decimal": lambda: decimal.Decimal("1.5") + 1,
    "pattern": lambda: re.compile("a+b"),
    "match": lambda: re.match("a", "ab"),
    "number of NumPy": lambda: np.float32(1.5),
    "dtype of NumPy": lambda: np.dtype("float32"),
    "limits": lambda: torch.finfo(torch.float32),
    "module": lambda: __import__("math"),
    "class": lambda: type(X),
    "function": lambda: getattr(math, "sin"),  # noqa: B009
    "named tuple": lambda: sys.version_info,
}


@pytest.mark.parametrize("name", IMMUTABLE)
def test_immutable_objects_that_code_in_c_makes_are_constants(name: str) -> None:
    compiled = thunder.jit(lambda x: (x * 2, IMMUTABLE[name]()), fullgraph=True)
    for _ in range(2):
        assert str(compiled(X)[1]) == str(IMMUTABLE[name]())


def test_learning_rates_of_a_scheduler_trace_nothing_anew() -> None:
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    compiled = thunder.jit(step)
    for _ in range(12):
        compiled(torch.ones(2, 3))
        scheduler.step()
    assert thunder.compile_stats(compiled)["cache_misses"] < 6


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_class_that_is_registered_with_an_abstract_class_inside() -> None:
    def run(*, compile_it: bool) -> list[Any]:
        class Abstract(abc.ABC):  # noqa: B024
            pass

        class Plain:
            pass

        def f(x: torch.Tensor, register: int) -> Any:
            before = isinstance(Plain(), Abstract)
            if register:
                Abstract.register(Plain)
            return x.tolist(), before, isinstance(Plain(), Abstract)

        called = thunder.jit(f) if compile_it else f
        return [called(X, register) for register in (0, 1, 0, 1)]

    assert run(compile_it=True) == run(compile_it=False)


class Index:
    at = 0

    def __index__(self) -> int:
        return self.at


class Zone(datetime.tzinfo):
    hours = 1

    def utcoffset(self, moment: datetime.datetime | None) -> datetime.timedelta:
        return datetime.timedelta(hours=self.hours)


class Equal:
    """An object that is equal to all others with its number."""

    def __init__(self, number: int, weight: int = 0) -> None:
        self.number = number
        self.weight = weight

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal) and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number)


class Counted(Equal):
    asked: ClassVar[list[int]] = []
    count = 0

    def __hash__(self) -> int:
        self.asked.append(self.number)
        return hash(self.number)


class CountedByClass(Counted):
    def __hash__(self) -> int:
        Counted.count += 1
        return hash(self.number)


# A program that gets an object, what makes the object, and what changes it between calls.
Case = tuple[Callable[[torch.Tensor, Any], Any], Callable[[], Any], Callable[[Any], Any]]


def of_dates(dtype: Any) -> Case:
    return (
        lambda x, dates: x * int((dates == dates[1]).sum()),
        lambda: np.array([(1,), (2,), (3,)] if isinstance(dtype, list) else [1, 2, 3], dtype=dtype),
        lambda dates: dates.__setitem__(0, dates[1]),
    )


def set_later(name: str, value: Any) -> Callable[[Any], Any]:
    return lambda holder: setattr(holder, name, value)


IN_C: dict[str, Case] = {
    "decimal.Context": (lambda x, c: x * c.prec, lambda: decimal.Context(prec=3), set_later("prec", 5)),
    "decimal.Context, called": (
        lambda x, c: (x, str(c.divide(1, 3))),
        lambda: decimal.Context(prec=3),
        set_later("prec", 5),
    ),
    "decimal.Context, given": (
        lambda x, c: (x, str(decimal.Decimal("1.23456").normalize(c))),
        lambda: decimal.Context(prec=3),
        set_later("prec", 5),
    ),
    "methodcaller": (
        lambda x, held: held[1](x),
        lambda: (lambda dims: (dims, operator.methodcaller("permute", dims)))([1, 0]),
        lambda held: held[0].reverse(),
    ),
    "methodcaller, by keyword": (
        lambda x, held: held[1](x),
        lambda: (lambda dims: (dims, operator.methodcaller("sum", dim=dims)))([0]),
        lambda held: held[0].__setitem__(0, 1),
    ),
    "itemgetter": (
        lambda x, held: held[1](x),
        lambda: (lambda index: (index, operator.itemgetter(index)))([0, 1]),
        lambda held: held[0].reverse(),
    ),
    "itemgetter, of an index": (
        lambda x, held: list(map(held[1], [x])),
        lambda: (lambda index: (index, operator.itemgetter(index)))(Index()),
        lambda held: set_later("at", 1)(held[0]),
    ),
    "slice": (
        lambda x, held: x[held[1]],
        lambda: (lambda index: (index, slice(index, None)))(Index()),
        lambda held: set_later("at", 1)(held[0]),
    ),
    "slice, of an array": (
        lambda x, held: x[held[1]],
        lambda: (lambda index: (index, slice(index, None)))(np.array(0)),
        lambda held: held[0].fill(1),
    ),
    "datetime64": of_dates("M8[D]"),
    "timedelta64": of_dates("m8[s]"),
    "structures of dates": of_dates([("day", "M8[D]")]),
    "StringDType": (
        lambda x, texts: (x, texts[0]),
        lambda: np.array(["a", "b"], dtype=np.dtypes.StringDType()),
        lambda texts: texts.__setitem__(0, "c"),
    ),
    "Element": (
        lambda x, element: (x * len(element), element.get("key")),
        lambda: ElementTree.fromstring("<a><b>text</b></a>"),
        lambda element: element.append(ElementTree.Element("c")),
    ),
    "Element, by item": (
        lambda x, element: (x, element[0].text),
        lambda: ElementTree.fromstring("<a><b>text</b></a>"),
        lambda element: set_later("text", "other")(element[0]),
    ),
    "Element, by iteration": (
        lambda x, element: (x, [each.tag for each in element]),
        lambda: ElementTree.fromstring("<a><b>text</b></a>"),
        lambda element: element.append(ElementTree.Element("c")),
    ),
    "zone": (
        lambda x, held: (x * held[1].utcoffset().seconds, held[1].isoformat()),
        lambda: (lambda zone: (zone, datetime.datetime(2020, 1, 1, tzinfo=zone)))(Zone()),
        lambda held: set_later("hours", 3)(held[0]),
    ),
    "exception": (
        lambda x, held: (x, str(held[1]), held[1].args[0][0]),
        lambda: (lambda items: (items, ValueError(items)))([1]),
        lambda held: held[0].__setitem__(0, 5),
    ),
    "exception, other arguments": (
        lambda x, error: (x, str(error), f"{error}"),
        lambda: ValueError("a"),
        set_later("args", ("b",)),
    ),
    "exception, other parts": (
        lambda x, error: (x, str(error)),
        lambda: OSError(2, "a", "file"),
        set_later("filename", "other"),
    ),
    "lock": (lambda x, lock: x * lock.locked(), threading.Lock, lambda lock: lock.acquire()),
    "key that compares by contents": (
        lambda x, table: (x, [key.weight for key in table]),
        lambda: {Equal(1): 2},
        lambda table: set_later("weight", 5)(next(iter(table))),
    ),
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("name", IN_C)
def test_state_of_objects_in_c(name: str) -> None:
    def run(*, compile_it: bool) -> list[str]:
        f, make, change = IN_C[name]
        held = make()

        def program(x: torch.Tensor) -> Any:
            return f(x, held)

        called = thunder.jit(program) if compile_it else program
        x = torch.arange(4.0).reshape(2, 2)
        found = []
        for call in range(4):
            found.append(str(called(x)))
            if call == 1:
                change(held)
        return found

    assert run(compile_it=True) == run(compile_it=False)


NAN, OTHER_NAN = float("nan"), float("nan")
FIRST, SECOND = Equal(1), Equal(1)

EQUAL: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "range": (
        lambda x, r: (x * r.stop, str(r), r.step),
        [(range(0, 3, 2),), (range(0, 4, 2),), (range(0, 1, 2),), (range(0, 1, 3),), (range(0),), (range(5, 5),)],
    ),
    "range in a tuple": (lambda x, r: (x, str(r)), [((range(0, 3, 2), 1),), ((range(0, 4, 2), 1),)]),
    "union": (lambda x, u: (x, str(u)), [(int | str,), (str | int,)]),
    "generic alias": (lambda x, u: (x, str(u)), [(list[1],), (list[True],), (list[1.0],)]),
    "timedelta64": (
        lambda x, t: (x * int(t.astype(int)), str(t)),
        [(np.timedelta64(1, "s"),), (np.timedelta64(1, "m"),), (np.timedelta64(60, "s"),)],
    ),
    "datetime64": (lambda x, t: (x, str(t)), [(np.datetime64(1, "D"),), (np.datetime64(1, "h"),)]),
    "dates": (
        lambda x, t: (x, str(t)),
        [(np.array([1], "M8[D]"),), (np.array([1], "M8[s]"),), (np.array([1], "m8[s]"),), (np.array([1]),)],
    ),
    "subclass of a date": (
        lambda x, t: (x, t.year),
        [(type("Date", (datetime.date,), {})(2020 + i, 1, 1),) for i in (0, 1)],
    ),
    "fold": (lambda x, t: (x, t.fold), [(datetime.datetime(2020, 1, 1, fold=i),) for i in (0, 1)]),
    "zone": (
        lambda x, t: (x, str(t)),
        [(datetime.datetime(2020, 1, 1, tzinfo=z),) for z in (Zone(), datetime.timezone.utc)],
    ),
    "NaN key": (
        lambda x, v, d: (x, d.get(v, 0), v in d),
        [(NAN, {NAN: 5}), (OTHER_NAN, {NAN: 5}), (OTHER_NAN, {OTHER_NAN: 5})],
    ),
    "NaN member": (lambda x, v, d: (x, v in d), [(NAN, {NAN}), (OTHER_NAN, {NAN}), (OTHER_NAN, {OTHER_NAN})]),
    "equal keys": (
        lambda x, d, k: (x * d.get(k, 0), [key is k for key in d]),
        [({FIRST: 2}, FIRST), ({FIRST: 2}, SECOND), ({SECOND: 2}, FIRST)],
    ),
    "equal keys in an iteration": (
        lambda x, d, k: (x, [key is k for key in d]),
        [({FIRST: 2}, FIRST), ({FIRST: 2}, SECOND), ({SECOND: 2}, FIRST)],
    ),
    "equal keys in tuples": (
        lambda x, d, k: (x, [key[0] is k for key in d]),
        [({(FIRST, 1): 2}, FIRST), ({(FIRST, 1): 2}, SECOND), ({(SECOND, 1): 2}, FIRST)],
    ),
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", EQUAL)
def test_differences_that_equality_hides(name: str, *, turned: bool) -> None:
    f, given = EQUAL[name]
    compiled = thunder.jit(f)
    for arguments in given[::-1] if turned else given:
        assert str(compiled(X, *arguments)) == str(f(X, *arguments))


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize(
    "f",
    [
        lambda x, table, key: x * table[key],
        lambda x, table, key: (x, key in table),
        lambda x, table, key: (x, table.setdefault(key, 5)),
        lambda x, table, key: (x, {key}),
        lambda x, table, key: (x, table.update({key: 1})),
    ],
)
@pytest.mark.parametrize("kind", [Counted, CountedByClass])
def test_keys_that_count_how_often_they_are_hashed(f: Callable[..., Any], kind: Any) -> None:
    def run(*, compile_it: bool) -> tuple[int, int]:
        table, key = {kind(1): 2, kind(2): 3}, kind(2)
        called = thunder.jit(f) if compile_it else f
        Counted.asked.clear()
        Counted.count = 0
        for _ in range(3):
            called(X, table, key)
        return len(Counted.asked), Counted.count

    assert run(compile_it=True) == run(compile_it=False)


def test_getters_and_slices_from_outside_are_compiled() -> None:
    getter, caller, part = operator.itemgetter(1), operator.methodcaller("sum", dim=[0]), slice(0, 1)
    compiled = thunder.jit(lambda x: getter((x, x * 2)) + caller(x) + x[part], fullgraph=True)
    x = torch.ones(2, 3)
    assert compiled(x).equal(x * 2 + 2 + x[part])
    compiled(x)
    assert thunder.compile_stats(compiled)["cache_misses"] == 1
