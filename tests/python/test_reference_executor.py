"""Kernels step by step in double: what a fusion means, whoever runs it."""

from __future__ import annotations

import pytest
import torch
from test_cpu_fusion import CHAINS, error, make_inputs, results_of

import thunder

REFERENCE = ["reference", "aten"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("name", CHAINS)
def test_kernels_are_at_least_as_exact_as_eager(name: str, dtype: torch.dtype) -> None:
    inputs = make_inputs("normal", dtype, 9, 35)
    compiled = thunder.jit(CHAINS[name], executors=REFERENCE)
    exact = results_of(CHAINS[name], [x.double() for x in inputs], None)
    eager = results_of(CHAINS[name], inputs, None)
    ours = results_of(compiled, inputs, None)
    assert 'prims.fused("reference"' in str(thunder.last_traces(compiled)[-1])
    for got, reference, truth in zip(ours, eager, exact, strict=True):
        assert (got.shape, got.dtype, got.stride()) == (reference.shape, reference.dtype, reference.stride())
        assert error(got, truth) <= 1.5 * error(reference, truth) + torch.finfo(dtype).eps


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("name", ["gelu", "softmax", "column_sum", "layer_norm", "cat", "total"])
def test_small_sizes(name: str, size: int) -> None:
    inputs = make_inputs("normal", torch.float64, size, 20)
    compiled = thunder.jit(CHAINS[name], executors=REFERENCE)
    torch.testing.assert_close(compiled(*inputs), CHAINS[name](*inputs))


def test_index_out_of_bounds_is_pytorchs_error() -> None:
    compiled = thunder.jit(lambda x, i: x.index_select(0, i) * 2, executors=REFERENCE)
    x = torch.randn(4, 8)
    torch.testing.assert_close(compiled(x, torch.tensor([3, 0])), x[[3, 0]] * 2)
    with pytest.raises(IndexError, match="out of range"):
        compiled(x, torch.tensor([4, 0]))


def test_input_of_other_strides() -> None:
    compiled = thunder.jit(lambda x, y: (x * y + 1).tanh(), executors=REFERENCE)
    x, y = torch.randn(6, 8), torch.randn(8, 6).t()
    torch.testing.assert_close(compiled(x, y), (x * y + 1).tanh())


def test_integers_wrap_around() -> None:
    compiled = thunder.jit(lambda x: x * 3 + 100, executors=REFERENCE)
    for dtype in (torch.int8, torch.uint8, torch.int32, torch.int64):
        x = torch.arange(50).to(dtype)
        assert torch.equal(compiled(x), x * 3 + 100)


def test_small_kernels_run_as_a_batch() -> None:
    compiled = thunder.jit(lambda *xs: [x.bfloat16() for x in xs], executors=REFERENCE, fullgraph=True)
    inputs = [torch.randn(3, 8), torch.randn(16), torch.randn(2, 2, 2)]
    for got, x in zip(compiled(*inputs), inputs, strict=True):
        assert torch.equal(got, x.bfloat16())
    (trace,) = thunder.last_traces(compiled)[-1:]
    assert 'kind="batch"' in str(trace)
    assert thunder.fusions(compiled)[0].operations == ("aten.to.dtype",) * 3


def test_executor_is_not_among_the_default_ones() -> None:
    compiled = thunder.jit(lambda x: (x * 2 + 1).tanh())
    compiled(torch.randn(64, 64))
    assert 'fused("reference"' not in str(thunder.last_traces(compiled)[-1])
