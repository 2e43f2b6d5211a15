"""Indices of all kinds, read and written, and scattered reductions are as in eager: results, gradients and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from beside_eager import assert_as_eager

import thunder

pytestmark = [
    pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),  # of PyTorch: masks of bytes, sequences that are no tuples
]


class Number:
    def __index__(self) -> int:
        return 1


# Indices for `x[…]`, given two positions `i` and a mask `m` of the first two dimensions of `x`, which is 4 x 4 x 3.
INDICES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "array": lambda i, m: np.array([0, 1]),
    "array_of_bools": lambda i, m: np.array([True, False, True, False]),
    "bool_inside": lambda i, m: (True, None, 0),
    "bools": lambda i, m: [True, False, True, False],
    "ellipses": lambda i, m: (..., ..., 0),
    "ellipsis_between": lambda i, m: (i[:, None], ..., i),
    "ellipsis_first": lambda i, m: (..., i),
    "empty_list": lambda i, m: [],
    "empty_tensor": lambda i, m: torch.empty(0, dtype=torch.long),
    "false": lambda i, m: False,
    "float": lambda i, m: 1.0,
    "float_tensor": lambda i, m: i.float(),
    "int32": lambda i, m: i.int(),
    "int_beyond": lambda i, m: 9,
    "list": lambda i, m: [0, 1],
    "mask": lambda i, m: m,
    "mask_of_numbers": lambda i, m: m[:, :, None].expand(4, 4, 3),
    "mask_then_int": lambda i, m: (m, 0),
    "mask_of_other_sizes": lambda i, m: m[:2],
    "mask_behind": lambda i, m: (slice(None), m[0]),
    "mask_between": lambda i, m: (0, m[0], None),
    "mask_of_bytes_twice": lambda i, m: (m[0].to(torch.uint8), m[0].to(torch.uint8)),
    "negative": lambda i, m: -i - 1,
    "negative_step": lambda i, m: slice(None, None, -1),
    "new_dimension_between": lambda i, m: (i, None, i),
    "new_dimensions": lambda i, m: (None, ..., None),
    "number": lambda i, m: Number(),
    "numpy_int": lambda i, m: np.int64(1),
    "positions_apart": lambda i, m: (i, slice(None), i),
    "positions_beyond": lambda i, m: i + 10,
    "positions_crossed": lambda i, m: (i[:, None], i),
    "range": lambda i, m: range(2),
    "scalar_tensor": lambda i, m: i[0],
    "scalar_tensor_and_positions": lambda i, m: (i[0], slice(None), i),
    "slice_of_tensors": lambda i, m: slice(i[0], i[1]),
    "steps": lambda i, m: (slice(None, None, 2), slice(1, None, 2)),
    "string": lambda i, m: "a",
    "too_many": lambda i, m: (0, 0, 0, 0),
    "true": lambda i, m: True,
    "tuple_of_lists": lambda i, m: ([0, 1], [1, 0]),
}


def read(x: torch.Tensor, key: Any, value: Any) -> Any:
    return x[key]


def write(x: torch.Tensor, key: Any, value: Any) -> Any:
    y = x * 1
    y[key] = value
    return y


def add(x: torch.Tensor, key: Any, value: Any) -> Any:
    y = x * 1
    y[key] += value
    return y


def write_to_input(x: torch.Tensor, key: Any, value: Any) -> Any:
    x.detach()[key] = 2.5
    return x.detach() * 2


@pytest.mark.parametrize("use", [read, write, add, write_to_input])
@pytest.mark.parametrize("name", INDICES)
def test_index_is_as_in_eager(name: str, use: Callable[..., Any]) -> None:
    x = torch.randn(4, 4, 3, requires_grad=True)
    value = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    mask = torch.tensor([[True, False, True, False], [False] * 4, [True] * 4, [False] * 4])
    assert_as_eager(
        lambda x, i, m, value: use(x, INDICES[name](i, m), value), x, torch.tensor([0, 2]), mask, value, misses=None
    )


NOTHING = torch.zeros(0, dtype=torch.int64)
# Nothing is added or written, with gradients.
EMPTY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "index_add": lambda x: x.index_add(0, NOTHING, x[:0]),
    "index_add of columns": lambda x: x.index_add(1, NOTHING, x[:, :0]),
    "index_copy": lambda x: x.index_copy(0, NOTHING, x[:0]),
    "index_fill": lambda x: x.index_fill(0, NOTHING, 2.0),
    "index_reduce": lambda x: x.index_reduce(0, NOTHING, x[:0].detach(), "amax"),
    "scatter_add": lambda x: x.scatter_add(0, NOTHING.view(0, 1).expand(0, 3), x[:0]),
    "scatter_reduce": lambda x: x.scatter_reduce(0, NOTHING.view(0, 1).expand(0, 3), x[:0], "amax"),
}


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_index_is_compiled(name: str) -> None:
    compiled = thunder.jit(lambda x: EMPTY[name](x) * 2, fullgraph=True)
    x = torch.randn(4, 3, requires_grad=True)
    torch.testing.assert_close(compiled(x), EMPTY[name](x) * 2)
    compiled(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((4, 3), 2.0 * (EMPTY[name](torch.ones(4, 3)).sum() == 12)))


# Arguments that PyTorch's kernels refuse, in programs that are fused.
WRONG: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "index_of_two_dimensions": lambda x, part: x.index_select(0, torch.tensor([[0]])),
    "dimension_of_a_slice": lambda x, part: x.slice_scatter(part, 9, 0, 1),
    "slice_of_another_length": lambda x, part: x.slice_scatter(part, 0, 0, 3),
    "slice_of_other_columns": lambda x, part: x.slice_scatter(part[:, :1], 0, 0, 2),
    "step_of_a_slice": lambda x, part: x.slice_scatter(part, 0, 0, 4, 3),
    "dimension_of_a_row": lambda x, part: x.select_scatter(part[0], 9, 0),
    "row_beyond_the_last": lambda x, part: x.select_scatter(part[0], 0, 9),
    "row_of_another_length": lambda x, part: x.select_scatter(part[0, :1], 0, 0),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_index_raises_as_in_eager(name: str) -> None:
    assert_as_eager(
        lambda x, part: torch.relu(WRONG[name](x, part) * 2 + 1), torch.randn(4, 3), torch.randn(2, 3), misses=None
    )


@pytest.mark.parametrize("step", [1, 2])
def test_slice_that_fits_is_written(step: int) -> None:
    assert_as_eager(
        lambda x, part: torch.relu(x.slice_scatter(part, 0, -4, 9, step) * 2),
        torch.randn(4, 3),
        torch.randn(4 // step, 3),
    )


REDUCTIONS = ["sum", "prod", "mean", "amax", "amin"]
DTYPES = [torch.float32, torch.bfloat16, torch.int64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scattered_reduction_is_as_in_eager(reduction: str, include_self: bool, dtype: torch.dtype) -> None:
    def scatter(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return x.scatter_reduce(0, index, source, reduction, include_self=include_self)

    def reduce(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return x.clone().index_reduce_(0, index[0], source, reduction, include_self=include_self)

    tensors = [torch.randn(size, 3).to(dtype).requires_grad_(dtype.is_floating_point) for size in (5, 3)]
    index = torch.tensor([[0, 1, 0], [0, 4, 4], [2, 1, 0]])
    for program in (scatter, reduce):
        if program is scatter or reduction != "sum":
            for positions in (index, index + 5, index - 1):
                assert_as_eager(program, tensors[0], positions, tensors[1], misses=None)
