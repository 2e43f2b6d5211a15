"""Writes to what lies outside: as in eager at every call, and not at all when a trace fails."""

from __future__ import annotations

import collections
import copy
import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder

COUNT = 0


class Holder:
    """A user object with attributes."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Slotted:
    """A user object with a slot."""

    __slots__ = ("value",)


X = torch.arange(3.0)


def test_attribute_is_written_at_each_call() -> None:
    holder = Holder()

    @thunder.jit
    def f(x):
        holder.last = x * 2
        return x + 1

    for factor in (1, 2, 3):
        f(X * factor)
        torch.testing.assert_close(holder.last, X * factor * 2)
    assert thunder.cache_misses(f) == 1


def test_read_after_write_sees_the_new_value() -> None:
    holder = Holder(value=torch.zeros(3))

    @thunder.jit
    def f(x):
        holder.value = x * 2
        return holder.value + 1

    torch.testing.assert_close(f(X), X * 2 + 1)


def test_counter_goes_up_at_each_call() -> None:
    holder = Holder(count=0)

    @thunder.jit
    def f(x):
        holder.count += 1
        return x * holder.count

    for count in (1, 2, 3):
        torch.testing.assert_close(f(X), X * count)
        assert holder.count == count


def test_constant_is_written_even_if_it_was_there_already() -> None:
    holder = Holder(flag=True)

    @thunder.jit
    def f(x):
        holder.flag = True
        return x + 1

    f(X)
    holder.flag = False
    f(X)
    assert holder.flag is True


def test_deleted_attribute() -> None:
    holder = Holder(value=1)

    @thunder.jit
    def f(x):
        del holder.value
        return x + 1

    f(X)
    assert not hasattr(holder, "value")


def test_list_append_grows_at_each_call_without_retracing() -> None:
    results: list[torch.Tensor] = []

    @thunder.jit
    def f(x):
        results.append(x * 2)
        return x

    for _ in range(3):
        f(X)
    assert len(results) == 3
    assert thunder.cache_misses(f) == 1


def test_list_item() -> None:
    values = [torch.zeros(3), torch.zeros(3)]

    @thunder.jit
    def f(x):
        values[1] = x + 1
        return x

    f(X)
    f(X * 2)
    torch.testing.assert_close(values[1], X * 2 + 1)
    torch.testing.assert_close(values[0], torch.zeros(3))


def test_list_insert() -> None:
    values = [1]

    @thunder.jit
    def f(x):
        values.insert(0, 5)
        return x + values[0]

    f(X)
    assert values == [5, 1]


def test_dict_item_and_update() -> None:
    cache: dict[str, Any] = {"a": 1}

    @thunder.jit
    def f(x):
        cache["x"] = x + 1
        cache.update(a=2, b=x)
        return x

    f(X)
    assert list(cache) == ["a", "x", "b"]
    assert cache["a"] == 2
    assert cache["b"] is X


def test_set_add() -> None:
    seen = {1}

    @thunder.jit
    def f(x):
        seen.add(2)
        return x + 1

    f(X)
    assert seen == {1, 2}


def test_global() -> None:
    def function(x):
        global COUNT
        COUNT = x.shape[0]
        return x + 1

    thunder.jit(function)(X)
    assert COUNT == 3


def test_closure_variable() -> None:
    last = None

    @thunder.jit
    def f(x):
        nonlocal last
        last = x * 2
        return x + 1

    f(X)
    torch.testing.assert_close(last, X * 2)


def test_cell_contents_are_what_the_closure_reads_and_writes() -> None:
    count = 0

    def counter() -> int:
        nonlocal count
        count += 1
        return count

    cell = counter.__closure__[0]  # type: ignore[index]

    @thunder.jit
    def f(x, start):
        cell.cell_contents += start
        counter()
        return x * cell.cell_contents

    for call in (1, 2, 3):
        torch.testing.assert_close(f(X, 10), X * 11 * call)
        assert count == 11 * call


@pytest.mark.parametrize("has_it", [True, False])
def test_class_attribute_that_was_written_is_read_through_an_object(has_it: bool) -> None:
    class Base:
        if has_it:
            factor = 1.0

    class Derived(Base):
        pass

    holder = Derived()

    @thunder.jit
    def f(x):
        Base.factor = 5.0
        return x * holder.factor

    for _ in range(3):
        torch.testing.assert_close(f(X), X * 5)
    assert Base.factor == 5
    assert thunder.cache_misses(f) == 2  # without the attribute as it was, and with it
    Derived.factor = 7.0
    torch.testing.assert_close(f(X), X * 7)


def test_class_attribute_that_was_deleted_is_that_of_the_base() -> None:
    class Base:
        factor = 2.0

    class Derived(Base):
        factor = 3.0

    holder = Derived()

    @thunder.jit
    def f(x):
        if "factor" in vars(Derived):
            del Derived.factor
        return x * holder.factor

    torch.testing.assert_close(f(X), X * 2)
    assert "factor" not in vars(Derived)
    Base.factor = 4.0
    torch.testing.assert_close(f(X), X * 4)


@pytest.mark.parametrize("kind", [staticmethod, classmethod, property])
def test_method_that_is_put_into_a_class_stays_what_it_is(kind: Any) -> None:
    class Owner:
        pass

    @thunder.jit
    def f(x):
        Owner.method = kind(lambda *arguments: arguments)
        return x

    f(X)
    f(X)
    assert type(vars(Owner)["method"]) is kind


def test_slot() -> None:
    holder = Slotted()

    @thunder.jit
    def f(x):
        holder.value = x * 2
        return x + 1

    f(X)
    f(X + 1)
    torch.testing.assert_close(holder.value, (X + 1) * 2)


def test_input_is_written_in_place() -> None:
    @thunder.jit
    def f(x):
        x.add_(1)
        return x * 2

    x = torch.zeros(3)
    result = f(x)
    torch.testing.assert_close(x, torch.ones(3))
    torch.testing.assert_close(result, torch.full((3,), 2.0))


def test_batch_norm_buffers() -> None:
    eager = torch.nn.BatchNorm1d(3)
    compiled = thunder.jit(copy.deepcopy(eager))
    for _ in range(3):
        x = torch.randn(4, 3)
        torch.testing.assert_close(compiled(x), eager(x))
    for name, buffer in eager.named_buffers():
        torch.testing.assert_close(compiled.get_buffer(name), buffer)


def test_object_made_inside_and_stored_outside() -> None:
    holder = Holder()

    @thunder.jit
    def f(x):
        holder.inner = Holder(first=x + 1, both=[x, x * 2])
        return x

    f(X)
    first = holder.inner
    f(X + 1)
    assert holder.inner is not first
    torch.testing.assert_close(holder.inner.first, X + 2)
    torch.testing.assert_close(holder.inner.both[1], (X + 1) * 2)


def test_failed_trace_changes_nothing_with_fullgraph() -> None:
    holder = Holder(value=1, items=[1], table={"a": 1})
    before = copy.deepcopy(holder.__dict__)

    @thunder.jit(fullgraph=True)
    def f(x):
        holder.value = 2
        holder.new = x
        holder.items.append(3)
        holder.table["b"] = x
        del holder.table["a"]
        x.add_(1)
        raise ValueError("stop")

    x = torch.zeros(3)
    with pytest.raises(ValueError, match="stop"):
        f(x)
    assert holder.__dict__ == before
    torch.testing.assert_close(x, torch.zeros(3))


@pytest.mark.parametrize("looks_at_data", [False, True])
def test_grad_mode_left_changed_is_changed_by_each_call(looks_at_data) -> None:
    @thunder.jit
    def f(x):
        torch.set_grad_enabled(False)
        if looks_at_data and x.sum() > 100:
            return x
        return x + 1

    try:
        for _ in range(2):
            torch.set_grad_enabled(True)
            f(X)
            assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)


def test_deque_from_outside_is_appended_to() -> None:
    from collections import deque

    results: deque[Any] = deque(maxlen=2)

    @thunder.jit
    def f(x):
        results.append(x * 2)
        return x + 1

    for number in range(3):
        f(X + number)
    assert [result.tolist() for result in results] == [((X + 1) * 2).tolist(), ((X + 2) * 2).tolist()]


@pytest.mark.parametrize(
    "write",
    [
        lambda items: list(map(items.append, [1, 2])),
        lambda items: any(map(items.append, [1, 2])),
        lambda items: list(filter(items.append, [1])),
        lambda items: [None for _ in map(functools.partial(items.append, 3), [])],
        lambda items: functools.partial(items.append, 4)(),
        lambda items: operator.methodcaller("append", 5)(items),
        lambda items: sorted([3, 1], key=lambda n: items.append(n) or n),
    ],
)
def test_list_written_by_a_method_that_code_in_c_calls(write: Callable[[list[int]], Any]) -> None:
    def run(wrap: Callable[..., Any]) -> tuple[list[int], list[list[float]]]:
        items: list[int] = []

        def f(x):
            write(items)
            return x * len(items)

        call = wrap(f)
        return items, [call(X + i).tolist() for i in range(3)]

    assert run(thunder.jit) == run(lambda f: f)


def test_name_of_a_class_is_changed_at_every_call() -> None:
    class Model:
        """Has a scale."""

    def f(x: torch.Tensor) -> torch.Tensor:
        Model.__name__ = "Renamed"
        Model.__doc__ = "Has none."
        return x + 1

    compiled = thunder.jit(f)
    for _ in range(2):
        Model.__name__ = "Model"
        compiled(torch.ones(2))
        assert (Model.__name__, Model.__doc__) == ("Renamed", "Has none.")


def test_class_made_and_renamed_inside_is_no_effect() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        made = type("Made", (), {})
        made.__name__ = "Renamed"
        return x * len(made.__name__)

    compiled = thunder.jit(f)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 7.0))


@pytest.mark.parametrize("make", [dict, collections.Counter, lambda: {"a": 1}], ids=["dict", "counter", "not empty"])
def test_keys_that_python_and_c_code_add_stand_in_their_order(make: Callable[[], Any]) -> None:
    def program(x: torch.Tensor, counts: Any) -> torch.Tensor:
        collections._count_elements(counts, "hello")  # type: ignore[attr-defined]
        counts["x"] = len(counts)
        counts.update(q=2, h=7)
        return x * len(counts)

    f = thunder.jit(program)
    expected, counts = make(), make()
    for _ in range(3):
        assert torch.equal(f(torch.ones(1), counts), program(torch.ones(1), expected))
        assert list(counts.items()) == list(expected.items())
