"""Convolutions of patches on a GPU, forward and backward, in 16 bits, beside float64."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import thunder

pytestmark = pytest.mark.gpu

Tensor = torch.Tensor


def tokens(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    patches = F.conv2d(x, weight, bias, stride=weight.shape[2:])
    return patches.flatten(2).transpose(1, 2).sin()


def gradients(function: object, inputs: list[Tensor]) -> list[Tensor]:
    inputs = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    result = function(*inputs)  # type: ignore[operator]
    return [result.detach(), *torch.autograd.grad(result.float().square().mean(), inputs)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [8, 16])
def test_a_step_of_patches_is_as_exact_as_eager(dtype: torch.dtype, size: int) -> None:
    x = torch.randn(8, 3, 4 * size, 6 * size, device="cuda").to(dtype)
    weight = (torch.randn(64, 3, size, size, device="cuda") / (2 * size)).to(dtype)
    inputs = [x, weight, torch.randn(64, device="cuda").to(dtype)]
    compiled = thunder.jit(tokens, fullgraph=True)
    gradients(compiled, inputs)
    thunder.wait_until_compiled(compiled)
    exact = gradients(tokens, [tensor.double() for tensor in inputs])
    for mine, theirs, right in zip(gradients(compiled, inputs), gradients(tokens, inputs), exact, strict=True):
        assert (mine.shape, mine.dtype, mine.stride()) == (theirs.shape, theirs.dtype, theirs.stride())
        scale = float(right.abs().max()) + 1e-30
        error, eager_error = (float((each.double() - right).abs().max()) / scale for each in (mine, theirs))
        assert error <= max(2 * eager_error, 4e-3)
    assert "aten.convolution" not in str(thunder.last_backward_traces(compiled)[-1])
