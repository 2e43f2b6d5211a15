"""Attention whose boolean mask is known when the program is compiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import thunder

Mask = Callable[[int, int], torch.Tensor]
MASKS: dict[str, Mask] = {
    "all": lambda n, m: torch.ones(n, m, dtype=torch.bool),
    "all of one row": lambda n, m: (torch.arange(m) >= 0)[None, :].expand(n, m),
    "lower triangle": lambda n, m: torch.ones(n, m, dtype=torch.bool).tril(),
    "positions": lambda n, m: torch.arange(m)[None, :] <= torch.arange(n)[:, None],
    "upper triangle": lambda n, m: torch.ones(n, m, dtype=torch.bool).triu(),
    "window": lambda n, m: (torch.arange(m)[None, :] - torch.arange(n)[:, None]).abs() < 3,
}
LEFT_OUT = ["all", "all of one row", "lower triangle", "positions"]


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("sizes", [(16, 16), (8, 16), (1, 1), (1, 16)])
def test_results_and_gradients_are_those_of_the_mask(name: str, sizes: tuple[int, int]) -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=MASKS[name](*sizes)[None, None])

    shapes = [(2, 3, sizes[0], 8), (2, 3, sizes[1], 8), (2, 3, sizes[1], 8)]
    ours = [torch.randn(shape, requires_grad=True) for shape in shapes]
    theirs = [tensor.detach().clone().requires_grad_() for tensor in ours]
    compiled = thunder.jit(attend)
    result, expected = compiled(*ours), attend(*theirs)
    assert result.stride() == expected.stride()
    torch.testing.assert_close(result, expected, equal_nan=True)
    result.sin().sum().backward()
    expected.sin().sum().backward()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, equal_nan=True)


@pytest.mark.parametrize("name", MASKS)
def test_masks_that_are_left_out(name: str) -> None:
    compiled = thunder.jit(lambda q: F.scaled_dot_product_attention(q, q, q, attn_mask=MASKS[name](16, 16)))
    compiled(torch.randn(2, 3, 16, 8))
    after = next(str(trace) for trace in thunder.last_traces(compiled) if "constant_masks" in str(trace).split("\n")[0])
    assert ("attention.default(q, q, q, t" not in after) == (name in LEFT_OUT), after


def test_a_mask_that_makes_the_result_larger_stays() -> None:
    def attend(q: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(4, 1, 16, 16, dtype=torch.bool))

    compiled = thunder.jit(attend)
    for call in (attend, compiled, compiled):  # PyTorch's kernels for the CPU refuse it
        with pytest.raises(RuntimeError, match="broadcast shape"):
            call(torch.randn(1, 3, 16, 8))


def test_a_mask_that_depends_on_data_stays() -> None:
    def attend(q: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        mask = torch.arange(16)[None, :] < lengths[:, None, None, None]
        return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)

    compiled = thunder.jit(attend)
    q = torch.randn(2, 3, 16, 8)
    for lengths in (torch.tensor([16, 16]), torch.tensor([3, 9])):
        torch.testing.assert_close(compiled(q, lengths), attend(q, lengths))
    assert thunder.cache_misses(compiled) == 1
