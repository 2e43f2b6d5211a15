"""Modules of many kinds, compiled: they compute, count and save as in eager."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from beside_eager import assert_as_eager, assert_module_as_eager, assert_same
from small_modules import (
    Attention,
    Buffered,
    Checkpointed,
    Decoder,
    Parametrized,
    Recurrent,
    Tied,
    mlp,
    picture,
    resnet,
    sequence,
    tokens,
)
from torch import nn

import thunder

MODULES: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "mlp": (mlp, sequence),
    "resnet": (resnet, picture),
    "resnet_channels_last": (lambda: resnet().to(memory_format=torch.channels_last), picture),
    "batch_norm_without_momentum": (lambda: nn.BatchNorm2d(3, momentum=None), picture),
    "batch_norm_without_statistics": (lambda: nn.BatchNorm2d(3, track_running_stats=False), picture),
    "batch_norm_twice": (lambda: (lambda norm: nn.Sequential(norm, norm))(nn.BatchNorm2d(3)), picture),
    "batch_norm_1d": (lambda: nn.BatchNorm1d(3), sequence),
    "instance_norm": (lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), picture),
    "group_norm": (lambda: nn.GroupNorm(3, 3), picture),
    "layer_norm": (lambda: nn.LayerNorm(4), sequence),
    "dropouts": (lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 4), nn.Dropout(0.1, inplace=True)), sequence),
    "rnn": (lambda: nn.RNN(4, 5, batch_first=True), sequence),
    "lstm": (lambda: nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True), sequence),
    "lstm_dropout": (lambda: nn.LSTM(4, 5, 2, batch_first=True, dropout=0.5), sequence),
    "gru": (lambda: nn.GRU(4, 5, 2), sequence),
    "recurrent": (Recurrent, sequence),
    "attention": (Attention, sequence),
    "attention_dropout": (lambda: Attention(dropout=0.2), sequence),
    "encoder": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2), sequence),
    "decoder": (Decoder, sequence),
    "tied": (Tied, tokens),
    "embedding_padding": (lambda: nn.Embedding(10, 4, padding_idx=0), tokens),
    "embedding_max_norm": (lambda: nn.Embedding(10, 4, max_norm=1.0), tokens),
    "embedding_scaled": (lambda: nn.Embedding(10, 4, scale_grad_by_freq=True), tokens),
    "embedding_bag": (lambda: nn.EmbeddingBag(10, 4, mode="mean"), tokens),
    "embedding_bag_max": (lambda: nn.EmbeddingBag(10, 4, mode="max"), tokens),
    "checkpoint": (Checkpointed, sequence),
    "checkpoint_reentrant": (lambda: Checkpointed(True), sequence),
    "weight_norm": (lambda: Parametrized(nn.utils.parametrizations.weight_norm), sequence),
    "spectral_norm": (lambda: Parametrized(nn.utils.parametrizations.spectral_norm), sequence),
    "upsample": (lambda: nn.Sequential(nn.Upsample(scale_factor=2), nn.ConvTranspose2d(3, 2, 3)), picture),
    "pixel_shuffle": (lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.PixelShuffle(2)), picture),
    "prelu": (lambda: nn.Sequential(nn.PReLU(), nn.Softmax(-1), nn.Hardswish()), sequence),
    "depthwise": (lambda: nn.Conv2d(3, 6, 3, groups=3, padding="same", padding_mode="reflect"), picture),
}


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", MODULES)
def test_module(name: str, mode: str) -> None:
    build, inputs = MODULES[name]
    # Without momentum, the number of batches so far is read as a number: one trace for each.
    misses = None if (name, mode) == ("batch_norm_without_momentum", "train") else 1
    assert_as_eager(getattr(build(), mode)(), inputs(), calls=3, misses=misses)


def test_buffers_counters_and_caches() -> None:
    module = Buffered()
    eager = copy.deepcopy(module)
    compiled = thunder.jit(module)
    for _ in range(4):
        x = sequence()
        assert_same(compiled(x), eager(x), "result")
        assert_module_as_eager(module, eager)
        assert (module.calls, module.history) == (eager.calls, eager.history)
    torch.testing.assert_close(module.cache, eager.cache)


def test_batch_norm_counts_each_call_once() -> None:
    compiled = thunder.jit(nn.BatchNorm1d(4))
    for expected in (1, 2, 3):
        compiled(torch.randn(3, 4))
        assert compiled.num_batches_tracked.item() == expected
