"""Numbers that code in C is given: it gets Python's own, so that no check of their class fails where eager's holds."""

from __future__ import annotations

import builtins
import collections
import datetime
import decimal
import functools
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import thunder

pytestmark = pytest.mark.filterwarnings("error::thunder.EagerFallbackWarning")

SAMPLES: dict[str, Any] = {
    "int": 3,
    "float": 2.5,
    "complex": 1j,
    "str": "ab",
    "bytes": b"ab",
    "tuple": (1, 2.0),
    "list": [1, 2.0],
    "dict": {1: 2.0},
}
# Functions that ask for the address of an object, end the process, wait for input, or look at frames of callers.
LEFT_OUT = {
    *("__class__", "__init_subclass__", "__subclasshook__", "__reduce__", "__reduce_ex__", "__getstate__"),
    *("__build_class__", "__import__", "breakpoint", "compile", "copyright", "credits", "dir", "eval", "exec", "exit"),
    *("globals", "help", "id", "input", "license", "locals", "open", "print", "quit", "vars", "__sizeof__"),
}
SHOWN = (int, float, complex, str, bytes, bool, tuple, list, dict, types.NoneType)


def fresh(name: str) -> Any:
    sample = SAMPLES[name]
    return type(sample)(sample)


def calls_of(owner: str, number: Any) -> Iterator[tuple[Any, ...]]:
    """Yield arguments with the number in each place, of up to three."""
    for filler in (3, "ab"):
        yield (number,)
        yield (number, filler)
        yield (fresh(owner), number)
        yield (fresh(owner), number, filler)
        yield (fresh(owner), filler, number)
        yield (number, number, number)


def described(function: Any, arguments: tuple[Any, ...]) -> str:
    try:
        result = function(*arguments)
    except Exception as error:  # texts of a few functions are thunder's own
        return type(error).__name__ + (" of thunder" if "thunder" in str(error) else "")
    return repr(result) if type(result) in SHOWN else type(result).__name__


def functions_of(owner: str) -> list[tuple[str, Any]]:
    place: Any = builtins if owner == "builtins" else getattr(builtins, owner)
    found = [(name, getattr(place, name)) for name in sorted(dir(place)) if name not in LEFT_OUT]
    is_error = [isinstance(each, type) and issubclass(each, BaseException) for _, each in found]
    return [pair for pair, error in zip(found, is_error, strict=True) if callable(pair[1]) and not error]


@pytest.mark.parametrize("owner", ["builtins", *SAMPLES])
@pytest.mark.parametrize("kind", ["float", "int", "size"])
def test_functions_in_c_take_numbers_as_in_eager(owner: str, kind: str) -> None:
    sample = "int" if owner == "builtins" else owner

    def program(x: Tensor, functions: list[tuple[str, Any]]) -> Any:
        number = x.sum().item() if kind == "float" else int(x.sum()) if kind == "int" else x.shape[0]
        return {name: [described(each, call) for call in calls_of(sample, number)] for name, each in functions}, x * 2

    functions = functions_of(owner)
    compiled = thunder.jit(program)
    for at in range(0, len(functions), 24):
        part = functions[at : at + 24]
        for size in (2, 3):
            expected, _ = program(torch.ones(size), part)
            assert compiled(torch.ones(size), part)[0] == expected


