"""Operators of `torch.library` inside: those that write, that give what follows from data, that are defined anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager, assert_same, clone, run

import thunder

_library = torch.library.Library("thunder_tests_operators", "DEF")
operators = torch.ops.thunder_tests_operators


def define(schema: str, kernel: Callable[..., Any], **options: Any) -> None:
    """Define an operator with a kernel for the CPU, and nothing that says what its results look like."""
    _library.define(schema, **options)
    _library.impl(schema[: schema.index("(")], kernel, "CPU")


def add_to(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y)


def update_cache(keys: torch.Tensor, values: torch.Tensor, new: torch.Tensor, position: int) -> None:
    keys[position : position + len(new)] = new
    values[position : position + len(new)] = 2 * new


def suppress(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return the positions of boxes `[left, right]` that overlap no better one by more than the threshold."""
    keep: list[int] = []
    for i in scores.argsort(descending=True).tolist():
        left = torch.maximum(boxes[keep, 0], boxes[i, 0])
        right = torch.minimum(boxes[keep, 1], boxes[i, 1])
        if bool((right - left <= threshold).all()):
            keep.append(i)
    return torch.tensor(keep, dtype=torch.int64)


def double_each(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    for tensor in tensors:
        tensor.mul_(2)
    return [tensor + 1 for tensor in tensors]


def add_one_if_given(x: torch.Tensor | None, y: torch.Tensor) -> torch.Tensor:
    return y * 2 if x is None else y * x.add_(1).sum()


def add_noise(x: torch.Tensor) -> None:
    x.add_(torch.rand(x.shape))


def give_statistics(x: torch.Tensor) -> tuple[torch.Tensor, int, bool, float]:
    return x * 2, int(x.sum()), bool(x.sum() > 10), float(x.mean())


define("add_to(Tensor(a!) x, Tensor y) -> ()", add_to)
define("add_to_and_return(Tensor(a!) x, Tensor y) -> Tensor(a!)", lambda x, y: x.add_(y))
define("triple_into(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", lambda x, *, out: out.copy_(3 * x))
define("update_cache(Tensor(a!) keys, Tensor(b!) values, Tensor new, int position) -> ()", update_cache)
define("double_each(Tensor(a!)[] tensors) -> Tensor[]", double_each)
define("add_one_if_given(Tensor(a!)? x, Tensor y) -> Tensor", add_one_if_given)
define("add_noise(Tensor(a!) x) -> ()", add_noise, tags=(torch.Tag.nondeterministic_seeded,))
define("noisy(Tensor x) -> Tensor", lambda x: x + torch.rand(x.shape), tags=(torch.Tag.nondeterministic_seeded,))
define("suppress(Tensor boxes, Tensor scores, float threshold) -> Tensor", suppress)
define("statistics(Tensor x) -> (Tensor, int, bool, float)", give_statistics)
define("transposed(Tensor x) -> Tensor", lambda x: x.t().clone(memory_format=torch.preserve_format))
torch.library.register_fake("thunder_tests_operators::transposed")(lambda x: x.new_empty(x.t().shape))


def numbers(*shape: int, requires_grad: bool = False) -> torch.Tensor:
    """Return different numbers."""
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32).sin() + 1.5).reshape(shape).requires_grad_(requires_grad)


def assert_each_as_eager(program: Callable[..., Any], *calls: Any, misses: int) -> None:
    """Check a compiled program beside eager, with one tuple of arguments after the other."""
    compiled = thunder.jit(program)
    for arguments in calls:
        expected, got = (run(each, clone(arguments), {}, seed=0) for each in (program, compiled))
        assert_same(got, expected, "call")
    assert thunder.cache_misses(compiled) == misses


def write_to_intermediate(a: torch.Tensor) -> Any:
    b = a * 1
    operators.add_to(b, a)
    return b


def write_through_view(a: torch.Tensor) -> Any:
    b = a * 1
    operators.add_to(b[1:], a[:2])
    return b, b[1] * 2


def write_to_input(a: torch.Tensor) -> Any:
    operators.add_to(a, a * 2)
    return a + 1


def write_and_go_on_with_result(a: torch.Tensor) -> Any:
    b = a * 1
    c = operators.add_to_and_return(b, a)
    c.mul_(2)
    return b, c


def write_to_out(a: torch.Tensor) -> Any:
    out = torch.empty_like(a)
    operators.triple_into(a, out=out).add_(1)
    return out


def write_to_parts_of_one_tensor(a: torch.Tensor) -> Any:
    cache = torch.zeros(2, 4, 3)
    operators.update_cache(cache[0], cache[1], a, 1)
    return cache


def write_to_list(a: torch.Tensor) -> Any:
    b = a * 1
    return operators.double_each([a, b]), b


def write_to_optional(a: torch.Tensor) -> Any:
    b = a * 1
    return operators.add_one_if_given(None, a), operators.add_one_if_given(b, a), b


def write_random_numbers(a: torch.Tensor) -> Any:
    b = a * 1
    operators.add_noise(b)
    operators.add_noise(b)
    return b, torch.rand(2)


