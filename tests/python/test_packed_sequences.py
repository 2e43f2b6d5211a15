"""Packed sequences inside of a program, and recurrent networks on them."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager, assert_same, clone, run
from torch import nn
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    unpack_sequence,
)

import thunder


class Reader(nn.Module):
    """Runs a recurrent network over sequences of given lengths."""

    def __init__(self, network: nn.RNNBase) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor, lengths: torch.Tensor | list[int]) -> Any:
        packed = pack_padded_sequence(x, lengths, batch_first=self.network.batch_first, enforce_sorted=False)
        states, last = self.network(packed)
        return *pad_packed_sequence(states, batch_first=self.network.batch_first), last


def reader(kind: type[nn.RNNBase], **options: Any) -> Reader:
    torch.manual_seed(0)
    return Reader(kind(3, 4, **options))


@pytest.mark.parametrize("options", [{}, {"batch_first": True, "bidirectional": True, "num_layers": 2}], ids=str)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN], ids=lambda kind: kind.__name__)
def test_network_reads_packed_sequences(kind: type[nn.RNNBase], options: dict[str, Any]) -> None:
    shape = (3, 5, 3) if options else (5, 3, 3)
    assert_as_eager(reader(kind, **options), torch.randn(shape, requires_grad=True), torch.tensor([3, 5, 2]))


def test_other_lengths_are_traced_anew() -> None:
    model = reader(nn.GRU)
    compiled = thunder.jit(model)
    x = torch.randn(5, 3, 3)
    for lengths in ([5, 3, 3], [4, 4, 4], [1, 5, 2], [5, 3, 3]):
        for given in (lengths, torch.tensor(lengths)):
            assert_same(compiled(x, given), model(x, given), str(lengths))


def packed_and_returned(x: torch.Tensor, lengths: torch.Tensor) -> PackedSequence:
    return pack_padded_sequence(x * 2, lengths)


def test_packed_sequence_is_returned() -> None:
    assert_as_eager(packed_and_returned, torch.randn(5, 2, 3, requires_grad=True), torch.tensor([5, 3]))


@pytest.mark.parametrize("lengths", [[5, 0], [3, 5], [5]], ids=str)
def test_error_of_wrong_lengths_is_eager_s(lengths: list[int]) -> None:
    arguments = (torch.randn(5, 2, 3), torch.tensor(lengths))
    expected, got = (
        run(each, clone(arguments), {}, 0) for each in (packed_and_returned, thunder.jit(packed_and_returned))
    )
    assert got["exception"] == expected["exception"]


def test_list_of_sequences_is_packed_and_unpacked() -> None:
    def program(a: torch.Tensor, b: torch.Tensor) -> Any:
        return unpack_sequence(pack_sequence([a * 2, b], enforce_sorted=False))

    assert_as_eager(program, torch.randn(2, 3, requires_grad=True), torch.randn(4, 3))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN], ids=lambda kind: kind.__name__)
def test_a_recurrent_layer_is_traced_without_a_warning(kind: type, capfd: pytest.CaptureFixture[str]) -> None:
    # PyTorch warns where the `.grad` of a tensor is read that is not a leaf.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        thunder.jit(kind(4, 5))(torch.randn(3, 2, 4)).__getitem__(0).sum().backward()
    assert capfd.readouterr().err == ""
