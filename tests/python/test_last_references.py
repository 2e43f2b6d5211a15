"""Objects from outside to which the function itself drops the last reference, where somebody can see that they die."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder

X = torch.arange(1.0, 4.0)


class Plain:
    value = 1


def noting(died: list[Any]) -> Any:
    class Noted:
        def __del__(self) -> None:
            died.append(1)

    return Noted()


State = Any
HOLDS: dict[str, tuple[Callable[[State, Any], None], Callable[[State], None]]] = {
    "attribute": (lambda s, o: setattr(s, "held", o), lambda s: setattr(s, "held", None)),
    "deleted attribute": (lambda s, o: setattr(s, "held", o), lambda s: delattr(s, "held")),
    "item": (lambda s, o: s.items.__setitem__(0, o), lambda s: s.items.__setitem__(0, None)),
    "popped": (lambda s, o: s.table.__setitem__("a", o), lambda s: s.table.pop("a")),
    "popped and deleted": (lambda s, o: s.table.__setitem__("a", o), lambda s: s.table.popitem()),
    "cleared": (lambda s, o: s.table.__setitem__("a", o), lambda s: s.table.clear()),
    "sliced": (lambda s, o: s.items.append(o), lambda s: s.items.__delitem__(slice(1, None))),
    "within": (lambda s, o: setattr(s, "held", [{"a": Plain(), "b": o}]), lambda s: setattr(s, "held", None)),
    "in an object": (lambda s, o: setattr(s, "held", types.SimpleNamespace(a=o)), lambda s: setattr(s, "held", None)),
}
SEEN: dict[str, tuple[Callable[[State], Any], Callable[[State], Any]]] = {
    "__del__": (lambda s: noting(s.died), lambda s: len(s.died)),
    "reference": (lambda s: referred(s, Plain()), lambda s: 1 if s.reference() is None else 0),
    "callback": (lambda s: called_back(s, Plain()), lambda s: len(s.died)),
    "weak values": (lambda s: valued(s, Plain()), lambda s: len(s.values)),
    "weak set": (lambda s: member(s, Plain()), lambda s: len(s.members)),
    "tensor": (lambda s: valued(s, torch.ones(2)), lambda s: len(s.values)),
}


def referred(state: State, made: Any) -> Any:
    state.reference = weakref.ref(made)
    return made


def called_back(state: State, made: Any) -> Any:
    state.reference = weakref.ref(made, lambda _: state.died.append(1))
    return made


def valued(state: State, made: Any) -> Any:
    state.values["a"] = made
    return made


def member(state: State, made: Any) -> Any:
    state.members.add(made)
    return made


def run(hold: str, seen: str, *, is_kept: bool, compile_it: bool) -> tuple[list[Any], Any]:
    put, drop = HOLDS[hold]
    make, look = SEEN[seen]
    state = types.SimpleNamespace(died=[], items=[None], table={}, values=weakref.WeakValueDictionary())
    state.members = weakref.WeakSet()

    def f(x: torch.Tensor) -> torch.Tensor:
        drop(state)
        return x * look(state)

    called = thunder.jit(f) if compile_it else f
    results, kept = [], []
    for _ in range(3):
        made = make(state)
        put(state, made)
        if is_kept:
            kept.append(made)
        del made
        results.append(called(X).tolist())
    return results, called


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("hold", HOLDS)
def test_a_death_that_is_seen_comes_where_eager_has_it(hold: str, seen: str) -> None:
    results = [run(hold, seen, is_kept=False, compile_it=each)[0] for each in (False, True)]
    assert results[0] == results[1]


@pytest.mark.parametrize("seen", ["__del__", "callback", "weak set"])
@pytest.mark.parametrize("hold", HOLDS)
def test_an_object_that_others_hold_does_not_die(hold: str, seen: str) -> None:
    results = [run(hold, seen, is_kept=True, compile_it=each) for each in (False, True)]
    assert results[0][0] == results[1][0]
    assert thunder.compile_stats(results[1][1])["eager_calls"] == 0


def test_the_reason_names_the_line() -> None:
    state = types.SimpleNamespace(held=noting([]))

    def f(x: torch.Tensor) -> torch.Tensor:
        state.held = None  # dropped here
        return x + 1

    with pytest.warns(
        thunder.EagerFallbackWarning, match="drops the last reference to an object of type 'Noted'"
    ) as seen:
        thunder.jit(f)(X)
    assert "dropped here" in str(seen[0].message)


def test_what_the_trace_replaces_of_its_own_is_compiled() -> None:
    state = types.SimpleNamespace(held=None, count=0)

    def f(x: torch.Tensor) -> torch.Tensor:
        state.held = x * 2
        state.count += 1
        return x + state.held

    compiled = thunder.jit(f, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(X), X * 3)