class Held:
    """Special methods, which C finds in the class of an object by itself, give numbers of the trace."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __float__(self) -> float:
        return self.x.sum().item()

    def __int__(self) -> int:
        return int(self.x.sum())

    def __index__(self) -> int:
        return self.x.shape[0]

    def __round__(self, digits: int | None = None) -> float:
        return round(self.x.sum().item(), digits)

    __len__ = __length_hint__ = __index__
    __hash__ = __int__  # type: ignore[assignment]


class Held2(Held):
    """Methods that are no functions."""

    __len__ = functools.partialmethod(Held.__index__)  # type: ignore[assignment]
    __hash__ = __index__ = functools.partialmethod(Held.__int__)  # type: ignore[assignment]
    __float__ = functools.partialmethod(Held.__float__)  # type: ignore[assignment]


class Float(float):
    def __add__(self, other: Any) -> Float:
        return Float(float.__add__(self, other))

    def __mul__(self, other: Any) -> Float:
        return Float(super().__mul__(other))


class Text(str):
    def __mul__(self, count: Any) -> Text:
        return Text(str.__mul__(self, count))

    def __getitem__(self, at: Any) -> Text:
        return Text(str.__getitem__(self, at))


@functools.total_ordering
class Ordered(Held):
    def __eq__(self, other: object) -> bool:
        return int(self) == int(other)  # type: ignore[call-overload]

    def __lt__(self, other: Any) -> bool:
        return float(self) < float(other)

    __hash__ = Held.__hash__


def appended(values: Any) -> list[Any]:
    queue = collections.deque(range(9))
    queue.__init__(range(9), values)  # type: ignore[misc]
    return list(queue)


# Programs of a tensor, its sum as a float and as an int, and its size.
PROGRAMS: dict[str, Callable[[Tensor, Any, Any, Any], Any]] = {
    "float": lambda x, v, n, s: x * float(Held(x)),
    "int": lambda x, v, n, s: x * int(Held(x)),
    "index": lambda x, v, n, s: (list(range(Held(x))), [*range(9)][Held(x)], operator.index(Held(x)), "a" * Held(x)),
    "len": lambda x, v, n, s: (len(Held(x)), bool(Held(x)), operator.length_hint(Held(x))),
    "hash": lambda x, v, n, s: (hash(Held(x)), len({Held(x): 1})),
    "complex": lambda x, v, n, s: complex(Held(x)),
    "round": lambda x, v, n, s: (round(Held(x)), round(Held(x), 1)),
    "formats": lambda x, v, n, s: "%d %.1f" % (Held(x), Held(x)),  # noqa: UP031
    "array": lambda x, v, n, s: np.float32(Held(x)),
    "partial methods": lambda x, v, n, s: (len(Held2(x)), hash(Held2(x)), float(Held2(x)), [*range(9)][Held2(x)]),
    "ordered": lambda x, v, n, s: (Ordered(x) >= Ordered(x), int(Ordered(x)), len({Ordered(x): 1})),
    "class of floats": lambda x, v, n, s: (Float(1) + v, Float(2) * v, Float(v) + n, Float(s) * n),
    "class of texts": lambda x, v, n, s: (Text("ab") * n, Text("abcdefghi")[n], Text("ab") * s, Text("abcdefghi")[s]),
    "map": lambda x, v, n, s: list(map(float.is_integer, x.tolist())),
    "sorted": lambda x, v, n, s: sorted([v, 2.5], key=float.__neg__),
    "reduce": lambda x, v, n, s: functools.reduce(float.__mul__, [v, 2.0, v]),
    "width": lambda x, v, n, s: "%*d|%-*d" % (s, 7, n, 7),  # noqa: UP031
    "decimal": lambda x, v, n, s: (decimal.Decimal("0.5") * s, decimal.Decimal(2) < n, n - decimal.Decimal(1)),
    "timedelta": lambda x, v, n, s: (datetime.timedelta(days=1) * n, s * datetime.timedelta(days=1)),
    "numpy": lambda x, v, n, s: (np.float64.__add__(np.float64(1), v), np.arange(9)[s], np.float32(2) * v),
    "deque": lambda x, v, n, s: (appended(n), appended(s)),
    "object": lambda x, v, n, s: (object.__getattribute__(v, "real"), object.__repr__(n)[:4]),
    "error": lambda x, v, n, s: [*n],
    "error of a size": lambda x, v, n, s: [*s],
    "call": lambda x, v, n, s: v(),
    "operator": lambda x, v, n, s: v + "a",
    "operator of a size": lambda x, v, n, s: s + "a",
}


def outcome(function: Callable[[Tensor], Any], x: Tensor) -> str:
    try:
        return str(function(x))
    except TypeError as error:
        return str(error).split("\n")[0]


@pytest.mark.parametrize("tries", [True, False], ids=["in try", "outside"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_numbers_in_c(program: Callable[..., Any], *, tries: bool) -> None:
    def call(x: Tensor) -> Any:
        return str(program(x, x.sum().item(), int(x.sum()), x.shape[0])), x * 2

    def guarded(x: Tensor) -> Any:
        try:
            return call(x)
        except (TypeError, ValueError, SystemError) as error:
            return f"{type(error).__name__}: {error}", x * 3

    function = guarded if tries else call
    compiled = thunder.jit(function)
    for step in range(4):
        x = torch.full((2 + step // 2,), 1.0 + step % 2)
        assert outcome(compiled, x) == outcome(function, x)


def test_numbers_stay_where_no_code_in_c_is_given_them() -> None:
    def program(x: Tensor) -> Any:
        sizes = property(lambda held: held.x.shape[0])
        count = type("Sized", (Held,), {"size": sizes})(x).size
        try:
            return x * x.sum().item() + count
        except TypeError:
            return x

    compiled = thunder.jit(program)
    for size in (2, 3, 4, 5):
        for factor in (1.0, 2.0, 3.0):
            x = torch.full((size,), factor)
            torch.testing.assert_close(compiled(x), program(x))
    assert thunder.compile_stats(compiled)["specializations"] <= 2
