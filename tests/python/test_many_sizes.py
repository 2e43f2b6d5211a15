"""Programs of very many sizes: recorded at a few samples, in which groups of them change, and pinned one by one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import thunder

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="symbols need Python 3.11")

COUNT = 24


def _ragged(x: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    return torch.stack([x[a:b].square().sum() for a, b in zip(starts.tolist(), ends.tolist(), strict=True)])


def _item_by_item(x: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    parts = [x[int(starts[i]) : int(ends[i])] for i in range(len(starts))]
    return torch.cat([part.cumsum(0) for part in parts])


def _padded(x: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    lengths = (ends - starts).tolist()
    rows = [F.pad(x[a : a + n], (0, max(lengths) - n)) for a, n in zip(starts.tolist(), lengths, strict=True)]
    return torch.stack(rows).sin()


def _written(x: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
    y = x * 1
    for a, b in zip(starts.tolist(), ends.tolist(), strict=True):
        y[a:b] *= 1.5
    return y


PROGRAMS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "ragged": _ragged,
    "item by item": _item_by_item,
    "written": _written,
}


def _bounds(seed: int, count: int = COUNT) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randperm(1500, generator=generator)[:count] + 2
    return starts, starts + 2 + torch.randperm(400, generator=generator)[:count]


def _require_same(compiled: Any, function: Callable[..., Tensor], bounds: tuple[Tensor, Tensor]) -> None:
    mine = torch.randn(2000, dtype=torch.float64, requires_grad=True)
    theirs = mine.detach().clone().requires_grad_()
    got, expected = compiled(mine, *bounds), function(theirs, *bounds)
    torch.testing.assert_close(got, expected)
    got.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("name", PROGRAMS)
def test_positions_of_many_slices_are_symbols(name: str) -> None:
    compiled = thunder.jit(PROGRAMS[name])
    for seed in range(4):
        _require_same(compiled, PROGRAMS[name], _bounds(seed))
    assert thunder.compile_stats(compiled)["specializations"] == 2, thunder.explain_misses(compiled)
    starts, ends = _bounds(5)
    for changed in ((starts - 2, ends), (starts, starts), (starts, starts + 1), (ends, starts), (starts, ends + 1500)):
        _require_same(compiled, PROGRAMS[name], changed)
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


def test_the_longest_of_many_parts_is_a_size() -> None:
    compiled = thunder.jit(_padded)
    for seed in range(3):
        _require_same(compiled, _padded, _bounds(seed, 10))
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


def test_a_list_longer_than_a_few_numbers_is_read_one_by_one() -> None:
    compiled = thunder.jit(_ragged)
    for seed in range(3):
        _require_same(compiled, _ragged, _bounds(seed, 64))
    assert thunder.compile_stats(compiled)["specializations"] == 2


@pytest.mark.parametrize("place", [0, 7, COUNT - 1])
def test_one_of_many_arguments_that_pins_leaves_the_others_symbols(place: int) -> None:
    def program(tensors: list[Tensor]) -> Tensor:
        rows = [tensor.sin().sum(0) for tensor in tensors]
        rows[place] = rows[place] + torch.stack(tensors[place].unbind()).sum(0)
        return torch.stack(rows).sum()

    compiled = thunder.jit(program, dynamic=True)
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        lengths = (torch.randperm(100, generator=generator)[:COUNT] + 2).tolist()
        lengths[place] = 200
        tensors = [torch.randn(length, 3, dtype=torch.float64) for length in lengths]
        torch.testing.assert_close(compiled(tensors), program(tensors))
    assert thunder.compile_stats(compiled)["specializations"] == 1, thunder.explain_misses(compiled)
    pinned = thunder.compile_stats(compiled)["pinned_sizes"]
    assert [pin.split(" by ")[0] for pin in pinned] == ["200"], pinned


def test_sizes_that_follow_one_another_are_told_apart() -> None:
    """Each part begins where the one before it ends, so that conditions order all sizes."""

    def program(x: Tensor, lengths: Tensor) -> Tensor:
        rows, begin = [], 0
        for length in lengths.tolist():
            rows.append(x[begin : begin + length].sum() * length)
            begin += length
        return torch.stack(rows)

    compiled = thunder.jit(program)
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randperm(60, generator=generator)[:COUNT] + 2 + 61 * seed
        x = torch.randn(8000, dtype=torch.float64)
        torch.testing.assert_close(compiled(x, lengths), program(x, lengths))
    assert thunder.compile_stats(compiled)["specializations"] == 2, thunder.explain_misses(compiled)
