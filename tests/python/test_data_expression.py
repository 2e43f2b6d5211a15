"""Ints that are read from data, and what is computed of them, are sizes over the same symbols: few programs for all."""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import thunder

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="symbols need Python 3.11")

Program = Callable[[Tensor, Tensor], Tensor]
COUNTS = (3, 5, 4, 8, 6, 9, 7, 10, 2)
UNUSUAL = (4, 0, 1, -1, -3, 5, 30, 0, 6)


def _written(x: Tensor, n: Tensor) -> Tensor:
    y = x * 1
    y[:, n : n + 2] = 0
    y[:, :n] *= 2
    return y


# A tensor of one integer where PyTorch takes a size or a position.
TENSORS: dict[str, Program] = {
    "zeros": lambda x, n: torch.zeros(2, n) + x.sum(),
    "zeros of a list": lambda x, n: torch.zeros([n, 2]) + x.sum(),
    "full": lambda x, n: torch.full((n, n + 1), 2.0) * x.mean(),
    "slice": lambda x, n: x[:, n:].sin(),
    "slice of both ends": lambda x, n: x[:, n : n + 1].cos() + x[:, -n:].sum(),
    "slice of a tensor with a dimension": lambda x, n: x[:, n.view(1) :].sin(),
    "write": _written,
    "arange": lambda x, n: torch.arange(n) * x.sum(),
    "expand": lambda x, n: x[:, :1].expand(3, n) * 2,
    "repeat": lambda x, n: x.repeat(1, n) * 2,
    "roll": lambda x, n: torch.roll(x, n, 1) * 2,
    "roll of a list": lambda x, n: torch.roll(x, (n, -n), (0, 1)) * 2,
    "pad": lambda x, n: F.pad(x, (0, n)) * 2,
    "view": lambda x, n: (torch.zeros(6 * n) + x.sum()).view(n, 6),
    "narrow": lambda x, n: x.narrow(1, n, 2) * 2,
    "randint": lambda x, n: torch.randint(0, 1 + n - n, (3,)) + x.sum(),
    "__index__": lambda x, n: torch.zeros(2, n.__index__()) + x.sum(),
    "operator.index": lambda x, n: torch.zeros(2, operator.index(n)) + x.sum(),
    "torch.Size": lambda x, n: x.new_zeros(torch.Size((n, 2))) + x.sum(),
    "sum of shapes": lambda x, n: x.new_zeros(x.size()[:1] + (n,)) + x.sum(),  # noqa: RUF005
}


def _twice(x: Tensor, n: int) -> Tensor:
    return torch.zeros(4 * n).view(4, n) * x.sum() + torch.zeros(4 * n).view(4, n)


def _dense(x: Tensor, n: int) -> Tensor:
    return (torch.zeros(3 * n + 1)[: 3 * n].view(3, n) + torch.zeros(3 * n + 1)[: 3 * n].view(3, n)) * x.sum()


def _part(x: Tensor, n: int) -> Tensor:
    y = x * 1
    y[:, n : n + 2] = x.new_ones(3, 2)
    return y * x.new_ones(n + 2).sum()


