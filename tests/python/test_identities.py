"""Which object something is, where code in C or a library compares, hashes or shows it, and what keys hold."""

from __future__ import annotations

import collections
import copy
import dataclasses
import decimal
import functools
import gc
import inspect
import itertools
import operator
import re
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

import thunder


class Plain:
    """An object that is equal to itself alone."""


class Config(typing.NamedTuple):
    height: int
    width: int


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: int


class OfOneHash:
    """Equal by what it holds, and never told apart by its hash."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OfOneHash) and self.value == other.value


class Pairs:
    def __init__(self, *keys: Any) -> None:
        self.keys_of_pairs = keys

    def __iter__(self) -> Any:
        return ((key, 1) for key in self.keys_of_pairs)


class Named(dict[str, Any]):
    """A dict that makes its instances as dict does."""


class Listed(list[Any]):
    """A list that makes its instances as list does."""


class Triple(typing.NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Record:
    value: Any


@typing.runtime_checkable
class HasSize(typing.Protocol):
    size: int


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(torch.ones(1), *arguments)[1]
    except Exception as error:
        return type(error)


def require_eagers_answers(question: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    def program(x: torch.Tensor, *arguments: Any) -> tuple[torch.Tensor, Any]:
        return x + 1, question(*arguments)

    compiled = thunder.jit(program)
    for arguments in calls:
        assert outcome(compiled, *arguments) == outcome(program, *arguments)


@functools.lru_cache
def is_first(k: Any) -> bool:
    return k is FIRST


def _after_discard(k: Any) -> int:
    left = {FIRST}
    left.discard(k)
    return len(left)


def _removed(k: Any) -> int:
    left = [FIRST]
    left.remove(k)
    return len(left)


FIRST, SECOND = Plain(), Plain()
REFERENCE = weakref.ref(FIRST)
FROZEN_SET = frozenset([FIRST])
LIST = [FIRST]
TABLE = {FIRST: 1}
BY_REFERENCE = {REFERENCE: 1.0}
OF_WEAK_KEYS = weakref.WeakKeyDictionary({FIRST: 4.0, SECOND: 5.0})
WEAK_SET = weakref.WeakSet([FIRST])
QUEUE = collections.deque([FIRST])

QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "weak key": lambda k: OF_WEAK_KEYS[k],
    "in weak set": lambda k: k in WEAK_SET,
    "reference is": lambda k: weakref.ref(k) is REFERENCE,
    "reference equals": lambda k: weakref.ref(k) == REFERENCE,
    "key by reference": lambda k: BY_REFERENCE.get(weakref.ref(k), 0),
    "proxy": lambda k: weakref.proxy(k) is weakref.proxy(FIRST),
    "operator.is_": lambda k: operator.is_(k, FIRST),
    "operator.is_not": lambda k: operator.is_not(k, FIRST),
    "operator.eq": lambda k: operator.eq(k, FIRST),
    "operator.contains": lambda k: operator.contains(LIST, k),
    "operator.countOf": lambda k: operator.countOf(LIST, k),
    "operator.indexOf": lambda k: operator.indexOf([FIRST, SECOND], k),
    "set": lambda k: len(set([k, FIRST])),  # noqa: C405
    "set display": lambda k: len({k, FIRST}),
    "set comprehension": lambda k: len({each for each in (k, FIRST) if each}),
    "dict display": lambda k: len({k: 1, FIRST: 2}),
    "dict comprehension": lambda k: len({each: 1 for each in (k, FIRST) if each}),
    "dict of pairs": lambda k: len(dict([(k, 1), (FIRST, 2)])),  # noqa: C406
    "dict of zip": lambda k: len(dict(zip([k, FIRST], (1, 2), strict=True))),
    "dict of generator": lambda k: len(dict((each, 1) for each in (k, FIRST))),  # noqa: C402
    "dict of generator in zip": lambda k: len(dict(zip((each for each in (k, FIRST)), (1, 2), strict=True))),
    "dict of what is iterable": lambda k: len(dict(Pairs(k, FIRST))),
    "OrderedDict": lambda k: len(collections.OrderedDict([(k, 1), (FIRST, 2)])),
    "update": lambda k: (lambda d: (d.update({FIRST: 2}), len(d))[1])({k: 1}),
    "update by pairs": lambda k: (lambda d: (d.update([(FIRST, 2)]), len(d))[1])({k: 1}),
    "dicts or": lambda k: len({k: 1} | {FIRST: 2}),
    "set of generator": lambda k: len(set(each for each in (k, FIRST))),  # noqa: C401
    "union with generator": lambda k: len({FIRST}.union(each for each in (k,))),
    "item set": lambda k: (lambda d: (d.__setitem__(k, 1), d.get(FIRST))[1])({}),
    "fromkeys": lambda k: len(dict.fromkeys([k, FIRST])),
    "Counter": lambda k: len(collections.Counter([k, FIRST])),
    "frozenset": lambda k: frozenset([k]) == FROZEN_SET,
    "union": lambda k: len(FROZEN_SET | {k}),
    "difference": lambda k: len({FIRST} - {k}),
    "intersection": lambda k: len(FROZEN_SET.intersection([k])),
    "issubset": lambda k: FROZEN_SET.issubset([k]),
    "at least": lambda k: frozenset([k]) >= FROZEN_SET,
    "isdisjoint": lambda k: {FIRST}.isdisjoint((k,)),
    "discard": _after_discard,
    "remove": _removed,
    "in list": lambda k: k in LIST,
    "in queue": lambda k: k in QUEUE,
    "in values": lambda k: k in {1: FIRST}.values(),
    "in items": lambda k: (k, 1) in TABLE.items(),
    "keys and": lambda k: len(TABLE.keys() & {k}),
    "index": lambda k: [FIRST, SECOND].index(k),
    "count": lambda k: (FIRST,).count(k),
    "tuples": lambda k: (k, 1) == (FIRST, 1),
    "lists": lambda k: [k] == LIST,
    "dicts": lambda k: {1: k} == {1: FIRST},
    "slices": lambda k: slice(k, None) == slice(FIRST, None),
    "key in tuple": lambda k: {(FIRST, 1): 5}.get((k, 1), 0),
    "hash of tuple": lambda k: hash((k,)) == hash((FIRST,)),
    "object.__eq__": lambda k: object.__eq__(k, FIRST),
    "object.__hash__": lambda k: object.__hash__(k) == object.__hash__(FIRST),
    "repr": lambda k: repr(k) == repr(FIRST),
    "format": lambda k: f"{k}" == f"{FIRST}",
    "groupby": lambda k: len(list(itertools.groupby([k, FIRST]))),
    "reduce": lambda k: functools.reduce(operator.is_, [k, FIRST]),
    "starmap": lambda k: list(itertools.starmap(operator.is_, [(k, FIRST)])),
    "methods": lambda k: k.__init__ == FIRST.__init__,
    "key of method": lambda k: {FIRST.__repr__: 1}.get(k.__repr__, 0),
    "made method": lambda k: types.MethodType(is_first, k) == types.MethodType(is_first, FIRST),
    "memo": is_first,
    "default": lambda k: (lambda each=k: each).__defaults__ == (FIRST,),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_which_object_it_is(name: str) -> None:
    for first, second in ((FIRST, SECOND), (SECOND, FIRST)):
        require_eagers_answers(QUESTIONS[name], [(first,), (second,), (first,)])


KEYS: dict[str, tuple[Any, Any]] = {
    "named tuple": (Config(3, 4), Config(4, 3)),
    "frozenset": (frozenset([1]), frozenset([2])),
    "frozenset in frozenset": (frozenset([frozenset([1])]), frozenset([frozenset([2])])),
    "pattern": (re.compile("a"), re.compile("b")),
    "int64": (numpy.int64(3), numpy.int64(5)),
    "float16": (numpy.float16(0.5), numpy.float16(1.5)),
    "bool_": (numpy.bool_(True), numpy.bool_(False)),
    "complex64": (numpy.complex64(1j), numpy.complex64(2)),
    "datetime64": (numpy.datetime64("2020-01-01"), numpy.datetime64("2021-01-01")),
    "decimal": (decimal.Decimal(1), decimal.Decimal(2)),
    "data class": (Frozen(1), Frozen(2)),
    "of one hash": (OfOneHash(1), OfOneHash(2)),
    "annotation": (typing.Optional[int], typing.Optional[str]),  # noqa: UP045
    "tuple": ((Config(1, 2), 1), (Config(1, 3), 1)),
    "size": (torch.Size([1]), torch.Size([2])),
}
USES: list[Callable[[Any, dict[Any, int]], Any]] = [
    lambda k, table: table.get(k, 9),
    lambda k, table: table[k],
    lambda k, table: k in table,
    lambda k, table: k in set(table),
    lambda k, table: {(each, 1): 5 for each in table}.get((k, 1), 0),
    lambda k, table: len({k, *table}),
    lambda k, table: hash(k) == hash(next(iter(table))),
    lambda k, table: k in list(table),
    lambda k, table: list(table).index(k),
    lambda k, table: (k, 1) == (next(iter(table)), 1),
    lambda k, table: dict(table).setdefault(k, 7),
    lambda k, table: dict(table).pop(k, 7),
]


@pytest.mark.parametrize("name", KEYS)
def test_what_a_key_holds(name: str) -> None:
    first, second = KEYS[name]
    for use in USES:
        require_eagers_answers(use, [(key, {first: 5}) for key in (first, second, first)])


OF_TENSORS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "is": lambda a, b: a is b,
    "operator.is_": lambda a, b: operator.is_(a, b),
    "id": lambda a, b: id(a) == id(b),
    "key by id": lambda a, b: {id(a): 1}.get(id(b), 0),
    "set": lambda a, b: len({a, b}),
    "deepcopy": lambda a, b: operator.is_(*copy.deepcopy([a, b])),
    "reference": lambda a, b: weakref.ref(a) is weakref.ref(b),
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("name", OF_TENSORS)
def test_whether_two_tensors_are_one(name: str) -> None:
    a, b = torch.ones(2), torch.ones(2)
    calls = [(a, b), (a, a), (b, a), (b, b)]
    require_eagers_answers(OF_TENSORS[name], calls)
    require_eagers_answers(OF_TENSORS[name], calls[::-1])


def test_copies_of_a_tensor_that_is_given_twice_are_one() -> None:
    def program(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        first, second = copy.deepcopy([a, b])
        first.add_(1)
        return second

    compiled = thunder.jit(program)
    a, b = torch.ones(2), torch.ones(2)
    for arguments in ((a, b), (a, a), (b, b)):
        assert torch.equal(compiled(*arguments), program(*arguments))


@pytest.mark.parametrize(
    "question",
    [
        lambda k: isinstance(k, HasSize),
        lambda k: inspect.getattr_static(k, "size", None),
        lambda k: [value for name, value in inspect.getmembers(k) if name == "size"],
        lambda k: dict.get(object.__getattribute__(k, "__dict__"), "size"),
    ],
)
def test_libraries_that_look_at_an_object(question: Callable[[Any], Any]) -> None:
    def program(x: torch.Tensor, k: Any) -> tuple[torch.Tensor, Any]:
        return x + 1, question(k)

    compiled = thunder.jit(program)
    k = Plain()
    for value in (None, 4, 5, None):
        k.__dict__.pop("size", None)
        if value is not None:
            k.__dict__["size"] = value
        assert outcome(compiled, k) == outcome(program, k)


def test_equal_keys_and_fresh_objects_are_not_traced_again() -> None:
    class Box:
        def __init__(self, value: float) -> None:
            self.value = value

    def program(x: torch.Tensor, key: Config, boxes: list[Box]) -> torch.Tensor:
        factor = {Config(1, 2): 3.0}[key]
        for box in sorted(itertools.chain(boxes, boxes), key=lambda each: each.value):
            x = x * box.value
        return x * factor

    compiled = thunder.jit(program)
    for _ in range(4):
        compiled(torch.ones(1), Config(1, 2), [Box(2.0), Box(1.0)])
    assert thunder.compile_stats(compiled)["specializations"] == 1


class Kept(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.mark.parametrize(
    "ask",
    [
        lambda kept, table: id(kept) == 0,
        lambda kept, table: kept in table,
        lambda kept, table: weakref.ref(kept)() is None,
        lambda kept, table: weakref.WeakKeyDictionary({kept: 1})[kept] == 2,
    ],
)
def test_objects_whose_identity_is_guarded_are_not_kept_alive(ask: Callable[[Any, Any], bool]) -> None:
    for make in (Plain, Kept, lambda: torch.ones(1)):
        kept: Any = make()
        compiled = thunder.jit(lambda x, kept: x * 3 if ask(kept, {}) else x * 2)
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(2), kept), torch.full((2,), 2.0))
        reference = weakref.ref(kept)
        del kept
        gc.collect()
        assert reference() is None
        assert torch.equal(compiled(torch.ones(2), make()), torch.full((2,), 2.0))


def _updated(table: Any, *sources: Any) -> Any:
    table.update(*sources)
    return table


def _sorted_by_key(items: list[Any]) -> list[Any]:
    items.sort(key=lambda pair: pair[0])
    return items


MOVES: dict[str, Callable[[Any], Any]] = {
    "dict of items": lambda o: dict({"a": o}.items())["a"],
    "dict of pairs": lambda o: dict([("a", o)])["a"],  # noqa: C406
    "dict of zip": lambda o: dict(zip("ab", (1, o), strict=True))["b"],
    "dict of enumerate": lambda o: dict(enumerate([o]))[0],
    "dict of chain": lambda o: dict(itertools.chain({"a": o}.items()))["a"],
    "dict of ChainMap": lambda o: dict(collections.ChainMap({"a": o}))["a"],
    "dict of values": lambda o: dict({1: ("a", o)}.values())["a"],
    "OrderedDict": lambda o: collections.OrderedDict(a=o)["a"],
    "OrderedDict of items": lambda o: collections.OrderedDict({"a": o}.items())["a"],
    "OrderedDict.copy": lambda o: collections.OrderedDict(a=o).copy()["a"],
    "defaultdict": lambda o: collections.defaultdict(list, {"a": o})["a"],
    "subclass of dict": lambda o: Named({"a": o}.items())["a"],
    "subclass of list": lambda o: Listed(zip([o], strict=True))[0][0],
    "update": lambda o: _updated({}, {"a": o})["a"],
    "update by items": lambda o: _updated({}, {"a": o}.items())["a"],
    "update by zip": lambda o: _updated(collections.OrderedDict(), zip("a", [o], strict=True))["a"],
    "update of attributes": lambda o: (vars(record := Record(1)).update(value=o), record.value)[1],
    "or": lambda o: ({"b": 1} | collections.OrderedDict(a=o))["a"],
    "unpacked": lambda o: (lambda table: {**table, "b": 1})({"a": o})["a"],
    "fromkeys": lambda o: dict.fromkeys("ab", o)["a"],
    "setdefault": lambda o: {}.setdefault("a", o),
    "SimpleNamespace": lambda o: types.SimpleNamespace(a=o).a,
    "MappingProxyType": lambda o: types.MappingProxyType({"a": o})["a"],
    "partial": lambda o: functools.partial(dict, a=o)()["a"],
    "replace": lambda o: dataclasses.replace(Record(1), value=o).value,
    "_asdict": lambda o: Triple(1, o)._asdict()["second"],
    "deque": lambda o: copy.copy(collections.deque([o]))[0],
    "sort by key": lambda o: _sorted_by_key([(2, 3), (1, o)])[0][1],
    "chain.from_iterable": lambda o: next(itertools.chain.from_iterable([[o]])),
    "reduce": lambda o: functools.reduce(lambda a, b: b, [1, o]),
    "tree_map": lambda o: torch.utils._pytree.tree_map(lambda leaf: leaf, {"a": [o]})["a"][0],
    "copy": lambda o: copy.copy([{"a": o}])[0]["a"],
    "copy of OrderedDict": lambda o: copy.copy(collections.OrderedDict(a=o))["a"],
    "deepcopy": lambda o: copy.deepcopy({"a": o})["a"],
}


@pytest.mark.parametrize("name", MOVES)
def test_objects_that_are_only_stored_are_not_told_apart(name: str) -> None:
    class Box:
        def __init__(self, value: float) -> None:
            self.value = value

        def __getstate__(self) -> dict[str, Any]:
            return vars(self)

    def program(x: torch.Tensor, box: Box) -> torch.Tensor:
        return x * MOVES[name](box).value

    compiled = thunder.jit(program, fullgraph=True)
    copy.copy(Box(1.0))  # which notes the names of slots in the class
    boxes = [Box(value) for value in (2.0, 2.0, 2.0, 3.0)]
    for box, traces in zip(boxes, (1, 1, 1, 2), strict=True):
        assert torch.equal(compiled(torch.ones(2), box), torch.full((2,), box.value))
        assert thunder.compile_stats(compiled)["specializations"] == traces


def test_copies_of_an_object_that_is_given_twice_are_one() -> None:
    def program(x: torch.Tensor, a: Record, b: Record) -> torch.Tensor:
        first, second = copy.deepcopy([a, b])
        first.value = 5.0
        return x * second.value

    compiled = thunder.jit(program)
    a, b = Record(2.0), Record(2.0)
    for arguments in ((a, b), (a, a), (b, b), (b, a)):
        assert torch.equal(compiled(torch.ones(2), *arguments), program(torch.ones(2), *arguments))


def test_cast_asks_for_no_identity() -> None:
    compiled = thunder.jit(lambda x, o: x * typing.cast(OfOneHash, o).value, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2), OfOneHash(2)), torch.full((2,), 2.0))
    assert thunder.cache_misses(compiled) == 1
