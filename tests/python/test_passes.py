"""Passes as their user sees them: leaving them out, what they did, what a backward saves and computes again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager
from small_modules import mlp
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import thunder

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import saved_bytes

PASSES = {
    "constant_folding": lambda x: x * (torch.tensor([1.0, 2.0, 3.0, 4.0]) * 2),
    "dead_code_elimination": lambda x: (x.exp(), x.sin())[1],
    "algebraic_simplification": lambda x: ((x.sin() * 1) / 1 - 0) * x,
    "layout_cleanup": lambda x: x.sin().t().t().to(torch.float32) * 2,
    "common_subexpression_elimination": lambda x: x.sin() * x.sin(),
    "drop_unused_saved_values": lambda x: x.exp() + 1,
    "rematerialization": lambda x: (x @ x).sin().cos().exp(),
    "embedding_gradients": lambda x: F.embedding(torch.tensor([0, 2, 0]), x) @ x,
    "slice_gradients": lambda x: x.repeat(1, 8)[1::2] * 2,
    "column_sums": lambda x: x.sin().t().reshape(2, 8).sum(0),
    "late_writes": lambda x: x.sin() + 1,
    "memory_order": lambda x: (x.exp(), x.sin() @ x)[1] + x.exp(),
    "buffer_assignment": lambda x: (x @ x).sin() * 2 + 1,
}


def square() -> torch.Tensor:
    return torch.randn(4, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()


def passes_run(compiled: Any) -> set[str]:
    return {run.name for run in thunder.compile_stats(compiled)["passes"]}


@pytest.mark.parametrize("name", PASSES)
def test_each_pass_runs_and_can_be_left_out(name: str) -> None:
    assert name in passes_run(assert_as_eager(PASSES[name], square()))
    others = [other for other in PASSES if other != name]
    without = assert_as_eager(PASSES[name], square(), options={"passes": others})
    assert passes_run(without) & set(PASSES) == set(others)
    assert f" {name};" not in str(thunder.last_traces(without)[-1]).splitlines()[0]


@pytest.mark.parametrize("program", PASSES.values(), ids=PASSES)
def test_no_pass_at_all(program: Callable[..., Any]) -> None:
    assert passes_run(assert_as_eager(program, square(), options={"passes": []})).isdisjoint(PASSES)


def test_unknown_pass_lists_the_valid_ones() -> None:
    with pytest.raises(ValueError, match="no_such_pass") as caught:
        thunder.jit(torch.sin, passes=["no_such_pass"])
    for name in PASSES:
        assert name in str(caught.value)


def test_environment_leaves_passes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_DISABLE_PASSES", "buffer_assignment,memory_order")
    compiled = thunder.jit(PASSES["buffer_assignment"])
    compiled(square())
    assert passes_run(compiled) & {"buffer_assignment", "memory_order"} == set()
    monkeypatch.setenv("THUNDER_DISABLE_PASSES", "no_such_pass")
    with pytest.raises(ValueError, match="no_such_pass"):
        thunder.jit(torch.sin)(square())


def test_what_a_pass_did_is_counted() -> None:
    compiled = thunder.jit(lambda x: (x.exp(), x.sin())[1])
    compiled(square())
    run = next(run for run in thunder.compile_stats(compiled)["passes"] if run.name == "dead_code_elimination")
    assert (run.trace, run.symbols_before, run.symbols_after) == ("computation", 2, 1)
    assert 0 < run.seconds < 10


PARTS = {
    "split": lambda h: h.split(2),
    "split_with_sizes": lambda h: h.split([1, 3]),
    "chunk": lambda h: h.chunk(2),
    "unbind": lambda h: h.unbind(),
    "tensor_split": lambda h: h.tensor_split(2),
}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_a_part_of_a_value_is_not_overwritten_while_the_value_is_read(parts: Callable[..., Any]) -> None:
    def program(x: torch.Tensor) -> Any:
        value = x.exp()
        return parts(value)[0].sin(), value * 2

    assert_as_eager(program, torch.randn(4, 100_000))


# --- constant folding


def test_constants_are_computed_once() -> None:
    compiled = thunder.jit(lambda x: x + torch.tensor([1.0, 2.0]).exp().flip(0))
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.zeros(2)), torch.tensor([1.0, 2.0]).exp().flip(0))
    trace = str(thunder.last_traces(compiled)[-1])
    assert "folded: aten::flip" in trace
    assert "ops.aten.exp" not in trace


def test_folded_constant_is_not_the_callers() -> None:
    compiled = thunder.jit(lambda: torch.tensor([1.0, 2.0]) * 2)
    compiled().zero_()
    torch.testing.assert_close(compiled(), torch.tensor([2.0, 4.0]))


# --- rematerialization


def bytes_of(program: Callable[..., Any], *arguments: Any, **options: Any) -> int:
    compiled = thunder.jit(program, **options)
    compiled(*arguments)
    return int(saved_bytes.of_thunder(compiled))


class Block(nn.Module):
    """A transformer's block with a convolution in front."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, stride=4)
        self.first, self.second = nn.LayerNorm(32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.rest = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32), nn.Dropout(0.1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        heads = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.qkv(self.first(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))
        return x + self.rest(self.second(x))


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("make", [Block, lambda: mlp().double()], ids=["block", "mlp"])
def test_no_more_is_saved_than_by_the_min_cut_partitioner(make: Callable[[], nn.Module], device: str) -> None:
    module = make().to(device)
    first = next(module.parameters())
    shape = (2, 3, 16, 16) if first.dim() == 4 else (8, first.shape[1])
    x = torch.randn(shape, dtype=first.dtype, device=device)
    parameters = dict(module.named_parameters())
    ours = bytes_of(module, x)
    assert ours <= saved_bytes.of_min_cut(lambda p, x: torch.func.functional_call(module, p, (x,)), parameters, x)
    assert ours < bytes_of(module, x, rematerialize=False)


@pytest.mark.parametrize("rematerialize", [True, "memory"])
def test_rematerialized_block_is_as_in_eager(rematerialize: bool | str) -> None:
    compiled = assert_as_eager(Block(), torch.randn(2, 3, 16, 16), options={"rematerialize": rematerialize})
    assert "# recomputed" in str(thunder.last_backward_traces(compiled)[-1])


def test_nothing_is_computed_again_without_rematerialization() -> None:
    compiled = assert_as_eager(Block(), torch.randn(2, 3, 16, 16), options={"rematerialize": False})
    assert "# recomputed" not in str(thunder.last_backward_traces(compiled)[-1])


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_saves_its_arguments_only(reentrant: bool) -> None:
    def part(a: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            a = (a @ a).tanh()
        return a

    x = torch.randn(16, 16, requires_grad=True)
    saved = bytes_of(lambda a: checkpoint(part, a, use_reentrant=reentrant).sum(), x)
    assert saved == 0
    assert bytes_of(lambda a: part(a).sum(), x) >= 4 * x.nbytes


COUNT = 8 * 64  # elements of the tensors below

TARGET, INDEX = torch.zeros(8, dtype=torch.long), torch.tensor([1, 0, 1])
SAVED: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], int]] = {
    "dropout": (lambda x: F.dropout(x, 0.5), COUNT),  # booleans
    "gelu": (F.gelu, 0),
    "silu": (F.silu, 0),
    "gelu_of_a_value": (lambda x: F.gelu(x.neg()), 4 * COUNT),
    "layer_norm": (lambda x: F.layer_norm(x, (64,)), 4 * 2 * 8),
    "rms_norm": (lambda x: F.rms_norm(x, (64,)), 4 * 8),
    "softmax": (lambda x: x.softmax(1), 4 * COUNT),
    "attention": (lambda x: F.scaled_dot_product_attention(*[x.view(1, 2, 16, 16)] * 3), 2 * 4 * COUNT + 4 * 32),
    "cross_entropy": (lambda x: F.cross_entropy(x, TARGET), 4 * 2 * 8 + 4),
    "embedding": (lambda x: F.embedding(INDEX, x), 0),
}


