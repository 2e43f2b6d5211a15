"""Norms of 16-bit floats: the CPU's kernels keep statistics in the weight's dtype, unlike their meta kernels."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder

NORMS = {
    "layer": lambda x, weight: F.layer_norm(x, x.shape[-1:], weight, weight),
    "group": lambda x, weight: F.group_norm(x, 2, weight, weight),
    "batch": lambda x, weight: F.batch_norm(x, None, None, weight, weight, training=True),
}


@pytest.mark.parametrize("rows", [2, 8])
@pytest.mark.parametrize("weight_dtype", [None, "own", torch.float32], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("before", [True, False], ids=["fused", "alone"])
def test_gradients(
    norm: str, dtype: torch.dtype, weight_dtype: torch.dtype | str | None, rows: int, before: bool
) -> None:
    x = torch.randn(rows, 16, dtype=dtype, requires_grad=True)
    weight = None
    if weight_dtype is not None:
        weight = torch.rand(16, dtype=dtype if weight_dtype == "own" else weight_dtype, requires_grad=True)

    def program(x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        return NORMS[norm](x + 1 if before else x, weight) * 2

    inputs = [x] if weight is None else [x, weight]
    expected = program(x, weight)
    cotangent = torch.randn_like(expected)
    expected_gradients = torch.autograd.grad(expected, inputs, cotangent)
    result = thunder.jit(program, fullgraph=True)(x, weight)
    gradients = torch.autograd.grad(result, inputs, cotangent)
    torch.testing.assert_close(result, expected, rtol=2e-2, atol=2e-2)
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient, other, rtol=5e-2, atol=5e-2)


def test_one_row() -> None:
    x = torch.randn(1, 16, dtype=torch.bfloat16, requires_grad=True)
    thunder.jit(lambda x: F.layer_norm(x + 1, (16,)))(x).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("dtypes", [(torch.float64, torch.float32), (torch.float32, torch.bfloat16)], ids=str)
def test_weights_of_another_dtype_are_refused_as_in_eager(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x * 2, (16,), weight, weight) + 1

    inputs = torch.randn(4, 16, dtype=dtypes[0]), torch.ones(16, dtype=dtypes[1])
    for run in (program, thunder.jit(program)):
        with pytest.raises(RuntimeError, match="mixed dtype"):
            run(*inputs)


@pytest.mark.parametrize("make", [lambda: torch.nn.GroupNorm(4, 8), lambda: torch.nn.BatchNorm2d(8)])
@pytest.mark.parametrize(
    ("sizes", "strides"),
    [
        ((1, 8, 4, 4), (8, 1, 32, 8)),
        ((1, 8, 4, 4), (128, 1, 32, 8)),
        ((2, 8, 1, 1), (8, 1, 1, 1)),
        ((2, 8, 1, 1), (8, 1, 8, 8)),
        ((1, 8, 1, 4), (8, 1, 8, 8)),
    ],
)
def test_norms_of_images_whose_strides_of_size_one_differ(make: Any, sizes: Any, strides: Any) -> None:
    module = make()
    compiled = thunder.jit(module)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            x = torch.empty_strided(sizes, strides).normal_().requires_grad_(grad)
            eager, ours = module(x), compiled(x)
            assert ours.stride() == eager.stride()
            assert torch.allclose(ours, eager, atol=1e-5)
            if grad:
                mine, theirs = (torch.autograd.grad(y.square().sum(), x)[0] for y in (ours, eager))
                assert torch.allclose(mine, theirs, atol=1e-4)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("lay_out", [lambda x: x.transpose(1, 2), lambda x: x.permute(2, 0, 1), lambda x: x[:, ::2]])
def test_rms_norms_of_any_layout_have_strides_of_eager(lay_out: Any, grad: bool) -> None:
    module = torch.nn.RMSNorm(8)
    x = torch.randn(2, 8, 8)
    compiled = thunder.jit(lambda x: module(lay_out(x)))
    with torch.set_grad_enabled(grad):
        ours, eager = compiled(x), module(lay_out(x))
    assert ours.stride() == eager.stride()
    torch.testing.assert_close(ours, eager)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_momentum_that_counts_batches_has_one_program(dtype: torch.dtype) -> None:
    module = torch.nn.Sequential(torch.nn.Conv1d(2, 3, 1), torch.nn.BatchNorm1d(3, momentum=None)).to(dtype)
    eager, mine = copy.deepcopy(module), copy.deepcopy(module)
    compiled = thunder.jit(mine)
    for batch in range(12):
        for each in (eager, mine):
            each.train(batch not in (5, 9))
        x = torch.randn(4, 2, 6, dtype=dtype)
        results = [function(x) for function in (eager, compiled)]
        torch.testing.assert_close(results[1], results[0])
        gradients = [
            torch.autograd.grad(result.square().sum(), list(each.parameters()))
            for result, each in zip(results, (eager, mine), strict=True)
        ]
        torch.testing.assert_close(gradients[1], gradients[0])
        for (_, expected), (_, got) in zip(eager.named_buffers(), mine.named_buffers(), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-7)
            assert got._version == expected._version
    assert thunder.cache_misses(compiled) == 2
    assert thunder.compile_stats(compiled)["eager_calls"] == 0
