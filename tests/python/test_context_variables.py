"""Variables of `contextvars` that a function sets, by itself or as PyTorch does that keeps settings in them."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder

UNSET: contextvars.ContextVar[float] = contextvars.ContextVar("UNSET")
GIVEN: contextvars.ContextVar[Any] = contextvars.ContextVar("GIVEN", default=1.0)


def restored(x: torch.Tensor) -> Any:
    token = UNSET.set(UNSET.get(0.0) + 1)
    y = x * UNSET.get()
    UNSET.reset(token)
    return y, UNSET.get(5.0)


def counted(x: torch.Tensor) -> torch.Tensor:
    GIVEN.set(min(GIVEN.get() + 1, 3.0))
    return x * GIVEN.get()


def nested(x: torch.Tensor) -> torch.Tensor:
    UNSET.set(3.0)
    token = UNSET.set(4.0)
    inner = UNSET.get()
    UNSET.reset(token)
    return x * inner + UNSET.get()


def raising(x: torch.Tensor) -> torch.Tensor:
    token = GIVEN.set(7.0)
    try:
        if x.shape[0] == 2:
            raise ValueError(str(GIVEN.get()))
        return x * GIVEN.get()
    finally:
        GIVEN.reset(token)


def what_was_before(x: torch.Tensor) -> Any:
    token = GIVEN.set(2.0)
    return token.old_value is contextvars.Token.MISSING, x * GIVEN.get()


def reset_out_of_order(x: torch.Tensor) -> torch.Tensor:
    older = UNSET.set(1.0)
    UNSET.set(2.0)
    UNSET.reset(older)
    if x.shape[0] == 2:
        raise ValueError(str(UNSET.get(7.0)))
    return x * UNSET.get(7.0)


def computed(x: torch.Tensor) -> torch.Tensor:
    GIVEN.set(x * 2)
    return x + 1


def outcomes(function: Callable[[torch.Tensor], Any]) -> list[Any]:
    """Call a function four times in a context of its own, which is changed before the last call."""
    found: list[Any] = []

    def run() -> None:
        for i in range(4):
            if i == 3:
                UNSET.set(6.0)
                GIVEN.set(2.5)
            try:
                found.append(function(torch.ones(2)))
            except ValueError as error:
                found.append(float(str(error).splitlines()[0]))
            found.extend((UNSET.get(None), GIVEN.get()))

    contextvars.copy_context().run(run)
    return found


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("program", [restored, counted, nested, raising, what_was_before, reset_out_of_order, computed])
def test_variables_are_set_at_each_call(program: Callable[[torch.Tensor], Any]) -> None:
    compiled = thunder.jit(program, fullgraph=program not in (raising, reset_out_of_order))
    torch.testing.assert_close(outcomes(compiled), outcomes(program))
    assert (UNSET.get(None), GIVEN.get()) == (None, 1.0)


def test_a_failed_trace_leaves_variables_as_they_were() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        GIVEN.set(9.0)
        return torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))

    def run() -> Any:
        with pytest.raises((NotImplementedError, RuntimeError)):
            thunder.jit(program, fullgraph=True)(torch.ones(2))
        return GIVEN.get()

    assert contextvars.copy_context().run(run) == 1.0


def test_deterministic_algorithms_set_and_put_back() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        torch.use_deterministic_algorithms(True)
        try:
            is_on = torch.are_deterministic_algorithms_enabled()
        finally:
            torch.use_deterministic_algorithms(False)
        return y if is_on else x

    compiled = thunder.jit(program, fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
        assert not torch.are_deterministic_algorithms_enabled()


def test_the_reason_names_the_setting_under_which_an_operation_is_called() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        torch.use_deterministic_algorithms(True)
        try:
            return x.sum()
        finally:
            torch.use_deterministic_algorithms(False)

    with pytest.raises(NotImplementedError, match=r"while torch.are_deterministic_algorithms_enabled\(\) is changed"):
        thunder.jit(program, fullgraph=True)(torch.ones(2))
    assert not torch.are_deterministic_algorithms_enabled()
