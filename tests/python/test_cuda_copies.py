"""Copies that a GPU need not make, by kernels of their own: eager's results and strides, without them in the traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder

pytestmark = pytest.mark.gpu

Tensor = torch.Tensor
BFLOAT16_ROUNDING = 2e-2


def outcome(function: Callable[..., Any], inputs: list[Tensor]) -> list[Tensor]:
    inputs = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    results = function(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    gradients = torch.autograd.grad(results[0], inputs, torch.ones_like(results[0]) * 0.5)
    return [*(result.detach() for result in results), *gradients]


def compared(function: Callable[..., Any], inputs: list[Tensor]) -> str:
    """Compare with eager; return the last traces of the forward and the backward."""
    compiled = thunder.jit(function, fullgraph=True)
    outcome(compiled, inputs)
    thunder.wait_until_compiled(compiled)
    for mine, theirs in zip(outcome(compiled, inputs), outcome(function, inputs), strict=True):
        assert (mine.shape, mine.dtype, mine.stride()) == (theirs.shape, theirs.dtype, theirs.stride())
        assert float((mine.double() - theirs.double()).abs().max()) <= BFLOAT16_ROUNDING * max(
            1.0, float(theirs.abs().max())
        )
    return str(thunder.last_traces(compiled)[-1]) + str(thunder.last_backward_traces(compiled)[-1])


def tensors(*shapes: tuple[int, ...], dtype: torch.dtype = torch.bfloat16) -> list[Tensor]:
    return [torch.randn(shape, device="cuda").to(dtype) for shape in shapes]


def repeated(heads: Tensor, times: int) -> Tensor:
    batch, count, tokens, width = heads.shape
    return heads[:, :, None].expand(batch, count, times, tokens, width).reshape(batch, count * times, tokens, width)


def test_repeated_keys_are_not_written_where_a_kernel_takes_groups() -> None:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, repeated(k, 4), repeated(v, 4), is_causal=True)

    text = compared(attention, tensors((2, 8, 256, 64), (2, 2, 256, 64), (2, 2, 256, 64)))
    with torch.no_grad():
        q, k = tensors((2, 8, 256, 64), (2, 2, 256, 64))
        heads = torch._fused_sdp_choice(q, repeated(k, 4), repeated(k, 4), is_causal=True)
        groups = torch._fused_sdp_choice(q, k, k, is_causal=True, enable_gqa=True)
    assert ("expand" in text) == (heads != groups or heads == 0)


def test_gradients_of_heads_that_a_matmul_gave_are_put_together_once() -> None:
    def attention(x: Tensor, w: Tensor) -> Tensor:
        q, k, v = F.linear(x, w).reshape(4, 197, 3, 12, 64).permute(2, 0, 3, 1, 4).unbind(0)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(4, 197, 768)

    x, w = tensors((4, 197, 768), (2304, 768))
    text = compared(attention, [x, w * 0.05])
    assert "aten.clone" not in text
    assert text.count("aten.stack") == 1


def test_rotary_embeddings_are_one_kernel_in_each_direction() -> None:
    def embedded(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        heads = x.view(2, 128, 8, 64).transpose(1, 2)
        turned = torch.cat((-heads[..., 32:], heads[..., :32]), -1)
        return (heads * cosine.detach() + turned * sine.detach()).to(torch.bfloat16)

    (x,) = tensors((2, 128, 512))
    cosine, sine = tensors((1, 1, 128, 64), (1, 1, 128, 64), dtype=torch.float32)
    function = thunder.jit(lambda x: embedded(x, cosine, sine), fullgraph=True)
    mine, theirs = outcome(function, [x]), outcome(lambda x: embedded(x, cosine, sine), [x])
    for one, other in zip(mine, theirs, strict=True):
        assert one.stride() == other.stride()
        torch.testing.assert_close(one, other, atol=2e-2, rtol=2e-2)
    for traces in (thunder.last_traces(function), thunder.last_backward_traces(function)):
        assert str(traces[-1]).count("prims.fused") <= 2  # with the cast of the caller's gradient


def test_biases_of_convolutions_are_part_of_fusions() -> None:
    def block(x: Tensor, w: Tensor, b: Tensor, scale: Tensor) -> Tensor:
        y = F.conv2d(x, w, b, padding=3, groups=96)
        y = F.layer_norm(y.permute(0, 2, 3, 1), (96,), scale).permute(0, 3, 1, 2)
        return x + F.conv2d(y, w, b, padding=3, groups=96)

    x, w, b, scale = tensors((8, 96, 28, 28), (96, 1, 7, 7), (96,), (96,))
    text = compared(block, [x, w * 0.1, b, scale])
    # The bias of the last convolution is summed from what the caller gives.
    assert text.count("[True, True, True])") <= 1


def test_logits_of_an_odd_vocabulary_are_given_as_eager_gives_them() -> None:
    def loss(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        logits = F.linear(x, w).view(4, 256, 1027)
        labels = torch.arange(1024, device="cuda") % 1027
        return F.cross_entropy(logits.view(-1, 1027).float(), labels), logits

    x, w = tensors((1024, 1024), (1027, 1024))
    text = compared(loss, [x, w * 0.03])
    assert "thunder.restride" not in text


def test_sums_around_layers_are_saved() -> None:
    weights = tensors(*[(256, 256)] * 4)

    def layers(x: Tensor) -> Tensor:
        for weight in weights:
            x = x + F.linear(F.layer_norm(x, (256,)).to(torch.bfloat16), weight * 0.05).float()
        return x

    text = compared(layers, tensors((64, 256), dtype=torch.float32))
    backward = text[text.index("def backward") :]
    assert "aten.native_layer_norm.default" not in backward
