"""Containers that code in C looks into are guarded whole: a call follows whatever changes inside of them."""

from __future__ import annotations

import builtins
import collections
import contextlib
import functools
import io
import itertools
import math
import operator
import pickle
import statistics
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F

import thunder

X = torch.arange(24.0).reshape(4, 6)
# The numbers in a container when it is traced, and those of a later call.
PAIRS = (([1, 2], [0, 3]), ([0], [1]), ([2, 12], [12, 2]), ([1, 3], [2, 2]), ([True, False, True, True], [False] * 4))
KINDS: tuple[Callable[[list[Any]], Any], ...] = (
    list,
    tuple,
    numpy.array,
    lambda numbers: [list(numbers), list(numbers)],
    lambda numbers: [torch.tensor(float(n)) for n in numbers],
    lambda numbers: dict(enumerate(numbers)).values(),
)
POSITIONS: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda f, x, c: f(c),
    lambda f, x, c: f(x, c),
    lambda f, x, c: f(c, x),
    lambda f, x, c: f(x, c, c),
    lambda f, x, c: f(c, c),
    lambda f, x, c: f(*c),
    lambda f, x, c: f(operator.add, c),
)
# Settings, compilers, files, threads, what allocates without filling, and what gives no value of its own.
SKIPPED: tuple[str, ...] = (
    *("_", "set_", "use_", "empty", "save", "load", "compile", "seed", "manual_seed", "thread", "fork", "register_"),
    *(
        "is_",
        "input",
        "open",
        "exec",
        "eval",
        "breakpoint",
        "help",
        "print",
        "exit",
        "quit",
        "new_empty",
        "id",
        "memory",
    ),
    *("object", "iter", "copyright", "credits", "license", "vmap", "share", "Event", "Stream", "init", "data_ptr"),
    *("const_data_ptr", "hash"),
)


def plain(value: Any) -> Any:
    """Return what a result consists of, in a form that compares; raise TypeError for results that do not."""
    if isinstance(value, torch.Tensor):
        return value.detach().tolist(), value.dtype
    if isinstance(value, numpy.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple | set | frozenset | collections.deque | Iterator):
        return [plain(item) for item in itertools.islice(value, 50)]
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | slice | range | dict):
        return repr(value)
    raise TypeError(type(value))


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    torch.manual_seed(0)
    try:
        return plain(function(*arguments))
    except Exception:
        return None


def change(container: Any, kind: Callable[[list[Any]], Any], numbers: list[Any]) -> Any:
    """Give the container other contents, in place where that is possible."""
    if isinstance(container, tuple) or not hasattr(container, "__setitem__"):
        return kind(numbers)
    container[:] = kind(numbers)
    return container


def follows(name: str, function: Callable[..., Any], kind: Any, place: Any, before: Any, after: Any) -> bool | None:
    """Whether a compiled call follows a change inside of a container; None when eager's result does not change."""
    expected = [outcome(place, function, X.clone(), kind(list(numbers))) for numbers in (before, after)]
    if None in expected or repr(expected[0]) == repr(expected[1]):
        return None
    holder = types.SimpleNamespace(value=kind(list(before)))
    compiled = thunder.jit(lambda x: place(function, x, holder.value))
    got = [outcome(compiled, X.clone())]
    holder.value = change(holder.value, kind, list(after))
    got.append(outcome(compiled, X.clone()))
    return repr(got) == repr(expected)


def functions_of(owner: Any) -> dict[str, Callable[..., Any]]:
    """Return what computes: functions, and outside of torch classes too."""
    kinds: tuple[type, ...] = (types.BuiltinFunctionType, types.FunctionType, types.MethodDescriptorType)
    if owner in (builtins, itertools):
        kinds = (*kinds, type)
    found = {name: getattr(owner, name) for name in dir(owner) if not name.startswith(SKIPPED)}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, kinds) and (owner is not torch or value.__module__ in (None, "torch", "torch.functional"))
    }


OWNERS = (torch, torch.Tensor, F, operator, math, builtins, itertools, functools, statistics)
CASES = {owner.__name__: functions_of(owner) for owner in OWNERS}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("owner", CASES)
def test_functions_follow_what_a_container_holds(owner: str) -> None:
    of_torch = owner.lower().startswith(("torch", "tensor"))
    wrong, found = [], 0
    for name, function in CASES[owner].items():
        for kind in KINDS[::2] if of_torch else KINDS:
            cases = itertools.product(POSITIONS[:4] if of_torch else POSITIONS, PAIRS)
            answers = (follows(name, function, kind, place, before, after) for place, (before, after) in cases)
            answer = next((answer for answer in answers if answer is not None), None)
            found += answer is True
            if answer is False:
                wrong.append(f"{name} of {kind(PAIRS[0][0])}")
    assert found
    assert not wrong


