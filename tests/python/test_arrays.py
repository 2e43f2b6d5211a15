"""Memory that arrays of NumPy and tensors share: writes to it are seen on both sides, as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

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
def array_that_is_made_inside(x: torch.Tensor, array: Any) -> Any:
    made = numpy.zeros(3)
    made[0] = 5
    return x * float(made.sum()), made, torch.from_numpy(made * 2)


@compiled
def array_that_is_made_of_an_array(x: torch.Tensor, array: Any) -> Any:
    return x, numpy.arange(6).reshape(2, 3), array + 1


@refused
def tensor_over_the_array_of_an_input(x: torch.Tensor, array: Any) -> Any:
    return torch.as_tensor(x.numpy())


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


@refused
def tensor_as_an_array_is_returned(x: torch.Tensor, array: Any) -> Any:
    return x.numpy()


@refused
def result_and_its_array_are_returned(x: torch.Tensor, array: Any) -> Any:
    y = x + 1
    return y, y.numpy()[1:]


@refused
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
