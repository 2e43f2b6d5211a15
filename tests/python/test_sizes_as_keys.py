"""Caches of a program's own, by sizes: one program for each entry, and nothing of a trace stays in them."""

from __future__ import annotations

import collections
import contextvars
import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

import thunder
from thunder import EagerFallbackWarning

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="symbols need Python 3.11")
Made = tuple[Callable[[Tensor], Any], Callable[[], Any]]


class Key:
    """An object that is equal by what it holds."""

    def __init__(self, shape: Any, hashed: bool = True) -> None:
        self.shape, self.hashed = shape, hashed

    def __hash__(self) -> int:
        return hash(self.shape) if self.hashed else 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.shape == other.shape


class Shaped:
    """An object whose facts about a shape are computed once."""

    masks: ClassVar[dict[Any, Any]] = {}

    def __init__(self, shape: Any) -> None:
        self.shape = shape

    @functools.cached_property
    def total(self) -> int:
        total: int = self.shape[0] * self.shape[1]
        return total


def memo(function: Callable[..., Any], cache: dict[Any, Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def found(*arguments: Any) -> Any:
        if arguments not in cache:
            cache[arguments] = function(*arguments)
        return cache[arguments]

    return found


def memo_of_shapes() -> Made:
    cache: dict[Any, Any] = {}
    facts = memo(lambda shape: (shape[0] * 2, [shape[-1], shape]), cache)
    return lambda x: x * facts(x.shape)[0] + facts(x.shape)[1][0], lambda: cache


def memo_of_masks() -> Made:
    cache: dict[Any, Any] = {}
    mask = memo(lambda n: torch.ones(n, n).tril(), cache)
    return lambda x: mask(x.shape[0]) @ x, lambda: cache


def memo_of_views() -> Made:
    cache: dict[Any, Any] = {}
    mask = memo(lambda n: torch.ones(n, n).tril()[:, :1], cache)
    return lambda x: mask(x.shape[0]) * x, lambda: cache


def set_default() -> Made:
    cache: dict[Any, Any] = {}
    return lambda x: x * cache.setdefault(x.shape[0], x.shape[0] + 1) + cache.setdefault("n", x.shape[1]), lambda: cache


def texts_as_keys() -> Made:
    cache: dict[Any, Any] = {}
    return lambda x: x * cache.setdefault(f"rows of {x.shape}", x.shape)[0], lambda: cache


def default_dicts() -> Made:
    lists: Any = collections.defaultdict(list)
    counts: Any = collections.defaultdict(int)

    def program(x: Tensor) -> Tensor:
        lists[x.shape[0]].append(x.shape[0] * 2)
        counts[tuple(x.shape)] += x.shape[0]
        return x * len(lists[x.shape[0]])

    return program, lambda: (lists, counts)


def counters() -> Made:
    counter: Any = collections.Counter()

    def program(x: Tensor) -> Tensor:
        counter[x.shape] += 1
        counter.update(x.shape)
        return x * 2

    return program, lambda: counter


def weak_values() -> Made:
    cache: Any = weakref.WeakValueDictionary()
    kept = []

    def program(x: Tensor) -> Tensor:
        value = cache.get(x.shape[0])
        if value is None:
            value = cache[x.shape[0]] = Shaped(x.shape)
            kept.append(value)
        return x * value.shape[0]

    return program, lambda: (dict(cache), kept)


def class_attribute() -> Made:
    Shaped.masks = {}

    def program(x: Tensor) -> Tensor:
        rows = x.shape[0]
        if rows not in Shaped.masks:
            Shaped.masks[rows] = (rows, torch.arange(rows).float()[:, None])
        return x * Shaped.masks[rows][1] + Shaped.masks[rows][0]

    return program, lambda: Shaped.masks


def cached_properties() -> Made:
    kept = [Shaped((1, 1))]

    def program(x: Tensor) -> Tensor:
        kept[0].__dict__.pop("total", None)
        kept[0].shape = x.shape
        inner = Shaped(x.shape)
        kept[1:] = [inner]
        return x * inner.total + kept[0].total

    return program, lambda: kept


def closures_and_defaults() -> Made:
    last: Any = None

    def program(x: Tensor, cache: dict[Any, Any] = {}) -> Tensor:  # noqa: B006
        nonlocal last
        if x.shape not in cache:
            cache[x.shape] = torch.zeros(x.shape) + 1
        last = (x.shape, x.shape[0] * 2)
        return x + cache[x.shape]

    cache = program.__defaults__[0]  # type: ignore[index]
    cache.clear()
    return program, lambda: (cache, last)


def context_variable() -> Made:
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("size", default=0)

    def program(x: Tensor) -> Tensor:
        variable.set(x.shape[0])
        return x * variable.get()

    return program, variable.get


def keys_of_its_own() -> Made:
    cache: dict[Any, Any] = {}

    def program(x: Tensor) -> Tensor:
        for key in (Key(x.shape), Key((x.shape[0], 0), hashed=False)):
            if key not in cache:
                cache[key] = x.shape[0]
        return x * cache[Key(x.shape)]

    return program, lambda: [(key.shape, value) for key, value in cache.items()]


def all_kinds_of_writes() -> Made:
    cache: Any = {}
    ordered: Any = collections.OrderedDict()
    chain: Any = collections.ChainMap({}, {})
    members: set[Any] = set()

    def program(x: Tensor) -> Tensor:
        rows, columns = x.shape
        cache.update(zip(x.shape, "ab", strict=True))
        cache.update(dict.fromkeys(x.shape, rows), last=rows + 1)
        ordered[rows] = x.shape
        ordered.move_to_end(rows)
        chain[rows] = [rows, (columns, rows * 2)]
        members.update(x.shape)
        members.add(frozenset({rows, 1}))
        return x * len(ordered) + chain[rows][0]

    return program, lambda: (cache, ordered, dict(chain), members)


MADE = [
    memo_of_shapes,
    memo_of_masks,
    memo_of_views,
    set_default,
    texts_as_keys,
    default_dicts,
    counters,
    weak_values,
    class_attribute,
    cached_properties,
    closures_and_defaults,
    context_variable,
    keys_of_its_own,
    all_kinds_of_writes,
]


def kinds(value: Any) -> Any:
    """Return a structure with the types of what it consists of."""
    if isinstance(value, collections.abc.Mapping):
        return type(value), [(kinds(key), kinds(item)) for key, item in value.items()]
    if isinstance(value, set | frozenset):
        return type(value), sorted(str(kinds(item)) for item in value)
    if isinstance(value, list | tuple):
        return type(value), [kinds(item) for item in value]
    if isinstance(value, Tensor):
        return type(value), value.tolist()
    return (type(value), kinds(vars(value))) if isinstance(value, Shaped) else (type(value), value)


@pytest.mark.filterwarnings(f"ignore::{EagerFallbackWarning.__module__}.{EagerFallbackWarning.__name__}")
@pytest.mark.parametrize("make", MADE)
def test_caches_by_sizes_hold_what_eager_puts_there(make: Callable[[], Made]) -> None:
    seen: list[list[Any]] = []
    for jit in (False, True):
        plain, state = make()
        compiled = thunder.jit(plain) if jit else plain
        seen.append([])
        for rows in (4, 5, 7, 8, 11, 4, 5, 12):
            x = torch.arange(rows * 3.0).reshape(rows, 3)
            seen[-1].append((kinds(compiled(x)), kinds(state())))
        for rows in (4, 13):  # eager code finds the entries
            x = torch.arange(rows * 3.0).reshape(rows, 3)
            seen[-1].append((kinds(plain(x)), kinds(state())))
    assert seen[1] == seen[0]


def test_a_memo_has_one_program_for_each_entry_once_it_is_filled() -> None:
    program, _ = memo_of_masks()
    compiled = thunder.jit(program)
    for _ in range(4):
        for rows in (4, 5, 7):
            compiled(torch.ones(rows, 3))
    assert thunder.compile_stats(compiled)["cache_misses"] <= 6
