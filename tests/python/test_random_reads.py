"""Random programs that look at data behave over several calls as in eager: results, state and gradients."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_same
from random_reads import make_program

import thunder

CALLS = 5


def run(program: Callable[..., Any], x: torch.Tensor, y: torch.Tensor) -> tuple[Any, Any]:
    x = x.clone().requires_grad_()
    *results, state = program([], x, y)
    tensors = [result for result in results if isinstance(result, torch.Tensor) and result.requires_grad]
    gradient = torch.autograd.grad(sum(tensor.sum() for tensor in tensors), x, allow_unused=True) if tensors else None
    return (results, state), gradient


def check(seed: int) -> None:
    program = make_program(seed)
    compiled = thunder.jit(program)
    generator = torch.Generator().manual_seed(seed)
    text = "".join(linecache.getlines(f"<random program {seed}>"))
    for call in range(CALLS):
        x, y = torch.randn(2, 3, generator=generator)
        expected, expected_gradient = run(program, x, y)
        got, gradient = run(compiled, x, y)
        assert_same(got, expected, f"seed {seed}, call {call}: {text}")
        torch.testing.assert_close(gradient, expected_gradient)


@pytest.mark.parametrize("start", range(0, 100, 20))
def test_random_programs_read_as_in_eager(start: int) -> None:
    for seed in range(start, start + 20):
        check(seed)