NESTED: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "index": lambda x, rows: x[rows],
    "index of a part": lambda x, rows: x[:, rows],
    "write": lambda x, rows: operator.setitem(x, rows, 7.0) or x * 1,
    "write of a part": lambda x, rows: operator.imul(x[:, rows], 2) + x.sum(),
    "index of an array": lambda x, rows: x * float(numpy.arange(60).reshape(10, 6)[rows].sum()),
    "new_tensor": lambda x, rows: x.sum() + x.new_tensor(rows),
    "operator on an array": lambda x, rows: x * float((numpy.ones(2) + rows).sum()),
    "comparison": lambda x, rows: x * (rows == [[1, 2], [3, 1]]),
    "membership": lambda x, rows: x * ([1, 2] in rows),
    "text": lambda x, rows: x * len(f"{rows}"),
    "percent": lambda x, rows: x * len("%s" % (rows,)),  # noqa: UP031
    "map": lambda x, rows: x * sum(map(sum, rows)),
    "sort": lambda x, rows: x * sorted(rows, key=sum)[0][0],
    "all": lambda x, rows: x * all(map(any, rows)),
    "pairs": lambda x, rows: x * sum(dict(rows).values()),
    "iterators": lambda x, rows: x * sum(itertools.chain(*zip(*rows, strict=False))),
    "iterator into C": lambda x, rows: x * sum(sum(iter(rows), [])),  # noqa: RUF017
    "spread": lambda x, rows: x * max(*rows)[0],
    "union": lambda x, rows: x * len(set().union(*rows)),
    "dict.update": lambda x, rows: x * ((lambda d: d.update(rows) or d)({}))[1],
    "slice of a list": lambda x, rows: x * sum((lambda to: operator.setitem(to, slice(0, 0), rows) or to[0])([])),
    "view": lambda x, rows: x * sum(dict(enumerate(rows)).values(), [])[0],  # noqa: RUF017
    "torch.ops": lambda x, rows: torch.ops.aten.sum.dim_IntList(x, rows[0][:1]),
    "native function": lambda x, rows: F.adaptive_max_pool1d(x, rows[1][1]),
}
CHANGES: dict[str, Callable[[Any], None]] = {
    "number": lambda rows: operator.setitem(rows[0], slice(0, 2), [0, 1]),
    "length": lambda rows: [row.append(3) for row in rows],
    "zeros": lambda rows: operator.setitem(rows[1], slice(0, 2), [0, 0]),
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", [list, tuple, collections.deque, torch.tensor], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("program", NESTED)
def test_what_a_nested_container_holds_is_followed(program: str, kind: Any, change: str) -> None:
    eager = NESTED[program]
    rows = kind([[1, 2], [3, 1]]) if kind is not torch.tensor else [torch.tensor([1, 2]), torch.tensor([3, 1])]
    compiled = thunder.jit(eager)
    for _ in range(2):
        assert repr(outcome(compiled, X.clone(), rows)) == repr(outcome(eager, X.clone(), rows))
        with contextlib.suppress(AttributeError, TypeError):
            CHANGES[change](rows)


@pytest.mark.parametrize(
    "read",
    [
        lambda table: sum(table.values()),
        lambda table: table["b"],
        lambda table: len(table),
        lambda table: dict(**table)["b"],
        lambda table: "c" in table,
        lambda table: operator.itemgetter("b")(table),
        lambda table: len(f"{table}"),
        lambda table: sum(torch.tensor(list(table.values()))),
    ],
)
@pytest.mark.parametrize(
    "make",
    [
        types.MappingProxyType,
        lambda d: collections.ChainMap({}, d),
        lambda d: types.MappingProxyType(d).items().mapping,
    ],
)
def test_mapping_that_shows_another_dict_is_followed(make: Any, read: Any) -> None:
    table = {"a": 1, "b": 2}
    holder = types.SimpleNamespace(table=make(table))
    program = lambda x: x * read(holder.table)  # noqa: E731
    compiled = thunder.jit(program, fullgraph=True)
    assert compiled(X).tolist() == program(X).tolist()
    table.update(b=30, c=4)
    assert compiled(X).tolist() == program(X).tolist()
    holder.table = make({"a": 5, "b": 6})
    assert compiled(X).tolist() == program(X).tolist()


def test_view_of_a_dict_from_outside_is_followed() -> None:
    table = {"a": 1}
    values = table.values()
    compiled = thunder.jit(lambda x: x * sum(values), fullgraph=True)
    assert compiled(X)[0, 1] == 1
    table["b"] = 2
    assert compiled(X)[0, 1] == 3


def test_container_that_holds_itself_runs_in_eager() -> None:
    endless: list[Any] = [1]
    endless.append(endless)
    compiled = thunder.jit(lambda x: x * len(repr(endless)), fullgraph=True)
    with pytest.raises(NotImplementedError, match="nested more than 32 levels deep"):
        compiled(X)


def test_array_beside_an_operation_that_raises() -> None:
    array = numpy.array([1.0])
    assert thunder.jit(lambda x: x.__pow__(array) is NotImplemented, fullgraph=True)(X) is True


def test_file_in_memory_is_not_iterated() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        file = io.BytesIO()
        numpy.save(file, numpy.ones(2))
        return x * len(file.getvalue())

    assert thunder.jit(program, fullgraph=True)(X).tolist() == program(X).tolist()


class Record:
    """An object that is pickled."""

    def __init__(self) -> None:
        self.size, self.items, self.own = 1, [1.5], self


class State(Record):
    """Pickled by what it says itself."""

    def __getstate__(self) -> dict[str, Any]:
        return {"size": self.size + 1, "items": self.items, "own": self}


@pytest.mark.parametrize("kind", [Record, State])
@pytest.mark.parametrize("protocol", [2, 5])
def test_pickled_objects_are_guarded(kind: type[Record], protocol: int) -> None:
    record = kind()

    def program(x: torch.Tensor) -> Any:
        file = io.BytesIO()
        pickle.Pickler(file, protocol).dump(record)
        copies = pickle.loads(file.getvalue()), pickle.loads(pickle.dumps([record, record]))[1]
        return [x * copy.size + len(copy.items) * (copy.own is copy) for copy in copies]

    compiled = thunder.jit(program, fullgraph=True)
    for change in (lambda: None, lambda: setattr(record, "size", 7), lambda: record.items.append(2)):
        change()
        assert torch.equal(torch.stack(compiled(X)), torch.stack(program(X)))


class OwnList(list[int]):
    """A class whose special methods ask the one that it extends, as those of the others below."""

    def __len__(self) -> int:
        return super().__len__()

    def __iter__(self) -> Iterator[int]:
        return super().__iter__()

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key)


