"""Lists from outside that the program moves numbers in: counters, windows of losses."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

import thunder

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="numbers that change need Python 3.11")


class State:
    def __init__(self, values: list[Any]) -> None:
        self.values = values
        self.previous: Any = None


def counts_twice(state: State, x: Tensor) -> Tensor:
    state.values[0] += 1
    state.values[0] += 1
    return x * 2


def counts_from_the_end(state: State, x: Tensor) -> Tensor:
    state.values[-1] += 2
    state.values[-1] += 1
    return x * state.values[-1]


def counts_beside(state: State, x: Tensor) -> Tensor:
    state.values[0] += 1
    return x * state.values[1] + state.values[0]


def counts_after_append(state: State, x: Tensor) -> Tensor:
    state.values.append(0.5)
    total = x * state.values[0] + state.values[-1]
    state.values.pop()
    state.values[0] += 1.5
    return total


def pops_first(state: State, x: Tensor) -> Any:
    state.values.append(x.sum().item())
    return state.values.pop(0) if len(state.values) > 3 else None


def deletes_first(state: State, x: Tensor) -> None:
    state.values.append(x.sum().item())
    if len(state.values) > 3:
        del state.values[0]


def takes_the_last(state: State, x: Tensor) -> Tensor:
    state.values.append(x.sum().item())
    state.values = state.values[-3:]
    return x * state.values[0]


def inserts(state: State, x: Tensor) -> Tensor:
    state.values.insert(0, x.sum().item())
    state.values[3:] = []
    return x + state.values[-1]


# Programs, what they begin with, and how often they are traced in twelve calls: at each length, and at a second number.
PROGRAMS: dict[str, tuple[Any, list[Any], int]] = {
    "counts twice": (counts_twice, [0], 2),
    "counts from the end": (counts_from_the_end, [1.5, 0.5], 2),
    "counts beside": (counts_beside, [0.5, 2.5], 2),
    "counts after an append": (counts_after_append, [0.5], 2),
    "pops first": (pops_first, [], 5),
    "deletes first": (deletes_first, [], 5),
    "takes the last": (takes_the_last, [], 5),
    "inserts": (inserts, [], 5),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_list_of_numbers_that_change_is_not_traced_again(name: str) -> None:
    program, values, traces = PROGRAMS[name]
    compiled = thunder.jit(program)
    expected, actual = State(list(values)), State(list(values))
    for i in range(12):
        x = torch.tensor([i + 0.25, 1.0], dtype=torch.float64)
        left, right = program(expected, x), compiled(actual, x)
        torch.testing.assert_close(right, left, rtol=0, atol=0)
        assert actual.values == expected.values
        assert [type(each) for each in actual.values] == [type(each) for each in expected.values]
    assert thunder.cache_misses(compiled) == traces


STATEMENTS = """
values.append(x.sum().item())
values.append(n)
if len(values) > 3: values.pop(0)
if len(values) > 2: seen.append(values.pop())
if len(values) > 3: del values[0]
values.insert(0, n)
if len(values) > 2: values[0] += 1; values[0] += n
if len(values) > 2: values[-1] += n
if len(values) > 1: values[1] = n
values.reverse()
values.sort()
state.values = values = values[-3:]
values[:] = values[-3:]
values[1:2] = [n, 2.0]
seen.append(sum(values))
seen.append(values[::2])
seen.append(f"{values}")
seen.append(values == [1.5, 2.0])
seen.append(n in values)
seen.append(tuple(values))
seen.append(bool(values))
if values: x = x * values[0] + values[-1]
if values and values[0] > 2: x = x * 5
for each in values[-2:]: x = x * each
if len(values) > 1: first, *rest = values; seen.append((first, rest))
if values: values[0], values[-1] = values[-1], values[0]
state.previous = values[0] if values else None
if state.previous is not None: x = x * state.previous
seen.append(bool(values) and state.previous is values[0])
if len(values) > 6: values.clear()
""".strip().splitlines()


@pytest.mark.parametrize("seed", range(40))
def test_random_statements_about_a_list(seed: int) -> None:
    choose = random.Random(seed)
    chosen = [choose.choice(STATEMENTS[:2]), *choose.sample(STATEMENTS, 5)]
    choose.shuffle(chosen)
    lines = ["def program(state, x, n):", "values, seen = state.values, []", *chosen, "return x, seen"]
    names: dict[str, Any] = {}
    exec("\n    ".join(lines), names)
    program = names["program"]
    compiled = thunder.jit(program)
    values = [choose.choice([1.5, 2, 2.5, 3.0]) for _ in range(choose.randint(0, 5))]
    expected, actual = State(list(values)), State(list(values))
    for i in range(9):
        x = torch.tensor([i + 0.25, -1.0], dtype=torch.float64)
        n = choose.choice([1.5, 2.25, float(i)])
        if i == 5:
            expected.values.append(9.5)
            actual.values.append(9.5)
        left, right = program(expected, x.clone(), n), compiled(actual, x.clone(), n)
        assert repr(right) == repr(left)
        assert repr(vars(actual)) == repr(vars(expected))
