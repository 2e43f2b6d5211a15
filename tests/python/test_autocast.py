"""`thunder.autocast` gives what `torch.autocast` gives, as a program."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_same
from small_modules import mlp, resnet
from torch import nn
from torch.nn import functional as F

import thunder


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape or (3, 4), generator=torch.Generator().manual_seed(sum(shape)))


WEIGHT = x(4, 2)

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "product": lambda a: a @ WEIGHT,
    "linear": lambda a: F.linear(a, WEIGHT.t()).relu(),
    "range": lambda a: F.mse_loss(a @ WEIGHT, torch.zeros(3, 2)),
    "promotion": lambda a: torch.cat([a @ WEIGHT, a], 1),
    "containers": lambda a: {"product": a @ WEIGHT, "rest": [a * 2, (a.shape[0], None)]},
    "write": lambda a: (b := a @ WEIGHT, b.mul_(2), b[0].zero_())[0],
    "dropout": lambda a: F.dropout(a @ WEIGHT, 0.5),
}


def in_eager(program: Callable[..., Any], dtype: torch.dtype, *arguments: Any) -> Any:
    torch.manual_seed(0)
    with torch.autocast("cpu", dtype):
        return program(*arguments)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_autocast_equals_pytorchs(name: str, dtype: torch.dtype) -> None:
    compiled = thunder.autocast(PROGRAMS[name], dtype)
    for _ in range(2):
        torch.manual_seed(0)
        assert_same(compiled(x()), in_eager(PROGRAMS[name], dtype, x()), "result")
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("make", [mlp, resnet, lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)])
def test_training_step_of_a_module(make: Callable[[], nn.Module]) -> None:
    module = make()
    eager = copy.deepcopy(module)
    data = x(2, 3, 8, 8) if any(isinstance(part, nn.Conv2d) for part in module.modules()) else x(5, 3, 4)
    in_eager(eager, torch.bfloat16, data).float().square().sum().backward()
    thunder.autocast(module)(data).float().square().sum().backward()
    for parameter, expected in zip(module.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected.grad, rtol=2e-2, atol=2e-2)


def test_casts_are_in_the_trace() -> None:
    compiled = thunder.autocast(lambda a: (a @ WEIGHT).softmax(0))
    compiled(x())
    trace = str(thunder.last_traces(compiled)[-1])
    for value in ('bf16[3, 4]"', 'bf16[4, 2]"', 'bf16[3, 2]"'):  # cast, cast, product
        assert value in trace


def test_autocast_composes_with_other_transforms() -> None:
    def loss(w: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        return (a @ w).float().square().sum()

    expected = torch.func.grad(lambda w, a: in_eager(loss, torch.bfloat16, w, a))(WEIGHT, x())
    torch.testing.assert_close(thunder.grad(thunder.autocast(loss))(WEIGHT, x()), expected)
    batched = thunder.vmap(thunder.autocast(lambda a: a @ WEIGHT))(x(5, 3, 4))
    assert_same(batched, in_eager(torch.matmul, torch.bfloat16, x(5, 3, 4), WEIGHT), "result")


def test_autocast_inside_of_a_jitted_function() -> None:
    compiled = thunder.jit(lambda a: thunder.autocast(lambda t: t @ WEIGHT)(a).float() + a @ WEIGHT)
    torch.testing.assert_close(compiled(x()), in_eager(torch.matmul, torch.bfloat16, x(), WEIGHT).float() + x() @ WEIGHT)


def test_other_dtypes_and_devices_are_refused() -> None:
    with pytest.raises(ValueError, match=r"dtype: expected torch\.bfloat16 or torch\.float16, got torch\.float32"):
        thunder.autocast(torch.sin, torch.float32)
    with pytest.raises(ValueError, match="device_type: expected 'cpu' or 'cuda', got 'meta'"):
        thunder.autocast(torch.sin, device_type="meta")