def _halves(x: Tensor, n: int) -> Tensor:
    return torch.cat([torch.zeros(n // 2), torch.ones(n - n // 2)]) * torch.arange(n) + x.sum()


# An int from data, and arithmetic with it.
INTS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "torch.Size": lambda x, n: x.new_zeros(torch.Size((n, 3))) + x.sum(),
    "a shape and a tuple": lambda x, n: x.new_zeros(x.size()[:0] + (n,)) + x.sum(),  # noqa: RUF005
    "a tuple and a shape": lambda x, n: x.new_zeros((n,) + x.size()[1:]) + x.sum(),  # noqa: RUF005
    "products computed twice": _twice,
    "sums computed twice": _dense,
    "a square": lambda x, n: (torch.zeros(n * n) + x.sum()).view(-1, n, n),
    "a square matrix": lambda x, n: (torch.zeros(n, n) + x.sum()).view(n * n),
    "the number behind its product": lambda x, n: (torch.zeros(2 * n) + x.sum()).view(n, -1),
    "the number behind its sum": lambda x, n: torch.zeros(n + 2)[2:] + torch.zeros(n) + x.sum(),
    "a number and the rest": lambda x, n: torch.cat([torch.zeros(n), torch.ones(20 - n)]) + x.sum(),
    "the rest": lambda x, n: torch.zeros(20 - n) + x.sum() + torch.ones(20)[n:],
    "halves": _halves,
    "a part": _part,
    "roll": lambda x, n: torch.roll(x, -n, 1) * 2,
    "rows from the end": lambda x, n: x[:, -n:].sin(),
    "all but rows at the end": lambda x, n: x[:, :-n].sin(),
    "arange of both signs": lambda x, n: torch.arange(-n, n + 1) + x.sum(),
    "linspace": lambda x, n: torch.linspace(0, n / 7, 5) * x.sum(),
    "start of narrow": lambda x, n: x.narrow(1, n, 2).sin(),
    "length of narrow": lambda x, n: torch.narrow(x, 1, 0, n).sin(),
    "narrow from the end": lambda x, n: x.narrow(-1, -n, 2).sin(),
    "pad to a length": lambda x, n: F.pad(x, (n, 20 - n)).sin(),
    "outer product": lambda x, n: x[0, :n].reshape(-1, 1) @ torch.ones(1, n) + torch.eye(n),
}
PROGRAMS: dict[str, Program] = {f"tensor: {name}": program for name, program in TENSORS.items()}
for _name, _program in INTS.items():
    PROGRAMS[f"int: {_name}"] = lambda x, n, program=_program: program(x, int(n))  # type: ignore[misc]


def outcome(program: Program, x: Tensor, n: int, **dtype: Any) -> Any:
    """The result, its strides and the gradient; or the class of the exception."""
    x = x.clone().requires_grad_(x.requires_grad)
    torch.manual_seed(n)
    try:
        result = program(x, torch.tensor(n, **dtype))
    except Exception as error:
        return type(error)
    if not result.requires_grad:
        return result, result.stride(), None
    (gradient,) = torch.autograd.grad(result.square().sum(), x)
    return result.detach(), result.stride(), gradient


def require_same(got: Any, expected: Any) -> None:
    if not isinstance(expected, tuple):
        assert got is expected
        return
    assert isinstance(got, tuple), got
    torch.testing.assert_close(got, expected, equal_nan=True)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_few_specializations_for_all_ints(name: str, requires_grad: bool) -> None:
    compiled = thunder.jit(PROGRAMS[name])
    for count in COUNTS:
        x = torch.rand(3, 14, requires_grad=requires_grad)
        require_same(outcome(compiled, x, count), outcome(PROGRAMS[name], x, count))
    assert thunder.compile_stats(compiled)["cache_misses"] <= 3, thunder.explain_misses(compiled)
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_other_shapes_and_modes_have_few_specializations(name: str) -> None:
    compiled = thunder.jit(PROGRAMS[name])
    for count, columns in zip(COUNTS, (14, 15, 17, 20, 16, 18, 13, 19, 21), strict=True):
        x = torch.rand(3, columns)
        with torch.no_grad():
            require_same(outcome(compiled, x, count), outcome(PROGRAMS[name], x, count))
    assert thunder.compile_stats(compiled)["cache_misses"] <= 5, thunder.explain_misses(compiled)
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_zero_one_negative_and_large_ints_do_as_eager(name: str, requires_grad: bool) -> None:
    compiled = thunder.jit(PROGRAMS[name])
    for count in (*UNUSUAL, *UNUSUAL):
        x = torch.rand(3, 14, requires_grad=requires_grad)
        require_same(outcome(compiled, x, count), outcome(PROGRAMS[name], x, count))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.bool, torch.float32])
@pytest.mark.parametrize("name", TENSORS)
def test_tensors_of_other_dtypes_are_taken_where_eager_takes_them(name: str, dtype: torch.dtype) -> None:
    compiled = thunder.jit(TENSORS[name])
    for count in (1, 2, 4, 3):
        x = torch.rand(3, 14)
        require_same(outcome(compiled, x, count, dtype=dtype), outcome(TENSORS[name], x, count, dtype=dtype))


