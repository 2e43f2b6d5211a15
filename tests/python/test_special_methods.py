"""Methods that Python finds in the type of an object by itself: a call follows those that were replaced since."""

from __future__ import annotations

import collections
import functools
import math
import operator
import os
import sys
import types
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import thunder

X = torch.arange(1.0, 4.0)


def make_class() -> Any:
    """Return a fresh class with all special methods that the cases use, of a metaclass that has them too."""

    class Meta(type):
        def __call__(cls, *arguments):
            return super().__call__(*arguments)

        def __getitem__(cls, index):
            return 3

        def __iter__(cls):
            return iter([1, 2])

        def __bool__(cls):
            return True

        def __instancecheck__(cls, instance):
            return True

        def __getattr__(cls, name):
            return 3

        @property
        def settings(cls):
            return 3

    class Base:
        def __init_subclass__(cls):
            cls.made = 3

        def __getitem__(self, index):
            return 3

    class Thing(Base, metaclass=Meta):
        value = 3

        def __init__(self):
            self.own = 3

        def __call__(self, x):
            return x + 3

        def __bool__(self):
            return True

        def __len__(self):
            return 3

        def __eq__(self, other):
            return True

        __hash__ = object.__hash__

        def __add__(self, other):
            return other + 3

        __radd__ = __add__

        def __contains__(self, item):
            return True

        def __iter__(self):
            return iter([1, 2])

        def __float__(self):
            return 3.0

        def __lt__(self, other):
            return True

        def __enter__(self):
            return 3

        def __exit__(self, *error):
            pass

    return Thing


# The program, by the names `thing`, `Thing` and `x`; where the method is; its name; what takes its place.
CASES = [
    ("thing(x)", "Thing", "__call__", lambda self, x: x * 9),
    ("x * 2 if thing else x", "Thing", "__bool__", lambda self: False),
    ("x * len(thing)", "Thing", "__len__", lambda self: 9),
    ("x * (thing == 3)", "Thing", "__eq__", lambda self, other: False),
    ("thing + x", "Thing", "__add__", lambda self, other: other * 9),
    ("1 + thing + x", "Thing", "__radd__", lambda self, other: other * 9),
    ("x * thing[1]", "Base", "__getitem__", lambda self, index: 9),
    ("x * thing[1]", "Thing", "__getitem__", lambda self, index: 9),
    ("x * (1 in thing)", "Thing", "__contains__", lambda self, item: False),
    ("x * sum(thing)", "Thing", "__iter__", lambda self: iter([9])),
    ("x * float(thing)", "Thing", "__float__", lambda self: 9.0),
    ("x * (thing < 1)", "Thing", "__lt__", lambda self, other: False),
    ("x * enter(thing)", "Thing", "__enter__", lambda self: 9),
    ("x * thing.own", "Thing", "__getattribute__", lambda self, name: 9),
    ("x * getattr(thing, 'none', 1)", "Thing", "__getattr__", lambda self, name: 9),
    ("x * Thing().own", "Thing", "__init__", lambda self: setattr(self, "own", 9)),
    ("x * Thing().own", "Thing", "__new__", lambda cls: types.SimpleNamespace(own=9)),
    ("x * derive(Thing).made", "Base", "__init_subclass__", classmethod(lambda cls: setattr(cls, "made", 9))),
    ("x * Thing().own", "Meta", "__call__", lambda cls: types.SimpleNamespace(own=9)),
    ("x * Thing[1]", "Meta", "__getitem__", lambda cls, index: 9),
    ("x * sum(Thing)", "Meta", "__iter__", lambda cls: iter([9])),
    ("x * 2 if Thing else x", "Meta", "__bool__", lambda cls: False),
    ("x * isinstance(x, Thing)", "Meta", "__instancecheck__", lambda cls, instance: False),
    ("x * Thing.none", "Meta", "__getattr__", lambda cls, name: 9),
    ("x * Thing.settings", "Meta", "settings", property(lambda cls: 9)),
    ("x * Thing.value", "Meta", "__getattribute__", lambda cls, name: 9),
    ("linear(x).sum()", "Linear", "__call__", lambda self, x: x * 9),
    ("x * linear.bias", "Linear", "__getattr__", lambda self, name: 9 * X),
]


def enter(manager: Any) -> Any:
    with manager as value:
        return value


