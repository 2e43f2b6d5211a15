"""Writes that callers see: inputs with a history, inputs that share memory, resized inputs, returned views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager
from programs import x

import thunder


def outcomes_with_history(program: Callable[[torch.Tensor], Any]) -> list[Any]:
    """Return what a program gives and writes for an input that autograd made, in eager and compiled."""
    outcomes = []
    for function in (program, thunder.jit(program)):
        leaf = x()
        b = leaf * 3
        result = function(b)
        (result * b).sum().backward()
        outcomes.append((result, b, b.requires_grad, b.grad_fn is not None, leaf.grad))
    return outcomes


@pytest.mark.parametrize(
    "program",
    [
        lambda b: b.mul_(2) * 1,
        lambda b: b.add_(b * 3) * b,
        lambda b: (b[0].mul_(2), b * b)[1],
        lambda b: (b.t()[1].zero_(), b.cos())[1],
        lambda b: (b.detach().mul_(2), b * 2)[1],
    ],
    ids=["mul_", "reads_itself", "row", "row_of_transposed", "detached"],
)
def test_write_to_an_input_with_a_history(program: Callable[[torch.Tensor], Any]) -> None:
    eager, compiled = outcomes_with_history(program)
    torch.testing.assert_close(compiled, eager)


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_value_saved_before_a_write_to_an_input_is_missed_as_in_eager() -> None:
    def program(b: torch.Tensor) -> torch.Tensor:
        square = b * b.exp()
        b.mul_(2)
        return square

    leaf = x()
    b = leaf * 1
    result = thunder.jit(program)(b)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(result.sum(), leaf)


def test_buffer_that_receives_a_parameter_takes_part_in_autograd() -> None:
    def program(buffer: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
        buffer.copy_(parameter * 2)
        return buffer.sum()

    outcomes = []
    for function in (program, thunder.jit(program)):
        buffer, parameter = torch.zeros(3, 4), x()
        result = function(buffer, parameter)
        (result + (buffer * buffer).sum()).backward()
        outcomes.append((result, buffer, parameter.grad, buffer.requires_grad))
    torch.testing.assert_close(outcomes[1], outcomes[0])


def test_write_through_a_view_of_a_leaf_raises_as_in_eager() -> None:
    assert_as_eager(lambda a: a[0].zero_(), x())


SHARING = {
    "row": lambda a: (a, a[0]),
    "overlapping_rows": lambda a: (a[:2], a[1:]),
    "transposed": lambda a: (a, a.t()),
    "separate_rows": lambda a: (a[0], a[2]),
    "same_elements": lambda a: (a.view(-1), a),
}


@pytest.mark.parametrize("share", SHARING.values(), ids=SHARING.keys())
@pytest.mark.parametrize(
    "program",
    [
        lambda a, b: (a.add_(1), b * 2)[1],
        lambda a, b: (b * 2, b.mul_(3), a + 1, a.zero_(), b.sum()),
        lambda a, b: (a[0].fill_(7), b.add_(1), a.sin())[2],
    ],
    ids=["first", "both", "view_of_first"],
)
def test_write_to_an_input_seen_through_another_input(program: Callable[..., Any], share: Callable[..., Any]) -> None:
    outcomes = []
    compiled = thunder.jit(program)
    for function in (program, compiled, compiled):
        a = torch.arange(12.0).reshape(3, 4)
        result = function(*share(a))
        outcomes.append((result, a))
    torch.testing.assert_close(outcomes[1], outcomes[0])
    torch.testing.assert_close(outcomes[2], outcomes[0])
    assert thunder.cache_misses(compiled) == 1


def test_sharing_memory_is_part_of_the_cache_key() -> None:
    def program(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return b * 2

    compiled = thunder.jit(program)
    a = torch.zeros(4)
    torch.testing.assert_close(compiled(torch.zeros(4), a), torch.zeros(4))
    torch.testing.assert_close(compiled(a, a.view(4)), torch.full((4,), 2.0))
    storage = torch.zeros(8)
    torch.testing.assert_close(compiled(storage[:4], storage[2:6]), torch.tensor([2.0, 2.0, 0.0, 0.0]))
    torch.testing.assert_close(compiled(torch.zeros(4), torch.zeros(4)), torch.zeros(4))
    assert thunder.cache_misses(compiled) == 3


@pytest.mark.parametrize("first", range(4))
def test_inputs_share_memory_in_other_ways_at_each_call(first: int) -> None:
    def program(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        a.mul_(2)
        c.add_(b)
        return d + b

    def in_one_memory(groups: str) -> list[torch.Tensor]:
        memories = {name: torch.arange(6.0) + ord(name) for name in groups}
        return [memories[name].view(6) for name in groups]

    compiled = thunder.jit(program)
    groups = ["abcd", "aacc", "abba", "aaaa", "abac", "abcb", "aacd", "abcc"]
    for group in groups[first:] + groups[:first]:
        results = []
        for function in (program, compiled, compiled):
            tensors = in_one_memory(group)
            results.append([function(*tensors), *tensors])
        torch.testing.assert_close(results[1], results[0])
        torch.testing.assert_close(results[2], results[0])
    assert thunder.cache_misses(compiled) == len(groups) - 1  # nothing is written to the memory of `b` in "abcb"


def test_write_to_memory_shared_with_an_input_that_requires_grad_is_refused() -> None:
    a = x()
    with pytest.raises(NotImplementedError, match="requires grad; pass a clone"):
        thunder.jit(lambda a, b: (b.add_(1), a * 2), fullgraph=True)(a, a.detach())


@pytest.mark.parametrize("program", [lambda a: a[0].zero_(), lambda a: (a.add_(1), a.t(), a[1:])], ids=["row", "two"])
def test_returned_view_of_a_written_input_is_a_view(program: Callable[[torch.Tensor], Any]) -> None:
    a = x(grad=False)
    result = thunder.jit(program)(a)
    view = result[-1] if isinstance(result, tuple) else result
    view.fill_(5)
    assert view.data_ptr() in (a.data_ptr(), a[1:].data_ptr())
    assert (a == 5).any()


TURNS = {
    "t_": lambda a: a.t_(),
    "squeeze_": lambda a: a.squeeze_(),
    "squeeze_dim": lambda a: a.unsqueeze_(1).squeeze_(1),
    "unsqueeze_": lambda a: a.unsqueeze_(0),
    "transpose_": lambda a: (a.transpose_(0, 1), a * 2),
    "swapaxes_": lambda a: a.swapaxes_(0, 1) + 1,
    "as_strided_": lambda a: a.as_strided_((2, 2), (1, 3)),
    "written_after": lambda a: a.t_().add_(torch.arange(3.0)),
    "written_before": lambda a: a.mul_(2).t_()[1:] * 3,
    "turned_back": lambda a: a.t_().mul_(2).t_(),
}


@pytest.mark.parametrize("program", TURNS.values(), ids=TURNS)
def test_input_that_is_turned_in_place_is_turned_for_the_caller(program: Callable[[torch.Tensor], Any]) -> None:
    assert_as_eager(program, x(4, 3, grad=False)[None][0])
    assert_as_eager(lambda a: (program(a * 1), a.sum()), x(4, 3))


def test_write_to_a_turned_input_is_seen_through_another_input() -> None:
    def program(a: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
        a.t_().add_(1)
        return view * 2

    a, b = x(grad=False), x(grad=False)
    torch.testing.assert_close(thunder.jit(program)(a, a[0]), program(b, b[0]))
    torch.testing.assert_close(a, b)


MEMORY_AFTER_A_WRITE = {
    "through_a_view": lambda b: (v := b[1:], v.mul_(2), v.as_strided((2, 2), (1, 1), 0)),
    "behind_a_view": lambda b: (v := b[1:], b.mul_(2), v.as_strided((2, 2), (1, 1), 0)),
    "through_a_view_of_a_view": lambda b: (v := b[1:], v.mul_(2), v[1:].as_strided((2,), (1,), 1)),
    "through_a_transposed_view": lambda b: (v := b.t(), v.mul_(2), v.as_strided((3,), (2,))),
}


@pytest.mark.parametrize("program", MEMORY_AFTER_A_WRITE.values(), ids=MEMORY_AFTER_A_WRITE)
def test_memory_looked_at_after_a_write(program: Callable[[torch.Tensor], Any]) -> None:
    assert_as_eager(lambda a: program(a * 1)[2:], x(3, 4))
    assert_as_eager(lambda a: program(a)[2:], x(3, 4, grad=False))


def _views_of_memory(i: int, x: torch.Tensor) -> Any:
    if i == 0:
        x[0:2] = 0
        return x.as_strided((2,), (1,), 3).clone()
    if i == 1:
        x[1] = 7
        return x.as_strided((2,), (2,), 2) * 1
    if i == 2:
        x.as_strided((2,), (2,), 1).fill_(0)
        x.as_strided((2,), (2,), 2).fill_(9)
        return x * 1
    if i == 3:
        y = x[1:]
        y[0] = 5
        return y.as_strided((2,), (1,), 3) * 1
    if i == 4:
        view = x.as_strided((2,), (2,), 1)
        x[0] = 5
        return view.fill_(3) + x[0]
    if i == 5:
        x.mul_(2)
        return x.as_strided((2, 2), (1, 2), 2) + x.as_strided((1,), (1,), 1)
    matrix = x.as_strided((3, 1), (1, 5), 1)
    matrix.fill_diagonal_(0, True)
    return matrix * 1


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("i", range(7))
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("step", [1, 2])
def test_memory_of_a_part_after_a_write(i: int, dtype: torch.dtype, step: int, first: int) -> None:
    """Positions in memory are those of the caller's storage, of which the argument is a part."""
    compiled = thunder.jit(lambda x: _views_of_memory(i, x))
    for _ in range(2):
        ours, theirs = (torch.arange(30, dtype=dtype)[first:15:step] for _ in range(2))
        torch.testing.assert_close(compiled(ours), _views_of_memory(i, theirs))
        torch.testing.assert_close(ours, theirs)


