"""Everything that a program can read is guarded: each case changes one thing, which changes what eager computes."""

from __future__ import annotations

import array
import collections
import contextlib
import contextvars
import datetime
import decimal
import functools
import itertools
import operator
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch

import thunder

X = torch.arange(6.0).reshape(2, 3)
Program = Callable[[torch.Tensor], torch.Tensor]
Change = Callable[[], Any]
Case = Callable[[], tuple[Program, Change]]
CASES: list[Case] = []


def case(make: Case) -> Case:
    CASES.append(make)
    return make


def attributes(**values: Any) -> types.SimpleNamespace:
    return types.SimpleNamespace(**values)


class Plain:
    """A user object."""

    scale = 2

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def scaled(self, factor: int) -> int:
        return self.scale * factor


# --- functions that code in C calls


@case
def closure_of_a_sort_key() -> tuple[Program, Change]:
    sign = [1]
    key = (lambda factors: lambda n: n * factors[0])(sign)
    return lambda x: x * sorted([3, 1, 2], key=key)[0], lambda: sign.__setitem__(0, -1)


@case
def closure_variable_of_a_mapped_function() -> tuple[Program, Change]:
    factor = 1

    def scaled(n: int) -> int:
        return n * factor

    def change() -> None:
        nonlocal factor
        factor = 3

    return lambda x: x * sum(map(scaled, [1, 2])), change


@case
def global_of_a_reduced_function() -> tuple[Program, Change]:
    names: dict[str, Any] = {"K": 2}
    exec("def combine(a, b): return a * K + b", names)
    combine = names["combine"]
    return lambda x: x * functools.reduce(combine, [1, 2, 3]), lambda: names.update(K=5)


@case
def attribute_read_by_a_comparison() -> tuple[Program, Change]:
    class Item:
        def __init__(self, value: int) -> None:
            self.value = value

        def __lt__(self, other: Item) -> bool:
            return self.value < other.value

    items = [Item(1), Item(2)]
    return lambda x: x * sorted(items)[0].value, lambda: setattr(items[1], "value", 0)


@case
def attribute_read_by_an_attrgetter() -> tuple[Program, Change]:
    holder, get = attributes(value=2), operator.attrgetter("value")
    return lambda x: x * get(holder), lambda: setattr(holder, "value", 6)


@case
def attribute_read_by_an_attrgetter_as_a_key() -> tuple[Program, Change]:
    items = [Plain(key=1, result=5), Plain(key=2, result=6)]
    key = operator.attrgetter("key")
    return lambda x: x * sorted(items, key=key)[0].result, lambda: setattr(items[1], "key", 0)


@case
def item_read_by_an_itemgetter_that_map_calls() -> tuple[Program, Change]:
    rows = [{"a": 1}, {"a": 2}]
    return lambda x: x * sum(map(operator.itemgetter("a"), rows)), lambda: rows[1].update(a=7)


@case
def attribute_read_behind_a_methodcaller() -> tuple[Program, Change]:
    plain, call = Plain(), operator.methodcaller("scaled", factor=3)
    return lambda x: x * call(plain), lambda: setattr(plain, "scale", 6)


@case
def bound_method_in_c_that_is_kept() -> tuple[Program, Change]:
    table = {"a": 2}
    holder = attributes(get=table.get)
    return lambda x: x * holder.get("a"), lambda: table.update(a=9)


@case
def bound_method_in_c_that_is_replaced() -> tuple[Program, Change]:
    holder = attributes(get={"a": 2}.get)
    return lambda x: x * holder.get("a"), lambda: setattr(holder, "get", {"a": 7}.get)


# --- containers


def deque_case(name: str, compute: Callable[[torch.Tensor, Any], torch.Tensor], change: Callable[[Any], Any]) -> None:
    def make() -> tuple[Program, Change]:
        queue: collections.deque[int] = collections.deque([1, 2])
        return lambda x: compute(x, queue), lambda: change(queue)

    make.__name__ = f"deque_{name}"
    case(make)


def add_all(x: torch.Tensor, items: Any) -> torch.Tensor:
    for item in items:
        x = x + item
    return x


