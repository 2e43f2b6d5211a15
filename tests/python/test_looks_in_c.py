"""Functions in C that look at less than everything inside of the objects they are given."""

from __future__ import annotations

import bisect
import functools
import heapq
import itertools
import operator
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thunder

pytestmark = pytest.mark.filterwarnings("error::thunder.EagerFallbackWarning")


class Counter:
    """Counts its calls, and has special methods that do not depend on the count."""

    def __init__(self) -> None:
        self.calls = 5

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        return torch.tanh(x)

    def __repr__(self) -> str:
        return "Counter()"

    def __format__(self, spec: str) -> str:
        return "counter"

    def __int__(self) -> int:
        return 2

    def __index__(self) -> int:
        return 2

    def __float__(self) -> float:
        return 2.5

    def __complex__(self) -> complex:
        return 1j

    def __bool__(self) -> bool:
        return True

    def __abs__(self) -> int:
        return 3

    def __round__(self, digits: int = 0) -> int:
        return 3

    def __lt__(self, other: object) -> bool:
        return True

    def __add__(self, other: object) -> int:
        return 3

    def __divmod__(self, other: object) -> tuple[int, int]:
        return 1, 2

    def __pow__(self, other: object) -> int:
        return 4


class CountingModule(nn.Module):
    """A module that counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 5
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return torch.tanh(x)


class Asking(type):
    """A metaclass that asks the one in C."""

    def __instancecheck__(cls, instance: object) -> bool:
        return super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return super().__subclasscheck__(subclass)


class Asked(metaclass=Asking):
    """A class of that metaclass."""


OF_EACH: dict[str, Callable[[Any], Any]] = {
    "instance of a class with a metaclass": lambda c: isinstance(c, Asked),
    "instance of type": lambda c: type.__instancecheck__(Asked, c),
    "subclass": lambda c: issubclass(type(c), Asked),
    "parameter": lambda c: isinstance(c, nn.Parameter),
    "buffer": lambda c: isinstance(c, nn.Buffer),
    "attribute of a module": lambda c: setattr(nn.Module(), "inner", c),
    "has_torch_function": lambda c: torch.overrides.has_torch_function((c, 1)),
    "has_torch_function_unary": torch.overrides.has_torch_function_unary,
    "has_torch_function_variadic": lambda c: torch.overrides.has_torch_function_variadic(c, torch.ones(1)),
    "str": str,
    "repr": repr,
    "ascii": ascii,
    "format": format,
    "str.format": lambda c: f"{c}" + "{} {a!r}".format(c, a=c),  # noqa: UP032
    "object.__repr__": lambda c: len(object.__repr__(c)),
    "not": operator.not_,
    "truth": operator.truth,
    "heap": lambda c: heapq.heappush([], c),
    "groups": lambda c: [len(list(group)) for _, group in itertools.groupby([c, c], key=id)],
    "cell": types.CellType,
    "exception": lambda c: ValueError(c).args,
    "weak dict": lambda c: weakref.WeakValueDictionary({1: c})[1],
    "eval": lambda c: eval("c is c", {"c": c}),
}
OF_OBJECTS: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "float": float,
    "complex": complex,
    "index": operator.index,
    "hex": hex,
    "abs": abs,
    "round": round,
    "divmod": lambda c: divmod(c, 2),
    "pow": lambda c: pow(c, 2),
    "add": lambda c: operator.add(c, 1),
    "bisect": lambda c: bisect.bisect([c], c),
    "heap of pairs": lambda c: heapq.heappush([(1, c)], (2, c)),
}


def require_one_program(counter: Any, look: Callable[[Any], Any]) -> None:
    def program(x: Tensor) -> Tensor:
        look(counter)
        return counter(x)

    compiled = thunder.jit(program)
    for step in range(5):
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x), torch.tanh(x))
        assert counter.calls == 6 + step
    stats = thunder.compile_stats(compiled)
    assert stats["specializations"] <= 2  # one for each value would be five
    assert stats["eager_calls"] == 0


@pytest.mark.parametrize("name", OF_EACH)
@pytest.mark.parametrize("kind", [Counter, CountingModule])
def test_a_counter_is_no_constant(name: str, kind: type) -> None:
    require_one_program(kind(), OF_EACH[name])


@pytest.mark.parametrize("name", OF_OBJECTS)
def test_a_counter_of_an_object_with_operators_is_no_constant(name: str) -> None:
    require_one_program(Counter(), OF_OBJECTS[name])


class Told:
    """Has special methods that depend on its number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        return f"<{self.number}>"

    def __int__(self) -> int:
        return self.number

    def __float__(self) -> float:
        return float(self.number)

    def __bool__(self) -> bool:
        return self.number > 2


class Namespace(types.SimpleNamespace):
    """Has its `repr` from a class in C, which reads its attributes."""


class Inherited(Told):
    """Has a special method that is no function."""

    __int__ = functools.partialmethod(Told.__int__)


LOOKS: dict[str, Callable[[Any], int]] = {
    "repr": lambda told: len(repr(told)) + int(repr(told).strip("<>")),
    "str": lambda told: int(str(told)[1:-1]),
    "int": int,
    "float": float,
    "truth": operator.truth,
    "format": lambda told: int("{}".format(told)[1:-1]),  # noqa: UP032
}


@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize("kind", [Told, Inherited])
def test_what_special_methods_read_is_seen(name: str, kind: type) -> None:
    told, look = kind(1), LOOKS[name]
    compiled = thunder.jit(lambda x: x * look(told))
    for number in (1, 2, 30, 2, 4):
        told.number = number
        assert compiled(torch.ones(1)).item() == float(look(told))


def test_what_a_special_method_in_c_reads_is_seen() -> None:
    told = Namespace(number=1)
    compiled = thunder.jit(lambda x: x * len(repr(told)))
    for number in (1, 22, 333):
        told.number = number
        assert compiled(torch.ones(1)).item() == len(repr(told))


def test_an_instance_that_gets_another_class() -> None:
    class Other(Asked):
        pass

    class Plain:
        pass

    made = Plain()
    compiled = thunder.jit(lambda x: x * (2 if isinstance(made, Asked) else 3))
    assert compiled(torch.ones(1)).item() == 3
    made.__class__ = Other
    assert compiled(torch.ones(1)).item() == 2


def test_an_object_that_gets_a_torch_function() -> None:
    def handler(*_: Any) -> None:
        return None

    class Plain:
        pass

    class Named:
        pass

    first, second = Plain(), Named()

    def program(x: Tensor) -> Tensor:
        return x * (2 if torch.overrides.has_torch_function((first, [second])) else 3)

    compiled = thunder.jit(program)
    assert compiled(torch.ones(1)).item() == program(torch.ones(1)).item() == 3
    first.__torch_function__ = handler  # type: ignore[attr-defined]
    assert compiled(torch.ones(1)).item() == program(torch.ones(1)).item() == 2
    del first.__torch_function__  # type: ignore[attr-defined]
    assert compiled(torch.ones(1)).item() == 3
    Plain.__torch_function__ = classmethod(handler)  # type: ignore[attr-defined]
    assert compiled(torch.ones(1)).item() == program(torch.ones(1)).item() == 2
