"""Tensors on the meta device: traces and results without data, as in eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from small_modules import mlp, resnet
from torch import nn
from torch.nn import functional as F

import thunder


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


@pytest.mark.parametrize(("make", "shape"), [(mlp, (8, 4)), (resnet, (2, 3, 8, 8)), (encoder, (2, 6, 8))])
def test_module_on_the_meta_device_is_traced_and_gives_meta_tensors(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    with torch.device("meta"):
        module, x = make(), torch.randn(shape, requires_grad=True)
    compiled = thunder.jit(module)
    for _ in range(2):
        got, expected = compiled(x), module(x)
        assert (got.device, got.shape, got.stride()) == (expected.device, expected.shape, expected.stride())
    got.sum().backward()
    assert x.grad is not None
    assert all(parameter.grad is not None for parameter in module.parameters())
    assert thunder.cache_misses(compiled) == 1
    assert '"meta f32' in str(thunder.last_traces(compiled)[-1])


def test_factories_and_moves_keep_to_their_device() -> None:
    compiled = thunder.jit(lambda x: (x + torch.ones(3, device="meta"), F.dropout(x), torch.ones(3)))
    assert [result.device.type for result in compiled(torch.empty(3, device="meta"))] == ["meta", "meta", "cpu"]
    moved = thunder.jit(lambda x: x.to("meta") * 2)(torch.ones(3))
    assert moved.is_meta


def test_tensor_with_data_and_meta_tensor_are_specializations_of_their_own() -> None:
    compiled = thunder.jit(lambda x: x * 2)
    assert compiled(torch.ones(2, device="meta")).is_meta
    torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 2.0))
