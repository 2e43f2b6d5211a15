# ruff: noqa: C416, PIE804
"""The events that an observer gets, recorded by one that writes everything down."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from thunder.interpreter import _native


def events_of(function: Any, *args: Any) -> list[tuple[Any, ...]]:
    return _native._record_events(function, *args)[1]


class Plain:
    constant = 3

    def __init__(self) -> None:
        self.value = [1]

    @property
    def computed(self) -> int:
        return 5

    def method(self) -> int:
        return 1


class WithSlots:
    __slots__ = ("value",)


class Dynamic(Plain):
    def __getattr__(self, name: str) -> str:
        if name == "lazy":
            return "made"
        raise AttributeError(name)

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


@pytest.mark.parametrize(
    ("name", "source"),
    [("value", "instance"), ("constant", "type"), ("method", "type"), ("computed", "computed"), ("lazy", "computed")],
)
def test_attribute_source(name: str, source: str) -> None:
    owner = Dynamic()
    events = events_of(lambda x: getattr(x, name), owner)
    assert ("read_attribute", owner, name, source, getattr(owner, name)) in events


def test_attribute_source_of_a_slot() -> None:
    owner = WithSlots()
    owner.value = 3
    assert ("read_attribute", owner, "value", "descriptor", 3) in events_of(lambda x: x.value, owner)


class Behind(NamedTuple("Behind", [("left", Any)])):  # type: ignore[misc]
    @property
    def left(self) -> Any:
        return super().left


class BehindSlots(WithSlots):
    def take(self) -> Any:
        return super().value


def test_fields_and_slots_behind_super() -> None:
    pair, owner = Behind([1]), BehindSlots()
    owner.value = [3]
    assert ("read_item", pair, 0, [1]) in events_of(lambda x: x.left, pair)
    assert ("read_attribute", owner, "value", "descriptor", [3]) in events_of(lambda x: x.take(), owner)


def test_attribute_source_of_a_class_and_a_module() -> None:
    assert ("read_attribute", Plain, "constant", "type object", 3) in events_of(lambda x: x.constant, Plain)
    assert ("read_attribute", pytest, "raises", "module", pytest.raises) in events_of(lambda x: x.raises, pytest)


def test_missing_attribute_before_getattr() -> None:
    owner = Dynamic()
    events = events_of(lambda x: x.lazy, owner)
    assert events.index(("read_missing_attribute", owner, "lazy")) < events.index(
        ("read_attribute", owner, "lazy", "computed", "made")
    )


def test_missing_attribute_with_a_default() -> None:
    owner = Plain()
    assert ("read_missing_attribute", owner, "absent") in events_of(lambda x: getattr(x, "absent", 1), owner)


CONTAINER_READS = [
    (lambda x: x[0], [5], ("read_item", 0, 5)),
    (lambda x: x[-1:], [5], ("read_item", slice(-1, None), [5])),
    (lambda x: x["a"], {"a": 5}, ("read_item", "a", 5)),
    (lambda x: x.get("a"), {"a": 5}, ("read_item", "a", 5)),
    (lambda x: x.get("b"), {"a": 5}, ("examine_presence", "b")),
    (lambda x: len(x), [1], ("examine", "length")),
    (lambda x: bool(x), [1], ("examine", "truth")),
    (lambda x: 1 if x else 2, [1], ("examine", "truth")),
    (lambda x: 1 in x, [1], ("given",)),
    (lambda x: "a" in x, {"a": 1}, ("examine_presence", "a")),
    (lambda x: [v for v in x], [1], ("examine", "contents")),
    (lambda x: [v for v in x], {"a": 1}, ("examine", "keys")),
    (lambda x: [v for v in x.values()], {"a": 1}, ("examine", "contents")),
    (lambda x: [*x], [1], ("examine", "contents")),
    (lambda x: x == [1], [1], ("given",)),
    (lambda x: f"{x}", [1], ("given",)),
    (lambda x: f"{x!r:>9}", [1], ("given",)),
    (lambda x: max(*x, 0), (1,), ("examine", "contents")),
    (lambda x: isinstance(x, list), [1], ("examine", "type")),
    (lambda x: type(x), [1], ("examine", "type")),
]


@pytest.mark.parametrize(("function", "container", "expected"), CONTAINER_READS)
def test_container_read(function: Any, container: Any, expected: tuple[Any, ...]) -> None:
    event = (expected[0], container, *expected[1:])
    assert event in events_of(function, container)


def write_global() -> None:
    global WRITTEN
    WRITTEN = 1


def test_writes() -> None:
    owner, items, mapping = Plain(), [1], {"a": 1}

    def write() -> None:
        owner.value = [2]
        items[0] = 2
        del mapping["a"]
        write_global()

    events = events_of(write)
    assert ("before_write", owner, "attribute", "value") in events
    assert ("before_write", items, "item", 0) in events
    assert ("before_write", mapping, "item", "a") in events
    assert ("before_write", globals(), "global", "WRITTEN") in events


def test_write_through_python_setattr_is_seen_once() -> None:
    owner = Dynamic()

    def write(x: Any) -> None:
        x.value = 1

    assert events_of(write, owner).count(("before_write", owner, "attribute", "value")) == 1


def test_cells() -> None:
    value = object()
    events = events_of(lambda: value)
    assert [event[2] for event in events if event[0] == "read_cell"] == [value]


def test_globals_and_builtins() -> None:
    events = events_of(lambda: (Plain, len))
    assert ("read_global", "Plain", "globals", Plain) in events
    assert ("read_global", "len", "builtins", len) in events


def test_native_call_and_its_python_callback() -> None:
    def key(value: int) -> int:
        return -value

    events = events_of(lambda: sorted([1, 2], key=key))
    assert ("before_native_call", sorted) in events
    assert ("after_native_call", sorted, [2, 1]) in events
    assert sum(event[0] == "before_python_call" and event[1] in (key, None) for event in events) >= 2


def test_python_call_with_its_arguments() -> None:
    def callee(a: int, b: int = 2) -> int:
        return a + b

    assert ("before_python_call", callee, 1) in events_of(lambda: callee(1))
    assert ("before_python_call", callee, 1) in events_of(lambda: callee(*[1], **{"b": 3}))
    assert ("before_python_call", Plain.method, 1) in events_of(lambda x: x.method(), Plain())


def natively(owner: Plain) -> list[int]:
    return owner.value


def test_native_treatment_is_not_observed() -> None:
    owner = Plain()
    assert not [event for event in events_of(lambda: natively(owner)) if event[0] == "read_attribute"]


def test_scalars_are_not_reported() -> None:
    events = events_of(lambda x: (x + 1, -x, f"{x}", x == 2, (x).bit_length(), not x), 3)
    assert not [event for event in events if event[0] in ("examine", "read_attribute", "receive")]