def write_without_gradient(a: torch.Tensor) -> Any:
    b = a * 2
    with torch.no_grad():
        operators.add_to(b, a)
    return b.sin()


WRITES = [
    write_to_intermediate,
    write_through_view,
    write_to_input,
    write_and_go_on_with_result,
    write_to_out,
    write_to_parts_of_one_tensor,
    write_to_list,
    write_to_optional,
    write_random_numbers,
]


@pytest.mark.parametrize("program", WRITES, ids=lambda program: program.__name__)
def test_custom_operator_that_writes_is_compiled(program: Callable[..., Any]) -> None:
    assert_as_eager(program, numbers(3, 3))


def test_custom_operator_writes_to_what_autograd_does_not_see() -> None:
    assert_as_eager(write_without_gradient, numbers(3, requires_grad=True))


def test_custom_operator_writes_to_inputs_that_lie_in_one_storage() -> None:
    def program(keys: torch.Tensor, values: torch.Tensor, new: torch.Tensor) -> Any:
        operators.update_cache(keys, values, new, 1)
        return keys + values

    def arguments() -> tuple[torch.Tensor, ...]:
        cache = torch.zeros(2, 4, 3)
        return cache[0], cache[1], numbers(2, 3)

    expected, got = arguments(), arguments()
    torch.testing.assert_close(thunder.jit(program)(*got), program(*expected))
    torch.testing.assert_close(got, expected)


def write_to_what_it_reads(a: torch.Tensor) -> None:
    operators.add_to(a, a)


def write_to_overlapping(a: torch.Tensor) -> None:
    operators.update_cache(a[:2], a[1:], a[:1] * 2, 0)


def write_to_what_requires_grad(a: torch.Tensor) -> None:
    operators.add_to(a.detach().requires_grad_() * 1, a)


@pytest.mark.parametrize(
    "program", [write_to_what_it_reads, write_to_overlapping, write_to_what_requires_grad], ids=lambda p: p.__name__
)
def test_custom_operator_whose_writes_depend_on_memory_or_autograd_is_refused(program: Callable[..., Any]) -> None:
    with pytest.raises(NotImplementedError, match="it writes to"):
        thunder.jit(program, fullgraph=True)(numbers(3, 3))


def test_operator_without_shapes_gives_as_many_rows_as_the_data_says() -> None:
    def program(boxes: torch.Tensor, scores: torch.Tensor) -> Any:
        keep = operators.suppress(boxes, scores, 0.5)
        return boxes[keep].sum(0), keep

    apart = torch.tensor([[0.0, 2.0], [2.0, 4.0], [4.0, 6.0]])
    scores = torch.tensor([0.5, 0.9, 0.1])
    calls = [(boxes, scores) for boxes in (apart, apart / 2, apart * 0 + apart[0], apart)]
    assert_each_as_eager(program, *calls, misses=2)


def test_numbers_that_a_custom_operator_gives_are_met_again() -> None:
    def program(a: torch.Tensor) -> Any:
        doubled, total, is_large, mean = operators.statistics(a * 1)
        return doubled * total + mean if is_large else doubled - total

    assert_each_as_eager(program, *[(numbers(4) * factor,) for factor in (1.0, 4.0, 1.0, 4.0)], misses=2)