def derive(base: type) -> type:
    class Derived(base):  # type: ignore[misc,valid-type]
        pass

    return Derived


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize(("program", "owner", "name", "other"), CASES, ids=[f"{c[1]}.{c[2]} {c[0]}" for c in CASES])
def test_special_methods_that_are_replaced_are_followed(program, owner, name, other):
    class Linear(nn.Linear):
        pass

    thing_class = make_class()
    owners = {"Thing": thing_class, "Base": thing_class.__mro__[1], "Meta": type(thing_class), "Linear": Linear}
    scope = {"Thing": thing_class, "thing": thing_class(), "linear": Linear(3, 3), "enter": enter, "derive": derive}
    function = eval(f"lambda x: {program}", scope)
    compiled = thunder.jit(function)
    for _ in range(2):
        assert torch.equal(compiled(X), function(X))
    assert thunder.cache_misses(compiled) == 1
    before = function(X)
    setattr(owners[owner], name, other)
    assert not torch.equal(function(X), before)
    for _ in range(2):
        assert torch.equal(compiled(X), function(X))


OF_TENSORS = [
    ("__neg__", lambda x: -x, lambda self: self * 9),
    ("__add__", lambda x: x + 1, lambda self, other: self * 9),
    ("__iadd__", lambda x: functools.reduce(lambda a, b: a.__iadd__(b), [x.clone(), 1]), lambda self, other: self * 9),
    ("__eq__", lambda x: x == 1, lambda self, other: self * 9),
    ("__len__", lambda x: x * len(x), lambda self: 9),
    ("sin", lambda x: x.sin(), lambda self: self * 9),
    ("shape", lambda x: x * x.shape[0], property(lambda self: (9,))),
]


@pytest.mark.parametrize(("name", "function", "other"), OF_TENSORS, ids=[row[0] for row in OF_TENSORS])
def test_methods_of_tensors_that_are_replaced_are_followed(monkeypatch, name, function, other):
    compiled = thunder.jit(function)
    before = function(X)
    assert torch.equal(compiled(X), before)
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, name, other)
        assert torch.equal(compiled(X), function(X))
        assert not torch.equal(function(X), before)
    assert torch.equal(compiled(X), before)


# A use of an object, what its class has, and what it gets after the first call.
def measured(function, thing):
    """Return what a function gives, or 1 where it does not know the thing."""
    try:
        return function(thing)
    except (TypeError, LookupError):
        return 1


def set_and_read(thing):
    thing.value = 3
    return vars(thing)["value"]


def delete_and_ask(thing):
    thing.own = 3
    del thing.own
    return 7 if hasattr(thing, "own") else 1


