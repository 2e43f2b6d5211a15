"""A program that catches the error of a factorization is compiled, with the error and without it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder

Tensor = torch.Tensor


def with_jitter(a: Tensor) -> Tensor:
    jitter = 0.0
    for k in range(4):
        try:
            factor = torch.linalg.cholesky(a + jitter * torch.eye(a.shape[-1], dtype=a.dtype))
            break
        except torch.linalg.LinAlgError:
            jitter = 10.0 ** (k - 3)
    return factor.sum()


def or_another_way(a: Tensor) -> Tensor:
    try:
        return torch.linalg.inv(a).sum()
    except Exception:
        return torch.linalg.pinv(a).sum() * 2


def solved(a: Tensor) -> Tensor:
    try:
        return torch.linalg.solve(a, torch.ones(a.shape[-1], dtype=a.dtype)).sum()
    except RuntimeError as error:
        return (a * len(str(error))).sum()


def inner(a: Tensor) -> Tensor:
    return torch.linalg.cholesky(a).exp()


def from_another_function(a: Tensor) -> Tensor:
    try:
        return inner(a).sum()
    except torch.linalg.LinAlgError:
        return a.sum()
    finally:
        a = a + 1


PROGRAMS = [with_jitter, or_another_way, solved, from_another_function]


def matrix(number: int, batch: tuple[int, ...] = ()) -> Tensor:
    """Return one that is positive definite, or, for odd numbers, singular."""
    torch.manual_seed(number)
    a = torch.randn(*batch, 3, 3, dtype=torch.float64)
    a = a @ a.mT + torch.eye(3, dtype=torch.float64)
    return torch.ones_like(a) * number if number % 2 else a


def outcome(call: Callable[[Tensor], Tensor], a: Tensor) -> Any:
    a = a.clone().requires_grad_()
    try:
        result = call(a)
    except Exception as error:
        return type(error), str(error)
    return result.detach(), *torch.autograd.grad(result, a)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_values_and_gradients_with_and_without_the_error(
    program: Callable[[Tensor], Tensor], batch: tuple[int, ...]
) -> None:
    compiled = thunder.jit(program)
    for number in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", thunder.EagerFallbackWarning)
            torch.testing.assert_close(
                outcome(compiled, matrix(number, batch)), outcome(program, matrix(number, batch))
            )
    eager = thunder.compile_stats(compiled)["eager_calls"]
    for number in range(3, 11):
        torch.testing.assert_close(outcome(compiled, matrix(number, batch)), outcome(program, matrix(number, batch)))
    assert thunder.compile_stats(compiled)["eager_calls"] == eager <= 1
    assert thunder.cache_misses(compiled) <= 4


def test_error_that_nobody_catches_is_eagers() -> None:
    compiled = thunder.jit(inner)
    for number in range(4):
        ours, theirs = (
            outcome(lambda a: compiled(a).sum(), matrix(number)),
            outcome(lambda a: inner(a).sum(), matrix(number)),
        )
        assert str(ours[0]) == str(theirs[0])
        assert number % 2 == 0 or ours[1].splitlines()[0].startswith(theirs[1].splitlines()[0])
    assert thunder.cache_misses(compiled) == 1


def test_message_of_a_caught_error_is_that_of_the_data() -> None:
    def program(a: Tensor) -> tuple[str, Tensor]:
        try:
            return "", torch.linalg.cholesky(a).sum()
        except torch.linalg.LinAlgError as error:
            return str(error), a.sum()

    compiled = thunder.jit(program)
    good = torch.eye(4)
    for place in (None, 1, 2, 3, 1):
        a = good.clone()
        if place is not None:
            a[place, place] = -1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", thunder.EagerFallbackWarning)
            assert compiled(a)[0] == program(a)[0]


def test_without_gradients_and_in_inference_mode() -> None:
    for mode in (torch.no_grad, torch.inference_mode):
        compiled = thunder.jit(with_jitter)
        for number in range(6):
            with mode(), warnings.catch_warnings():
                warnings.simplefilter("ignore", thunder.EagerFallbackWarning)
                a = matrix(number)
                torch.testing.assert_close(compiled(a), with_jitter(a))
