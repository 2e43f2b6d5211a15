"""The fuzzer finds what it is made to find: each check fails for a compiler with a mistake of that kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from tests.fuzz import checks, oracle
from thunder._minify.shrink import Case, shrink
from thunder._minify.straight_line import StraightLine

PROGRAM = """
def program(x, y):
    v0 = x.sin()
    v1 = v0 * y
    v2 = torch.flip(y, [0])
    v3 = v1 + v2
    return (v3, v0)
"""


def case() -> Case:
    return Case(StraightLine.parse(PROGRAM), (torch.arange(3.0), torch.ones(3)))


def plan(check: str) -> checks.Plan:
    return checks.Plan(check, {}, seed=3)


@pytest.mark.parametrize("check", checks.CHECKS)
def test_check_passes_for_a_right_program(check: str) -> None:
    plan(check).run(case())


def wrong_sine(jit: Callable[..., Any]) -> Callable[..., Any]:
    """A compiler that takes sines for cosines."""

    def compile_wrongly(function: Any, **options: Any) -> Any:
        compiled = jit(function, **options)

        def wrong(*args: Any) -> Any:
            right, torch.Tensor.sin = torch.Tensor.sin, torch.Tensor.cos
            try:
                return compiled(*args)
            finally:
                torch.Tensor.sin = right

        return wrong

    return compile_wrongly


@pytest.mark.parametrize("check", ["call"])
def test_wrong_number_is_found_and_made_small(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thunder, "jit", wrong_sine(thunder.jit))
    with pytest.raises(checks.Failure) as failure:
        plan(check).run(case())
    assert failure.value.kind == "numbers"

    def fails(candidate: Case) -> bool:
        try:
            plan(check).run(candidate)
        except checks.Failure:
            return True
        return False

    small = shrink(case(), fails)
    assert [line.text for line in small.program.lines] == ["v0 = x.sin()"]
    assert small.program.parameters == ("x",)
    assert small.arguments[0].shape == (1,)


def outcome(tensor: torch.Tensor, **facts: Any) -> oracle.Outcome:
    return oracle.Outcome({"result 0": tensor}, facts)


def test_result_as_near_to_fp64_as_eager_passes() -> None:
    eager, exact = torch.tensor([1.0]), torch.tensor([1.001], dtype=torch.float64)
    near = oracle.Exact(lambda: outcome(exact), lambda: outcome(eager))
    oracle.require_same(outcome(torch.tensor([1.002])), outcome(eager), near, numbers_only=False)
    with pytest.raises(oracle.Difference) as difference:
        oracle.require_same(outcome(torch.tensor([1.1])), outcome(eager), near, numbers_only=False)
    assert difference.value.kind == "numbers"


def test_metadata_and_memory_are_compared() -> None:
    same = torch.ones(2)
    with pytest.raises(oracle.Difference, match="stride"):
        oracle.require_same(outcome(same, stride=(1,)), outcome(same, stride=(2,)), None, numbers_only=False)
    x = torch.ones(2)
    assert oracle.observe(lambda a: (a[0], a + 1), [x], 0).facts["memory"] == [0, 0, 2]
