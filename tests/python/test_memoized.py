"""Functions under `functools.lru_cache`: what they make is made once, and is one object from then on, as in eager."""

from __future__ import annotations

import collections
import contextvars
import dataclasses
import functools
import gc
import operator
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import thunder
from thunder import EagerFallbackWarning

FALLBACK = pytest.mark.filterwarnings(f"ignore::{EagerFallbackWarning.__module__}.{EagerFallbackWarning.__name__}")
X = torch.tensor([1.0, 2.0, 3.0])


class Account:
    """An object with state."""

    def __init__(self) -> None:
        self.count, self.total = 0, torch.zeros(3)


def scratch() -> Callable[..., Any]:
    make = functools.lru_cache(maxsize=4)(torch.zeros)

    def program(x: torch.Tensor) -> Any:
        buffer = make(3)
        buffer += x
        return buffer * 2, buffer

    return program


def list_that_grows() -> Callable[..., Any]:
    @functools.cache
    def kept() -> list[int]:
        return []

    def program(x: torch.Tensor) -> Any:
        kept().append(1)
        return x * len(kept()), kept()

    return program


def object_with_state() -> Callable[..., Any]:
    make = functools.lru_cache(Account)

    def program(x: torch.Tensor) -> Any:
        account = make()
        account.count += 1
        account.total = account.total + x
        return account.total * account.count

    return program


def layer() -> Callable[..., Any]:
    make = functools.cache(nn.Linear)
    return lambda x: make(3, 2)(x)


def tensor_as_key() -> Callable[..., Any]:
    total = functools.cache(torch.sum)
    weight = torch.ones(3)

    def program(x: torch.Tensor) -> Any:
        with torch.no_grad():
            weight.add_(1)
        return x * total(weight)

    return program


def effect_of_the_first_call() -> Callable[..., Any]:
    calls: list[int] = []

    @functools.cache
    def double(n: int) -> int:
        calls.append(n)
        return 2 * n

    return lambda x: (x * double(4), len(calls))


def size_of_the_cache() -> Callable[..., Any]:
    double = functools.cache(lambda n: 2 * n)

    def program(x: torch.Tensor) -> Any:
        values = x * double(3), double.cache_info().currsize
        double.cache_clear()
        return values

    return program


def clock() -> Callable[..., Any]:
    first_time = functools.cache(time.clock_gettime)
    times: list[float] = []

    def program(x: torch.Tensor) -> Any:
        times.append(first_time(time.CLOCK_MONOTONIC))
        return x + 1, len(set(times))

    return program


def not_kept() -> Callable[..., Any]:
    make = functools.lru_cache(maxsize=0)(torch.ones)
    return lambda x: make(3) + x


PROGRAMS = (
    scratch,
    list_that_grows,
    object_with_state,
    layer,
    tensor_as_key,
    effect_of_the_first_call,
    clock,
    not_kept,
)


def seen(program: Callable[..., Any]) -> list[Any]:
    """Return what four calls give, with numbers as they are at the time of the call."""
    torch.manual_seed(0)
    results = [program(X) for _ in range(4)]
    tensors = torch.utils._pytree.tree_leaves(results)
    return [value.tolist() if isinstance(value, torch.Tensor) else value for value in tensors]


@FALLBACK
@pytest.mark.parametrize("make", [*PROGRAMS, size_of_the_cache])
def test_results_of_memoized_functions_are_as_in_eager(make: Callable[[], Callable[..., Any]]) -> None:
    assert seen(thunder.jit(make())) == seen(make())


@FALLBACK
@pytest.mark.parametrize("make", PROGRAMS)
def test_later_calls_are_compiled(make: Callable[[], Callable[..., Any]]) -> None:
    compiled = thunder.jit(make())
    for _ in range(4):
        compiled(X)
    assert thunder.compile_stats(compiled)["eager_calls"] <= 1


def test_memoized_function_that_is_replaced_is_noticed() -> None:
    table = {"f": functools.cache(lambda: 2.0)}
    compiled = thunder.jit(lambda x: x * table["f"](), fullgraph=True)
    assert torch.equal(compiled(X), X * 2)
    table["f"] = functools.cache(lambda: 3.0)
    assert torch.equal(compiled(X), X * 3)


