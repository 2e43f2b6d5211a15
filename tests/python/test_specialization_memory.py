"""The memory of specializations: little for each, and none for objects that are gone."""

from __future__ import annotations

import ctypes
import gc
import types
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder

WIDTH, HEADS, LAYERS = 128, 4, 12


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))
        self.projections = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def rotate(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, -1)
        return x * angles.cos() + torch.cat((-right, left), -1) * angles.sin()

    def forward(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](x)
        q, k, v = (p(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in list(self.projections)[:3])
        y = F.scaled_dot_product_attention(self.rotate(q, angles), self.rotate(k, angles), v, is_causal=True)
        x = x + self.projections[3](y.transpose(1, 2).flatten(2))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(64, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 64)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.embedding(tokens)
        frequencies = torch.arange(1, WIDTH // HEADS + 1) / 10
        angles = torch.outer(torch.arange(tokens.shape[1]), frequencies)
        for layer in self.layers:
            x = layer(x, angles)
        scores = self.head(x)
        return F.cross_entropy(scores.flatten(0, 1), tokens.flatten()), scores


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (f"field{i}" if name is None else name, ctypes.c_size_t)
        for i, name in enumerate((None, None, None, None, "hblkhd", None, None, "uordblks", None, None))
    ]


def allocated() -> float:
    """MB that malloc has handed out."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("malloc of this system tells no statistics")
    libc.mallinfo2.restype = _Mallinfo
    gc.collect()
    info = libc.mallinfo2()
    return (info.uordblks + info.hblkhd) / 2**20


def train(model: nn.Module, compiled: Any, length: int) -> None:
    loss, _ = compiled(torch.zeros(1, length, dtype=torch.int64))
    loss.backward()
    model.zero_grad()


def test_specialization_for_training_of_a_transformer_takes_at_most_3_mb() -> None:
    model = Transformer()
    for length in range(3, 10):
        train(model, model, length)  # MKL keeps buffers, which grow with the length
    compiled = thunder.jit(model, dynamic=False)
    for length in (3, 4):
        train(model, compiled, length)
    before = allocated()
    for length in range(5, 10):
        train(model, compiled, length)
    assert thunder.cache_misses(compiled) == 7
    assert (allocated() - before) / 5 <= 3
    # All stages are there nevertheless.
    assert len(thunder.last_traces(compiled)) > 10
    assert len(thunder.last_backward_traces(compiled)) > 10


def test_specializations_of_what_is_gone_take_no_memory() -> None:
    def train_new_model() -> None:
        model = Transformer()
        train(model, thunder.jit(model), 3)

    train_new_model()
    before = allocated()
    for _ in range(3):
        train_new_model()
    assert allocated() - before <= 1


def call_with(compiled: Any, number: int, times: int = 1) -> None:
    for _ in range(times):
        torch.testing.assert_close(compiled(torch.ones(2), number), torch.ones(2) * number)


def test_specializations_not_used_for_longest_make_room_where_others_are_used_often() -> None:
    compiled = thunder.jit(lambda x, number: x * number, dynamic=False)
    for number in range(64):
        call_with(compiled, number)
    call_with(compiled, 0, 1100)
    call_with(compiled, 100)
    assert thunder.cache_misses(compiled) == 65
    assert thunder.compile_stats(compiled)["specializations"] == 64 - 16 + 1
    hits = thunder.cache_hits(compiled)
    for number in (0, 63, 17, 100):
        call_with(compiled, number)
    assert (thunder.cache_hits(compiled), thunder.cache_misses(compiled)) == (hits + 4, 65)
    call_with(compiled, 1)
    assert thunder.cache_misses(compiled) == 66
    numbers = [(miss.specialization, miss.compared_with) for miss in thunder.explain_misses(compiled)[-2:]]
    assert [made for made, _ in numbers] == [64, 65]
    assert numbers[-1][1] == 64  # the newest of those that are equally close


def test_traces_that_are_equal_share_their_program() -> None:
    """A number that decides, and comes out the same, makes a specialization, not a program."""
    holder = types.SimpleNamespace(step=0)

    def function(x: torch.Tensor) -> torch.Tensor:
        holder.step += 1
        return x * (3 if holder.step % 10 == 0 else 2)

    compiled = thunder.jit(function, dynamic=False)
    x = torch.ones(2, requires_grad=True)
    for step in range(1, 12):
        result = compiled(x)
        torch.testing.assert_close(result, x * (3 if step % 10 == 0 else 2))
        result.sum().backward()
    assert holder.step == 11
    assert thunder.cache_misses(compiled) == 11
    assert thunder.compile_stats(compiled)["programs"] == 2
