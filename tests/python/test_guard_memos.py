"""Guards look again at an object when it, or the place where it was found, has changed."""

from __future__ import annotations

import os
import subprocess
import sys

import torch

import thunder

# Under PYTHONMALLOC=debug memory that was freed holds no objects any more; the free list of dicts is full when the old
# dict goes.
REPLACED_UNDER_ANOTHER_SPECIALIZATION = """
import types, torch, thunder

state = types.SimpleNamespace(scale=1, table={"shift": 2})
has_table = [True]

def f(x):
    y = x * state.scale
    return y + sum(state.table.values()) if has_table[0] else y

compiled, x = thunder.jit(f), torch.ones(3)
for flag in (True, False, False, False):
    has_table[0] = flag
    assert compiled(x).equal(f(x))
replacement, many = {"shift": 3}, [{} for _ in range(200)]
del many
state.table = replacement
for flag in (False, False, True):
    has_table[0] = flag
    assert compiled(x).equal(f(x))
"""


def test_part_of_a_specialization_that_does_not_serve_is_replaced() -> None:
    program = [sys.executable, "-c", REPLACED_UNDER_ANOTHER_SPECIALIZATION]
    subprocess.run(program, env={**os.environ, "PYTHONMALLOC": "debug"}, check=True)


class OwnDict(dict[str, torch.Tensor]):
    """A dict that a guard may remember."""


def test_arguments_with_and_without_a_memo_take_turns() -> None:
    def f(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        return sum(tensors.values(), torch.zeros(3))

    own = OwnDict({str(i): torch.full((3,), 1.0) for i in range(20)})
    plain = {str(i): torch.full((3,), 2.0) for i in range(20)}
    compiled = thunder.jit(f, fullgraph=True)
    for each in (own, plain, own, own, own, plain, own, plain, plain, own):
        assert compiled(each).equal(f(each))


def test_identity_of_a_string_beside_an_equal_one() -> None:
    one, other = "".join(["me", "an"]), "".join(["me", "an"])
    state = {"one": one, "other": other}

    def f(x: torch.Tensor) -> torch.Tensor:
        is_equal = state["one"] == "mean"
        return x * (1 + is_equal + (state["other"] is other) + 2 * (state["one"] is other))

    compiled, x = thunder.jit(f, fullgraph=True), torch.ones(3)
    for state["one"], state["other"] in [(one, other), (one, other), (other, other), (other, one), (one, other)]:
        assert compiled(x).equal(f(x))
    assert thunder.compile_stats(compiled)["cache_misses"] == 3