def test_a_part_of_the_callers_memory_after_a_write() -> None:
    def program(b: torch.Tensor) -> Any:
        b.mul_(2)
        return b.as_strided((2,), (1,), 5) * 1, b.as_strided((2,), (1,)) * 1

    a, b = x(4, 4, grad=False), x(4, 4, grad=False)
    torch.testing.assert_close(thunder.jit(program)(a[1:]), program(b[1:]))
    torch.testing.assert_close(a, b)


def test_memory_in_front_of_a_written_input_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="write to a clone"):
        thunder.jit(lambda b: b.mul_(2).as_strided((2,), (1,), 0), fullgraph=True)(x(4, 4, grad=False)[1:])


def test_number_of_another_dtype_written_by_a_mask() -> None:
    for number in (torch.tensor(5), torch.tensor([2.5], dtype=torch.float64), torch.tensor(True)):
        assert_as_eager(lambda a, n: a.index_put((a > 0,), n), x(grad=False), number)
        assert_as_eager(lambda a, n: (a * 1).index_put_((a > 0,), n), x(), number)


TURNED_UNDER_A_VIEW = {
    "select": lambda a: (a[1], a.t_())[0].zero_(),
    "slice_of_a_column": lambda a: (a[:, 1:], a.t_())[0].mul_(2),
    "view_of_a_view": lambda a: (a[1:][0], a.transpose_(0, 1))[0].add_(1),
    "squeezed": lambda a: (a[1], a.unsqueeze_(0))[0].zero_(),
    "turned_twice": lambda a: (a[0], a.t_(), a[0], a.t_())[0].zero_(),
    "read_after_a_write_to_the_turned": lambda a: (a[1], a.t_().mul_(3))[0] * 2,
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("program", TURNED_UNDER_A_VIEW.values(), ids=TURNED_UNDER_A_VIEW)
@pytest.mark.parametrize("shape", [(3, 3), (4, 3)], ids=["square", "oblong"])
def test_view_made_before_its_memory_is_turned_writes_to_its_own_place(
    program: Callable[[torch.Tensor], Any], shape: tuple[int, int]
) -> None:
    def of_a_value(a: torch.Tensor) -> Any:
        b = a * 2
        return program(b) * 3, b * 5

    assert_as_eager(of_a_value, x(*shape), misses=None)
    assert_as_eager(lambda a: (program(a), a * 1), x(*shape, grad=False), misses=None)


def test_turned_input_that_autograd_made_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="without the underscore"):
        thunder.jit(lambda b: b.t_() * 2, fullgraph=True)(x() * 1)