def test_the_size_of_one_number_is_told_of_all_that_are_computed_from_it() -> None:
    def program(lengths: Tensor) -> Tensor:
        n = int(lengths.max())
        total = 0
        for length in lengths.tolist():
            total += length
        return torch.zeros(total).sum() + torch.ones(n + 10).sum()

    compiled = thunder.jit(program)
    for lengths in ([3, 5, 1], [0, 4, 1], [1, 1, 7], [2, 0, 0], [5, 9, 4], [-4, -5, 20], [1, 2, -3 + 9]):
        assert compiled(torch.tensor(lengths)) == program(torch.tensor(lengths))
    assert thunder.compile_stats(compiled)["cache_misses"] <= 3, thunder.explain_misses(compiled)


def test_a_number_below_zero_is_no_matter_where_its_sum_is_the_size() -> None:
    compiled: Any = thunder.jit(lambda n: (torch.zeros(int(n) + 10), torch.ones(10 - int(n))))
    for n in (3, -4, 0, 1, -1, 6, -7, 2):
        zeros, ones = compiled(torch.tensor(n))
        assert (zeros.shape, ones.shape) == ((n + 10,), (10 - n,))
    assert thunder.compile_stats(compiled)["cache_misses"] <= 3, thunder.explain_misses(compiled)


def test_rolls_of_either_sign_have_a_program_for_each() -> None:
    compiled: Any = thunder.jit(lambda x, n: torch.roll(x, int(n), 0) * 2)
    x = torch.arange(12.0)
    for n in (3, -4, 5, -7, 6, -2, 9, -11, 8):
        assert torch.equal(compiled(x, torch.tensor(n)), torch.roll(x, n, 0) * 2)
    assert thunder.compile_stats(compiled)["cache_misses"] <= 3, thunder.explain_misses(compiled)


def test_a_branch_on_a_number_that_sizes_follow_from_is_a_condition() -> None:
    def program(n: Tensor) -> Tensor:
        count = int(n)
        rows = torch.arange(2 * count)
        if count > 5:
            rows = rows.view(2, count)
        return rows * (1 if count == 7 else 2)

    compiled = thunder.jit(program)
    for n in (3, 8, 4, 9, 7, 5, 2, 12):
        require_same(
            outcome(lambda _, n: compiled(n), torch.ones(1), n), outcome(lambda _, n: program(n), torch.ones(1), n)
        )
    assert thunder.compile_stats(compiled)["cache_misses"] <= 5, thunder.explain_misses(compiled)


def test_a_shape_that_is_compared_needs_no_size() -> None:
    def program(x: Tensor, n: Tensor) -> Tensor:
        return x.sin() if x.shape == (int(n), 3) or (int(n) + 1, 3) == x.shape else x.cos()

    compiled = thunder.jit(program)
    for n in (3, 5, 4, -1, 0, 1, 7, 8):
        require_same(outcome(compiled, torch.ones(5, 3), n), outcome(program, torch.ones(5, 3), n))
    assert thunder.compile_stats(compiled)["cache_misses"] <= 3, thunder.explain_misses(compiled)


def test_a_step_with_its_backward_inside() -> None:
    def step(weight: Tensor, x: Tensor, n: Tensor) -> Tensor:
        loss = (x[:, n : n + 3] @ weight).view(-1).square().sum() + x[:, -int(n) :].sum() * weight.sum()
        loss.backward()
        with torch.no_grad():
            weight -= 0.1 * weight.grad
        weight.grad = None
        return loss.detach()

    compiled = thunder.jit(step)
    mine, theirs = (torch.ones(3, 2, requires_grad=True) for _ in range(2))
    for n in COUNTS:
        x = torch.rand(4, 14)
        torch.testing.assert_close(compiled(mine, x, torch.tensor(n)), step(theirs, x, torch.tensor(n)))
        torch.testing.assert_close(mine, theirs)
    assert thunder.compile_stats(compiled)["cache_misses"] <= 3, thunder.explain_misses(compiled)
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


def test_tensors_as_sizes_inside_of_a_transform() -> None:
    def program(x: Tensor, n: Tensor) -> Tensor:
        return torch.func.grad(lambda t: t[:, n:].square().sum())(x) + torch.vmap(lambda t: t.roll(n, 0))(x)

    compiled = thunder.jit(program)
    for n in COUNTS:
        x = torch.rand(3, 14)
        torch.testing.assert_close(compiled(x, torch.tensor(n)), program(x, torch.tensor(n)))