deque_case("iteration", add_all, lambda queue: queue.append(5))
deque_case("item", lambda x, queue: x * queue[-1], lambda queue: queue.__setitem__(-1, 8))
deque_case("length", lambda x, queue: x * len(queue), lambda queue: queue.append(8))
deque_case("truth", lambda x, queue: x * 2 if queue else x, lambda queue: queue.clear())
deque_case("membership", lambda x, queue: x * (5 in queue), lambda queue: queue.append(5))
deque_case("reversed", lambda x, queue: x * next(reversed(queue)), lambda queue: queue.append(5))


@case
def absent_key() -> tuple[Program, Change]:
    table = {"a": 1}
    return lambda x: x * 2 if "b" in table else x, lambda: table.update(b=1)


@case
def absent_key_of_a_view() -> tuple[Program, Change]:
    table = {"a": 1}
    return lambda x: x * 2 if "b" in table.keys() else x, lambda: table.update(b=1)  # noqa: SIM118


@case
def present_key() -> tuple[Program, Change]:
    table = {"a": 1}
    return lambda x: x * 2 if "a" in table else x, lambda: table.pop("a")


@case
def default_of_get() -> tuple[Program, Change]:
    table = {"a": 1}
    return lambda x: x * table.get("b", 3), lambda: table.update(b=1)


@case
def order_of_a_dict() -> tuple[Program, Change]:
    table = {"a": 1, "b": 2}
    return lambda x: x * next(iter(table.values())), lambda: table.update(a=table.pop("a"))


@case
def star_arguments() -> tuple[Program, Change]:
    numbers = [1, 2, 3]
    add = lambda *values: sum(values)  # noqa: E731
    return lambda x: x * add(*numbers), lambda: numbers.__setitem__(0, 9)


@case
def chained_iterators() -> tuple[Program, Change]:
    numbers = [1, 2]
    return lambda x: add_all(x, itertools.chain(numbers, [1])), lambda: numbers.append(9)


# --- objects that only code in C looks into


def memory_case(name: str, memory: Any, compute: Callable[[torch.Tensor, Any], torch.Tensor]) -> None:
    def make() -> tuple[Program, Change]:
        return lambda x: compute(x, memory), lambda: memory.__setitem__(0, 3)

    make.__name__ = f"memory_of_{name}"
    case(make)


memory_case("bytearray", bytearray(b"ab"), lambda x, memory: x * memory[0])
memory_case("array", array.array("i", [1, 2]), lambda x, memory: x * sum(memory))
memory_case("numpy_item", numpy.array([1.0, 2.0]), lambda x, memory: x * float(memory[0]))
memory_case("numpy_method", numpy.array([1.0, 2.0]), lambda x, memory: x * memory.sum().item())
memory_case("numpy_operator", numpy.array([[1.0, 2.0]])[0], lambda x, memory: x * float((memory * 2)[0]))
memory_case("from_numpy", numpy.ones(3), lambda x, memory: x + torch.from_numpy(memory.copy()).float())


@case
def array_of_numpy_that_is_replaced() -> tuple[Program, Change]:
    arrays = [numpy.ones(3)]
    return lambda x: x + float(arrays[0].sum()), lambda: arrays.__setitem__(0, numpy.zeros(3))


def value_case(before: Any, after: Any, compute: Callable[[torch.Tensor, Any], torch.Tensor]) -> None:
    def make() -> tuple[Program, Change]:
        holder = attributes(value=before)
        return lambda x: compute(x, holder.value), lambda: setattr(holder, "value", after)

    make.__name__ = f"value_of_{type(before).__name__}_{len(CASES)}"
    case(make)


class Integer(int):
    """A number of the user's."""


class Name(str):
    """A string of the user's."""

    __slots__ = ()


value_case(decimal.Decimal(2), decimal.Decimal(3), lambda x, value: x * int(value))
value_case(decimal.Decimal(2), decimal.Decimal(3), lambda x, value: x * float(-value + 1))
value_case(datetime.date(2020, 1, 2), datetime.date(2020, 1, 5), lambda x, value: x * value.toordinal())
value_case(
    datetime.date(2020, 1, 2), datetime.date(2020, 1, 5), lambda x, value: x * (value < datetime.date(2020, 1, 3))
)
value_case(numpy.float64(2), numpy.float64(4), lambda x, value: x * value)
value_case(numpy.int64(2), numpy.int64(4), lambda x, value: x * int(value))
value_case(Integer(2), Integer(3), lambda x, value: x * value)
value_case(Integer(2), Integer(3), lambda x, value: add_all(x, range(value)))
value_case(Name("a"), Name("b"), lambda x, value: x * 2 if value == "a" else x)
value_case(slice(0, 1), slice(0, 2), lambda x, value: x[value])


