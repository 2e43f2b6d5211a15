"""Classes, modules and globals that a program makes; what it reads of a class's dict, a set or an enumeration's value.

Each case runs in eager and compiled, with a change between calls.
"""

# ruff: noqa: RUF012
from __future__ import annotations

import collections
import contextvars
import decimal
import enum
import functools
import inspect
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import thunder

pytestmark = pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")

X = torch.arange(3.0)


def plain(value: Any) -> Any:
    """Everything that can be compared."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(plain, value)]
    return repr(value) if " at 0x" not in repr(value) else type(value).__name__


def compare(make: Callable[[], tuple[Callable[[torch.Tensor], Any], list[Callable[[], Any]]]]) -> None:
    """Compares all calls, with each change made between two of them, and results of earlier calls at the end."""
    runs = []
    for compile_it in (lambda f: f, thunder.jit):
        function, changes = make()
        called, run, results = compile_it(function), [], []
        for change in (lambda: None, lambda: None, *changes):
            change()
            try:
                results.append(called(X))
            except (KeyError, AttributeError) as error:
                results.append(type(error).__name__)
            run.append(plain(results[-1]))
        runs.append([*run, plain(results)])
    assert runs[0] == runs[1]


def class_with_a_list(x: torch.Tensor) -> Any:
    class A:
        items: list[int] = []

    A.items.append(1)
    return x * 2, A.items


def attribute_of_an_instance(x: torch.Tensor) -> Any:
    class A:
        items: list[Any] = []

    A().items.append(x + 1)
    return x * 2, A.items


def class_by_type(x: torch.Tensor) -> Any:
    made: Any = type("A", (), {"items": []})
    made.items.append(1)
    return x * 2, made().items


def class_that_its_base_registers(x: torch.Tensor) -> Any:
    class Base:
        names: list[str] = []

        def __init_subclass__(cls) -> None:
            cls.own = [cls.__name__]  # type: ignore[attr-defined]
            cls.names.append(cls.__name__)

    class A(Base):
        pass

    return x * 2, Base.names, A.own  # type: ignore[attr-defined]


def class_by_a_metaclass(x: torch.Tensor) -> Any:
    class Meta(type):
        def __new__(cls, *arguments: Any) -> Any:
            made: Any = super().__new__(cls, *arguments)
            made.items.append(2)
            return made

    class A(metaclass=Meta):
        items: list[int] = []

    A.items.append(1)
    return x * 2, A.items


def enumeration(x: torch.Tensor) -> Any:
    class E(enum.Enum):
        A = [1]

    E.A.value.append(2)
    return x * 2, E.A.value


def module(x: torch.Tensor) -> Any:
    made: Any = types.ModuleType("made")
    made.items = []
    made.items.append(1)
    return x * 2, made.items


def cached_function(x: torch.Tensor) -> Any:
    @functools.lru_cache
    def items(_: int) -> list[int]:
        return []

    items(1).append(1)
    return x * 2, items(1)


def globals_of_exec(x: torch.Tensor) -> Any:
    items: list[int] = []
    exec("items.append(3)", {"items": items})
    return x * 2, items


def globals_of_a_function(x: torch.Tensor) -> Any:
    items: list[int] = []

    def append() -> None:
        items_of_globals.append(3)  # type: ignore[name-defined]  # noqa: F821

    types.FunctionType(append.__code__, {"items_of_globals": items})()
    return x * 2, items


def returned_class(x: torch.Tensor) -> Any:
    class A:
        items: list[int] = []

    A.items.append(1)
    return x * 2, A


def returned_instance(x: torch.Tensor) -> Any:
    class A:
        items: list[int] = []

    made = A()
    made.items.append(len(made.items))
    return x * 2, made, made.items


@pytest.mark.parametrize(
    "program",
    [
        class_with_a_list,
        attribute_of_an_instance,
        class_by_type,
        class_that_its_base_registers,
        class_by_a_metaclass,
        enumeration,
        module,
        cached_function,
        globals_of_exec,
        globals_of_a_function,
        returned_class,
        returned_instance,
    ],
)
def test_objects_that_the_program_makes_are_of_each_call(program: Callable[[torch.Tensor], Any]) -> None:
    compare(lambda: (program, []))
    made = thunder.jit(program)
    assert made(X)[1] is not made(X)[1]


def test_returned_class_of_the_program_runs_in_eager() -> None:
    with pytest.raises(NotImplementedError, match="class 'A', made inside of the function"):
        thunder.jit(returned_class, fullgraph=True)(X)


def test_base_of_a_class_of_the_program_is_guarded() -> None:
    def make() -> Any:
        class Base:
            factor = 2.0

        def f(x: torch.Tensor) -> Any:
            class A(Base):
                pass

            return x * A.factor * A().factor, hasattr(A, "other")

        return f, [lambda: setattr(Base, "factor", 3.0), lambda: setattr(Base, "other", 1)]

    compare(make)


def subscript(cls: Any, _: Any) -> Any:
    return cls.__dict__["q"]


IN_CLASS_DICT: dict[str, Callable[[Any, Any], Any]] = {
    "in": lambda cls, _: "q" in cls.__dict__,
    "in vars": lambda cls, _: "q" in vars(cls),
    "get": lambda cls, _: vars(cls).get("q", -1),
    "subscript": subscript,
    "__contains__": lambda cls, _: cls.__dict__.__contains__("q"),
    "operator": lambda cls, _: operator.contains(cls.__dict__, "q"),
    "keys": lambda cls, _: [name for name in cls.__dict__ if name[0] != "_"],
    "items": lambda cls, _: [(name, value) for name, value in vars(cls).items() if name[0] != "_"],
    "values": lambda cls, _: [value for value in vars(cls).values() if isinstance(value, int)],
    "length": lambda cls, _: len(cls.__dict__),
    "copy": lambda cls, _: dict(vars(cls)).get("q"),
    "spread": lambda cls, _: {**cls.__dict__}.get("q"),
    "keys of": lambda cls, _: bool(cls.__dict__.keys() & {"q"}),
    "static": lambda _, item: inspect.getattr_static(item, "q", "none"),
    "bases": lambda cls, _: [base.__name__ for base in cls.__mro__ if "q" in vars(base)],
}


@pytest.mark.parametrize("read", IN_CLASS_DICT.values(), ids=IN_CLASS_DICT)
def test_reads_of_the_dict_of_a_class(read: Callable[[Any, Any], Any]) -> None:
    def make() -> Any:
        class A:
            p = 1

        item = A()
        changes = [lambda: setattr(A, "q", 5), lambda: delattr(A, "q"), lambda: setattr(A, "q", 6)]
        return lambda x: (x * 2, read(A, item)), changes

    compare(make)


def test_list_in_a_copy_of_the_dict_of_a_class() -> None:
    def make() -> Any:
        class A:
            items = [1]

        def f(x: torch.Tensor) -> Any:
            dict(vars(A))["items"].append(2)
            return x * sum(A.items)

        return f, [lambda: A.items.append(5), lambda: None, A.items.clear]

    compare(make)


@pytest.mark.parametrize(
    "find",
    [lambda e: e.A, lambda e: e["A"], lambda e: next(iter(e)), lambda e: e.__members__["A"]],
    ids=["attribute", "item", "iteration", "members"],
)
def test_values_of_enumeration_members_that_change(find: Callable[[Any], Any]) -> None:
    def make() -> Any:
        class E(enum.Enum):
            A = {"k": 2.0, "items": []}

        def f(x: torch.Tensor) -> Any:
            find(E).value["items"].append(1)
            return x * find(E).value["k"], len(find(E).value["items"])

        return f, [lambda: E.A.value.update(k=3.0), lambda: E.A.value["items"].clear()]

    compare(make)


def collided(*members: Any) -> set[Any]:
    """A set whose iteration follows the order in which equal hashes came."""
    made: set[Any] = set()
    for member in members:
        made.add(member)
    return made


SETS: dict[str, tuple[Any, Any]] = {
    "order": (collided(0, 8), collided(8, 0)),
    "bool": ({1}, {True}),
    "float": ({1}, {1.0}),
    "zero": ({0.0}, {-0.0}),
    "complex": ({complex(0.0, 0.0)}, {complex(0.0, -0.0)}),
    "decimal": ({decimal.Decimal("1.0")}, {decimal.Decimal("1.00")}),
    "frozenset": ({frozenset([1])}, {frozenset([True])}),
    "tuple": ({(1, 0.0)}, {(1, -0.0)}),
}


@pytest.mark.parametrize("written", [False, True], ids=["read", "written"])
@pytest.mark.parametrize("name", SETS)
def test_sets_that_are_equal_but_not_the_same(name: str, written: bool) -> None:
    first, second = SETS[name]

    def make() -> Any:
        kept = types.SimpleNamespace(items=first)

        def f(x: torch.Tensor) -> Any:
            read = list(kept.items)
            if written:
                kept.items.add("more")
                kept.items.discard("more")
            return x * 2, read, str(next(iter(kept.items)))

        return f, [lambda: setattr(kept, "items", second), lambda: setattr(kept, "items", first)]

    compare(make)


def test_keys_that_are_equal_but_not_the_same() -> None:
    def make() -> Any:
        kept = types.SimpleNamespace(table={decimal.Decimal("1.0"): 1})
        change = lambda: setattr(kept, "table", {decimal.Decimal("1.00"): 1})  # noqa: E731
        return lambda x: (x * 2, [str(key) for key in kept.table]), [change]

    compare(make)


def test_pop_of_a_set() -> None:
    def make() -> Any:
        items = {1, 2, 3, 4, 5}

        def f(x: torch.Tensor) -> Any:
            taken = items.pop()
            items.add(taken + 5)
            return x * taken

        return f, [lambda: items.discard(9), lambda: None]

    compare(make)


def test_replaced_dict_of_an_object() -> None:
    def make() -> Any:
        item = types.SimpleNamespace(k=1)

        class Item:
            k = 1

        other = Item()

        def f(x: torch.Tensor) -> Any:
            other.__dict__ = {"k": 4}
            types.SimpleNamespace.__init__(item, b=5)
            return x * other.k, item.k, item.b

        return f, [lambda: setattr(other, "k", 7), lambda: setattr(item, "k", 9)]

    compare(make)


def test_attributes_of_a_class_by_methods_of_type() -> None:
    def make() -> Any:
        class Meta(type):
            def __setattr__(cls, name: str, value: Any) -> None:
                super().__setattr__(name, value)

            def __getattribute__(cls, name: str) -> Any:
                return super().__getattribute__(name)

        class A(metaclass=Meta):
            k = 1
            count = 0

        class B:
            k = 1

        def f(x: torch.Tensor) -> Any:
            A.count = A.count + 1
            type.__setattr__(B, "count", A.count)
            return x * A.k, A.count, B.count, type.__getattribute__(B, "k")  # type: ignore[attr-defined]

        return f, [lambda: setattr(A, "k", 3), lambda: setattr(B, "k", 5), lambda: setattr(A, "count", 0)]

    compare(make)


VARIABLE: contextvars.ContextVar[list[float]] = contextvars.ContextVar("VARIABLE")


def test_copied_context() -> None:
    def make() -> Any:
        VARIABLE.set([2.0])

        def f(x: torch.Tensor) -> Any:
            found = contextvars.copy_context()[VARIABLE]
            found.append(1.0)
            return x * sum(found)

        return f, [lambda: VARIABLE.set([5.0]), lambda: VARIABLE.get().clear()]

    compare(make)


def closures() -> Iterator[Any]:
    items = [1.0]
    yield lambda: items
    yield items


def test_variables_that_inspect_finds() -> None:
    def make() -> Any:
        function, items = closures()

        def f(x: torch.Tensor) -> Any:
            found = inspect.getclosurevars(function).nonlocals["items"]
            found.append(1.0)
            return x * sum(found), collections.Counter(found)[1.0]

        return f, [lambda: items.append(5.0), items.clear]

    compare(make)


class Named:
    """Has a set of texts that is a copy of another one's."""

    def __init__(self, other: Named | None = None) -> None:
        self.names: set[str] = set()
        if other is not None:
            self.names.update(other.names)