@FALLBACK
def test_results_belong_to_the_tensor_that_they_were_computed_from() -> None:
    total = functools.cache(torch.sum)
    compiled = thunder.jit(lambda x: total(x) * 2)
    first, second = torch.ones(3), torch.zeros(3)
    for x in (first, first, second, second, first):
        assert compiled(x) == x.sum() * 2


class Scale:
    """An object whose method is memoized."""

    def __init__(self, factor: float) -> None:
        self.factor = torch.tensor(factor)

    @functools.lru_cache(maxsize=8)  # noqa: B019
    def row(self, n: int) -> torch.Tensor:
        return torch.ones(n) * self.factor


@FALLBACK
def test_results_belong_to_the_object_that_they_were_computed_for() -> None:
    compiled = thunder.jit(lambda scale: scale.row(3) + 1)
    first, second = Scale(2.0), Scale(5.0)
    for scale in (first, first, second, second, first):
        assert torch.equal(compiled(scale), torch.ones(3) * scale.factor + 1)


@FALLBACK
def test_what_a_memoized_function_gives_is_one_object() -> None:
    make = functools.cache(torch.ones)
    compiled = thunder.jit(lambda x: (x + make(3), make(3)))
    first, second = compiled(X)[1], compiled(X)[1]
    assert first is second is make(3)


@FALLBACK
def test_results_of_other_calls_stay_in_the_cache() -> None:
    make = functools.lru_cache(maxsize=8)(torch.ones)
    before = make(2)
    thunder.jit(lambda x: x + make(3))(X)
    assert make(2) is before
    assert make.cache_info().currsize == 2


def test_objects_without_tensors_are_compiled_at_the_first_call() -> None:
    @functools.cache
    def recipe(n: int) -> dict[str, int]:
        return {"scale": n}

    assert thunder.jit(lambda x: x * recipe(3)["scale"], fullgraph=True)(X).tolist() == (X * 3).tolist()


def run_with_a_cache_that_forgets(jit: Callable[..., Any], decorator: Callable[..., Any], forget: str) -> list[Any]:
    scale = [1.0]

    @decorator
    def table(count: int, start: float = 0.0) -> torch.Tensor:
        return torch.arange(count, dtype=torch.float32) * float(scale[0]) + start

    compiled = jit(lambda x, count: x * table(count) + table(count, start=2.0).sum())
    results = [compiled(X, 3) for _ in range(3)]
    scale[0] = 5.0
    results.append(compiled(X, 3))
    if forget == "clear":
        table.cache_clear()
    else:
        results += [table(count) for count in range(10, 150)]
    return results + [compiled(X, 3) for _ in range(3)]


@FALLBACK
@pytest.mark.parametrize("decorator", [functools.cache, functools.lru_cache, functools.lru_cache(maxsize=4)])
@pytest.mark.parametrize("forget", ["clear", "evict"])
def test_what_a_cache_keeps_no_more_is_computed_again(decorator: Callable[..., Any], forget: str) -> None:
    expected = run_with_a_cache_that_forgets(lambda function: function, decorator, forget)
    given = run_with_a_cache_that_forgets(thunder.jit, decorator, forget)
    torch.testing.assert_close(given, expected)
    is_kept = forget == "evict" and decorator is functools.cache
    assert torch.equal(expected[0], expected[-1]) == is_kept


def test_a_cache_that_grows_elsewhere_needs_no_other_trace() -> None:
    @functools.lru_cache(maxsize=8)
    def factor(count: int) -> float:
        return count * 0.5

    compiled = thunder.jit(lambda x: x * factor(2))
    for count in range(3, 7):
        torch.testing.assert_close(compiled(X), X)
        factor(count)
    assert thunder.cache_misses(compiled) == 1


def _add_metaclass(c: Callable[..., Any]) -> torch.Tensor:
    class Calls(type):
        def __call__(cls, *arguments: Any) -> Any:
            return super().__call__(*arguments)

    class Holder(metaclass=Calls):
        def __init__(self, value: torch.Tensor) -> None:
            self.value = value

    held: torch.Tensor = Holder.__call__(c()).value
    return held