@case
def namespace_as_text() -> tuple[Program, Change]:
    holder = attributes(value=2)
    return lambda x: x * len(str(holder)), lambda: setattr(holder, "value", 51)


@case
def equal_namespaces() -> tuple[Program, Change]:
    left, right = attributes(value=2), attributes(value=2)
    return lambda x: x * 2 if left == right else x, lambda: setattr(left, "value", 51)


@case
def message_of_an_exception() -> tuple[Program, Change]:
    error = ValueError("a")
    return lambda x: x * len(str(error)), lambda: setattr(error, "args", ("abc",))


@case
def attribute_behind_a_proxy() -> tuple[Program, Change]:
    plain = Plain()
    proxy = weakref.proxy(plain)
    return lambda x: x * proxy.scaled(3), lambda: setattr(plain, "scale", 6)


@case
def item_of_a_weak_key_dictionary() -> tuple[Program, Change]:
    plain = Plain()
    table: Any = weakref.WeakKeyDictionary({plain: 2})
    return lambda x: x * table[plain], lambda: table.__setitem__(plain, 5)


@case
def attribute_given_to_a_tensor() -> tuple[Program, Change]:
    weight: Any = torch.ones(3)
    weight.scale = 2
    return lambda x: x * weight * weight.scale, lambda: setattr(weight, "scale", 5)


@case
def attribute_that_a_tensor_lacks() -> tuple[Program, Change]:
    weight: Any = torch.ones(3)
    return lambda x: x * weight * getattr(weight, "scale", 1), lambda: setattr(weight, "scale", 5)


@case
def thread_local_attribute() -> tuple[Program, Change]:
    local = threading.local()
    local.value = 2
    return lambda x: x * local.value, lambda: setattr(local, "value", 5)


@case
def context_variable() -> tuple[Program, Change]:
    variable = contextvars.ContextVar("variable", default=2)
    return lambda x: x * variable.get(), lambda: variable.set(5)


@case
def replaced_module() -> tuple[Program, Change]:
    first, second = types.ModuleType("settings_of_test"), types.ModuleType("settings_of_test")
    first.value, second.value = 2, 3  # type: ignore[attr-defined]
    sys.modules["settings_of_test"] = first

    def program(x: torch.Tensor) -> torch.Tensor:
        import settings_of_test  # type: ignore[import-not-found]

        return x * settings_of_test.value

    return program, lambda: sys.modules.__setitem__("settings_of_test", second)


# --- identity


@case
def different_objects() -> tuple[Program, Change]:
    holder = attributes(left=[1], right=[1])
    return lambda x: x * 2 if holder.left is holder.right else x, lambda: setattr(holder, "right", holder.left)


@case
def different_tensors() -> tuple[Program, Change]:
    holder = attributes(left=torch.ones(1), right=torch.ones(1))
    return lambda x: x * 2 if holder.left is holder.right else x, lambda: setattr(holder, "right", holder.left)


@case
def object_not_in_a_list() -> tuple[Program, Change]:
    holder = attributes(item=Plain())
    items = [Plain()]
    return lambda x: x * 2 if holder.item in items else x, lambda: setattr(holder, "item", items[0])


@case
def object_as_a_key() -> tuple[Program, Change]:
    first, second = Plain(), Plain()
    holder, table = attributes(key=first), {first: 2, second: 3}
    return lambda x: x * table[holder.key], lambda: setattr(holder, "key", second)


@case
def address_of_an_object() -> tuple[Program, Change]:
    first, second = [1], [1]
    holder, table = attributes(key=first), {id(first): 2, id(second): 3}
    return lambda x: x * table[id(holder.key)], lambda: setattr(holder, "key", second)


@case
def written_object_that_is_read_elsewhere() -> tuple[Program, Change]:
    holder = attributes(left=[1], right=[1])

    def program(x: torch.Tensor) -> torch.Tensor:
        holder.left[0] = 5
        return x * holder.right[0]

    def change() -> None:
        holder.left[0] = 1
        holder.right = holder.left

    return program, change