def test_counterpart_with_arguments_in_another_order() -> None:
    assert_as_eager(lambda a: (a * 1).polygamma_(1), x().detach().abs().requires_grad_())
    assert_as_eager(lambda a: a.polygamma_(2), x(grad=False))


def test_resized_input_is_resized_for_the_caller() -> None:
    assert_as_eager(lambda a: a.resize_(2, 2), x(grad=False))
    assert_as_eager(lambda a: torch.mul(a, 2, out=a.new_empty(0)), x(grad=False))


def test_out_argument_of_another_shape_is_resized() -> None:
    def program(a: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return torch.add(a, 1, out=out)

    assert_as_eager(program, x(grad=False), torch.empty(0))


@pytest.mark.parametrize(
    "view",
    [
        lambda b: b.expand(3, 4),
        lambda b: b.view(torch.int32),
        lambda b: b.unfold(0, 2, 2),
        lambda b: b.as_strided((2, 2), (4, 1), 1),
        lambda b: b.view(2, 6).transpose(0, 1).unsqueeze(1),
    ],
    ids=["expand", "dtype", "unfold", "as_strided", "chain"],
)
def test_write_through_a_view(view: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def program(a: torch.Tensor) -> Any:
        b = a.detach() * 1
        view(b).zero_()
        return b

    assert_as_eager(program, x())


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_write_through_a_conjugate() -> None:
    def program(a: torch.Tensor) -> Any:
        b = torch.view_as_complex(a.detach().reshape(3, 2, 2)) * 1
        b.conj().mul_(2j)
        return b.resolve_conj(), b.conj().imag

    assert_as_eager(program, x(), misses=None)


def test_write_to_an_expanded_tensor_raises_as_in_eager() -> None:
    assert_as_eager(lambda a: torch.zeros(4).expand(3, 4).add_(a), x(grad=False))


def test_data_of_a_view_that_was_written_over_is_refused_in_python() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        rows = x * 2
        first = rows
        for row in rows:
            for number in range(2):
                first.tolist()
                rows.scatter_(-1, torch.zeros_like(rows, dtype=torch.long), number)
                first = row
        return rows.sum()

    compiled = thunder.jit(program)
    a = torch.tensor([[-2.0, 3.0, 2.0]], requires_grad=True)
    with pytest.warns(thunder.errors.EagerFallbackWarning, match=r"a view that was made[^\0]*first.tolist\(\)"):
        result = compiled(a)
    torch.testing.assert_close(result, program(a))
