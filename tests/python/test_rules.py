"""Rules that win over derived ones: eager's values and gradients, and fewer saved bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager
from torch.nn import functional as F

import thunder


def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0)).requires_grad_()


def targets(*chosen: int) -> torch.Tensor:
    return torch.tensor(chosen)


def served(program: Callable[..., Any], *arguments: Any) -> dict[str, str]:
    compiled = thunder.jit(program)
    compiled(*arguments)
    return {row.operation: row.rule for row in thunder.rules(compiled)}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("target", [(0, 4, 2, 1), (-100, 4, -100, 1), (-100,) * 4], ids=["all", "some", "none"])
def test_cross_entropy(reduction: str, dtype: torch.dtype, target: tuple[int, ...]) -> None:
    logits = values(4, 5, dtype=dtype)
    assert_as_eager(lambda x, t: F.cross_entropy(x, t, reduction=reduction), logits, targets(*target))
    assert served(F.cross_entropy, logits, targets(*target)) == {"aten.cross_entropy_loss.default": "registered"}


def test_log_sigmoid() -> None:
    x = torch.tensor([0.0, -0.0, 1.5, -1.5, 100.0, -100.0, float("inf"), -float("inf"), float("nan")]).requires_grad_()
    assert_as_eager(F.logsigmoid, x)
    assert served(F.logsigmoid, x) == {"aten.log_sigmoid.default": "registered"}


@pytest.mark.gpu
def test_log_sigmoid_of_other_sizes_on_a_gpu() -> None:
    compiled = thunder.jit(F.logsigmoid)
    for size in (2, 8, 3, 0, 1, 5):
        x = torch.linspace(-3, 3, size, device="cuda").requires_grad_()
        (expected,) = torch.autograd.grad(F.logsigmoid(x).sum(), x)
        (actual,) = torch.autograd.grad(compiled(x).sum(), x)
        torch.testing.assert_close(actual, expected)


def test_cross_entropy_of_large_and_infinite_logits() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0], [-float("inf"), 1.0, 2.0]]).requires_grad_()
    assert_as_eager(F.cross_entropy, logits, targets(0, 2))


@pytest.mark.parametrize("offset", [1e4, -1e6, 1e20])
def test_cross_entropy_keeps_its_precision_next_to_a_large_offset(offset: float) -> None:
    logits = (torch.tensor([[0.0, 0.0, 1.0, 2.0], [1.0, 3.0, 0.0, 3.0]]) + offset).requires_grad_()
    assert_as_eager(F.cross_entropy, logits, targets(0, 2))


@pytest.mark.parametrize(
    "keywords",
    [{"label_smoothing": 0.1}, {"weight": torch.ones(5)}, {"ignore_index": 2}],
    ids=["smoothing", "weight", "ignored"],
)
def test_cross_entropy_with_options(keywords: dict[str, Any]) -> None:
    assert_as_eager(lambda x, t: F.cross_entropy(x, t, **keywords), values(4, 5), targets(0, 4, 2, 1))


@pytest.mark.parametrize("shape", [(3, 5, 2), (5,)], ids=["positions", "one"])
def test_cross_entropy_of_other_ranks(shape: tuple[int, ...]) -> None:
    target = torch.tensor([[0, 1], [2, 3], [4, 0]]) if len(shape) == 3 else torch.tensor(2)
    assert_as_eager(F.cross_entropy, values(*shape), target)


def test_cross_entropy_saves_no_probabilities_where_logits_are_returned() -> None:
    compiled = thunder.jit(lambda x, t: (F.cross_entropy(x * 2, t), x * 2))
    compiled(values(16, 50), torch.zeros(16, dtype=torch.long))
    backward = str(thunder.last_backward_traces(compiled)[-1])
    assert "log_softmax" not in backward
    assert backward.count('f32[16, 50]"\n') >= 1


@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize("eps", [None, 1e-3])
@pytest.mark.parametrize("shape", [(4,), (3, 4)])
def test_rms_norm(weight: bool, eps: float | None, shape: tuple[int, ...]) -> None:
    scale = values(*shape) if weight else None
    assert_as_eager(lambda x, w: F.rms_norm(x, shape, w, eps), values(2, 3, 4), scale)


def test_rms_norm_saves_one_number_for_each_row() -> None:
    compiled = thunder.jit(lambda x, w: F.rms_norm(x.exp(), (64,), w))
    compiled(values(8, 64), values(64))
    assert [row.rule for row in thunder.rules(compiled) if "rms_norm" in row.operation] == ["registered"]
    backward = str(thunder.last_backward_traces(compiled)[-1])
    assert 'f32[8, 1]"' in backward


def test_dropout_saves_a_mask_of_booleans() -> None:
    compiled = thunder.jit(lambda x: F.dropout(x, 0.5))
    compiled(values(8, 64))
    assert 'b8[8, 64]"' in str(thunder.last_backward_traces(compiled)[-1])


@pytest.mark.parametrize(
    ("program", "saved"),
    [
        (lambda x: F.gelu(x.mm(x)), 1),
        (lambda x: F.silu(x.mm(x)), 1),
        (lambda x: F.layer_norm(x.mm(x), (8,)), 3),
    ],
    ids=["gelu", "silu", "layer_norm"],
)
def test_derived_rules_save_no_more_than_they_need(program: Callable[..., Any], saved: int) -> None:
    compiled = thunder.jit(program)
    compiled(values(8, 8))
    header = str(thunder.last_backward_traces(compiled)[-1]).split("):")[0]
    names = header.split("(")[-1].split(", ")
    assert len([name for name in names if "cotangent" not in name]) == saved + 1  # and the input of mm


def test_rules_say_why_and_where() -> None:
    compiled = thunder.jit(lambda x: F.dropout(torch.sin(x), 0.5))
    compiled(values(3))
    sine, dropout = thunder.rules(compiled)
    assert (sine.operation, sine.rule) == ("aten.sin.default", "derived")
    assert (dropout.operation, dropout.rule) == ("aten.dropout.default", "registered")
    assert "boolean" in dropout.reason
    assert dropout.file == __file__
    assert str(dropout).startswith("aten.dropout.default: registered: ")


def test_no_rules_where_nothing_is_differentiated() -> None:
    compiled = thunder.jit(torch.sin)
    assert thunder.rules(compiled) == []
    compiled(torch.ones(2))
    assert thunder.rules(compiled) == []
