"""Classes that change between two calls, special methods that classes have from C, and classes that are made inside."""

from __future__ import annotations

import collections
import contextvars
import ctypes
import dataclasses
import enum
import functools
import operator
import re
import sys
import traceback
import types
import typing
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import thunder

# A read that gives a number, and the change that it shall see.
Changing = tuple[Callable[[], Any], Callable[[], Any]]


def module_gets_a_class() -> Changing:
    class Other(types.ModuleType):
        k = property(lambda _: 5)

    module: Any = types.ModuleType("changing")
    module.k = 2
    return lambda: module.k * isinstance(module, Other) + module.k, lambda: setattr(module, "__class__", Other)


def module_gains_an_attribute() -> Changing:
    class Other(types.ModuleType):
        k = 5

    module = types.ModuleType("changing")
    return lambda: getattr(module, "k", 3), lambda: setattr(module, "__class__", Other)


class Metaclass(type):
    k = property(lambda _: 5)


def class_gets_a_metaclass() -> Changing:
    class First(type):
        pass

    class A(metaclass=First):
        k = 2

    return lambda: A.k * (2 if type(A) is First else 3), lambda: setattr(A, "__class__", Metaclass)


def of_metaclass(name: str, value: Any, read: Callable[[Any], Any]) -> Callable[[], Changing]:
    """The metaclass of a class gains an attribute."""

    def make() -> Changing:
        class Own(type):
            pass

        class A(metaclass=Own):
            k = 2

        return lambda: read(A), lambda: setattr(Own, name, value)

    return make


def of_class(name: str, value: Any, read: Callable[[Any], Any], **members: Any) -> Callable[[], Changing]:
    """The class of an object gains an attribute."""

    def make() -> Changing:
        kind = type("A", (), members)
        item = kind()
        return lambda: read(item), lambda: setattr(kind, name, value)

    return make


def getattribute(self: Any, name: str) -> Any:
    return 5 if name == "k" else object.__getattribute__(self, name)


def set_and_read(item: Any) -> Any:
    item.k = 2
    return item.k


def of_object_made_inside() -> Changing:
    class A:
        def __init__(self) -> None:
            self.k = 2

    return lambda: A().k, lambda: setattr(A, "k", property(lambda _: 5, lambda *_: None))


def of_name_in_class_dict() -> Changing:
    class Kind(enum.Enum):
        FIRST = 1

    return lambda: 2 if "extra" in Kind.__dict__ else 3, lambda: setattr(Kind, "extra", 5)


Parameter = typing.TypeVar("Parameter")


def of_alias(name: str) -> Callable[[], Changing]:
    def make() -> Changing:
        class A(typing.Generic[Parameter]):
            k = 2

        class B:
            k = 2
            __class_getitem__ = classmethod(types.GenericAlias)

        def change() -> None:
            setattr(A, name, 5)
            setattr(B, name, 7)

        return lambda: getattr(A[int], name, 3) * getattr(B[int], name, 3), change  # type: ignore[index]

    return make


def of_context() -> Changing:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    context = contextvars.copy_context()
    return lambda: context.get(variable, 3) * (2 if variable in context else 3), lambda: context.run(variable.set, 5)


def of_copied_context() -> Changing:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    return lambda: 2 if variable in contextvars.copy_context() else 3, lambda: variable.set(5)


class Pair:
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> float:
        if index > 0:
            raise IndexError
        return 2.0


def of_array_protocol(name: str) -> Callable[[], Changing]:
    array = np.array([5.0])
    given = property(lambda _: getattr(array, name))

    def make() -> Changing:
        kind = type("Rows", (Pair,), {})
        item = kind()
        return lambda: float(np.asarray(item)[0]), lambda: setattr(kind, name, given)

    return make


def of_class_fact(name: str, value: Any, read: Callable[[Any], Any]) -> Callable[[], Changing]:
    """A class says something else of itself."""

    def make() -> Changing:
        class A:
            "d"

            first: int

        return lambda: read(getattr(A, name)), lambda: setattr(A, name, value)

    return make


