"""Gradients of embeddings that are output projections too, on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}])
@pytest.mark.parametrize("width", [6, 64])
@pytest.mark.parametrize("count", [0, 1, 3000])
def test_rows_are_added_to_the_gradient_of_the_projection(options: dict[str, Any], width: int, count: int) -> None:
    torch.cuda.get_device_properties(0)  # the first one in a process loads NVML, which no program repeats
    indices = torch.randint(0, 8, (3, count), device="cuda")

    def tied(table: torch.Tensor) -> torch.Tensor:
        rows = F.embedding(indices, table, **options)
        with torch.autocast("cuda", torch.bfloat16):
            return (rows @ table.t()).float().sin().sum() + rows.square().sum()

    def gradient(function: Any) -> torch.Tensor:
        (result,) = torch.autograd.grad(function(table), table)
        return result

    table = torch.randn(8, width, device="cuda", requires_grad=True)
    compiled = thunder.jit(tied)
    gradient(compiled)
    thunder.wait_until_compiled(compiled)
    result, expected = gradient(compiled), gradient(tied)
    scale = float(expected.abs().max()) + 1e-30
    assert float((result - expected).abs().max()) <= 1e-2 * scale
    assert torch.equal(result, gradient(compiled))
    if count > 0:
        text = str(thunder.last_backward_traces(compiled)[-1])
        assert "embedding_dense_backward" not in text
        assert "aten.index_put" in text
