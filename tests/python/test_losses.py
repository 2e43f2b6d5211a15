"""Cross entropy and log-softmax, forward and backward, beside eager in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder

Tensor = torch.Tensor
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
ROUNDING = {torch.float64: 1e-9, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}

ARGUMENTS: dict[str, dict[str, Any]] = {
    "mean": {},
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none"},
    "ignored": {"ignore_index": 1},
    "smoothed": {"label_smoothing": 0.1},
    "weighted": {"weight": True},
}


def loss_and_gradient(function: Any, logits: Tensor, *others: Tensor) -> list[Tensor]:
    x = logits.detach().clone().requires_grad_()
    loss = function(x, *others)
    (gradient,) = torch.autograd.grad(loss.float().sum() * 0.5, [x])
    return [loss.detach(), gradient]


def assert_close(got: list[Tensor], expected: list[Tensor], dtype: torch.dtype) -> None:
    for a, b in zip(got, expected, strict=True):
        scale = float(b.nan_to_num(0, 0, 0).abs().max()) if b.numel() else 1.0
        torch.testing.assert_close(
            a.double(), b.double(), rtol=ROUNDING[dtype], atol=ROUNDING[dtype] * max(scale, 1e-3), equal_nan=True
        )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize(("rows", "columns"), [(0, 5), (1, 1), (3, 1), (17, 33), (5, 1027), (4, 50257)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cross_entropy(device: str, name: str, rows: int, columns: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits = (torch.randn(rows, columns, device=device) * 4).to(dtype)
    target = torch.randint(0, columns, (rows,), device=device)
    options = dict(ARGUMENTS[name])
    if options.pop("weight", False):
        options["weight"] = torch.rand(columns, device=device) + 0.5

    def loss(x: Tensor, labels: Tensor, wide: torch.dtype = torch.float32) -> Tensor:
        weight = options.get("weight")
        given = options | ({"weight": weight.to(wide)} if weight is not None else {})
        return F.cross_entropy(x.to(wide), labels, **given)

    got = loss_and_gradient(thunder.jit(loss, compile="eager"), logits, target)
    expected = loss_and_gradient(lambda x, labels: loss(x, labels, torch.float64), logits, target)
    assert_close(got, expected, dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("columns", [40, 1025, 70001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_rows_that_are_not_finite(device: str, columns: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits = (torch.randn(6, columns, device=device) * 4).to(dtype)
    logits[0] = -torch.inf
    logits[1, columns - 1] = torch.inf
    logits[2, 3:] = -torch.inf
    logits[3, columns // 2] = torch.nan
    target = torch.arange(6, device=device)

    def losses(x: Tensor, labels: Tensor) -> Tensor:
        scores = torch.log_softmax(x * 1, 1)
        return F.nll_loss(scores, labels, reduction="none") + torch.softmax(x, 1).amax(1)

    jitted = thunder.jit(losses, compile="eager")
    got = loss_and_gradient(jitted, logits, target)
    assert_close(got, loss_and_gradient(losses, logits, target), dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("columns", [1027, 4098, 50257])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("is_cast", [False, True])
def test_losses_of_padded_logits(columns: int, has_bias: bool, is_cast: bool) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(4, 256, 512, device="cuda", requires_grad=True)
    weight = (torch.randn(columns, 512, device="cuda") / 20).requires_grad_()
    bias = torch.randn(columns, device="cuda", requires_grad=True) if has_bias else None
    target = torch.randint(0, columns, (4, 256), device="cuda")
    target[0, :5] = -100

    def step(x: Tensor, w: Tensor, b: Tensor | None, labels: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cuda", torch.bfloat16):
            scores = F.linear(x, w, b)
            wide = scores.float() if is_cast else scores
            return F.cross_entropy(wide.view(-1, columns), labels.view(-1)), scores

    leaves = [leaf for leaf in (hidden, weight, bias) if leaf is not None]

    def outcome(function: Any) -> list[Tensor]:
        loss, scores = function(hidden, weight, bias, target)
        assert scores.is_contiguous()
        return [loss.detach(), scores.detach(), *torch.autograd.grad(loss, leaves)]

    jitted = thunder.jit(step, compile="eager")
    expected = outcome(step)
    for _ in range(2):
        got = outcome(jitted)
        assert_close(got, expected, torch.bfloat16)
    again = outcome(jitted)
    assert all(torch.equal(a, b) for a, b in zip(got, again, strict=True))
