"""Values that lie in classes: guarded by value, inputs where they are tensors or change, and not kept alive."""

from __future__ import annotations

import gc
import operator
import types
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch

import thunder


class Settings:
    """An object that may lie in a class."""

    def __init__(self, factor: float) -> None:
        self.factor = factor


class Doubled:
    """A descriptor."""

    def __get__(self, owner: object, kind: type) -> float:
        return 2.0


def new_classes() -> types.SimpleNamespace:
    class Meta(type):
        @property
        def twice(cls) -> Any:
            return cls.a * 2  # type: ignore[attr-defined]

    class Base(metaclass=Meta):
        a: ClassVar[Any] = 1.0
        calls: ClassVar[int] = 0

    class Derived(Base):
        pass

    return types.SimpleNamespace(Base=Base, Derived=Derived, object=Derived())


def write_and_read(x: torch.Tensor, c: Any) -> Any:
    before = c.Derived.a
    c.Base.a = x
    return x * before + c.object.a


def count(x: torch.Tensor, c: Any) -> Any:
    type(c.object).calls += 1
    return x * c.Derived.calls


def hide(x: torch.Tensor, c: Any) -> Any:
    result = x * c.object.a
    c.object.a = c.Base.a * 2
    return result + c.object.a


def read_of_c(x: torch.Tensor, c: Any) -> Any:
    return x * operator.attrgetter("object.a")(c) + vars(c.Base)["a"]


READS: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "class": lambda x, c: x * c.Base.a,
    "derived": lambda x, c: x * c.Derived.a,
    "instance": lambda x, c: x * c.object.a,
    "super": lambda x, c: x * super(c.Derived, c.object).a,
    "metaclass": lambda x, c: x * c.Base.twice,
    "getattr": lambda x, c: x * getattr(c.Derived, "a", 7.0),
    "both": lambda x, c: x * c.Base.a + c.Derived.a + (c.Base.a is c.object.a),
    "is": lambda x, c: x * 2 if c.Base.a is x else x * c.Base.a,
    **{each.__name__: each for each in (write_and_read, count, hide, read_of_c)},
}
VALUES: dict[str, Callable[[int], Any]] = {
    "float": lambda i: 2.5 + i,
    "int": lambda i: 1000 + i,
    "small int": lambda i: i,
    "bool or int": lambda i: (True, 1, 1.0)[i % 3],
    "tensor": lambda i: torch.full((2,), float(i)),
    "tensors of two shapes": lambda i: torch.full((1 + i % 2,), float(i)),
    "tensor or float": lambda i: torch.ones(2) * i if i % 2 else 3.0,
    "descriptor or float": lambda i: Doubled() if i % 3 == 1 else 3.0,
    "property or float": lambda i: property(lambda _: 4.0) if i % 3 == 1 else 3.0,
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("where", ["Base", "Derived", "object"])
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("read", READS)
def test_values_in_classes_are_those_of_each_call(read: str, value: str, where: str) -> None:
    runs = []
    for function in (READS[read], thunder.jit(READS[read])):
        classes, x, run = new_classes(), torch.ones(2), []
        for i in range(8):
            if i != 5:
                getattr(classes, where).a = VALUES[value](i)
            elif "a" in vars(getattr(classes, where)) and where != "Base":
                delattr(getattr(classes, where), "a")
            if read == "is" and i == 6:
                classes.Base.a = x
            try:
                run.append(function(x, classes).tolist())
            except (TypeError, AttributeError) as error:
                run.append(type(error))
            run.append(classes.Derived.calls)
        runs.append(run)
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("make", "read", "most"),
    [
        (lambda i: float("2.5"), lambda a: a, 1),
        (lambda i: "".join(["ab", "c"]), len, 1),
        (lambda i: (2.5, int("1000")), lambda a: a[0] + a[1], 1),
        (lambda i: [2.5, float(i)], lambda a: a[0], 1),
        (lambda i: Settings(2.5), lambda a: a.factor, 1),
        (lambda i: torch.ones(3) * i, lambda a: a, 1),
        (lambda i: 2.5 + i, lambda a: a, 2),
        (lambda i: 1000 + i, lambda a: a, 2),
    ],
    ids=["float", "string", "tuple", "list", "object", "tensor", "changing float", "changing int"],
)
@pytest.mark.parametrize("owner", ["Base", "object"])
def test_new_values_in_a_class_are_not_traced_for_nor_kept(make: Any, read: Any, most: int, owner: str) -> None:
    classes = new_classes()
    compiled = thunder.jit(lambda x: x * read(getattr(classes, owner).a))
    seen = []
    for i in range(6):
        classes.Base.a = make(i)
        if not isinstance(classes.Base.a, float | int | str | tuple | list):
            seen.append(weakref.ref(classes.Base.a))
        assert torch.equal(compiled(torch.ones(3)), torch.ones(3) * read(classes.Base.a))
    assert thunder.cache_misses(compiled) <= most
    classes.Base.a = None
    gc.collect()
    assert not any(reference() is not None for reference in seen)


def test_a_counter_in_a_class_is_traced_for_a_few_times() -> None:
    class Counted(torch.nn.Module):
        calls = 0

        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> Any:
            type(self).calls += 1
            return self.linear(x)

    compiled = thunder.jit(Counted())
    for _ in range(8):
        compiled(torch.ones(2))
    assert Counted.calls == 8
    assert thunder.cache_misses(compiled) <= 3