class OwnTuple(tuple[int, ...]):
    __slots__ = ()

    def __len__(self) -> int:
        return super().__len__()

    def __iter__(self) -> Iterator[int]:
        return super().__iter__()

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key)


class OwnDict(dict[int, int]):
    def __len__(self) -> int:
        return super().__len__()

    def __iter__(self) -> Iterator[int]:
        return super().__iter__()

    def __getitem__(self, key: int) -> int:
        return super().__getitem__(key)


class OwnOrder(collections.OrderedDict[int, int]):
    def __len__(self) -> int:
        return super().__len__()

    def __iter__(self) -> Iterator[int]:
        return super().__iter__()


class OwnSet(set[int]):
    def __len__(self) -> int:
        return super().__len__()

    def __iter__(self) -> Iterator[int]:
        return super().__iter__()

    def __contains__(self, item: object) -> bool:
        return super().__contains__(item)


OWN = {
    OwnList: ([0, 1], [1, 0, 2]),
    OwnTuple: ([0, 1], [1, 0, 2]),
    OwnDict: ({0: 1, 1: 0}, {1: 0, 0: 1, 2: 3}),
    OwnOrder: ({0: 1, 1: 0}, {1: 0, 0: 1}),
    OwnSet: ({0, 1}, {1, 2, 3}),
}
LOOKS: tuple[Callable[[Any], Any], ...] = (
    len,
    bool,
    list,
    str,
    sorted,
    lambda items: 0 in items,
    lambda items: [*items],
    lambda items: [item + 1 for item in items],
    lambda items: items[0] if hasattr(items, "__getitem__") else 0,
    lambda items: {**items} if isinstance(items, dict) else 0,
    lambda items: items == items,
)


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("catches", [False, True])
def test_containers_of_classes_whose_methods_ask_super(
    kind: Callable[[Any], Any], look: Callable[[Any], Any], catches: bool
) -> None:
    def program(x: torch.Tensor, items: Any) -> Any:
        if not catches:
            return x * 1, look(items)
        try:
            return x * 1, look(items)
        except Exception:
            return x * 1, "raised"

    compiled = thunder.jit(program, fullgraph=True)
    for contents in (*OWN[kind], OWN[kind][0]):
        items = kind(contents)
        assert compiled(X, items)[1] == program(X, items)[1]