def of_bases() -> Changing:
    class Base:
        pass

    class Other(Base):
        pass

    class A(Base):
        pass

    item = A()
    return (
        lambda: len(A.__mro__) * (2 if A.__base__ is Base else 3) + isinstance(item, Other) + issubclass(A, Other),
        lambda: setattr(A, "__bases__", (Other,)),
    )


def of_annotations() -> Changing:
    class A:
        first: int

    return lambda: len(A.__annotations__), lambda: A.__annotations__.update(second=int)


def of_instance_text() -> Changing:
    @dataclasses.dataclass
    class A:
        first: int = 1

    item = A()
    return lambda: len(repr(item)), lambda: setattr(A, "__qualname__", "longer name")


def of_getter_behind_super() -> Changing:
    class Failure(Exception):
        def read(self) -> Any:
            return super().args[0]

    class Queue(collections.deque):  # type: ignore[type-arg]
        def read(self) -> Any:
            return super().maxlen

    failure, held = Failure(2), [Queue(maxlen=2)]

    def change() -> None:
        failure.args = (failure.args[0] + 1,)
        held[0] = Queue(maxlen=failure.args[0])

    return lambda: failure.read() * held[0].read(), change


def of_property_in_c() -> Changing:
    item = types.SimpleNamespace(k=2)
    return lambda: property(operator.attrgetter("k")).__get__(item), lambda: setattr(item, "k", 5)


def of_interned_string(read: Callable[[list[Any]], bool], make_value: Callable[[str], Any]) -> Callable[[], Changing]:
    def make() -> Changing:
        held = [make_value("abc"), make_value("abc")]
        return lambda: 2 if read(held) else 3, lambda: held.__setitem__(1, make_value("".join(["a", "bc"])))

    return make


def of_pointer() -> Changing:
    number = ctypes.c_int(2)
    pointer = ctypes.pointer(number)
    return lambda: pointer[0], lambda: setattr(number, "value", 5)


class Key:
    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key)

    def __hash__(self) -> int:
        return 1


def of_key(hold: Callable[[Key], Any]) -> Callable[[], Changing]:
    def make() -> Changing:
        key = Key(2)
        held = hold(key)
        return lambda: sum(each.value for each in held), lambda: setattr(key, "value", 5)

    return make


def of_scanner() -> Changing:
    scanner: Any = re.Scanner([("a", lambda *_: 2)])  # type: ignore[attr-defined]
    return lambda: scanner.scan("a")[0][0], lambda: scanner.lexicon.__setitem__(0, ("a", lambda *_: 5))


def of_tuple_in_two_places() -> Changing:
    held = [(2, 3), (2, 3)]
    held[1] = held[0]

    def change() -> None:
        first = (held[0][0] + 1, 3)
        held[:] = [first, first if first[0] != 4 else (first[0], 3)]

    return lambda: held[0][0] * (2 if held[0] is held[1] else 3), change