WAYS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "__call__": lambda c: c.__call__(3),
    "__call__ of the type": lambda c: type(c).__call__(c, 3),
    "methodcaller": lambda c: operator.methodcaller("__call__", 3)(c),
    "default of a dict": lambda c: collections.defaultdict(c)["a"],
    "iter": lambda c: next(iter(c, None)),
    "context": lambda c: contextvars.copy_context().run(c, 3),
    "partial": lambda c: functools.partial(c, 3)(),
    "map": lambda c: next(map(c, [3])),
    "metaclass": _add_metaclass,
}
if sys.version_info >= (3, 11):
    WAYS["operator.call"] = lambda c: operator.call(c, 3)


@FALLBACK
@pytest.mark.parametrize("way", WAYS)
def test_memoized_functions_that_c_calls(way: str) -> None:
    runs = []
    for compile_it in (False, True):
        cached = functools.lru_cache(lambda n=3: torch.full((3,), 2.0) * n)

        def program(x: torch.Tensor, cached: Any = cached) -> Any:
            return x * WAYS[way](cached)

        called = thunder.jit(program) if compile_it else program
        run: list[Any] = []
        for call in range(4):
            run.append(called(X).tolist())
            if call == 1:
                cached.cache_clear()
        runs.append([*run, cached().tolist(), str(cached.cache_info())])
    assert runs[0] == runs[1]


@pytest.mark.parametrize("wrap", [lambda f: f, functools.partial], ids=["itself", "partial"])
def test_a_memoized_function_that_is_compiled_runs_in_eager(wrap: Callable[[Any], Any]) -> None:
    cached = functools.lru_cache(lambda x: x * 2)
    compiled = thunder.jit(wrap(cached))
    with pytest.warns(EagerFallbackWarning, match="lru_cache"):
        result = compiled(X)
    assert compiled(X) is result
    assert cached(X) is result
    assert result.tolist() == (X * 2).tolist()


# --- numbers of the trace: sizes, and ints from data


def specializations(compiled: Any) -> int:
    return thunder.compile_stats(compiled)["specializations"]


@dataclasses.dataclass(frozen=True)
class Key:
    """A key that compares by what it holds."""

    count: int


@dataclasses.dataclass(frozen=True, slots=True)
class SlottedKey:
    """One without a `__dict__`."""

    count: int


class NamedKey(NamedTuple):
    """One that is a tuple."""

    count: int


@functools.cache
def halved(count: int) -> int:
    if count % 2:
        raise ValueError(f"odd: {count}")
    return count // 2


@functools.cache
def parts_of(shape: tuple[int, ...]) -> tuple[Any, ...]:
    return [shape[0] * 1, *shape[1:]], {"first": shape[0]}, None, "name", (shape[0] + 1,)


@functools.lru_cache(maxsize=2)
def added(count: int, *, other: int = 1) -> int:
    return count + other


@functools.cache
def nested(count: int) -> int:
    return added(count, other=3) * 2


@functools.cache
def class_of(count: int) -> tuple[int, bool]:
    return len(type(count).__name__), isinstance(count, int)


def reshaped(x: torch.Tensor) -> Any:
    sizes, first, _, name, more = parts_of(x.shape)
    return x.reshape(sizes) * first["first"] + more[0], len(name)


OF_SIZES: dict[str, tuple[Callable[..., Any], int]] = {
    "a size": (lambda x: x[: added(x.shape[0], other=-1)], 2),
    "a keyword": (lambda x: x + added(1, other=x.shape[0]), 2),
    "a tuple": (lambda x: x.reshape(parts_of(tuple(x.shape))[0]), 2),
    "torch.Size": (reshaped, 2),
    "one in another": (lambda x: x * nested(x.shape[0]), 2),
    "a returned number": (lambda x: (x, parts_of((x.shape[0], 3))[4]), 2),
    "a class": (lambda x: (x, class_of(x.shape[0])), 2),
    "a condition": (lambda x: x[: halved(2 * x.shape[0])], 2),
    "a key that holds a size": (lambda x: x * keyed(Key(x.shape[0])), 5),
    "a key with slots": (lambda x: x * keyed(SlottedKey(x.shape[0])), 5),
    "a frozenset": (lambda x: x * smallest(frozenset(x.shape)), 5),
    "a named tuple": (lambda x: x * keyed(NamedKey(x.shape[0])), 5),
}


@functools.cache
def keyed(key: Key | SlottedKey | NamedKey) -> int:
    return key.count + 1


