"""Writes to values that eager saves for a backward raise compiled, too, whatever the trace's backward reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import thunder

pytestmark = pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")


def square(x: Tensor) -> Tensor:
    return x @ x.t() + 2 * torch.eye(x.shape[0])


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "add_": lambda x: (x * 1).add_(1),
    "celu": lambda x: F.celu(x),
    "celu_": lambda x: F.celu(x * 1, inplace=True),
    "cholesky": lambda x: torch.linalg.cholesky(square(x)),
    "clamp": lambda x: x.clamp(0, 1),
    "cumprod": lambda x: x.cumprod(0),
    "dropout_": lambda x: F.dropout(x * 1, inplace=True),
    "eigvalsh": lambda x: torch.linalg.eigvalsh(square(x)),
    "elu": lambda x: F.elu(x),
    "elu_": lambda x: F.elu(x * 1, inplace=True),
    "exp": lambda x: x.exp(),
    "hardtanh_": lambda x: F.hardtanh(x * 1, inplace=True),
    "inv": lambda x: torch.linalg.inv(square(x)),
    "layer_norm": lambda x: F.layer_norm(x, (3,)),
    "leaky_relu": lambda x: F.leaky_relu(x),
    "leaky_relu_": lambda x: F.leaky_relu(x * 1, inplace=True),
    "linear": lambda x: F.linear(x, x),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "logsumexp": lambda x: x.logsumexp(0),
    "matrix_exp": lambda x: torch.matrix_exp(square(x)),
    "max": lambda x: x.max(),
    "max of dim": lambda x: x.max(0).values,
    "mul_ of itself": lambda x: (lambda y: y.mul_(y))(x * 1),
    "norm": lambda x: x.norm(),
    "pow": lambda x: 2**x,
    "prod": lambda x: x.prod(),
    "prod of dim": lambda x: x.prod(0),
    "relu_": lambda x: torch.relu_(x * 1),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "rrelu_": lambda x: F.rrelu(x * 1, training=True, inplace=True),
    "selu_": lambda x: F.selu(x * 1, inplace=True),
    "silu_": lambda x: F.silu(x * 1, inplace=True),
    "sinh_": lambda x: (x * 1).sinh_(),
    "softmax": lambda x: x.softmax(-1),
    "std": lambda x: x.std(0),
    "svdvals": lambda x: torch.linalg.svdvals(x),
    "tanh_": lambda x: (x * 1).tanh_(),
    "threshold_": lambda x: F.threshold(x * 1, 0.1, 5.0, inplace=True),
}
WRITES: dict[str, Callable[[Tensor], Any]] = {
    "written": lambda y: y.add_(1),
    "written without gradients": lambda y: torch.no_grad()(y.mul_)(2),
    "read": lambda y: y + 1,
}


def outcome(take: Callable[[Tensor], Tensor]) -> Any:
    torch.manual_seed(0)
    x = (torch.randn(2, 3) + 0.1).requires_grad_()
    try:
        torch.manual_seed(1)
        return take(x)
    except RuntimeError as error:
        return str(error)[:80]


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_write_to_a_result(function: Callable[[Tensor], Tensor], write: Callable[[Tensor], Any]) -> None:
    def program(x: Tensor) -> Tensor:
        result = function(x)
        write(result)
        return result * 2

    def inside(x: Tensor) -> Tensor:
        return torch.autograd.grad(program(x).sum(), x)[0]

    compiled, compiled_inside = thunder.jit(program), thunder.jit(inside)
    expected = outcome(inside)
    for _ in range(2):
        for found in (
            outcome(lambda x: torch.autograd.grad(compiled(x).sum(), x)[0]),
            outcome(compiled_inside),
        ):
            if isinstance(expected, str):
                assert found == expected
            else:
                torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_write_to_an_argument(function: Callable[[Tensor], Tensor], write: Callable[[Tensor], Any]) -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 1
        result = function(y)
        write(y)
        return result.sum()

    compiled = thunder.jit(program)
    expected = outcome(lambda x: torch.autograd.grad(program(x), x)[0])
    for _ in range(2):
        found = outcome(lambda x: torch.autograd.grad(compiled(x), x)[0])
        if isinstance(expected, str):
            assert found == expected
        else:
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
