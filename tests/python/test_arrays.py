"""Memory that arrays of NumPy and tensors share: writes to it are seen on both sides, as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from beside_eager import assert_same

import thunder

Program = Callable[[torch.Tensor, Any], Any]
COMPILED: dict[str, Program] = {}
REFUSED: dict[str, Program] = {}


def compiled(program: Program) -> Program:
    COMPILED[program.__name__] = program
    return program


def refused(program: Program) -> Program:
    REFUSED[program.__name__] = program
    return program


@compiled
def array_that_is_read(x: torch.Tensor, array: Any) -> Any:
    return torch.from_numpy(array) + x, x * float(array.sum())


@compiled
def tensor_that_is_read(x: torch.Tensor, array: Any) -> Any:
    return x * float(numpy.sin(x.numpy()).sum())


@compiled
def tensor_whose_array_shows_its_strides(x: torch.Tensor, array: Any) -> Any:
    views = [x[::2], x.view(2, 3).t(), x[1:2].expand(4), x.view(2, 3)[:, None, 1:].expand(-1, 4, -1), x[:0]]
    return x * 1, [(view.numpy().strides, view.numpy().tolist()) for view in views]


@compiled
def array_that_is_made_inside(x: torch.Tensor, array: Any) -> Any:
    made = numpy.zeros(3)
    made[0] = 5
    return x * float(made.sum()), made, torch.from_numpy(made * 2)


@compiled
def array_that_is_made_of_an_array(x: torch.Tensor, array: Any) -> Any:
    return x, numpy.arange(6).reshape(2, 3), array + 1


@compiled
def array_as_tensors(x: torch.Tensor, array: Any) -> Any:
    return (
        torch.as_tensor(array, dtype=torch.float32) + x,
        torch.tensor(array).add_(1),
        torch.as_tensor(array, dtype=torch.int64) * 2,
        torch.FloatTensor(array) * x,
        torch.from_numpy(array)[1:].sum(),
    )


@refused
def tensor_over_the_array_of_an_input(x: torch.Tensor, array: Any) -> Any:
    return torch.as_tensor(x.numpy())


@refused
def arrays_of_tensors_that_share_memory(x: torch.Tensor, array: Any) -> Any:
    pair = x.numpy(), x[3:].numpy()
    return x * 1, numpy.shares_memory(*pair), numpy.may_share_memory(*pair)


@refused
def array_of_overlapping_elements(x: torch.Tensor, array: Any) -> Any:
    return x * float(x.unfold(0, 3, 1).numpy().sum())


@refused
def write_to_an_item(x: torch.Tensor, array: Any) -> Any:
    array[0] += 1
    return x * float(array[0])


@refused
def write_in_place(x: torch.Tensor, array: Any) -> Any:
    array += 1
    return x * float(array.sum())


@refused
def write_by_a_method(x: torch.Tensor, array: Any) -> Any:
    array.fill(array[0] + 3)
    return x


@refused
def write_by_a_function(x: torch.Tensor, array: Any) -> Any:
    numpy.add(array, 1, out=array)
    return x


@refused
def write_through_a_view(x: torch.Tensor, array: Any) -> Any:
    view = array[1:]
    view[0] += 1
    return x * float(view.sum())


@refused
def write_through_a_reshaped_view(x: torch.Tensor, array: Any) -> Any:
    array.reshape(2, 3)[0, 0] += 1
    return x


@refused
def write_through_a_tensor(x: torch.Tensor, array: Any) -> Any:
    tensor = torch.from_numpy(array)
    tensor += 1
    return tensor * 2


@refused
def write_through_a_tensor_of_an_array_made_inside(x: torch.Tensor, array: Any) -> Any:
    made = numpy.zeros(6)
    torch.as_tensor(made).add_(1)
    return x * float(made.sum())


@refused
def write_to_an_array_behind_a_tensor(x: torch.Tensor, array: Any) -> Any:
    made = numpy.zeros(6)
    tensor = torch.from_numpy(made) * 1
    view = torch.from_numpy(made)
    result = view + x
    made[0] = 5
    return tensor + result


@refused
def write_to_an_array_of_a_tensor(x: torch.Tensor, array: Any) -> Any:
    x.numpy()[0] += 1
    return x * 2


@refused
def write_to_an_array_of_a_result(x: torch.Tensor, array: Any) -> Any:
    y = x + 1
    y.detach().numpy()[0] = 7
    return y


@refused
def write_to_a_tensor_behind_an_array(x: torch.Tensor, array: Any) -> Any:
    y = x + 1
    shown = numpy.asarray(y)
    y.add_(1)
    return x * float(shown[0])


@compiled
def tensor_as_an_array_is_returned(x: torch.Tensor, array: Any) -> Any:
    return x.numpy()


@refused
def result_and_its_array_are_returned(x: torch.Tensor, array: Any) -> Any:
    y = x + 1
    return y, y.numpy()[1:]


@compiled
def array_as_a_tensor_is_returned(x: torch.Tensor, array: Any) -> Any:
    return torch.from_numpy(array).view(2, 3), x


@refused
def input_as_an_array_of_an_array_is_returned(x: torch.Tensor, array: Any) -> Any:
    return torch.as_tensor(torch.as_tensor(x.numpy()).numpy())


@refused
def tensors_of_one_array_by_way_of_another_are_returned(x: torch.Tensor, array: Any) -> Any:
    first = torch.from_numpy((x + 1).numpy())
    return first, torch.from_numpy(torch.from_numpy(first.numpy()).numpy()[1:])


@refused
def array_as_a_tensor_of_a_tensor_is_returned(x: torch.Tensor, array: Any) -> Any:
    return torch.from_numpy(torch.from_numpy(array).numpy()), x


@refused
def view_of_an_array_is_returned(x: torch.Tensor, array: Any) -> Any:
    return x, array[1:]


def address(value: Any) -> int | None:
    if isinstance(value, torch.Tensor):
        return value.data_ptr()
    return value.__array_interface__["data"][0] if isinstance(value, numpy.ndarray) else None


def seen(program: Program, x: torch.Tensor, array: Any) -> Any:
    """Run a program; return what it gives, what it leaves behind, and what of it lies in the same memory."""
    result = program(x, array)
    parts = list(result) if isinstance(result, tuple) else [result]
    addresses = [address(part) for part in (*parts, x)]
    shared = [[left == right for right in addresses] for left in addresses]
    return repr(parts), x.tolist(), array.tolist(), shared


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("name", [*COMPILED, *REFUSED])
def test_arrays_are_shared_as_in_eager(name: str) -> None:
    program = (COMPILED | REFUSED)[name]
    function = thunder.jit(program, fullgraph=name in COMPILED and not name.startswith("tensor"))
    inputs = [(torch.arange(6.0), numpy.arange(6.0)) for _ in range(2)]
    for _ in range(3):
        assert seen(function, *inputs[0]) == seen(program, *inputs[1])


@pytest.mark.parametrize("name", REFUSED)
def test_memory_that_is_shared_is_refused(name: str) -> None:
    x, array = torch.arange(6.0), numpy.arange(6.0)
    with pytest.raises((NotImplementedError, RuntimeError), match=r"memory|write|data"):
        thunder.jit(REFUSED[name], fullgraph=True)(x, array)
    assert x.tolist() == array.tolist() == list(range(6))


MAKERS: dict[str, Callable[[Any], torch.Tensor]] = {
    "from_numpy": torch.from_numpy,
    "as_tensor": torch.as_tensor,
    "as_tensor_of_a_dtype": lambda array: torch.as_tensor(array, dtype=torch.float32),
    "tensor": torch.tensor,
    "tensor_on_a_device": lambda array: torch.tensor(array, device="cpu"),
    "FloatTensor": torch.FloatTensor,
    "Tensor": torch.Tensor,
}


@pytest.mark.parametrize("name", MAKERS)
def test_arrays_with_other_contents_have_one_program(name: str) -> None:
    pytest.importorskip("sympy")  # PyTorch imports it at some time, and that adds a filter of warnings
    make = MAKERS[name]

    def program(array: Any, weight: torch.Tensor) -> torch.Tensor:
        return make(array).float() @ weight

    function = thunder.jit(program, fullgraph=True)
    weight = torch.randn(3, 2, requires_grad=True)
    generator = numpy.random.default_rng(0)
    for rows in (4, 4, 4, 6, 7, 9):
        for _ in range(3):
            array = generator.normal(size=(rows, 3))
            got, expected = function(array, weight), program(array, weight)
            torch.testing.assert_close(got, expected)
            torch.testing.assert_close(
                torch.autograd.grad(got.sum(), weight), torch.autograd.grad(expected.sum(), weight)
            )
    assert thunder.cache_misses(function) == 2


def test_an_array_is_found_wherever_it_is() -> None:
    class State:
        array = numpy.zeros(3)

    def program(x: torch.Tensor, state: Any, batch: dict[str, list[Any]]) -> torch.Tensor:
        return x + torch.from_numpy(state.array) + torch.as_tensor(batch["items"][1])

    function, state = thunder.jit(program, fullgraph=True), State()
    for value in range(5):
        state.array = numpy.full(3, float(value))
        batch = {"items": [None, numpy.arange(3.0) * value]}
        torch.testing.assert_close(function(torch.ones(3), state, batch), program(torch.ones(3), state, batch))
        state.array[1] = 7
        torch.testing.assert_close(function(torch.ones(3), state, batch), program(torch.ones(3), state, batch))
    assert thunder.cache_misses(function) == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "other",
    [
        numpy.arange(6, dtype=numpy.int32),
        numpy.arange(6.0)[::2],
        numpy.arange(6.0)[::-1],
        numpy.float64(3.0),
        numpy.array(3.0),
        numpy.zeros((0, 3)),
        numpy.broadcast_to(numpy.arange(3.0), (2, 3)),
        [1.0, 2.0],
        numpy.arange(6.0).view(type("Own", (numpy.ndarray,), {})),
    ],
    ids=lambda other: str(type(other)) + str(getattr(other, "strides", "")),
)
def test_arrays_of_another_kind_give_what_they_give_in_eager(other: Any) -> None:
    def program(array: Any) -> Any:
        return torch.as_tensor(array) * 2, torch.tensor(array).dtype

    function = thunder.jit(program)
    for array in (numpy.arange(6.0), other, numpy.ones(6), other):
        results = []
        for run in (function, program):
            try:
                results.append(repr(run(array)))
            except ValueError as error:
                results.append(type(error).__name__)
        assert results[0] == results[1]


def test_an_array_that_is_also_looked_at_is_guarded() -> None:
    def program(x: torch.Tensor, array: Any) -> Any:
        return torch.from_numpy(array) + x * float(array.max())

    function = thunder.jit(program)
    for value in (1.0, 2.0, 1.0):
        array = numpy.full(3, value)
        torch.testing.assert_close(function(torch.ones(3), array), program(torch.ones(3), array))


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_a_write_to_a_tensor_over_the_memory_of_an_array() -> None:
    def program(x: torch.Tensor, array: Any) -> Any:
        x.add_(1)
        return torch.from_numpy(array) * 2

    function = thunder.jit(program)
    for _ in range(3):
        arrays = [numpy.arange(3.0) for _ in range(2)]
        for run, array in zip((function, program), arrays, strict=True):
            result = run(torch.from_numpy(array), array)
            assert result.tolist() == [2.0, 4.0, 6.0]
        assert arrays[0].tolist() == arrays[1].tolist()


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_strides_of_an_array_are_guarded() -> None:
    def program(array: Any) -> Any:
        return torch.as_tensor(array).stride()

    square, row = numpy.arange(4.0).reshape(2, 2), numpy.zeros((1, 3))
    function = thunder.jit(program)
    for array in (square, numpy.ascontiguousarray(square.T).T, row, row[:, ::2].copy()[:, :3], square[:, :1]):
        assert function(array) == program(array)
    assert function(row[:1]) == program(row[:1])
    for array in (row[::-1], square[0, :1][::-1]):
        with pytest.raises(ValueError, match="negative"):
            function(array)


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("name", MAKERS)
def test_an_array_becomes_a_tensor_on_the_default_device(name: str) -> None:
    array = numpy.arange(3.0)
    compiled = thunder.jit(lambda: MAKERS[name](array))
    for device in ("meta", "cpu", "meta"):
        outcomes = []
        for run in (compiled, lambda: MAKERS[name](array)):
            try:
                with torch.device(device):
                    outcomes.append(str(run().device))
            except TypeError as error:  # FloatTensor takes no device but the CPU
                outcomes.append(type(error).__name__)
        assert outcomes[0] == outcomes[1]


def test_each_conversion_of_an_array_is_a_tensor_of_its_own() -> None:
    def program(array: Any) -> Any:
        first, second, third = torch.from_numpy(array), torch.from_numpy(array), torch.as_tensor(array)
        return first, second, third, first is second, first + second

    array = numpy.arange(3.0)
    compiled = thunder.jit(program)
    for _ in range(3):
        first, second, third, is_same, total = compiled(array)
        assert len({id(first), id(second), id(third)}) == 3
        assert not is_same
        assert first.data_ptr() == second.data_ptr() == third.data_ptr()
        assert total.tolist() == (2 * array).tolist()
        array += 1
    assert thunder.cache_misses(compiled) == 1


CONSTANTS: dict[str, Any] = {
    "array": lambda: torch.from_numpy(numpy.array([[1.0, 2.0]])),
    "list": lambda: torch.as_tensor([[1.0, 2.0]]),
    "numbers": lambda: torch.tensor([[1.0, 2.0]]),
}
SHOWN: dict[str, Any] = {"itself": lambda c: c, "rows": lambda c: c[:1], "flat": lambda c: c.view(-1)}


@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("inverts", [False, True], ids=["alone", "beside an operation with other strides"])
def test_each_call_gives_a_constant_of_its_own(inverts: bool, name: str, shown: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        constant = CONSTANTS[name]()
        if inverts:
            torch.linalg.inv(torch.eye(2) + x.sum())
        return SHOWN[shown](constant)

    compiled = thunder.jit(program)
    x = torch.ones(2)
    for _ in range(3):
        result = compiled(x)
        assert result.flatten().tolist() == [1.0, 2.0]
        result.zero_()
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_a_write_to_an_array_that_is_put_back_before_the_end_is_seen_in_between() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        array = x.numpy()
        array[0] = 2.5
        between = x.log1p()
        array[0] = 0.5
        return between

    compiled = thunder.jit(program)
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.tensor([0.5])), program(torch.tensor([0.5])))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.numpy().sum(), torch.vmap(torch.sin)(x)),
        lambda x: torch.vmap(lambda row: row * float(x.numpy().max()))(x),
        lambda x: (x.numpy().sum(), torch.func.grad(lambda t: t.sin().sum())(x)),
        lambda x: (x.numpy().sum(), torch.func.jvp(torch.cos, (x,), (x,))[1]),
    ],
)
def test_an_array_beside_a_transform(function: Callable[[torch.Tensor], Any]) -> None:
    compiled = thunder.jit(function)
    for x in (torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(3, 2).t()):
        torch.testing.assert_close(compiled(x), function(x))


INDICES: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "index": lambda x, i: x[i],
    "index and slice": lambda x, i: x[i, 1:],
    "index behind a slice": lambda x, i: x.t()[:, i],
    "index and int": lambda x, i: x[i, 2] * 2,
    "beside a tensor": lambda x, i: x[i, torch.zeros(8, dtype=torch.long)],
    "write": lambda x, i: write(x.clone(), i),
    "indices of a default": lambda x, i: x[torch.Tensor(i).long()],
}


def write(x: torch.Tensor, i: Any) -> torch.Tensor:
    x[i] = 1.0
    x[i, 1] += 2.0
    return x


@pytest.mark.parametrize("dtype", [numpy.int64, numpy.int32, numpy.int8, numpy.uint16])
@pytest.mark.parametrize("name", INDICES)
def test_indices_that_change_have_one_program(name: str, dtype: Any) -> None:
    compiled = thunder.jit(INDICES[name])
    x = torch.randn(24, 4)
    for seed in range(5):
        indices = numpy.random.RandomState(seed).permutation(24)[:8].astype(dtype)
        torch.testing.assert_close(compiled(x, indices), INDICES[name](x, indices))
    assert thunder.compile_stats(compiled)["specializations"] == 1
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "index",
    [
        numpy.array([[0, 1], [1, 0]]),
        numpy.arange(72).reshape(36, 2) % 4,
        numpy.array([1.0, 2.0]),
        numpy.array([1, 0, 1, 0], numpy.uint8),
        numpy.array([True, False, True, True]),
        numpy.array(2),
        numpy.array([], numpy.int64),
        numpy.array([-1, -4]),
        numpy.array([4]),
        numpy.arange(4)[::-1],
        numpy.broadcast_to(numpy.array(1), (3,)),
        numpy.array([1, 2], ">i8"),
    ],
    ids=repr,
)
def test_an_array_is_the_index_that_it_is_in_eager(index: Any) -> None:
    def result(function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            return str(error).split("\n")[0]

    x = torch.randn(4, 4)
    for program in (lambda x, i: x[i], lambda x, i: x[:, i], lambda x, i: x[i, 1:]):
        compiled = thunder.jit(program)
        for changed in (index, index.copy(), index[::-1].copy() if index.ndim else index):
            assert_same(result(compiled, x, changed), result(program, x, changed), "result")


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("maker", [torch.Tensor, torch.FloatTensor])
@pytest.mark.parametrize("dtype", [numpy.float32, numpy.float64])
def test_a_tensor_of_a_class_shares_memory_where_it_does_in_eager(maker: Any, dtype: Any) -> None:
    def program(array: Any) -> Any:
        tensor = maker(array)
        tensor.add_(1)
        return tensor * 2

    for function in (program, thunder.jit(program)):
        array = numpy.ones(3, dtype)
        assert function(array).tolist() == [4.0] * 3
        assert array.tolist() == [2.0 if dtype is numpy.float32 else 1.0] * 3
