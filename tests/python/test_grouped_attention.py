"""Attention whose keys and values are shared by groups of heads, beside PyTorch's with repeated ones."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import thunder


def make_inputs(device: str = "cpu", dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.randn(2, heads, length, 16, device=device, dtype=dtype) for heads, length in ((6, 3), (2, 5), (2, 5))]


def repeated(x: torch.Tensor, count: int = 3) -> torch.Tensor:
    batch, heads, length, size = x.shape
    return x[:, :, None].expand(batch, heads, count, length, size).reshape(batch, heads * count, length, size)


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    return F.scaled_dot_product_attention(query, repeated(key), repeated(value), mask, scale=0.3)


@pytest.mark.parametrize("has_mask", [False, True])
def test_operator_gives_what_repeated_keys_give(has_mask: bool) -> None:
    inputs = make_inputs()
    mask = torch.rand(2, 1, 3, 5) < 0.7 if has_mask else None
    expected = attend(*inputs, mask)
    got = torch.ops.thunder.grouped_attention(*inputs, mask, False, 0.3, expected.stride())
    torch.testing.assert_close(got, expected)


def test_operator_gives_the_strides_that_are_asked_for() -> None:
    inputs = make_inputs()
    strides = torch.empty(2, 3, 6, 16).transpose(1, 2).stride()
    got = torch.ops.thunder.grouped_attention(*inputs, None, True, None, strides)
    assert got.stride() == strides
    torch.testing.assert_close(got, F.scaled_dot_product_attention(*inputs, is_causal=True, enable_gqa=True))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_repeated_keys_are_not_repeated_on_a_gpu(dtype: torch.dtype) -> None:
    inputs = make_inputs("cuda", dtype)
    mask = torch.rand(2, 1, 3, 5, device="cuda") < 0.7
    compiled = thunder.jit(attend)
    with torch.no_grad():
        got = compiled(*inputs, mask)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(got, attend(*inputs, mask), rtol=tolerance, atol=tolerance)
    trace = str(thunder.last_traces(compiled)[-1])
    assert "thunder.grouped_attention" in trace
    assert "aten.expand" not in trace