def test_threads_find_the_sizes_of_their_own_data() -> None:
    compiled: Any = thunder.jit(lambda x, n: _twice(x, int(n)))
    failures: list[str] = []

    def work(first: int) -> None:
        for n in range(first, first + 8):
            x = torch.rand(3, 4)
            if not torch.equal(compiled(x, torch.tensor(n)), _twice(x, n)):
                failures.append(f"{n}")

    threads = [threading.Thread(target=work, args=(first,)) for first in (2, 5, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def _by_slices(x: Tensor, counts: Tensor, w: Tensor) -> Tensor:
    parts, begin = [], 0
    for expert, count in enumerate(counts.tolist()):
        parts.append(x[begin : begin + count] * w[expert])
        begin += count
    return torch.cat(parts).sin()


def _by_slices_of_some(x: Tensor, counts: Tensor, w: Tensor) -> Tensor:
    parts, begin = [], 0
    for expert, count in enumerate(counts.tolist()):
        if count == 0:
            continue
        parts.append(x[begin : begin + count] * w[expert])
        begin = begin + count
    return torch.cat(parts).sin()


def _from_the_end(x: Tensor, counts: Tensor, w: Tensor) -> Tensor:
    parts, end = [], x.shape[0]
    for expert, count in enumerate(counts.tolist()):
        parts.append(x[end - count : end] * w[expert])
        end -= count
    return torch.cat(parts).sin()


def _written_by_slices(x: Tensor, counts: Tensor, w: Tensor) -> Tensor:
    y, begin = torch.zeros_like(x), 0
    for expert, count in enumerate(counts.tolist()):
        y[begin : begin + count] = x[begin : begin + count] * w[expert]
        begin += count
    return y.sin()


def _added_by_indices(x: Tensor, counts: Tensor, w: Tensor) -> Tensor:
    order, y, begin = x[:, 0].detach().argsort(), torch.zeros_like(x), 0
    for expert, count in enumerate(counts.tolist()):
        rows = order[begin : begin + count]
        y.index_add_(0, rows, x[rows] * w[expert])
        begin += count
    return y


def _by_split(x: Tensor, counts: Tensor, w: Tensor) -> Tensor:
    return torch.cat([part * w[expert] for expert, part in enumerate(torch.split(x, counts.tolist()))]).sin()


ROUTINGS = (_by_slices, _by_slices_of_some, _from_the_end, _written_by_slices, _added_by_indices, _by_split)


def _routed(program: Callable[..., Tensor], counts: list[int], *, requires_grad: bool) -> Any:
    torch.manual_seed(sum(counts))
    x = torch.randn(sum(counts), 3, requires_grad=requires_grad)
    w = torch.randn(len(counts), 3, requires_grad=requires_grad)
    result = program(x, torch.tensor(counts), w)
    gradients = torch.autograd.grad(result.square().sum(), (x, w)) if requires_grad else ()
    return result.detach(), *gradients


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("program", ROUTINGS)
def test_rows_of_experts_have_few_programs_for_all_counts(program: Callable[..., Tensor], requires_grad: bool) -> None:
    compiled = thunder.jit(program)
    for counts in ([6, 5, 2], [2, 5, 4], [7, 8, 2], [3, 6, 9], [9, 4, 8], [5, 5, 5], [8, 2, 3], [4, 9, 7]):
        expected = _routed(program, counts, requires_grad=requires_grad)
        torch.testing.assert_close(_routed(compiled, counts, requires_grad=requires_grad), expected)
    assert thunder.compile_stats(compiled)["specializations"] <= 4


@pytest.mark.parametrize("program", [_by_slices, _by_split])
def test_an_expert_without_rows_takes_no_program_from_the_others(program: Callable[..., Tensor]) -> None:
    compiled = thunder.jit(program)
    for counts in ([6, 5, 2], [2, 0, 5], [4, 5, 6], [7, 5, 3], [0, 8, 7]):
        expected = _routed(program, counts, requires_grad=True)
        torch.testing.assert_close(_routed(compiled, counts, requires_grad=True), expected)
    known = thunder.compile_stats(compiled)["specializations"]
    for counts in ([3, 7, 4], [2, 0, 9], [0, 5, 6], [8, 8, 5]):
        expected = _routed(program, counts, requires_grad=True)
        torch.testing.assert_close(_routed(compiled, counts, requires_grad=True), expected)
    assert thunder.compile_stats(compiled)["specializations"] == known
