"""Kernels that wait to be launched together (`runtime/launch_queue.h`)."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

import thunder

pytestmark = pytest.mark.gpu
Tensor = torch.Tensor


def many_kernels(x: Tensor, count: int = 40) -> Tensor:
    """Compute with rows, then with columns, in turns: each is a kernel of its own. Rounding errors do not grow."""
    for i in range(count):
        x = torch.tanh(x - x.mean(i % 2, keepdim=True) + 0.1 * (i % 3))
    return x


def assert_near(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def compiled() -> thunder.CompiledFunction:
    """Take symbols for sizes, so that no CUDA graph is recorded."""
    call = thunder.jit(many_kernels, dynamic=True, compile="eager")
    for rows in (3, 5, 7):
        call(torch.randn(rows, 6, device="cuda"))
    return call


def test_results_at_many_sizes() -> None:
    call = compiled()
    for rows in (2, 33, 33, 64, 7, 7, 7, 500):
        x = torch.randn(rows, 6, device="cuda")
        assert_near(call(x), many_kernels(x))
        torch.cuda.empty_cache()


def test_operations_of_pytorch_see_what_kernels_wrote() -> None:
    def sorted_between(x: Tensor) -> Tensor:
        return many_kernels(many_kernels(x, 12).sort(0).values, 12).sort(1).values

    call = thunder.jit(sorted_between, dynamic=True, compile="eager")
    for rows in (3, 5, 5, 5, 9):
        x = torch.randn(rows, 6, device="cuda")
        assert_near(call(x), sorted_between(x))


def test_writes_to_inputs() -> None:
    def step(x: Tensor, total: Tensor) -> Tensor:
        y = many_kernels(x, 10)
        total.add_(y.sum(0))
        return many_kernels(y + total, 10)

    call = thunder.jit(step, dynamic=True, compile="eager")
    ours, theirs = torch.zeros(6, device="cuda"), torch.zeros(6, device="cuda")
    for rows in (3, 5, 5, 5, 9):
        x = torch.randn(rows, 6, device="cuda")
        assert_near(call(x, ours), step(x, theirs))
        assert_near(ours, theirs)


def test_streams_and_threads() -> None:
    call = compiled()
    wrong = []

    def work(seed: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.manual_seed(seed)
            for rows in range(2, 40):
                x = torch.randn(rows, 6, device="cuda")
                wrong.extend([seed] * (not torch.allclose(call(x), many_kernels(x), atol=1e-4)))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_in_a_graph_that_the_user_captures_and_under_a_profiler() -> None:
    call = compiled()
    x = torch.randn(8, 6, device="cuda")
    call(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call(x)
    x.copy_(torch.randn(8, 6))
    graph.replay()
    assert_near(captured, many_kernels(x))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]):
        profiled = call(x)
    assert_near(profiled, many_kernels(x))


def test_gradients() -> None:
    module = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(6, 6), nn.LayerNorm(6), nn.GELU())]).cuda()
    call = thunder.jit(module, dynamic=True, compile="eager")
    for rows in (3, 5, 5, 5, 9):
        x = torch.randn(rows, 6, device="cuda")
        ours = torch.autograd.grad(call(x).square().sum(), list(module.parameters()))
        theirs = torch.autograd.grad(module(x).square().sum(), list(module.parameters()))
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
