"""Arguments that begin elsewhere in their memory than the one that was traced, as views of a larger tensor do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder

OFFSETS = ((0, 5, 40), (5, 0, 40), (40, 5, 0))


def outcome_at(program: Callable[[torch.Tensor], Any], offset: int, turned: bool, dtype: torch.dtype) -> Any:
    """Run a program on a 3 x 3 part of a buffer; return what it gives, where its argument lies, and the buffer."""
    buffer = torch.arange(60, dtype=dtype)
    part = buffer[offset : offset + 9].view(3, 3)
    part = part.t() if turned else part
    result = program(part)
    return result, part.storage_offset(), part.shape, part.stride(), part.clone(), buffer


def assert_alike_at_offsets(
    program: Callable[[torch.Tensor], Any],
    offsets: tuple[int, ...],
    programs: int,
    turned: bool = False,
    dtype: torch.dtype = torch.float32,
) -> None:
    compiled = thunder.jit(program, fullgraph=True)
    for offset in offsets:
        ours, theirs = (outcome_at(each, offset, turned, dtype) for each in (compiled, program))
        torch.testing.assert_close(ours, theirs)
    assert thunder.compile_stats(compiled)["specializations"] <= programs


def turn_part(x: torch.Tensor) -> Any:
    part = x.view(9).unsqueeze_(-1)
    return part, part.squeeze_().sum()


COUNTED_FROM_THE_ARGUMENT: dict[str, Callable[[torch.Tensor], Any]] = {
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1).add_(1),
    "swapaxes_": lambda x: x.swapaxes_(0, 1).mul_(2)[0] * 1,
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "squeeze_": lambda x: x.squeeze_().add_(1),
    "as_strided_": lambda x: x.as_strided_((2,), (2,)),
    "part": turn_part,
    "fill_diagonal_": lambda x: x.fill_diagonal_(1),
    "fill_diagonal_ of a part": lambda x: (x[1:].fill_diagonal_(7), x * 1)[1],
    "fill_diagonal_ of what is turned": lambda x: x.t_().fill_diagonal_(3),
    "fill_diagonal_ twice": lambda x: (x.fill_diagonal_(1), x.add_(1), x.fill_diagonal_(2), x * 1)[3],
    "fill_diagonal_ of a clone": lambda x: x.clone().fill_diagonal_(1),
    "fill_diagonal_ of detached": lambda x: (x.detach().fill_diagonal_(1), x * 1)[1],
    "unfold": lambda x: x.view(9).unfold(0, 3, 3).add_(3),
    "as_strided": lambda x: x.as_strided((2,), (2,)) + 1,
    "eye_": lambda x: nn.init.eye_(x),
}


@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", COUNTED_FROM_THE_ARGUMENT)
def test_one_program_for_all_offsets(name: str, turned: bool, offsets: tuple[int, ...]) -> None:
    if turned and name in ("part", "unfold"):
        pytest.skip("is no view of a turned argument")
    assert_alike_at_offsets(COUNTED_FROM_THE_ARGUMENT[name], offsets, 1, turned)


COUNTED_FROM_THE_MEMORY: dict[str, Callable[[torch.Tensor], Any]] = {
    "as_strided": lambda x: x.as_strided((2,), (1,), 41) * 2,
    "as_strided after a write": lambda x: (x.mul_(2), x.as_strided((2,), (1,), 42) * 1)[1],
    "written through": lambda x: x.as_strided((2,), (2,), 40).zero_().sum(),
    "as_strided_": lambda x: x.as_strided_((2,), (2,), 40),
    "as_strided_copy": lambda x: torch.as_strided_copy(x, (2,), (1,), 40),
    "as_strided_scatter": lambda x: torch.as_strided_scatter(x, x[0, :2] * 2, (2,), (1,), 41),
    "wrapped": lambda x: (x.view(9, 1).fill_diagonal_(5, wrap=True), x * 1)[1],
    "vmap": lambda x: torch.vmap(lambda row: row.as_strided((2,), (1,)) * 2)(x),
    "grad": lambda x: torch.func.grad(lambda y: (y.as_strided((2,), (1,)) * 2.0).sum())(x.float()),
    "jvp": lambda x: torch.func.jvp(lambda y: y.as_strided((2,), (1,)) * 2, (x.float(),), (x.float() * 3,)),
    "asked": lambda x: (x.as_strided((2,), (1,), x.storage_offset() + 1) + 1, x.storage_offset()),
}


@pytest.mark.parametrize("offsets", [(40, 38, 41, 40), (38, 40, 39)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("name", COUNTED_FROM_THE_MEMORY)
def test_positions_in_memory_stay(name: str, dtype: torch.dtype, offsets: tuple[int, ...]) -> None:
    if "write" in name or "written" in name:  # memory in front of the argument is refused then
        offsets = (40, 38, 39, 40)
    assert_alike_at_offsets(COUNTED_FROM_THE_MEMORY[name], offsets, len({*offsets}), dtype=dtype)


BESIDE: dict[str, Callable[[torch.Tensor], Any]] = {
    "behind": lambda x: x.as_strided((2,), (1,), 13).add_(1) * 2,
    "in front": lambda x: x.as_strided((2,), (1,), 1).fill_(1) * 2,
    "relative": lambda x: (x.as_strided((20,), (1,)).mul_(2), x * 1)[1],
    "between": lambda x: (x.t()[0].as_strided((3,), (2,)).mul_(2), x[:, ::2].as_strided((4,), (1,)).zero_(), x * 1)[2],
    "between those of a clone": lambda x: (y := x.clone(), y[:, ::2].as_strided((4,), (1,)).zero_(), y * 1)[2],
    "beside a row of a clone": lambda x: (y := x.clone(), y[1].as_strided((4,), (1,)).zero_(), y * 1)[2],
    "turned": lambda x: (x.as_strided_((2, 2), (1, 2), 13), x.t_(), x.add_(1))[2] * 1,
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("offsets", [(0, 5, 12), (5, 12, 0)])
@pytest.mark.parametrize("name", BESIDE)
def test_writes_beside_the_argument_are_made(name: str, offsets: tuple[int, ...]) -> None:
    compiled = thunder.jit(BESIDE[name])
    for offset in offsets:
        ours, theirs = (outcome_at(each, offset, False, torch.float32) for each in (compiled, BESIDE[name]))
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("offsets", [(0, 2, 1), (1, 0, 2)])
@pytest.mark.parametrize("position", [None, 3])
def test_gradients_of_positions_in_memory(position: int | None, offsets: tuple[int, ...]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x.as_strided((2,), (1,), position) * torch.tensor([1.0, 2.0])).sum()

    compiled = thunder.jit(program)
    for offset in offsets:
        leaves = [torch.arange(20.0)[offset : offset + 6].requires_grad_() for _ in range(2)]
        results = [function(leaf) for function, leaf in zip((program, compiled), leaves, strict=True)]
        for result in results:
            result.backward()
        torch.testing.assert_close(results[1], results[0])
        torch.testing.assert_close(leaves[1].grad, leaves[0].grad)


def test_diagonals_of_a_batch_are_filled_by_one_program() -> None:
    batch = torch.zeros(4, 3, 3)
    compiled = thunder.jit(lambda matrix: matrix.fill_diagonal_(1.0))
    for matrix in batch:
        compiled(matrix)
    assert torch.equal(batch, torch.eye(3).expand(4, 3, 3))
    assert thunder.compile_stats(compiled)["specializations"] == 1


def test_weights_in_a_flat_buffer() -> None:
    module, flat = nn.Linear(3, 3), torch.randn(40)

    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            module.weight.fill_diagonal_(0.0)
        return module(x)

    compiled = thunder.jit(program)
    for offset in (0, 5, 20):
        module.weight.data = flat[offset : offset + 9].view(3, 3)
        expected = flat.clone()
        expected[offset : offset + 9].view(3, 3).fill_diagonal_(0.0)
        compiled(torch.ones(1, 3))
        torch.testing.assert_close(flat, expected)


def test_a_composite_of_others_may_mean_the_number() -> None:
    library = torch.library.Library("storage_offsets", "DEF")
    library.define("second(Tensor x) -> Tensor")
    library.impl("second", lambda x: x.as_strided((2,), (1,), 40) * 1, "CompositeImplicitAutograd")
    assert_alike_at_offsets(lambda x: torch.ops.storage_offsets.second(x), (40, 38, 35), 3)


@pytest.mark.parametrize("part", [lambda y: y[len(y) // 2 :], lambda y: y[: len(y) // 2], lambda y: y])
@pytest.mark.parametrize("columns", [3, 5])
def test_the_shorter_side_of_a_diagonal_is_one_of_the_size(
    part: Callable[[torch.Tensor], torch.Tensor], columns: int
) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        part(y).fill_diagonal_(0.0)
        return y

    compiled = thunder.jit(program, fullgraph=True)
    for rows in (9, 10, 11, 12, 4, 5, 6, 3, 2, 30):
        torch.testing.assert_close(compiled(torch.ones(rows, columns)), program(torch.ones(rows, columns)))
    assert thunder.compile_stats(compiled)["eager_calls"] == 0
