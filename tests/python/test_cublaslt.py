"""Matmuls with a GELU, by cuBLASLt: results and gradients beside eager's and those of float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import thunder

pytestmark = pytest.mark.gpu

Tensor = torch.Tensor
ROWS, INNER, COLUMNS = 512, 1024, 768


def written_out(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def tanh_gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def by_columns(x: Tensor) -> Tensor:
    return x.t().contiguous().t()


def padded(x: Tensor) -> Tensor:
    return F.pad(x, (0, 8))[:, : x.shape[1]]


def shifted(x: Tensor) -> Tensor:
    """Return the matrix where no vector of 16 bytes begins."""
    return F.pad(x.flatten(), (1, 0))[1:].view(x.shape)


ORDERS: dict[str, Callable[[Tensor], Tensor]] = {
    "rows": lambda x: x,
    "columns": by_columns,
    "padded": padded,
    "shifted": shifted,
}


def step(f: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    leaves = [x.detach().requires_grad_() for x in inputs]
    y = f(*leaves)
    cotangent = torch.linspace(-1, 1, y.numel(), device="cuda").view(y.shape).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, leaves, cotangent)]


def check(f: Callable[..., Tensor], inputs: list[Tensor]) -> str:
    compiled = thunder.jit(f, executors=["cublaslt"], fullgraph=True)
    step(compiled, inputs)
    thunder.wait_until_compiled(compiled)
    truth = step(f, [x.double() for x in inputs])
    for got, reference, right in zip(step(compiled, inputs), step(f, inputs), truth, strict=True):
        assert (got.shape, got.dtype) == (reference.shape, reference.dtype)
        scale = float(right.norm())
        limit = float((reference.double() - right).norm()) / scale
        assert float((got.double() - right).norm()) / scale <= 1.5 * limit + 2e-3
    return str(thunder.last_traces(compiled)[-1]) + str(thunder.last_backward_traces(compiled)[-1])


def operands(dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(0)
    x, w, b = torch.randn(ROWS, INNER), torch.randn(INNER, COLUMNS) / 32, torch.randn(COLUMNS)
    second = torch.randn(COLUMNS, INNER) / 32
    return [t.to("cuda", dtype) for t in (x, w, b, second)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("gelu", [tanh_gelu, written_out], ids=["operator", "formula"])
def test_feed_forward_network(gelu: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    text = check(lambda x, w, b, v: gelu(torch.addmm(b, x, w)) @ v, operands(dtype))
    assert 'kind="cublaslt_matmul_gelu"' in text
    assert 'kind="cublaslt_matmul_gelu_gradient"' in text


@pytest.mark.parametrize("right", ORDERS)
@pytest.mark.parametrize("left", ORDERS)
def test_operands_in_every_order(left: str, right: str) -> None:
    x, w, b, v = operands(torch.bfloat16)
    check(lambda x, w, b, v: tanh_gelu(torch.addmm(b, x, w)) @ v, [ORDERS[left](x), ORDERS[right](w), b, v])


SIZES = [(1, 8, 8), (7, 520, 136), (513, 1024, 768), (512, 1023, 768), (512, 1024, 767)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sizes(sizes: tuple[int, int, int]) -> None:
    rows, inner, columns = sizes
    torch.manual_seed(0)
    shapes = [(rows, inner), (inner, columns), (columns,), (columns, inner)]
    inputs = [torch.randn(shape, device="cuda").bfloat16() * 0.2 for shape in shapes]
    check(lambda x, w, b, v: tanh_gelu(torch.addmm(b, x, w)) @ v, inputs)


def test_three_dimensions_without_gradients() -> None:
    x, w, b, _ = operands(torch.bfloat16)
    f = lambda x, w, b: tanh_gelu(F.linear(x.view(4, -1, INNER), w.t(), b))  # noqa: E731
    with torch.no_grad():
        compiled = thunder.jit(f, executors=["cublaslt"])
        torch.testing.assert_close(compiled(x, w, b), f(x, w, b), rtol=2e-2, atol=2e-2)


def test_deterministic_algorithms_are_pytorchs() -> None:
    x, w, b, v = operands(torch.bfloat16)
    f = lambda x, w, b, v: tanh_gelu(torch.addmm(b, x, w)) @ v  # noqa: E731
    compiled = thunder.jit(f, executors=["cublaslt"])
    torch.use_deterministic_algorithms(True)
    try:
        first, second = step(compiled, [x, w, b, v]), step(compiled, [x, w, b, v])
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