COPIES: dict[str, Callable[[Any], Any]] = {
    "updated": Named,
    "copied": lambda kept: types.SimpleNamespace(names=kept.names.copy()),
    "made": lambda kept: types.SimpleNamespace(names=set(kept.names)),
    "frozen": lambda kept: types.SimpleNamespace(names=frozenset(kept.names)),
}


@pytest.mark.parametrize("count", [0, 1, 5, 40, 70, 300])
@pytest.mark.parametrize("name", COPIES)
def test_copies_of_a_set_keep_their_order(name: str, count: int) -> None:
    kept = types.SimpleNamespace(state=Named())
    for number in range(count):
        kept.state.names.add(f"name{number}")

    def f(x: torch.Tensor) -> torch.Tensor:
        kept.state = COPIES[name](kept.state)
        return x + len(kept.state.names)

    g = thunder.jit(f)
    for call in range(6):
        before = kept.state.names
        assert torch.equal(g(torch.ones(2)), torch.ones(2) + count)
        assert kept.state.names == before
        assert (kept.state.names is not before) == (name != "frozen" or call == 0)
    assert thunder.cache_misses(g) <= 2


def test_sets_that_are_returned_are_of_one_call() -> None:
    g = thunder.jit(lambda x: (x * 2, {"a", "b", "c"}))
    g(torch.ones(2))[1].add("d")
    assert g(torch.ones(2))[1] == {"a", "b", "c"}


