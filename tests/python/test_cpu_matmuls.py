"""Products of float32 matrices: eager's, whichever library adds them up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from profiled import operators_of

import thunder

Tensors = list[torch.Tensor]
LARGE = 160  # of squares; their products are worth another library


def needs_onednn() -> None:
    """Skip where MKL is the faster library."""
    information = Path("/proc/cpuinfo")
    text = information.read_text() if information.exists() else ""
    if "avx512f" not in text or "GenuineIntel" in text or not torch.backends.mkl.is_available():
        pytest.skip("MKL's products are fast on this processor")


def error_of(result: torch.Tensor, exact: torch.Tensor) -> float:
    return (result - exact).square().mean().sqrt().item()


def check(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
    compiled = thunder.jit(function)
    with torch.no_grad():
        got, expected = compiled(*inputs), function(*inputs)
        exact = function(*(x.double() for x in inputs))
    assert got.stride() == expected.stride()
    assert got.dtype == expected.dtype
    assert error_of(got, exact) <= 2.5 * error_of(expected, exact)


def square(*leading: int) -> torch.Tensor:
    return torch.randn(*leading, LARGE, LARGE)


PRODUCTS: dict[str, tuple[Callable[..., torch.Tensor], Callable[[], Tensors]]] = {
    "mm": (torch.mm, lambda: [square(), square()]),
    "left transposed": (lambda a, b: a.t() @ b, lambda: [square(), square()]),
    "right transposed": (lambda a, b: a @ b.t(), lambda: [square(), square()]),
    "both transposed": (lambda a, b: a.t() @ b.t(), lambda: [square(), square()]),
    "parts of rows": (lambda a, b: a[:, :130] @ b[5:135], lambda: [square(), square()]),
    "every second column": (lambda a, b: a[:, ::2] @ b[::2], lambda: [torch.randn(160, 320), torch.randn(320, 160)]),
    "right with gaps": (lambda a, b: a @ b[:, :LARGE], lambda: [square(), torch.randn(LARGE, 2 * LARGE)]),
    "one row": (lambda a, b: a[:1] @ b, lambda: [torch.randn(4, 2048), torch.randn(2048, 2048)]),
    "expanded": (lambda a, b: a[:1].expand(LARGE, LARGE) @ b, lambda: [square(), square()]),
    "batches of rows": (lambda a, b: a @ b, lambda: [square(2, 3), square()]),
    "addmm": (torch.addmm, lambda: [torch.randn(LARGE), square(), square()]),
    "addmm of a matrix": (torch.addmm, lambda: [square(), square(), square()]),
    "addmm scaled": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), lambda: [square(), square(), square()]),
    "linear": (F.linear, lambda: [square(2), square(), torch.randn(LARGE)]),
    "linear without bias": (F.linear, lambda: [square(2).transpose(0, 1), square()]),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str) -> None:
    torch.manual_seed(0)
    function, inputs = PRODUCTS[name]
    check(function, *inputs())


def test_hard_numbers() -> None:
    torch.manual_seed(0)
    for scale in (1e30, 1e-30, 1e-42):
        check(lambda a, b: a @ b, square() * scale, square())
    a, b = square(), square()
    a[3, 5], a[7, 9] = float("inf"), float("nan")
    got, expected = thunder.jit(torch.mm)(a, b), a @ b
    torch.testing.assert_close(got, expected, equal_nan=True)


def test_gradients() -> None:
    torch.manual_seed(0)
    inputs = [square(2), square(), torch.randn(LARGE)]

    def gradients(function: Callable[..., torch.Tensor], dtype: torch.dtype) -> Tensors:
        leaves = [x.to(dtype, copy=True).requires_grad_() for x in inputs]
        function(*leaves).sin().sum().backward()
        return [x.grad for x in leaves if x.grad is not None]

    got, expected = gradients(thunder.jit(F.linear), torch.float32), gradients(F.linear, torch.float32)
    for ours, eager, exact in zip(got, expected, gradients(F.linear, torch.float64), strict=True):
        assert ours.stride() == eager.stride()
        assert error_of(ours, exact) <= 2.5 * error_of(eager, exact)


def libraries(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> set[str]:
    compiled = thunder.jit(function)
    compiled(*inputs)
    return operators_of(lambda: compiled(*inputs)) & {"aten::mm", "aten::linear", "mkldnn::_linear_pointwise"}


def test_who_computes() -> None:
    needs_onednn()
    assert libraries(torch.mm, square(), square()) == {"mkldnn::_linear_pointwise"}
    assert libraries(torch.mm, square().double(), square().double()) == {"aten::mm"}
    assert libraries(torch.mm, torch.randn(8, 8), torch.randn(8, 8)) == {"aten::mm"}
    # A weight with gaps, for which oneDNN has no fast kernel.
    assert libraries(torch.mm, square(), torch.randn(LARGE, 2 * LARGE)[:, :LARGE]) == {"aten::mm"}
    assert libraries(F.linear, square(), torch.randn(LARGE, 2 * LARGE)[:, :LARGE]) >= {"aten::linear"}
    with torch.backends.mkldnn.flags(enabled=False):
        assert libraries(torch.mm, square(), square()) == {"aten::mm"}


def test_numbers_for_python_are_those_of_eager() -> None:
    torch.manual_seed(0)
    inputs = [square(), square()]

    def branch(a: torch.Tensor, b: torch.Tensor) -> tuple[float, torch.Tensor]:
        total = (a @ b).sum().item()
        return total, (a @ b) * (1 if total > 0 else -1)

    compiled = thunder.jit(branch)
    for _ in range(3):
        assert compiled(*inputs)[0] == branch(*inputs)[0]


def test_wrong_sizes() -> None:
    compiled = thunder.jit(torch.mm)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        compiled(square(), torch.randn(LARGE + 1, LARGE))