@torch.library.custom_op("thunder_tests_operators::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0]


def _save(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _scatter(context: Any, gradient: torch.Tensor) -> torch.Tensor:
    (x,) = context.saved_tensors
    return torch.zeros_like(x).masked_scatter(x > 0, gradient)


@torch.library.custom_op("thunder_tests_operators::places", mutates_args=())
def places(x: torch.Tensor) -> torch.Tensor:
    return x.nonzero()


@places.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    count = torch.library.get_ctx().new_dynamic_size()
    return x.new_empty((count, x.dim()), dtype=torch.int64)


positive.register_autograd(_scatter, setup_context=_save)


def test_custom_operator_without_fake_kernel_has_its_gradient() -> None:
    def program(x: torch.Tensor) -> Any:
        return positive(x * 2).sin()

    calls = [((numbers(5) - shift).requires_grad_(),) for shift in (1.0, 1.7, 1.0)]
    assert_each_as_eager(program, *calls, misses=2)


def test_fake_kernel_may_leave_a_size_open() -> None:
    def program(x: torch.Tensor) -> Any:
        return places(x).sum(0)

    assert_each_as_eager(program, (numbers(5),), (torch.zeros(5),), (numbers(5),), misses=2)


def test_operator_that_draws_is_run_once_per_call() -> None:
    def program(x: torch.Tensor) -> Any:
        return operators.noisy(x) + operators.noisy(x), torch.rand(2)

    assert_as_eager(program, numbers(3))


@torch.library.custom_op("thunder_tests_operators::with_noise", mutates_args=())
def add_noise(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand(x.shape)


add_noise.register_fake(torch.empty_like)
add_noise.register_autograd(lambda context, cotangent: cotangent)


def _branches(x: torch.Tensor) -> torch.Tensor:
    return add_noise(x) - add_noise(x)


def _unused(x: torch.Tensor) -> torch.Tensor:
    add_noise(x)
    return x + torch.rand(3)


def _between(x: torch.Tensor) -> torch.Tensor:
    first = torch.rand(3) * x
    noisy = add_noise(x.exp())
    return torch.rand(3) + noisy * first


@pytest.mark.parametrize("program", [_branches, _unused, _between])
def test_custom_operator_that_draws_without_saying_so_runs_where_it_stands(program: Callable[..., Any]) -> None:
    compiled = thunder.jit(program, fullgraph=True)
    for seed in range(3):
        x = torch.ones(3, requires_grad=True)
        got = []
        for function in (compiled, program):
            torch.manual_seed(seed)
            result = function(x)
            got.append((result, *torch.autograd.grad(result.sum(), x), torch.rand(1)))
        torch.testing.assert_close(*got)


def test_fake_kernel_that_tells_other_strides_breaks_no_view() -> None:
    def program(x: torch.Tensor) -> Any:
        return operators.transposed(x).contiguous().view(-1)

    assert_as_eager(program, numbers(2, 3))


def test_error_of_a_custom_operator_is_its_own() -> None:
    @torch.library.custom_op("thunder_tests_operators::checked", mutates_args=())
    def checked(x: torch.Tensor) -> torch.Tensor:
        if x.sum() < 0:
            raise ValueError("negative")
        return x.clone()

    def program(x: torch.Tensor) -> Any:
        return checked(x * 1)

    assert_each_as_eager(program, (numbers(3),), (-numbers(3),), (numbers(3),), misses=1)


def test_operator_may_be_looked_up_inside_for_the_first_time() -> None:
    define("looked_up(Tensor x) -> Tensor", lambda x: x * 3)
    compiled = thunder.jit(lambda x: torch.ops.thunder_tests_operators.looked_up.default(x))
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert thunder.cache_misses(compiled) == 1


def test_operator_that_is_not_there_raises_an_attribute_error_inside() -> None:
    def program(x: torch.Tensor) -> Any:
        try:
            return torch.ops.thunder_tests_operators.nowhere(x)
        except AttributeError:
            return x if hasattr(torch.ops.thunder_tests_operators, "add_to") else -x

    assert_as_eager(program, numbers(2))


def test_operator_that_is_defined_anew_is_called_as_it_is_now() -> None:
    compiled = thunder.jit(lambda x: torch.ops.thunder_tests_anew.scale(x))
    kernels: list[tuple[str, Callable[..., Any]]] = [
        ("scale(Tensor x) -> Tensor", lambda x: x * 2),
        ("scale(Tensor x, int factor=3) -> Tensor", lambda x, factor=3: x * factor),
        ("scale(Tensor(a!) x) -> Tensor", lambda x: x.add_(1) * 1),
    ]
    results = []
    for schema, kernel in kernels:
        library = torch.library.Library("thunder_tests_anew", "FRAGMENT")
        library.define(schema)
        library.impl("scale", kernel, "CPU")
        results.append([compiled(torch.ones(1)).item() for _ in range(2)])
        library._destroy()
        torch.ops.thunder_tests_anew.__dict__.pop("scale", None)
        with pytest.raises(AttributeError):
            compiled(torch.ones(1))
    assert results == [[2.0, 2.0], [3.0, 3.0], [2.0, 2.0]]


@torch.library.custom_op("thunder_tests::column_major", mutates_args=())
def column_major(x: torch.Tensor) -> torch.Tensor:
    """Return a copy whose columns lie in order, as those of some GPU kernels do: not what the rule below says."""
    return x.mT.contiguous().mT.clone()


@column_major.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


column_major.register_autograd(lambda context, gradient: gradient)

FACTORIZATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "det": lambda x: torch.linalg.det(column_major(x)),
    "slogdet": lambda x: torch.linalg.slogdet(column_major(x))[1],
    "logdet": lambda x: torch.logdet(column_major(x @ x.mT)),
    "solve": lambda x: torch.linalg.solve(column_major(x), x).square().sum() + column_major(x).det(),
    "inv": lambda x: torch.linalg.inv(column_major(x)).square().sum(),
    "second derivative": lambda x: thunder.grad(lambda y: torch.linalg.det(column_major(y)))(x).square().sum(),
}


@pytest.mark.parametrize("name", FACTORIZATIONS)
def test_derivatives_of_factorizations_go_by_the_strides_that_a_kernel_gives(name: str) -> None:
    function = FACTORIZATIONS[name]
    x = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    if name == "second derivative":
        expected = torch.func.grad(lambda y: torch.func.grad(torch.linalg.det)(y).square().sum())(x.detach())
    else:
        (expected,) = torch.autograd.grad(function(x), x)
    (got,) = torch.autograd.grad(thunder.jit(function)(x), x)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(thunder.grad(function)(x.detach()), expected)
