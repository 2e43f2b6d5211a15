"""`torch.utils.checkpoint` inside compiled programs: eager's numbers, and a backward that computes again."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager
from programs import Function, named, parametrize, x
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import thunder

again = functools.partial(checkpoint, use_reentrant=False)


def checkpointed_once(a: torch.Tensor) -> Any:
    return again(lambda t: (t.sin() * t).exp().tanh(), a).sum()


def checkpointed_reentrant(a: torch.Tensor) -> Any:
    return checkpoint(lambda t: (t.sin() * t).exp().tanh(), a, use_reentrant=True)


def checkpointed_reentrant_without_gradient(a: torch.Tensor) -> Any:
    return checkpoint(lambda t: t.sin() * a, a.detach(), use_reentrant=True) + a


def checkpointed_with_dropout(a: torch.Tensor) -> Any:
    return again(lambda t: F.dropout(t.sin(), 0.5).exp(), a) * 2


def checkpointed_closure_and_keywords(a: torch.Tensor) -> Any:
    scale = a.exp()
    return again(lambda t, *, shift: (t * scale).sin() + shift, a * 2, shift=a.cos())


def checkpointed_results(a: torch.Tensor) -> Any:
    first, rest = again(lambda t: (t.sin().exp(), {"cos": t.cos(), "plain": t.detach(), "same": t}), a)
    return first, rest["cos"] * first, rest["plain"], rest["same"]


def checkpointed_twice_over(a: torch.Tensor) -> Any:
    def inner(t: torch.Tensor) -> torch.Tensor:
        return t.sin().exp()

    return again(lambda t: again(inner, t.cos()).tanh() * t, a)


def checkpointed_writes(a: torch.Tensor) -> Any:
    def inner(t: torch.Tensor) -> torch.Tensor:
        b = t.sin()
        b[0] = t[1].exp()
        return b * b

    return again(inner, a)


def checkpointed_split(a: torch.Tensor) -> Any:
    return again(lambda t: [part.exp() * part for part in t.sin().split(1)], a)


def checkpointed_under_no_grad(a: torch.Tensor) -> Any:
    with torch.no_grad():
        b = again(torch.sin, a)
    return b * a


PROGRAMS = [f for name, f in sorted(globals().items()) if name.startswith("checkpointed_")]


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@parametrize([named(f) for f in PROGRAMS])
def test_checkpoint_is_as_in_eager(program: Function) -> None:
    assert_as_eager(program, x())


class Blocks(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 8)) for _ in range(3)
        )
        self.reentrant = reentrant

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            a = a + checkpoint(block, a, use_reentrant=self.reentrant)
        return a


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_blocks_are_as_in_eager(reentrant: bool) -> None:
    assert_as_eager(Blocks(reentrant), torch.randn(16, 8, requires_grad=True), misses=None)


def test_checkpoint_sequential_is_as_in_eager() -> None:
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4)])
    assert_as_eager(lambda a: checkpoint_sequential(layers, 2, a, use_reentrant=False), x())


def chain(a: torch.Tensor) -> torch.Tensor:
    for _ in range(8):
        a = (a @ a).tanh()
    return a


def test_backward_computes_checkpointed_part_again() -> None:
    compiled = thunder.jit(lambda a: again(chain, a).sum(), rematerialize=False)
    a = torch.randn(16, 16, dtype=torch.float64, requires_grad=True)  # eight times tanh(a @ a): last bits grow
    result = compiled(a)
    forward, backward = thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1]
    assert str(backward).count("computed again: torch.utils.checkpoint") >= 8
    assert str(backward).count("aten.tanh.default") >= 7
    saved = len(str(forward).rsplit("return", 1)[1].split(","))
    assert saved <= 3
    result.backward()
    expected = a.detach().clone().requires_grad_()
    chain(expected).sum().backward()
    torch.testing.assert_close(a.grad, expected.grad)


def test_running_statistics_of_a_checkpointed_part_are_updated_once() -> None:
    norm = nn.BatchNorm1d(4)
    compiled = thunder.jit(lambda a: again(norm, a).sin().sum())
    compiled(x(8, 4)).backward()
    assert norm.num_batches_tracked == 1
    expected = nn.BatchNorm1d(4)
    expected(x(8, 4))
    torch.testing.assert_close(norm.running_mean, expected.running_mean)
