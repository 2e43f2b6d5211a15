"""Rows that are added to those that an index names: gradients of gathered rows, by a kernel of the CPU executor."""

from __future__ import annotations

import pytest
import torch

import thunder


def accumulate(table: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return table.index_put((index,), values, accumulate=True)


def one_by_one(table: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The rows added one after the other, in the order of the index."""
    table = table.clone()
    for row, value in zip(index.tolist(), values, strict=True):
        table[row] += value
    return table


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [(), (1,), (7,), (64,), (3, 5)])
@pytest.mark.parametrize("count", [1, 50, 3000])
def test_rows_are_added_in_the_order_of_the_index(dtype: torch.dtype, rows: tuple[int, ...], count: int) -> None:
    table, values = torch.randn(20, *rows, dtype=dtype), torch.randn(count, *rows, dtype=dtype)
    index = torch.randint(-20, 20, (count,))
    before = table.clone()
    assert torch.equal(thunder.jit(accumulate)(table, index, values), one_by_one(table, index, values))
    assert torch.equal(table, before)


def test_in_place_on_a_value_of_the_program() -> None:
    def function(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        table = torch.zeros(40, 8)
        table.index_put_((index,), x, accumulate=True)
        table[index] += 1.0
        return table

    x, index = torch.randn(100, 8), torch.randint(40, (100,))
    torch.testing.assert_close(thunder.jit(function)(x, index), function(x, index))


def test_parts_of_longer_rows_and_expanded_ones() -> None:
    table, index = torch.randn(30, 8), torch.randint(30, (500,))
    for values in (torch.randn(500, 24)[:, 8:16], torch.randn(8).expand(500, 8), torch.randn(8, 500).t()):
        torch.testing.assert_close(thunder.jit(accumulate)(table, index, values), one_by_one(table, index, values))


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_the_same_bits_for_any_number_of_threads(threads: int) -> None:
    table, index, values = torch.randn(100, 64), torch.randint(100, (5000,)), torch.randn(5000, 64)
    compiled = thunder.jit(accumulate)
    expected = one_by_one(table, index, values)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert torch.equal(compiled(table, index, values), expected)
    finally:
        torch.set_num_threads(before)


def test_what_the_kernel_does_not_take() -> None:
    """Other dtypes, several indices, masks, values that are broadcast, nothing at all, the table itself."""
    index = torch.randint(10, (50,))
    compiled = thunder.jit(accumulate)
    cases = [
        (torch.randn(10, 4).bfloat16(), index, torch.randn(50, 4).bfloat16()),
        (torch.zeros(10, 4, dtype=torch.int64), index, torch.ones(50, 4, dtype=torch.int64)),
        (torch.randn(10, 4), index.view(5, 10), torch.randn(5, 10, 4)),
        (torch.randn(10, 4), torch.rand(10) < 0.5, torch.tensor(2.0)),
        (torch.randn(10, 4), index, torch.tensor(1.0)),
        (torch.randn(4, 10).t(), index, torch.randn(50, 4)),
        (torch.randn(10, 4), index[:0], torch.randn(0, 4)),
    ]
    for case in cases:
        torch.testing.assert_close(compiled(*case), accumulate(*case))
    table, permutation = torch.randn(10, 4), torch.randperm(10)
    torch.testing.assert_close(compiled(table, permutation, table), accumulate(table, permutation, table))


def test_an_index_out_of_bounds_is_pytorchs_error_and_writes_nothing() -> None:
    table = torch.zeros(10, 4)
    compiled = thunder.jit(accumulate)
    compiled(table, torch.tensor([1, 2]), torch.ones(2, 4))
    with pytest.raises(IndexError, match="index 10 is out of bounds for dimension 0 with size 10"):
        compiled(table, torch.tensor([1, 10]), torch.ones(2, 4))
    assert not table.any()


def test_the_gradient_of_gathered_rows() -> None:
    def function(nodes: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        messages = torch.cat([nodes[source], nodes[target]], -1).tanh()
        return nodes.new_zeros(len(nodes), 32).index_add(0, target, messages).square().sum()

    source, target = torch.randint(200, (2, 3000))
    values = torch.randn(200, 16)
    gradients = []
    for run, dtype in ((function, torch.float64), (function, torch.float32), (thunder.jit(function), torch.float32)):
        nodes = values.to(dtype, copy=True).requires_grad_()
        run(nodes, source, target).backward()
        gradients.append(nodes.grad.double())
    exact, eager, ours = gradients
    assert (ours - exact).abs().max() <= 1.5 * (eager - exact).abs().max() + 1e-6


def test_values_without_memory() -> None:
    """`sgn` has gradients that are known to be zero: no memory holds them."""
    x = torch.ones(6, 4, requires_grad=True)
    thunder.jit(lambda x: x[torch.tensor([1, 1, 3])].sgn())(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.zeros(6, 4))
