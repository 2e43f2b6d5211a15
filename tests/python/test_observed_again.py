"""Values that a program reads from tensors are others when its compiled program runs than they were in the trace."""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch
from torch import Tensor

import thunder

steps = itertools.count()
changes_until = [0]


@torch.library.custom_op("thunder_tests::drifting", mutates_args=())
def drifting(x: Tensor) -> Tensor:
    """Gives another result at each of its first runs."""
    return x + min(next(steps), changes_until[0])


@drifting.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def starts(until: int) -> None:
    global steps
    steps = itertools.count()
    changes_until[0] = until


@pytest.fixture(autouse=True)
def reset() -> None:
    starts(0)


def around_an_operation_alone(x: Tensor) -> tuple[Tensor, Tensor, str]:
    y = ((x * 1.1 + 0.3) * 0.7).sin() * 1.3
    z = y.exp()
    places = x.nonzero()
    total = z.sum().item()
    return (x * 2 if int(total * 1000) % 2 else x * 3), places, str(total)


@pytest.mark.filterwarnings("error::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_what_is_computed_before_an_operation_that_stands_alone_has_the_bits_of_eager(dtype: torch.dtype) -> None:
    compiled = thunder.jit(around_an_operation_alone)
    inputs = [torch.randn(3000).to(dtype) for _ in range(2)]
    for x in inputs * 3:
        assert compiled(x)[2] == around_an_operation_alone(x)[2]
    assert thunder.compile_stats(compiled)["specializations"] <= 2


def test_nothing_is_fused_behind_the_last_look_in_vain() -> None:
    def program(x: Tensor) -> Tensor:
        y = x.exp() if x.sum() > 0 else x
        places = y.nonzero()
        return (y * 2 + 1).sin() * places.shape[0]

    compiled = thunder.jit(program)
    x = torch.ones(64, 64)
    torch.testing.assert_close(compiled(x), program(x))
    assert thunder.fusions(compiled)


def looking(x: Tensor) -> tuple[Tensor, float]:
    y = drifting(x)
    number = float(str(y.sum().item()))
    return y * number, number


@pytest.mark.filterwarnings("error::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("until", [1, 2, 4])
def test_the_trace_takes_what_the_compiled_program_gave(until: int) -> None:
    compiled = thunder.jit(looking)
    starts(until)
    for _ in range(4):
        result, number = compiled(torch.ones(2))
    assert number == 2.0 * (1 + until)
    assert result.tolist() == [number * (1 + until)] * 2
    stats = thunder.compile_stats(compiled)
    assert stats["eager_calls"] == 0
    assert stats["cache_hits"] >= 2
    assert stats["specializations"] <= 2  # none that no call hits is kept


def test_values_that_never_settle_run_in_eager_and_leave_no_specialization() -> None:
    compiled = thunder.jit(looking)
    starts(1_000_000)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(30):
            compiled(torch.ones(2))
    message, rare = dict.fromkeys(str(each.message) for each in caught)
    assert "16 traces of" in rare
    assert "is another one in the compiled program than it was while the program was traced" in message
    assert "test_observed_again.py" in message
    assert "y.sum().item()" in message
    stats = thunder.compile_stats(compiled)
    assert stats["specializations"] == 0
    assert stats["eager_calls"] == 30
    traced = next(steps)
    for _ in range(5):
        compiled(torch.ones(2))
    assert next(steps) == traced + 6  # not traced any more
