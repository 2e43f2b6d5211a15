"""Sizes where PyTorch's schemas have plain integers (windows of pools, offsets of diagonals): one program for all."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from beside_eager import assert_same
from torch import Tensor

import thunder

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="symbols need Python 3.11")

Program = Callable[[Tensor, int], Tensor]


def _written(x: Tensor, n: int) -> Tensor:
    y = x * 1
    y.diagonal(n, -2, -1).mul_(3)
    return y


# Programs of images of 12 by 12 and a number.
PROGRAMS: dict[str, Program] = {
    "average over rows": lambda x, n: F.avg_pool1d(x[0], n),
    "average with a stride": lambda x, n: F.avg_pool1d(x[0], kernel_size=n, stride=2),
    "average of padded": lambda x, n: F.avg_pool2d(x, n, stride=n, padding=n // 2),
    "average rounded up": lambda x, n: F.avg_pool2d(x, n, ceil_mode=True),
    "average of a list": lambda x, n: F.avg_pool2d(x, [n, 2], 1),
    "average of a tuple": lambda x, n: F.avg_pool2d(x, (2, n)),
    "largest of rows": lambda x, n: F.max_pool1d(x[0], n),
    "largest": lambda x, n: F.max_pool2d(x, n, stride=1),
    "largest with places": lambda x, n: F.max_pool2d(x, (n, n), return_indices=True)[1] + x.sum(),
    "largest of the dilated": lambda x, n: F.max_pool2d(x, 2, 1, dilation=n),
    "diagonal": lambda x, n: x.diagonal(n, -2, -1).sin(),
    "diagonal below": lambda x, n: torch.diagonal(x, -n, -2, -1).sin(),
    "diagonal of one image": lambda x, n: torch.diag(x[0, 0], n) * 2,
    "diagonal of a vector": lambda x, n: torch.diag(x[0, 0, 0], diagonal=n) * 2,
    "diagonal of a vector below": lambda x, n: torch.diag(x[0, 0, 0], -n) * 2,
    "diagonal that is written": _written,
    "triangles": lambda x, n: x.tril(n) + x.triu(-n) * 2,
    "trace": lambda x, n: x.diagonal(offset=n, dim1=-2, dim2=-1).sum(-1) * n,
}
NUMBERS = (2, 3, 5, 4, 6, 1, 0, 7, 11, 12, 13)
SOME_NUMBERS = (2, 3, 5, 1, 0, 13)


def _outcome(program: Callable[..., Tensor], x: Tensor, *numbers: object) -> object:
    x = x.clone().requires_grad_()
    try:
        result = program(x, *numbers)
    except (RuntimeError, ValueError) as error:
        return type(error)
    if not result.requires_grad:
        return result, result.stride()
    (gradient,) = torch.autograd.grad((result * torch.arange(1.0, result.numel() + 1).view(result.shape)).sum(), x)
    return result.detach(), result.stride(), gradient


def _require_same(got: object, expected: object, name: str) -> None:
    if isinstance(expected, tuple) and isinstance(got, tuple):
        assert got[1] == expected[1]
        torch.testing.assert_close(got, expected)
    else:
        assert_same(got, expected, name)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_that_changes(name: str) -> None:
    compiled = thunder.jit(PROGRAMS[name])
    for count, n in enumerate(NUMBERS):
        x = torch.randn(2, 3, 12, 12)
        _require_same(_outcome(compiled, x, n), _outcome(PROGRAMS[name], x, n), f"{name} of {n}")
        if count == 4:
            assert thunder.compile_stats(compiled)["specializations"] <= 3, thunder.explain_misses(compiled)
            assert thunder.compile_stats(compiled)["eager_calls"] == 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_size_of_a_tensor(name: str) -> None:
    def program(x: Tensor, of: Tensor) -> Tensor:
        return PROGRAMS[name](x, of.shape[0])

    compiled = thunder.jit(program)
    for n in SOME_NUMBERS:
        x, of = torch.randn(2, 3, 12, 12), torch.empty(n)
        _require_same(_outcome(compiled, x, of), _outcome(program, x, of), f"{name} of {n}")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_from_data(name: str) -> None:
    def program(x: Tensor, of: Tensor) -> Tensor:
        return PROGRAMS[name](x, int(of))

    compiled = thunder.jit(program)
    for n in SOME_NUMBERS:
        x, of = torch.randn(2, 3, 12, 12), torch.tensor(n)
        _require_same(_outcome(compiled, x, of), _outcome(program, x, of), f"{name} of {n}")


@pytest.mark.parametrize("pool", [F.avg_pool2d, F.max_pool2d])
def test_a_window_that_is_the_image(pool: Callable[..., Tensor]) -> None:
    def program(x: Tensor) -> Tensor:
        return pool(x.sin(), x.shape[2:]).flatten(1)

    compiled = thunder.jit(program)
    for rows, columns in ((12, 8), (9, 11), (24, 7), (5, 6), (3, 3), (4, 1), (1, 1)):
        x = torch.randn(2, 3, rows, columns)
        _require_same(_outcome(compiled, x), _outcome(program, x), f"{rows} by {columns}")
    assert thunder.compile_stats(compiled)["specializations"] <= 5, thunder.explain_misses(compiled)


def test_a_size_that_chooses_a_dimension_is_pinned() -> None:
    def program(x: Tensor, of: Tensor) -> Tensor:
        return x.sum(of.shape[0]) * 2

    compiled = thunder.jit(program)
    for n in (2, 3, 0, 1, 2, 3):
        x = torch.randn(2, 3, 4, 5)
        torch.testing.assert_close(compiled(x, torch.empty(n)), program(x, torch.empty(n)))
