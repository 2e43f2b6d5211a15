"""Convolutional networks on a GPU, forward and backward, in bfloat16 and channels last, beside float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import thunder

pytestmark = pytest.mark.gpu

Tensor = torch.Tensor


def outcome(function: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    inputs = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    result = function(*inputs)
    generator = torch.Generator("cuda").manual_seed(1)
    cotangent = torch.randn(result.shape, generator=generator, device="cuda", dtype=torch.float32).to(result.dtype)
    return [result.detach(), *torch.autograd.grad(result, inputs, cotangent)]


def compared(function: Callable[..., Tensor], inputs: list[Tensor]) -> str:
    """Compare with float64, in which errors are at most eager's; return the last trace of the backward."""
    compiled = thunder.jit(function, fullgraph=True)
    outcome(compiled, inputs)
    thunder.wait_until_compiled(compiled)
    exact = outcome(function, [tensor.double() for tensor in inputs])
    for mine, theirs, right in zip(outcome(compiled, inputs), outcome(function, inputs), exact, strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        scale = float(right.abs().max()) + 1e-30
        error, eager_error = (float((each.double() - right).abs().max()) / scale for each in (mine, theirs))
        assert error <= max(2 * eager_error, 4e-3)
    return str(thunder.last_backward_traces(compiled)[-1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("size", "kernel", "padding"), [(14, 7, 3), (9, 3, 1), (8, 5, 0), (5, 1, 0)])
def test_gradients_of_depthwise_convolutions(dtype: torch.dtype, size: int, kernel: int, padding: int) -> None:
    x = torch.randn(8, 64, size, size, device="cuda").to(dtype).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(64, 1, kernel, kernel, device="cuda").to(dtype)

    def convolved(x: Tensor, weight: Tensor) -> Tensor:
        return F.conv2d(x.sin(), weight, padding=padding, groups=64).sin()

    text = compared(convolved, [x, weight])
    assert ("aten.flip" in text) == ("[False, True, False]" in text)
    assert "aten.flip" in text