class Key:
    pass


@pytest.mark.parametrize("make", [dict, collections.OrderedDict], ids=["dict", "ordered"])
def test_objects_of_one_class_as_keys_of_what_grows(make: Any) -> None:
    def f(x: torch.Tensor, cache: Any, grows: Key, stays: Key) -> torch.Tensor:
        cache[grows] = torch.cat([cache[grows], x], 1)
        return cache[grows].sum() + cache[stays].sum()

    keys = [Key(), Key(), Key()]
    for grows, stays in [(0, 1), (1, 0), (2, 1)]:
        g = thunder.jit(f)
        cache, expected = (make((key, torch.ones(1, 3 + 9 * i)) for i, key in enumerate(keys)) for _ in range(2))
        for i in range(8):
            x = torch.full((1, 1), float(i))
            got = g(x, cache, keys[grows], keys[stays])
            assert torch.equal(got, f(x, expected, keys[grows], keys[stays]))
            assert [value.shape for value in cache.values()] == [value.shape for value in expected.values()]
        assert thunder.compile_stats(g)["specializations"] == 2


class Derived(dict[str, Any]):
    pass


@pytest.mark.parametrize("make", [dict, collections.OrderedDict, Derived])
@pytest.mark.parametrize("method", ["keys", "values", "items"])
def test_views_of_dicts_are_returned_and_stored(make: Any, method: str) -> None:
    kept = types.SimpleNamespace(view=None)

    def f(x: torch.Tensor) -> Any:
        made = make(a=x * 2, b=3)
        kept.view = getattr(made, method)()
        return getattr(made, method)(), made

    g = thunder.jit(f, fullgraph=True)
    for scale in (1.0, 2.0):
        view, made = g(torch.ones(2) * scale)
        stored, plain = kept.view, f(torch.ones(2) * scale)[0]
        made["c"] = 5
        assert type(view) is type(plain)
        assert len(view) == len(stored) == 3
        assert str(list(stored)[:2]) == str(list(plain))
    assert thunder.cache_misses(g) == 1


def test_views_of_dicts_from_outside() -> None:
    table = {"a": 1}
    g = thunder.jit(lambda x: (x * 2, table.keys(), types.MappingProxyType(table)), fullgraph=True)
    for name in ("b", "c"):
        _, keys, proxy = g(torch.ones(2))
        table[name] = 2
        assert list(keys) == list(proxy) == list(table)
    assert thunder.cache_misses(g) == 1


class Tree:
    """As linear_operator keeps the names of what a function was given."""

    def __init__(self, parts: dict[str, torch.Tensor]) -> None:
        self.names = parts.keys()


class Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tree: Tree, x: torch.Tensor) -> torch.Tensor:
        ctx.tree = tree
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        parts = dict(zip(ctx.tree.names, ctx.saved_tensors, strict=True))
        return None, gradient * parts["a"]


def test_view_of_a_dict_in_the_context_of_a_function() -> None:
    g = thunder.jit(lambda x: Solve.apply(Tree({"a": x}), x), fullgraph=True)
    for scale in (1.0, 3.0):
        x = (torch.ones(3) * scale).requires_grad_()
        g(x).sum().backward()
        assert torch.equal(x.grad, torch.ones(3) * scale)