@pytest.mark.parametrize("name", SAVED)
def test_bytes_that_the_rule_of_an_operator_saves(name: str) -> None:
    program, expected = SAVED[name]
    x = torch.randn(8, 64, requires_grad=True)
    assert bytes_of(program, x, rematerialize=False) == expected
    assert bytes_of(program, x) <= expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"scale_grad_by_freq": True}])
@pytest.mark.parametrize("tokens", [torch.tensor([1, 2, 1, 7]), torch.tensor([[3, 2, 3], [0, 2, 3]])])
def test_tied_embedding_has_the_gradient_of_eager(
    tokens: torch.Tensor, options: dict[str, Any], dtype: torch.dtype
) -> None:
    def tied(table: torch.Tensor) -> torch.Tensor:
        return (F.embedding(tokens, table, **options) @ table.t()).square()

    table = torch.linspace(-1, 1, 8 * 6).reshape(8, 6).to(dtype).requires_grad_()
    compiled = assert_as_eager(tied, table)
    adds_rows = "aten.index_add" in str(thunder.last_backward_traces(compiled)[-1])
    assert adds_rows == (dtype != torch.bfloat16 and "scale_grad_by_freq" not in options)


def test_infinite_gradient_of_padding_is_not_added() -> None:
    table = torch.ones(4, 3).requires_grad_()

    def tied(table: torch.Tensor) -> torch.Tensor:
        rows = F.embedding(torch.tensor([0, 1]), table, padding_idx=0)
        return (rows * torch.tensor([[torch.inf], [2.0]])).sum() + table.sin().sum()

    expected = torch.autograd.grad(tied(table), table)
    torch.testing.assert_close(torch.autograd.grad(thunder.jit(tied)(table), table), expected)


def test_rows_are_added_in_place_where_the_other_gradient_dies() -> None:
    table = torch.randn(256, 64).requires_grad_()
    compiled = thunder.jit(lambda table: (F.embedding(torch.arange(8), table) @ table.t()).exp().sum())
    compiled(table).backward()
    backward = str(thunder.last_backward_traces(compiled)[-1])
    assert "aten.index_add_.default" in backward
    assert "embedding_dense_backward" not in backward


@pytest.mark.parametrize(
    "reduce",
    [
        torch.amax,
        torch.amin,
        lambda y, dim: y.max(dim).values,
        lambda y, dim: torch.linalg.vector_norm(y, float("inf"), dim=dim),
        lambda y, dim: torch.linalg.vector_norm(y, -float("inf"), dim=dim),
    ],
)
def test_values_that_are_compared_are_not_recomputed(reduce: Callable[..., torch.Tensor]) -> None:
    """The gradient of a maximum looks for the elements that are equal to it."""

    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = F.gelu(x)
        return (reduce(y, 0) + y) @ w

    x, w = torch.randn(24, 8, requires_grad=True), torch.randn(8, 3)
    (expected,) = torch.autograd.grad(program(x, w).sum(), x)
    (gradient,) = torch.autograd.grad(thunder.jit(program)(x, w).sum(), x)
    torch.testing.assert_close(gradient, expected)