CHANGING: dict[str, Callable[[], Changing]] = {
    **{each.__name__: each for each in (module_gets_a_class, module_gains_an_attribute, class_gets_a_metaclass)},
    "property of a metaclass": of_metaclass("k", property(lambda _: 5), lambda kind: kind.k),
    "attribute of a metaclass": of_metaclass("j", 5, lambda kind: getattr(kind, "j", 3)),
    "__getattr__ of a metaclass": of_metaclass("__getattr__", lambda *_: 5, lambda kind: getattr(kind, "j", 3)),
    "isinstance": of_metaclass("__instancecheck__", lambda *_: True, lambda kind: isinstance(1, (str, kind)) + 1),
    "issubclass": of_metaclass("__subclasscheck__", lambda *_: True, lambda kind: issubclass(int, kind) + 1),
    "behind __getattr__": of_class("__getattribute__", getattribute, lambda item: item.k, __getattr__=lambda *_: 2),
    "absent": of_class("__getattribute__", getattribute, lambda item: getattr(item, "k", 3)),
    "property": of_class("__getattribute__", getattribute, lambda item: item.k, k=property(lambda _: 2)),
    "__setattr__": of_class(
        "__setattr__", lambda self, name, value: object.__setattr__(self, name, value + 1), set_and_read
    ),
    "format": of_class(
        "k",
        property(lambda _: 5),
        lambda item: int("{.k}".format(item)),  # noqa: UP032
        k=property(lambda _: 2),
    ),
    "format_map": of_class(
        "k", 5, lambda item: int("{a[0].k:{w}}".format_map({"a": [item], "w": 1})), __getattr__=lambda *_: 2
    ),
    "format of a class": of_class("k", 5, lambda item: int("{.k}".format(type(item))), k=2),  # noqa: UP032
    **{each.__name__: each for each in (of_object_made_inside, of_name_in_class_dict, of_context, of_copied_context)},
    "alias": of_alias("k"),
    "absent of an alias": of_alias("j"),
    **{name: of_array_protocol(name) for name in ("__array_interface__", "__array_struct__")},
    **{name: of_class_fact(name, "longer", len) for name in ("__name__", "__qualname__", "__module__", "__doc__")},
    "__annotations__": of_class_fact("__annotations__", {}, len),
    **{each.__name__: each for each in (of_bases, of_annotations, of_instance_text, of_getter_behind_super)},
    **{each.__name__: each for each in (of_property_in_c, of_pointer, of_scanner, of_tuple_in_two_places)},
    "interned": of_interned_string(lambda held: held[0] is held[1], str),
    "interned in a tuple": of_interned_string(lambda held: held[0][0] is held[1][0], lambda text: (text, 1)),
    "key": of_key(lambda key: {key: 1}),
    "member": of_key(lambda key: {key}),
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("name", CHANGING)
def test_what_changes_about_classes_is_seen(name: str) -> None:
    runs = []
    for compile_it in (False, True):
        read, change = CHANGING[name]()
        function = functools.partial(lambda x, read: x * read(), read=read)
        called = thunder.jit(function) if compile_it else function
        run = []
        for call in range(4):
            run.append(called(torch.full((2,), 1.0 + call)).tolist())
            change()
        runs.append(run)
    assert runs[0] == runs[1]


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_exception_that_the_caller_handles() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        try:
            raise KeyError
        except KeyError:
            own = len(str(sys.exc_info()[0]))
        return x * (2 if sys.exc_info()[0] is None else 3) * own + len(traceback.format_exc())

    compiled = thunder.jit(f)
    for call in range(4):
        x = torch.full((2,), 1.0 + call)
        assert compiled(x).tolist() == f(x).tolist()
        try:
            raise ValueError("a")
        except ValueError:
            assert compiled(x).tolist() == f(x).tolist()


@pytest.mark.parametrize("text", ["{.k}{.k:.2f}", "{0.k:{1.k}.1f}|{{}}", "{.rows[1][n]!r:>5}", "{0.k!s:>{w.rows[0]}}"])
def test_fields_of_a_format_are_compiled(text: str) -> None:
    item = types.SimpleNamespace(k=2.5, rows=[4, {"n": 5}])
    other = types.SimpleNamespace(k=7, rows=[8])
    compiled = thunder.jit(lambda x: (x * 1, text.format(item, other, w=other)), fullgraph=True)
    for _ in range(2):
        assert compiled(torch.ones(1))[1] == text.format(item, other, w=other)
        item.k += 1


class Grown(list):  # type: ignore[type-arg]
    __lshift__ = list.append
    __rrshift__ = list.append
    __isub__ = list.append
    __neg__ = list.pop
    __eq__ = list.append  # type: ignore[assignment]
    __enter__ = list.copy
    __matmul__ = list.__iadd__

    def __exit__(self, *_: object) -> None: ...


class Kept:
    __setitem__ = object.__setattr__
    __getitem__ = object.__getattribute__
    __call__ = property(operator.attrgetter("function"))

    def __init__(self) -> None:
        self.k: Any = 1
        self.items: list[int] = []
        self.function: Any = self.items.append


def subtract(items: Any) -> None:
    items -= 1


def enter(items: Any) -> None:
    with items as copy:
        items.append(len(copy))


USES: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "<<": (Grown, lambda items: items << 1),
    ">>": (Grown, lambda items: 1 >> items),
    "-=": (Grown, subtract),
    "-": (Grown, lambda items: -items),
    "==": (Grown, lambda items: items == 1),
    "@": (Grown, lambda items: items @ [1]),
    "with": (Grown, enter),
    "item": (Kept, lambda kept: kept.__class__.__setitem__(kept, "k", kept["k"] + 1)),
    "set item": (Kept, lambda kept: operator.setitem(kept, "k", kept.k + 1)),
    "call": (Kept, lambda kept: kept(1)),
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("name", USES)
def test_special_methods_from_c_by_another_name(name: str) -> None:
    kind, use = USES[name]
    runs = []
    for compile_it in (False, True):
        held = kind([1, 2, 3]) if kind is Grown else kind()

        def f(x: torch.Tensor, held: Any = held) -> torch.Tensor:
            use(held)
            return x * (list.__len__(held) if kind is Grown else held.k + len(held.items))

        called = thunder.jit(f) if compile_it else f
        run = [called(torch.ones(2)).tolist() for _ in range(3)]
        runs.append((run, list(held) if kind is Grown else (held.k, held.items)))
    assert runs[0] == runs[1]


class Named:
    def __set_name__(self, owner: type, name: str) -> None:
        self.name = owner.__name__ + name + str(getattr(owner, "k", 0))


def make_with_descriptor(x: torch.Tensor) -> Any:
    class A:
        named = Named()

        def __init__(self, x: torch.Tensor) -> None:
            self.x = x

    return A(x)


def make_member(x: torch.Tensor) -> Any:
    class A(enum.Enum):
        FIRST = 1

    return A.FIRST


MADE: dict[str, Callable[[torch.Tensor], Any]] = {
    "NamedTuple": lambda x: typing.NamedTuple("N", [("a", int)])(x),  # type: ignore[arg-type]
    "Enum": lambda x: enum.Enum("E", "A B").A,  # type: ignore[attr-defined]
    "type": lambda x: type("E", (), {"named": Named()})(),
    **{each.__name__: each for each in (make_with_descriptor, make_member)},
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("name", MADE)
def test_classes_that_are_made_inside_are_new_ones_at_each_call(name: str) -> None:
    compiled = thunder.jit(lambda x: (x * 2, MADE[name](x)))
    assert len({type(compiled(torch.ones(2))[1]) for _ in range(3)}) == 3


def test_objects_of_classes_from_outside_are_compiled() -> None:
    class First:
        pass

    @dataclasses.dataclass
    class Second:
        x: torch.Tensor

    class Kind(enum.Enum):
        FIRST = 1

    kinds, item = (First, Second), First()
    compiled = thunder.jit(lambda x: (kinds[1](x), type(item)(), Kind.FIRST, type(item)), fullgraph=True)
    for _ in range(2):
        result = compiled(torch.ones(2))
        assert [type(each) for each in result] == [Second, First, Kind, type]


def test_other_bases_are_seen_by_super() -> None:
    class First:
        def scale(self) -> int:
            return 2

    class Second:
        def scale(self) -> int:
            return 3

    class Derived(First):
        def scale(self) -> int:
            return super().scale() * 10

    item = Derived()
    compiled = thunder.jit(lambda x: x * item.scale())
    x = torch.ones(2)
    torch.testing.assert_close(compiled(x), x * 20)
    Derived.__bases__ = (Second,)
    torch.testing.assert_close(compiled(x), x * 30)
    Second.scale = lambda self: 4  # type: ignore[method-assign]
    torch.testing.assert_close(compiled(x), x * 40)


HELD = thunder.jit(lambda x: x + 1)
FACTOR = 2


def test_class_and_code_beside_objects_that_code_in_c_may_not_look_into() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        @dataclasses.dataclass
        class Pair:
            left: Any
            right: int = 3

        pair = Pair(x)
        return pair.left * pair.right + eval("FACTOR", globals())

    global FACTOR
    compiled = thunder.jit(run, fullgraph=True)
    x = torch.ones(2)
    for factor in (2, 5, 2):
        FACTOR = factor
        torch.testing.assert_close(compiled(x), x * 3 + factor)
    assert thunder.compile_stats(compiled)["specializations"] == 2


def test_code_that_writes_to_globals_is_repeated() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        exec("WRITTEN = FACTOR * 2", globals())
        return x * globals()["WRITTEN"]

    compiled = thunder.jit(run)
    x = torch.ones(2)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), x * FACTOR * 2)
        assert globals().pop("WRITTEN") == FACTOR * 2
