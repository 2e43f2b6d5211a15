"""The CUDA C++ of fusions, which needs no GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder


def sources(function: Any, *arguments: torch.Tensor, **options: Any) -> list[str | None]:
    compiled = thunder.jit(function, **options)
    compiled(*arguments)
    return [fusion.cuda_source for fusion in thunder.fusions(compiled, sources=True)]


def scaled_gelu(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.gelu(x * w + 1.0)


@pytest.mark.parametrize(
    ("dtype", "word"),
    [
        (torch.float32, "const float v2 = multiply(v0, v1);"),
        (torch.bfloat16, "Vector<Bfloat16, "),
        (torch.float64, "const double v2 = multiply(v0, v1);"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"dynamic": True}])
def test_source_of_a_fusion(dtype: torch.dtype, word: str, options: dict[str, Any]) -> None:
    (source,) = sources(scaled_gelu, torch.randn(64, 256, dtype=dtype), torch.randn(256, dtype=dtype), **options)
    assert word in source
    assert source.count("__global__") == 1
    assert source.lstrip().startswith("struct Parameters")


def test_sizes_are_arguments() -> None:
    first, second = (sources(scaled_gelu, torch.randn(rows, 1024), torch.randn(1024)) for rows in (4096, 8192))
    assert first == second
    assert "4096" not in first[0]


def test_source_of_a_reduction_has_its_passes() -> None:
    (source,) = sources(lambda x: torch.softmax(x * 0.5, -1), torch.randn(64, 256))
    assert "reduce_neighbours<Maximum" in source
    assert "reduce_neighbours<Sum" in source


def test_source_of_a_sum_over_rows_ends_with_a_second_kernel() -> None:
    (source,) = sources(lambda x: (x * x).sum(0), torch.randn(4096, 256))
    assert "_finish(const Parameters" in source


def test_fusions_of_the_backward_have_sources() -> None:
    compiled = thunder.jit(lambda x: F.silu(x) * x)
    compiled(torch.randn(64, 64, requires_grad=True)).sum().backward()
    found = thunder.fusions(compiled, sources=True)
    assert [fusion.trace for fusion in found] == ["forward", "backward"]
    assert all(fusion.cuda_source for fusion in found)


def test_no_source_unless_asked_for() -> None:
    compiled = thunder.jit(scaled_gelu)
    compiled(torch.randn(64, 256), torch.randn(256))
    assert thunder.fusions(compiled)[0].cuda_source is None
    other = thunder.last_traces(thunder.jit(torch.mm))
    assert other == []


def test_what_is_no_fusion_has_no_source() -> None:
    compiled = thunder.jit(torch.mm)
    compiled(torch.ones(2, 3), torch.ones(3, 2))
    (symbol,) = thunder.last_traces(compiled)[-1].bound_symbols
    assert symbol.kernels(on_gpu=True) == []