# --- absence, and what types say


@case
def absent_slot() -> tuple[Program, Change]:
    class Slotted:
        __slots__ = ("value",)

    slotted = Slotted()
    return lambda x: x * getattr(slotted, "value", 3), lambda: setattr(slotted, "value", 5)


@case
def attribute_that_a_module_computes() -> tuple[Program, Change]:
    module: Any = types.ModuleType("module")
    module.__getattr__ = lambda name: 4.0
    return lambda x: x * module.scale, lambda: setattr(module, "__getattr__", lambda name: 6.0)


@case
def attribute_that_a_module_begins_to_compute() -> tuple[Program, Change]:
    module: Any = types.ModuleType("module")
    return lambda x: x * getattr(module, "scale", 1), lambda: setattr(module, "__getattr__", lambda name: 6.0)


@case
def absent_global() -> tuple[Program, Change]:
    names: dict[str, Any] = {}
    exec("def program(x):\n    try: return x * ABSENT\n    except NameError: return x", names)
    return names["program"], lambda: names.update(ABSENT=4)


@case
def unbound_closure_variable() -> tuple[Program, Change]:
    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * factor
        except NameError:
            return x

    def change() -> None:
        nonlocal factor
        factor = 4

    if not program:
        factor = 1
    return program, change


@case
def object_that_becomes_callable() -> tuple[Program, Change]:
    class Item:
        pass

    item = Item()
    return lambda x: x * 2 if callable(item) else x, lambda: setattr(Item, "__call__", lambda self: 1)


@case
def names_of_attributes() -> tuple[Program, Change]:
    plain = Plain()
    return lambda x: x * 2 if "other" in dir(plain) else x, lambda: setattr(plain, "other", 1)


# --- settings of PyTorch


@case
def threads_of_torch() -> tuple[Program, Change]:
    count = torch.get_num_threads()
    return lambda x: x * torch.get_num_threads(), lambda: torch.set_num_threads(count + 1)


@case
def precision_of_torch() -> tuple[Program, Change]:
    change = lambda: torch.set_float32_matmul_precision("medium")  # noqa: E731
    return lambda x: x * len(torch.get_float32_matmul_precision()), change


@case
def backend_of_torch() -> tuple[Program, Change]:
    def change() -> None:
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment]

    return lambda x: x * 2 if torch.backends.mkldnn.enabled else x, change


@contextlib.contextmanager
def restored() -> Iterator[None]:
    threads, precision, enabled = (
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.backends.mkldnn.enabled,
    )
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.backends.mkldnn.enabled = enabled
        sys.modules.pop("settings_of_test", None)


@pytest.mark.parametrize("make", CASES, ids=[make.__name__ for make in CASES])
def test_change_is_noticed(make: Case) -> None:
    with restored():
        program, change = make()
        compiled = thunder.jit(program)
        before = program(X)
        assert torch.equal(compiled(X), before)
        assert torch.equal(compiled(X), program(X))
        assert thunder.cache_hits(compiled) == 1
        change()
        expected = program(X)
        assert expected.shape != before.shape or not torch.equal(expected, before)
        assert torch.equal(compiled(X), expected)
        assert torch.equal(compiled(X), program(X))
        assert thunder.cache_hits(compiled) == 2


@pytest.mark.parametrize("make", CASES, ids=[make.__name__ for make in CASES])
def test_prologue_that_is_python_accepts_what_was_traced(make: Case) -> None:
    with restored():
        program, _ = make()
        compiled = thunder.jit(program)
        compiled(X)
        if make is not written_object_that_is_read_elsewhere:
            thunder.last_prologue_traces(compiled)[-1].python_callable()((X,), {})


def test_flag_that_the_program_sets_itself_is_not_guarded() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        torch.set_float32_matmul_precision("high")
        y = x * len(torch.get_float32_matmul_precision())
        torch.set_float32_matmul_precision("highest")
        return y

    with restored():
        compiled = thunder.jit(f)
        torch.set_float32_matmul_precision("highest")
        assert torch.equal(compiled(X), X * len("high"))


