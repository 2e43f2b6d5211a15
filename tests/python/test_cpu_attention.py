"""Attention of float32 without a mask and without gradients: products by oneDNN, where they are faster than MKL's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from profiled import operators_of
from test_cpu_matmuls import error_of, needs_onednn

import thunder

Tensor = torch.Tensor
FLASH = "aten::_scaled_dot_product_flash_attention_for_cpu"


def heads(length: int = 197, width: int = 64, count: int = 6, examples: int = 2) -> Tensor:
    return torch.randn(examples, length, count, width).transpose(1, 2)


def attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, **options)


OPERANDS: dict[str, Callable[[], tuple[Tensor, Tensor, Tensor]]] = {
    "vision": lambda: (heads(), heads(), heads()),
    "one tensor": lambda: (heads(),) * 3,
    "contiguous": lambda: (heads().contiguous(), heads().contiguous(), heads().contiguous()),
    "other keys": lambda: (heads(197), heads(512), heads(512)),
    "long": lambda: (heads(1024), heads(1024), heads(1024)),
    "wide values": lambda: (heads(), heads(), heads(width=80)),
    "parts": lambda: heads(width=192).chunk(3, -1),
    "transposed": lambda: (heads().transpose(2, 3).contiguous().transpose(2, 3), heads(), heads()),
    "large scores": lambda: (heads() * 100, heads(), heads()),
}


@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("name", OPERANDS)
def test_results(name: str, scale: float | None) -> None:
    needs_onednn()
    torch.manual_seed(0)
    operands = OPERANDS[name]()
    function = lambda q, k, v: attention(q, k, v, scale=scale)  # noqa: E731
    compiled = thunder.jit(function)
    got, expected = compiled(*operands), function(*operands)
    exact = function(*(x.double() for x in operands))
    assert got.stride() == expected.stride()
    assert error_of(got, exact) <= 1.5 * error_of(expected, exact)
    assert FLASH not in operators_of(lambda: compiled(*operands))


def test_threads_change_nothing() -> None:
    operands = heads(), heads(), heads()
    compiled = thunder.jit(attention)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(compiled(*operands))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan"), 3e38])
def test_hard_numbers(number: float, which: int) -> None:
    torch.manual_seed(0)
    operands = [heads().abs() for _ in range(3)]
    operands[which][1, 2, 5] = number
    got, expected = thunder.jit(attention)(*operands), attention(*operands)
    assert torch.equal(got.isnan(), expected.isnan())
    assert torch.equal(got.isinf(), expected.isinf())
    torch.testing.assert_close(got, expected, equal_nan=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda q, k, v: attention(q, k, v, is_causal=True),
        lambda q, k, v: attention(q, k, v, attn_mask=torch.ones(197, 197, dtype=torch.bool).tril()),
        lambda q, k, v: attention(q, k[:, :3], v[:, :3], enable_gqa=True),
        lambda q, k, v: attention(q.bfloat16(), k.bfloat16(), v.bfloat16()),
        lambda q, k, v: attention(q[:, :, :100], k, v),
        lambda q, k, v: attention(q[:1], k[:1], v[:1]),
        lambda q, k, v: attention(q[0], k[0], v[0]),
        lambda q, k, v: attention(q.requires_grad_(), k, v),
    ],
)
def test_what_stays_pytorchs(function: Callable[..., Tensor]) -> None:
    operands = heads(), heads(), heads()
    try:
        expected = function(*operands)
    except RuntimeError as error:
        # Where ATEN_CPU_CAPABILITY is less than the processor has, PyTorch's own bfloat16 kernel raises.
        pytest.skip(f"eager raises: {error}")
    compiled = thunder.jit(function)
    torch.testing.assert_close(compiled(*operands), expected)
    assert "attention of products" not in str(thunder.last_traces(compiled)[-1])


def test_inference_mode_and_flags() -> None:
    operands = heads(), heads(), heads()
    compiled = thunder.jit(attention)
    with torch.inference_mode():
        for inputs in (operands, tuple(x * 1 for x in operands)):
            torch.testing.assert_close(compiled(*inputs), attention(*inputs))
    with torch.backends.mkldnn.flags(enabled=False):
        torch.testing.assert_close(compiled(*operands), attention(*operands))
        assert FLASH in operators_of(lambda: compiled(*operands))