@functools.cache
def smallest(counts: frozenset[int]) -> int:
    return min(counts)


def test_a_cache_holds_no_keys_with_numbers_of_a_trace():
    keyed.cache_clear()
    compiled = thunder.jit(lambda x: x * keyed(SlottedKey(x.shape[0])) * keyed(Key(x.shape[0])))
    for count in (2, 4, 6, 8):
        compiled(torch.zeros(count, 3))
    tables = [part for part in gc.get_referents(keyed) if isinstance(part, dict)]
    keys = [argument for table in tables for key in table if isinstance(key, tuple) for argument in key]
    assert [type(key.count) for key in keys] == [int] * 8


@pytest.mark.parametrize("name", OF_SIZES)
def test_sizes(name: str):
    function, expected = OF_SIZES[name]
    compiled = thunder.jit(function)
    for count in (2, 4, 6, 8, 5):
        x = torch.randn(count, 3)
        ours, theirs = compiled(x), function(x)
        torch.testing.assert_close(ours, theirs)
        assert [type(each) for each in ours] == [type(each) for each in theirs]
    assert specializations(compiled) == expected


def test_a_cache_holds_no_numbers_of_a_trace():
    make = functools.cache(lambda shape: (shape[0] * 1, [shape[1]]))
    compiled = thunder.jit(lambda x: x + make(tuple(x.shape))[0])
    for count in (2, 4, 6, 8):
        compiled(torch.zeros(count, 3))
    hits = make.cache_info().hits
    for count in (2, 4, 6, 8):
        made = make((count, 3))
        assert made == (count, [3])
        assert type(made[0]) is int
    assert make.cache_info().hits >= hits + 2  # the traced calls have filled it, as eager ones do


def test_ints_from_data():
    make = functools.cache(lambda count: count * 2)
    compiled = thunder.jit(lambda x: x + make(int(x.sum())))
    for value in (1.0, 2.0, 3.0, 4.0):
        x = torch.full((3,), value)
        assert torch.equal(compiled(x), x + int(x.sum()) * 2)
    assert specializations(compiled) == 1
    assert type(make(3)) is int


def test_what_raises_for_a_size():
    compiled = thunder.jit(lambda x: x[: halved(x.shape[0])])
    for count in (2, 4, 6, 5, 8, 7):
        x = torch.randn(count, 3)
        if count % 2:
            with pytest.raises(ValueError, match=f"odd: {count}"):
                compiled(x)
        else:
            assert torch.equal(compiled(x), x[: count // 2])


def test_lists_of_sizes_that_are_written_to():
    """In eager the cache's list grows, and the next call with this size sees that."""

    def program_of() -> Callable[..., Any]:
        make = functools.cache(lambda count: [count])

        def program(x: torch.Tensor) -> torch.Tensor:
            sizes = make(x.shape[0])
            sizes.append(1)
            return x * len(sizes)

        return program

    program, compiled = program_of(), thunder.jit(program_of())
    for count in (2, 4, 6, 2, 4, 6, 2):
        assert torch.equal(compiled(torch.ones(count)), program(torch.ones(count)))


def test_lists_of_sizes_that_are_returned():
    make = functools.cache(lambda count: [count])
    compiled = thunder.jit(lambda x: (x + 1, make(x.shape[0])))
    returned = [compiled(torch.ones(count))[1] for count in (2, 4, 2, 4)]
    assert returned[0] is returned[2]
    assert returned[1] is returned[3]


@FALLBACK
def test_effects_with_sizes():
    seen: list[int] = []

    @functools.cache
    def noted(count: int) -> int:
        seen.append(count)
        return count * 2

    compiled = thunder.jit(lambda x: x * noted(x.shape[0]))
    for count in (2, 4, 6, 2, 4, 6):
        assert torch.equal(compiled(torch.ones(count)), torch.full((count,), 2.0 * count))
    assert seen == [2, 4, 6]
    assert {type(each) for each in seen} == {int}


@FALLBACK
def test_tensors_of_a_size():
    make = functools.cache(torch.arange)
    compiled = thunder.jit(lambda x: x + make(x.shape[0]))
    for count in (2, 4, 6, 2, 4, 6):
        assert torch.equal(compiled(torch.ones(count)), torch.ones(count) + torch.arange(count))
    assert make.cache_info().currsize == 3
