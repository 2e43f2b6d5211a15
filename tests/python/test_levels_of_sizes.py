"""Ints that stay the same over a range of sizes, where Python needs them as numbers: a program for each range."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import thunder

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="symbols need Python 3.11")


def _scan_of_chunks(x: Tensor, chunk: int = 16) -> Tensor:
    """Compute a running sum as chunked scans do: within chunks, then over them."""
    state, out = x.new_zeros(x.shape[1:]), []
    for i in range(math.ceil(x.shape[0] / chunk)):
        part = x[i * chunk : (i + 1) * chunk].cumsum(0) + state
        out.append(part)
        state = part[-1]
    return torch.cat(out)


def _padded(x: Tensor, size: int) -> Tensor:
    return F.pad(x.sin(), (0, 0, 0, size - x.shape[0]))


def _halves(x: Tensor) -> Tensor:
    """Add up rows by halving, a step for each bit."""
    x = _padded(x, 2 ** math.ceil(math.log2(x.shape[0])))
    for _ in range(int(math.log2(x.shape[0]))):
        x = x[: x.shape[0] // 2] + x[x.shape[0] // 2 :]
    return x


# Programs with rows of one range, and of others.
PROGRAMS: dict[str, tuple[Callable[[Tensor], Tensor], Sequence[int], Sequence[int]]] = {
    "chunks": (_scan_of_chunks, (35, 41, 46, 34, 47, 38), (48, 33, 32, 17, 16, 2, 49)),
    "next power": (
        lambda x: _padded(x, 2 ** math.ceil(math.log2(x.shape[0]))),
        (40, 50, 33, 60, 63),
        (64, 32, 65, 2, 9),
    ),
    "power below": (lambda x: x[: 2 ** int(math.log2(x.shape[0]))].sin(), (40, 50, 33, 60, 63), (64, 32, 65, 2, 9)),
    "bits": (lambda x: _padded(x, 1 << (x.shape[0] - 1).bit_length()), (40, 50, 34, 60, 63), (64, 32, 65, 3, 2, 9)),
    "logarithm as a factor": (lambda x: x * math.floor(math.log2(x.shape[0])), (40, 50, 33, 60, 63), (64, 32, 2, 9)),
    "loop": (lambda x: sum(x.roll(i, 0) for i in range(math.floor(math.log2(len(x))))), (40, 50, 33, 60), (64, 32, 9)),
    "loop of bits": (lambda x: sum(x.roll(i, 0) for i in range(len(x).bit_length())), (40, 50, 33, 60), (64, 32, 9)),
    "halves": (_halves, (40, 50, 33, 60, 63), (64, 32, 65, 9)),
    "quotient": (
        lambda x: torch.stack([x[i * 16].exp() for i in range(x.shape[0] // 16)]),
        (35, 41, 46, 33),
        (48, 31, 64),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_range_of_sizes_has_one_program(name: str) -> None:
    program, same, others = PROGRAMS[name]
    compiled = thunder.jit(program)
    for rows in (*same, None, *others):
        if rows is None:
            assert thunder.compile_stats(compiled)["specializations"] == 2, thunder.explain_misses(compiled)
            continue
        mine = torch.randn(rows, 3, dtype=torch.float64, requires_grad=True)
        theirs = mine.detach().clone().requires_grad_()
        got, expected = compiled(mine), program(theirs)
        torch.testing.assert_close(got, expected)
        got.square().sum().backward()
        expected.square().sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad)
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


@pytest.mark.parametrize("rows", [(1, 2, 3), (4096, 4095, 4097), (2**20 - 1, 2**20, 2**20 + 1)])
def test_logarithms_next_to_powers_equal_eager(rows: tuple[int, ...]) -> None:
    def program(x: Tensor) -> tuple[int, ...]:
        n = x.shape[0]
        return 2 ** math.ceil(math.log2(n)), 2 ** int(math.log2(n)), n.bit_length(), 1 << (n - 1).bit_length()

    compiled = thunder.jit(program)
    for count in (rows[0] + 3, *rows, *rows):
        assert compiled(torch.empty(count)) == program(torch.empty(count))


def test_bins_of_a_least_length() -> None:
    def program(x: Tensor, of: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        n = of.shape[0]
        return torch.bincount(x, weights, n), x.bincount(minlength=n) * 2

    compiled = thunder.jit(program)
    labels = torch.tensor([0, 3, 3, 1, 4])
    for n in (12, 9, 24, 7, 16):
        for got, expected in zip(compiled(labels, torch.empty(n)), program(labels, torch.empty(n)), strict=True):
            torch.testing.assert_close(got, expected)
    assert thunder.compile_stats(compiled)["specializations"] == 2, thunder.explain_misses(compiled)
    for n in (5, 4, 6, 3, 2, 1, 0, 8):
        for values in (labels, labels * 2, labels[:0], labels[:1]):
            for weights in (None, torch.rand(len(values))):
                got, expected = compiled(values, torch.empty(n), weights), program(values, torch.empty(n), weights)
                for mine, theirs in zip(got, expected, strict=True):
                    torch.testing.assert_close(mine, theirs)


def test_bins_of_a_least_length_from_data() -> None:
    def program(x: Tensor, n: Tensor) -> Tensor:
        return torch.bincount(x, minlength=int(n))

    compiled = thunder.jit(program)
    labels = torch.tensor([0, 3, 3, 1, 4])
    for n in (12, 9, 24, 7, 5, 4, 1, 0, 8):
        torch.testing.assert_close(compiled(labels, torch.tensor(n)), program(labels, torch.tensor(n)))
    with pytest.raises(RuntimeError):
        compiled(labels, torch.tensor(-1))