@pytest.mark.parametrize(
    ("memory", "write"),
    [
        (numpy.ones(2), lambda memory: memory.fill(7)),
        (numpy.ones(2), lambda memory: memory.__setitem__(0, 7)),
        (numpy.ones(2), lambda memory: operator.setitem(memory, 0, 7)),
        (array.array("i", [1, 2]), lambda memory: memory.append(3)),
        (bytearray(b"ab"), lambda memory: memory.extend(b"cd")),
        (bytearray(b"ab"), lambda memory: memory.__setitem__(0, 1)),
    ],
)
def test_write_to_memory_from_outside_is_refused_and_taken_back(memory: Any, write: Callable[[Any], Any]) -> None:
    before = list(memory)

    def f(x: torch.Tensor) -> torch.Tensor:
        write(memory)
        return x

    with pytest.raises(NotImplementedError, match=type(memory).__name__):
        thunder.jit(f, fullgraph=True)(X)
    assert list(memory) == before


def test_new_attribute_of_a_tensor_from_outside_is_refused() -> None:
    weight: Any = torch.ones(3)

    def f(x: torch.Tensor) -> torch.Tensor:
        weight.tag = 1
        return x * weight

    with pytest.raises(NotImplementedError, match="'tag' of a tensor"):
        thunder.jit(f, fullgraph=True)(X)
    assert not hasattr(weight, "tag")


@pytest.mark.parametrize("kind", ["plain", "subclass"])
def test_attributes_of_a_thread_local_are_those_of_the_calling_thread(kind: str) -> None:
    class WithDefault(threading.local):
        made = 0

        def __init__(self) -> None:
            type(self).made += 1
            self.value = 1.0

        @property
        def doubled(self) -> float:
            return 2 * self.value

    def run(*, compile_it: bool) -> list[Any]:
        WithDefault.made = 0
        local: Any = threading.local() if kind == "plain" else WithDefault()

        def f(x: torch.Tensor) -> Any:
            local.value = getattr(local, "value", 5.0) + 1
            if hasattr(local, "gone"):
                del local.gone
            held = vars(local).get("kept", 0), "kept" in local.__dict__
            return (x * local.value).tolist(), getattr(local, "doubled", 0), held

        called = thunder.jit(f) if compile_it else f
        seen: list[Any] = []

        def work() -> None:
            for step in range(3):
                seen.append((called(X), dict(vars(local))))
                setattr(local, ("kept", "gone", "value")[step], 7.0)
            seen.append(called(X))

        for start in (work, lambda: None, work):
            thread = threading.Thread(target=start)
            thread.start()
            thread.join()
            work()
        return [*seen, WithDefault.made]

    assert run(compile_it=True) == run(compile_it=False)


@pytest.mark.parametrize("compile_it", [True, False], ids=["compiled", "eager"])
def test_setattr_of_a_class_in_c_goes_where_it_does_in_eager(*, compile_it: bool) -> None:
    class Meta(type):
        pass

    class Made(metaclass=Meta):
        pass

    class Plain:
        pass

    class Written(threading.local):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, (value, 1))

    local, written, plain = threading.local(), Written(), Plain()

    def attempt(setter: Any, *arguments: Any) -> str:
        try:
            return str(setter(*arguments))
        except (TypeError, AttributeError) as error:
            return f"{type(error).__name__}: {error}"

    def f(x: torch.Tensor) -> Any:
        local.__setattr__("a", x * 2)
        local.__setattr__("b", x)
        local.__delattr__("b")
        written.c = x
        object.__setattr__(plain, "d", x * 3)
        seen = [
            attempt(object.__setattr__, local, "a", 1),
            attempt(object.__setattr__, Made, "a", 1),
            attempt(object.__delattr__, local, "a"),
        ]
        return local.a + 1, hasattr(local, "b"), written.c, seen

    called = thunder.jit(f) if compile_it else f
    for factor in (1.0, 2.0):
        result, has_b, held, seen = called(X * factor)
        expected = [X * factor * 2 + 1, X * factor * 2, X * factor, X * factor * 3]
        torch.testing.assert_close([result, local.a, held[0], plain.d], expected)
        assert not has_b
        assert held[1] == 1
        assert seen == [
            "TypeError: can't apply this __setattr__ to _thread._local object",
            "TypeError: can't apply this __setattr__ to Meta object",
            "TypeError: can't apply this __delattr__ to _thread._local object",
        ]
    assert not hasattr(Made, "a")