ADDED = {
    "bool_of_nothing": (lambda b: 1 if b else 2, {}, {"__bool__": lambda self: False}),
    "bool_of_len": (lambda b: 1 if b else 2, {"__len__": lambda self: 0}, {"__bool__": lambda self: True}),
    "not": (lambda b: 1 if not b else 2, {}, {"__len__": lambda self: 0}),
    "bool_in_c": (lambda b: 1 if any([b]) else 2, {}, {"__bool__": lambda self: False}),
    "contains": (
        lambda b: 1 if 3 in b else 2,
        {"__iter__": lambda self: iter([3])},
        {"__contains__": lambda self, item: False},
    ),
    "iter": (
        lambda b: sum(b),
        {"__getitem__": lambda self, i: [1, 2][i]},
        {"__iter__": lambda self: iter([30])},
    ),
    "eq": (lambda b: 1 if b == 3 else 2, {}, {"__eq__": lambda self, other: True}),
    "eq_reflected": (lambda b: 1 if [] == b else 2, {}, {"__eq__": lambda self, other: True}),  # noqa: SIM300
    "eq_in_list": (lambda b: 1 if 3 in [b] else 2, {}, {"__eq__": lambda self, other: True}),
    "ne": (lambda b: 1 if b != 3 else 2, {"__eq__": lambda self, o: True}, {"__ne__": lambda self, o: True}),
    "iadd": (
        lambda b: operator.iadd(b, 1),
        {"__add__": lambda self, o: 4},
        {"__iadd__": lambda self, o: 7},
    ),
    "int": (lambda b: int(b), {"__index__": lambda self: 4}, {"__int__": lambda self: 7}),
    "float": (lambda b: float(b), {"__index__": lambda self: 4}, {"__float__": lambda self: 7.0}),
    "str": (lambda b: len(str(b)), {"__repr__": lambda self: "ab"}, {"__str__": lambda self: "abc"}),
    "format": (lambda b: len(f"{b}"), {"__str__": lambda self: "ab"}, {"__format__": lambda self, s: "abc"}),
    "floor": (lambda b: math.floor(b), {"__float__": lambda self: 3.0}, {"__floor__": lambda self: 5}),
    "len": (lambda b: measured(len, b), {}, {"__len__": lambda self: 5}),
    "list": (lambda b: measured(lambda b: sum(list(b)), b), {}, {"__iter__": lambda self: iter([5])}),
    "item": (lambda b: measured(lambda b: b[1], b), {}, {"__getitem__": lambda self, index: 5}),
    "length_hint": (lambda b: operator.length_hint(b, 2), {}, {"__length_hint__": lambda self: 5}),
    "fspath": (lambda b: measured(lambda b: len(os.fspath(b)), b), {}, {"__fspath__": lambda self: "/path"}),
    "sizeof": (lambda b: sys.getsizeof(b) // 5000 + 1, {}, {"__sizeof__": lambda self: 9999}),
    "dir": (lambda b: dir(b).count("added") + 1, {}, {"added": 1}),
    "dir of a class": (lambda b: dir(type(b)).count("added") + 1, {}, {"added": 1}),
    "own dir": (lambda b: len(dir(b)), {}, {"__dir__": lambda self: ["a", "b"]}),
    "reversed": (
        lambda b: next(reversed(b)),
        {"__getitem__": lambda self, index: index + 1, "__len__": lambda self: 3},
        {"__reversed__": lambda self: iter([7])},
    ),
    "getattribute": (lambda b: b.value, {"value": 3}, {"__getattribute__": lambda self, name: 5}),
    "setattr": (set_and_read, {}, {"__setattr__": lambda self, name, value: object.__setattr__(self, name, 7)}),
    "setattr of a made object": (
        lambda b: set_and_read(type(b)()),
        {},
        {"__setattr__": lambda self, name, value: object.__setattr__(self, name, 7)},
    ),
    "delattr": (delete_and_ask, {}, {"__delattr__": lambda self, name: None}),
    "torch function": (
        lambda b: measured(lambda b: X + b, b),
        {},
        {"__torch_function__": classmethod(lambda cls, function, types, arguments=(), keywords=None: 7)},
    ),
    "times a list": (lambda b: measured(lambda b: len([1] * b), b), {}, {"__index__": lambda self: 7}),
    "item of a class": (
        lambda b: measured(lambda b: type(b)[1], b),
        {},
        {"__class_getitem__": classmethod(lambda cls, index: 7)},
    ),
    "ufunc": (
        lambda b: measured(lambda b: np.add(np.ones(1), b), b),
        {},
        {"__array_ufunc__": lambda self, *arguments, **keywords: 7},
    ),
    "missing": (lambda b: measured(lambda b: b["a"], b), {"": dict}, {"__missing__": lambda self, key: 7}),
    "missing of a default": (
        lambda b: measured(lambda b: b["a"], b),
        {"": collections.Counter},
        {"__missing__": lambda self, key: 7},
    ),
    "len of an index": (lambda b: measured(lambda b: X[b].numel() + 2, b), {"": list}, {"__len__": lambda self: 1}),
    "hash of a key": (lambda b: {(): 3}.get(b, 7), {"": tuple}, {"__hash__": lambda self: 77}),
    "iteration over a set": (lambda b: len(sorted(b)) + 1, {"": set}, {"__iter__": lambda self: iter([5])}),
}


@pytest.mark.parametrize("name", ADDED)
def test_methods_that_a_class_gets_later_are_followed(name):
    use, methods, added = ADDED[name]
    kind = type("Kind", (methods.get("", object),), {each: methods[each] for each in methods if each})
    thing = kind()

    def function(x):
        return x * use(thing)

    compiled = thunder.jit(function)
    before = function(X)
    assert torch.equal(compiled(X), before)
    for key, value in added.items():
        setattr(kind, key, value)
    assert torch.equal(compiled(X), function(X))
    assert not torch.equal(function(X), before)
    for key in added:
        delattr(kind, key)
    assert torch.equal(compiled(X), before)


def test_setter_that_the_class_of_a_descriptor_gets_later_is_followed():
    class Value:
        """No descriptor yet."""

    class Host:
        at = Value()

    host = Host()

    def function(x):
        host.at = 3
        return x * vars(host).pop("at", 7)

    compiled = thunder.jit(function)
    assert torch.equal(compiled(X), X * 3)
    Value.__set__ = lambda self, owner, value: None
    assert torch.equal(compiled(X), X * 7)


def test_conversion_that_torch_tensor_gets_later_is_followed(monkeypatch):
    compiled = thunder.jit(lambda x: (float(x) + 1, int(x) + 1))
    x = torch.tensor(2.0)
    assert compiled(x) == (3.0, 3)
    monkeypatch.setattr(torch.Tensor, "__float__", lambda self: 40.0)
    monkeypatch.setattr(torch.Tensor, "__int__", lambda self: 50)
    assert compiled(x) == (41.0, 51)
    monkeypatch.undo()
    assert compiled(x) == (3.0, 3)


class Held:
    """Anything that is called, and gives what it holds."""

    def __init__(self, value):
        self.value = value

    def __call__(self, *_):
        return self.value


class Descriptor(Held):
    def __get__(self, owner, kind=None):
        return self.value


class DataDescriptor(Descriptor):
    def __set__(self, owner, value):
        self.value = value


def read_attribute(thing):
    return thing.held


# Contents of a descriptor, or of an object in the place of a special method, which is read from the class.
HELD = {
    "descriptor": (Descriptor, "held", read_attribute),
    "data descriptor": (DataDescriptor, "held", read_attribute),
    "descriptor by getattr": (Descriptor, "held", lambda thing: getattr(thing, "held")),  # noqa: B009
    "descriptor of a class": (Descriptor, "held", lambda thing: type(thing).held),
    "descriptor by object": (Descriptor, "held", lambda thing: object.__getattribute__(thing, "held")),
    "descriptor by super": (Descriptor, "held", lambda thing: super(type(thing), thing).held),
    "descriptor of a metaclass": (Descriptor, "held", lambda thing: thing),
    "call": (Held, "__call__", lambda thing: thing(1)),
    "len": (Held, "__len__", len),
    "item": (Held, "__getitem__", lambda thing: thing[0]),
    "add": (Held, "__add__", lambda thing: thing + 1),
    "reflected": (Held, "__rmul__", lambda thing: 2 * thing),
    "negative": (Held, "__neg__", lambda thing: -thing),
    "index": (Held, "__index__", lambda thing: [0, 1, 2, 3, 4, 5][thing]),
    "equal": (Held, "__eq__", lambda thing: thing == 1),
    "abs": (Held, "__abs__", abs),
    "int": (Held, "__int__", int),
    "round": (Held, "__round__", round),
    "getattr": (Held, "__getattr__", lambda thing: thing.absent),
    "power": (Held, "__pow__", lambda thing: thing**2),
    "enter": (Held, "__enter__", lambda thing: entered(thing)),
}


def entered(thing):
    with thing as value:
        return value


@pytest.mark.parametrize("name", HELD)
def test_what_objects_in_a_class_hold_is_followed(name):
    make, attribute, use = HELD[name]
    held = make(2)
    base = type("Base", (), {attribute: held, "__exit__": lambda *_: None})
    thing = type("Kind", (base,), {})()
    if name == "descriptor of a metaclass":
        of_metaclass = type("Meta", (type,), {attribute: held})("Kind", (), {})
        thing, use = of_metaclass, read_attribute
    compiled = thunder.jit(lambda x: x * use(thing))
    for value in (2, 3, 5, 2):
        held.value = value
        assert torch.equal(compiled(X), X * use(thing))


def test_descriptor_that_is_written_to_inside_is_read_at_the_next_call():
    held = DataDescriptor(1)
    thing = type("Kind", (), {"held": held})()

    def function(x):
        y = x * thing.held
        thing.held = 5
        return y

    compiled = thunder.jit(function)
    assert [compiled(torch.ones(1)).item() for _ in range(3)] == [1.0, 5.0, 5.0]
    assert held.value == 5
