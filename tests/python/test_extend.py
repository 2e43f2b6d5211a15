"""Executors written in Python, beside eager: operators, implementations, derivatives, fusion, and their errors."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager, in_threads
from torch.nn import functional as F

import thunder
from thunder import extend
from thunder.extend import OperatorExecutor, get_grad, put_grad

calls: list[str] = []


@pytest.fixture(autouse=True)
def forget_calls() -> Iterator[None]:
    calls.clear()
    defaults = extend.get_default_executors()
    yield
    extend.set_default_executors(defaults)


def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0)).requires_grad_()


def counted(function: Callable[..., Any], name: str | None = None) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        calls.append(name or function.__name__)
        return function(*args, **kwargs)

    return call


def linear_of_mine(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    calls.append("linear")
    result = x @ weight.T
    return result if bias is None else result + bias


def linear_executor(name: str = "linear_tests", **options: Any) -> OperatorExecutor:
    executor = OperatorExecutor(name)
    linear = executor.register_operator("linear", like=F.linear, fn=linear_of_mine)
    executor.register_implementation(F.linear, linear, **options)
    return executor


def operators_of(traces: list[thunder.Trace]) -> list[str]:
    return [symbol.name for symbol in traces[-1].bound_symbols]


# --- an operator in the place of PyTorch's


def two_layers() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.GELU(), torch.nn.Linear(6, 3, bias=False))


def test_implementation_runs_in_forward_and_gradients_are_those_of_the_operation() -> None:
    compiled = assert_as_eager(two_layers(), values(5, 4), options={"executors": [linear_executor()]})
    assert calls == ["linear"] * 4
    assert operators_of(thunder.last_traces(compiled)).count("linear_tests.linear.default") == 2
    before = [each for each in thunder.last_traces(compiled) if "transform_for_execution" not in str(each)]
    assert "aten.linear.default" in operators_of(before)


def test_backward_reads_the_results_of_the_implementation() -> None:
    executor = OperatorExecutor("sigmoid_tests")
    # Twice the sigmoid: eager's gradient formula s * (1 - s), fed with 2s, tells which result was saved.
    double = executor.register_operator("double", like=torch.sigmoid, fn=lambda x: 2 * torch.sigmoid(x))
    executor.register_implementation(torch.sigmoid, double)
    x = values(3)
    (gradient,) = torch.autograd.grad(thunder.jit(torch.sigmoid, executors=[executor])(x).sum(), x)
    s = 2 * torch.sigmoid(x.detach())
    torch.testing.assert_close(gradient, s * (1 - s))


def test_implementation_runs_without_gradients_too() -> None:
    compiled = thunder.jit(F.linear, executors=[linear_executor()])
    x, weight = values(2, 4), values(3, 4)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, weight), F.linear(x, weight))
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x, weight), F.linear(x, weight))
    assert calls == ["linear", "linear"]


def test_call_without_gradients_of_what_was_compiled_with_them() -> None:
    module = thunder.jit(torch.nn.Linear(4, 3), executors=[linear_executor()])
    module(torch.ones(2, 4))
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    assert module(torch.ones(2, 4)).requires_grad is False
    assert calls == ["linear", "linear"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_the_implementation_gets_cast_arguments(dtype: torch.dtype) -> None:
    seen = []

    def fn(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        seen.append(x.dtype)
        return F.linear(x, weight, bias)

    executor = OperatorExecutor("autocast_tests")
    executor.register_implementation(F.linear, executor.register_operator("linear", like=F.linear, fn=fn))
    module = two_layers()

    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=dtype):
            return module(x).sum()

    assert_as_eager(program, values(5, 4), options={"executors": [executor]})
    assert set(seen) == {dtype}


def test_priority_is_the_order_of_executors() -> None:
    first = OperatorExecutor("first_tests")
    second = OperatorExecutor("second_tests")
    for executor in (first, second):
        op = executor.register_operator("relu", like=torch.relu, fn=counted(torch.relu, executor.name))
        executor.register_implementation(torch.relu, op)
    x = torch.randn(3)
    thunder.jit(torch.relu, executors=[first, second])(x)
    thunder.jit(torch.relu, executors=[second, first])(x)
    thunder.jit(torch.relu, executors=["aten", first])(x)
    thunder.jit(torch.relu)(x)
    assert calls == ["first_tests", "second_tests"]


def test_checker_sees_metadata_and_decides() -> None:
    seen = []

    def checker(x: Any, weight: Any, bias: Any = None) -> bool:
        seen.append((x.shape, x.dtype, x.device, x.ndim, x.numel(), bias))
        return weight.shape[0] == 3

    executor = linear_executor(checker=checker)
    compiled = thunder.jit(lambda x, v, w: (F.linear(x, v), F.linear(x, w)), executors=[executor])
    compiled(torch.ones(2, 4), torch.ones(3, 4), torch.ones(5, 4))
    assert calls == ["linear"]
    assert seen[0] == ((2, 4), torch.float32, torch.device("cpu"), 2, 8, None)


def test_execution_transform_is_recorded_and_its_operations_are_claimed_by_later_executors() -> None:
    later = OperatorExecutor("later_tests")
    op = later.register_operator("matmul", like="aten::matmul", fn=counted(torch.matmul))
    later.register_implementation("aten::matmul", op)
    executor = OperatorExecutor("transform_tests")
    executor.register_implementation(
        F.linear,
        execution_transform=lambda x, w, b=None: torch.matmul(x, w.t()) if b is None else torch.matmul(x, w.t()) + b,
    )
    compiled = assert_as_eager(two_layers(), values(5, 4), options={"executors": [executor, later]})
    assert calls == ["matmul"] * 4
    assert "aten.linear.default" not in operators_of(thunder.last_traces(compiled))


def test_execution_transform_may_call_the_operation_itself() -> None:
    executor = OperatorExecutor("padding_tests")
    executor.register_implementation(F.linear, execution_transform=lambda x, w, b=None: F.linear(x.contiguous(), w, b))
    assert_as_eager(two_layers(), values(5, 4), options={"executors": [executor]})


def test_operations_of_derivatives_are_served() -> None:
    executor = OperatorExecutor("mm_tests")
    op = executor.register_operator("mm", like=torch.mm, fn=counted(torch.mm))
    executor.register_implementation("aten::mm", op)
    compiled = assert_as_eager(lambda x, w: x @ w, values(3, 4), values(4, 5), options={"executors": [executor]})
    assert operators_of(thunder.last_backward_traces(compiled)).count("mm_tests.mm.default") == 2


def test_results_that_are_several_or_lists() -> None:
    executor = OperatorExecutor("several_tests")
    sort = executor.register_operator("sort", like="aten::sort", fn=counted(torch.sort))
    split = executor.register_operator(
        "split", meta=_split_meta, fn=lambda x, parts: [part.clone() for part in torch.tensor_split(x, parts)]
    )
    executor.register_implementation("aten::sort", sort)
    assert_as_eager(lambda x: torch.sort(x, dim=0), values(4, 3), options={"executors": [executor]})
    assert calls == ["sort"] * 2
    compiled = thunder.jit(lambda x: [part * 2 for part in split(x, 2)], executors=[executor])
    for got, expected in zip(compiled(torch.arange(6.0)), torch.arange(6.0).tensor_split(2), strict=True):
        torch.testing.assert_close(got, expected * 2)


def _split_meta(x: torch.Tensor, parts: int) -> list[torch.Tensor]:
    return [torch.empty_like(part) for part in torch.tensor_split(x, parts)]


def test_printed_trace_runs() -> None:
    compiled = thunder.jit(F.linear, executors=[linear_executor()])
    x, weight = torch.randn(2, 4), torch.randn(3, 4)
    expected = compiled(x, weight)
    trace = thunder.last_traces(compiled)[-1]
    assert "torch.ops.linear_tests.linear." in str(trace)
    assert "executor linear_tests" in str(trace)
    calls.clear()
    assert torch.equal(trace.python_callable()(x, weight)[0], expected)
    assert calls == ["linear"]


# --- operators of one's own


def scale_meta(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    return torch.empty_like(x)


def make_scale(name: str, **options: Any) -> Any:
    executor = OperatorExecutor(name)
    scale = executor.register_operator("scale", meta=scale_meta, fn=lambda x, factor=2.0: x * factor)

    def gradient(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
        result = scale(x, factor)
        put_grad(x, get_grad(result) * factor)
        return result

    if options.get("differentiable", True):
        executor.register_implementation(scale, grad_transform=gradient)
    return executor, scale


@pytest.mark.parametrize("listed", [True, False])
def test_operator_is_as_in_eager(listed: bool) -> None:
    executor, scale = make_scale("scale_tests")
    options = {"executors": [executor]} if listed else None
    compiled = assert_as_eager(lambda x: scale(x.sin(), 3.0).cos(), values(3, 4), options=options)
    assert "scale_tests.scale" in str(thunder.last_traces(compiled)[-1])
    rule = [row for row in thunder.rules(compiled) if "scale" in row.operation]
    assert [row.rule for row in rule] == ["registered"]
    assert "grad_transform of executor 'scale_tests'" in rule[0].reason


def test_operator_differentiated_inside() -> None:
    _, scale = make_scale("inside_tests")

    def program(x: torch.Tensor) -> Any:
        y = scale(x.sin(), 3.0).sum()
        return torch.autograd.grad(y, x)

    assert_as_eager(program, values(3, 4))


def test_functional_transforms_of_an_operator() -> None:
    _, scale = make_scale("functional_tests")
    x = torch.randn(3, 4)
    torch.testing.assert_close(thunder.grad(lambda x: scale(x, 3.0).sum())(x), torch.full((3, 4), 3.0))
    torch.testing.assert_close(thunder.vmap(lambda x: scale(x, 3.0))(x), 3 * x)


@pytest.mark.parametrize("jvp", [thunder.jvp, torch.func.jvp])
def test_forward_mode_of_an_operator_is_refused(jvp: Callable[..., Any]) -> None:
    _, scale = make_scale("forward_mode_tests")
    x = torch.randn(3)
    with pytest.raises(NotImplementedError, match=r"scale.*forward-mode") as caught:
        jvp(lambda x: scale(x, 3.0), (x,), (x,))
    assert "bug in thunder" not in str(caught.value)


def test_operator_with_data_dependent_python() -> None:
    executor, scale = make_scale("data_tests")

    def program(x: torch.Tensor) -> torch.Tensor:
        y = scale(x, 3.0)
        return y * 2 if y.sum() > 0 else y[y < -1].exp()

    compiled = thunder.jit(program, executors=[executor])
    for data in (torch.ones(4), -torch.ones(4), torch.tensor([-3.0, 0.1, -0.2, 0.0])):
        x = data.requires_grad_()
        got, expected = compiled(x), program(x)
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(*(torch.autograd.grad(y.sum(), x)[0] for y in (got, expected)))


def test_data_read_while_tracing_is_computed_by_the_implementation() -> None:
    executor = OperatorExecutor("rounding_tests")
    rounded = executor.register_operator("sum", like="aten::sum", fn=lambda x, dtype=None: torch.sum(x).round() + 0.25)
    executor.register_implementation("aten::sum", rounded, checker=lambda x, dtype=None: True)
    compiled = thunder.jit(lambda x: x * x.sum().item() if x.sum().item() > 1 else x, executors=[executor])
    torch.testing.assert_close(compiled(torch.tensor([0.8, 0.9])), torch.tensor([0.8, 0.9]) * 2.25)
    torch.testing.assert_close(compiled(torch.tensor([0.8, 0.9])), torch.tensor([0.8, 0.9]) * 2.25)
    assert thunder.cache_misses(compiled) == 1


def test_numbers_of_the_trace_are_arguments_of_implementations() -> None:
    executor = OperatorExecutor("numbers_tests")
    for name, function in (("mul", torch.mul), ("add", torch.add)):
        op = executor.register_operator(name, like=f"aten::{name}.Tensor", fn=counted(function))
        executor.register_implementation(f"aten::{name}.Tensor", op)
    compiled = thunder.jit(lambda x: x * x.sum().item() + 2, executors=[executor])
    for x in (torch.ones(3), torch.arange(3.0)):
        torch.testing.assert_close(compiled(x), x * x.sum().item() + 2)
    assert calls == ["mul", "add"] * 2
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64])
def test_numbers_beside_tensors_do_not_promote(dtype: torch.dtype) -> None:
    executor = OperatorExecutor("promotion_tests")
    op = executor.register_operator("mul", like="aten::mul.Tensor", fn=counted(torch.mul))

    def gradient(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result = op(x, y)
        put_grad(x, get_grad(result) * y)
        return result

    executor.register_implementation("aten::mul.Tensor", op, grad_transform=gradient)
    x = torch.arange(3).to(dtype)
    for program in (lambda x: x * 2, lambda x: x * 2.5, lambda x: 3 * x[0]):
        arguments = x.requires_grad_() if dtype.is_floating_point else x
        assert_as_eager(program, arguments, options={"executors": [executor]})
    assert calls


def test_function_of_an_operator_runs_without_autocast_in_eager_too() -> None:
    executor = OperatorExecutor("plain_tests")
    product = executor.register_operator("product", like=torch.mm, fn=lambda x, y: x.mm(y))

    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return product(x.sin(), x.mm(x).float())

    for options in ({"executors": [executor]}, {}):
        assert_as_eager(program, values(4, 4), options=options)


def test_calls_from_several_threads() -> None:
    compiled = thunder.jit(two_layers(), executors=[linear_executor("threads_tests")])
    x = values(5, 4)
    expected = compiled(x)

    def work(number: int) -> None:
        for _ in range(20):
            result = compiled(x)
            torch.testing.assert_close(result, expected)
            torch.autograd.grad(result.sum(), x)

    in_threads(4, work)


def test_operator_without_a_derivative_raises_in_the_backward_only() -> None:
    executor, scale = make_scale("underivable_tests", differentiable=False)
    for program in (thunder.jit(lambda x: scale(x), executors=[executor]), scale):
        result = program(values(3))
        torch.testing.assert_close(result, 2 * values(3))
        with pytest.raises(NotImplementedError, match=r"executor 'underivable_tests'.*scale.*no derivative"):
            result.sum().backward()


def test_rule_with_several_results_and_arguments() -> None:
    executor = OperatorExecutor("pair_tests")

    def meta(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.empty_like(x), torch.empty_like(x)

    pair = executor.register_operator("pair", meta=meta, fn=lambda x, y: (x * y, x + y))

    def gradient(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        product, total = pair(x, y)
        along_total, along_product = get_grad(total), get_grad(product)
        put_grad(x, along_product * y)
        put_grad(x, along_total)
        put_grad(y, along_product * x + along_total)
        return product, total

    executor.register_implementation(pair, grad_transform=gradient)

    def plain(x: torch.Tensor, y: torch.Tensor) -> Any:
        return (x * y).exp(), (x + y).sin()

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        product, total = pair(x, y)
        return product.exp(), total.sin()

    x, y = values(3), (values(3).detach() + 1).requires_grad_()
    for run in (thunder.jit(program, executors=[executor]), program):
        got, expected = run(x, y), plain(x, y)
        torch.testing.assert_close(got, expected)
        for used in ((0, 1), (0,), (1,)):
            gradients = [
                torch.autograd.grad(sum(r[i].sum() for i in used), (x, y), retain_graph=True) for r in (got, expected)
            ]
            torch.testing.assert_close(*gradients)


def test_grad_transform_saves_what_it_computes_before_the_first_gradient() -> None:
    executor = OperatorExecutor("saving_tests")
    op = executor.register_operator("tanh", like=torch.tanh, fn=torch.tanh)

    def gradient(x: torch.Tensor) -> torch.Tensor:
        result = op(x)
        slope = 1 - result * result
        put_grad(x, get_grad(result) * slope)
        return result

    executor.register_implementation(torch.tanh, op, grad_transform=gradient)
    compiled = assert_as_eager(torch.tanh, values(4), options={"executors": [executor], "rematerialize": False})
    assert operators_of(thunder.last_backward_traces(compiled)) == ["aten.mul.Tensor"]
    # The rule holds where the executor has its turn, and nowhere else.
    compiled = assert_as_eager(torch.tanh, values(4), options={"rematerialize": False})
    assert operators_of(thunder.last_backward_traces(compiled)) == ["aten.tanh_backward.default"]


def test_grad_transform_alone_changes_the_derivative_alone() -> None:
    executor = OperatorExecutor("straight_through_tests")

    def gradient(x: torch.Tensor) -> torch.Tensor:
        result = torch.round(x)
        put_grad(x, get_grad(result))
        return result

    executor.register_implementation("aten::round", grad_transform=gradient)
    x = values(3)
    result = thunder.jit(torch.round, executors=[executor])(x)
    torch.testing.assert_close(result, torch.round(x))
    torch.testing.assert_close(torch.autograd.grad(result.sum(), x)[0], torch.ones(3))


def test_operator_that_draws_numbers_is_not_merged() -> None:
    executor = OperatorExecutor("random_tests")
    noise = executor.register_operator(
        "noise", meta=lambda x: torch.empty_like(x), fn=torch.rand_like, tags=[torch.Tag.nondeterministic_seeded]
    )
    pure = executor.register_operator("pure", meta=lambda x: torch.empty_like(x), fn=counted(torch.sin))
    first, second = thunder.jit(lambda x: (noise(x), noise(x)), executors=[executor])(torch.ones(8))
    assert not torch.equal(first, second)
    thunder.jit(lambda x: pure(x) + pure(x), executors=[executor])(torch.ones(8))
    assert calls == ["sin"]


def test_strides_of_results_are_those_declared() -> None:
    executor = OperatorExecutor("strides_tests")
    op = executor.register_operator(
        "turned",
        meta=lambda x: torch.empty_like(x),
        fn=lambda x: x.t().contiguous().t().clone(memory_format=torch.preserve_format),
    )
    result = thunder.jit(lambda x: op(x), executors=[executor])(torch.arange(6.0).reshape(2, 3))
    assert result.stride() == (3, 1)
    torch.testing.assert_close(result, torch.arange(6.0).reshape(2, 3))


# --- the list of executors


def test_default_executors() -> None:
    executor = linear_executor("default_tests")
    x, weight = torch.ones(2, 4), torch.ones(3, 4)
    extend.add_default_executor(executor)
    assert extend.get_default_executors()[0] is executor
    assert extend.get_executor("default_tests") is executor
    assert executor in extend.get_all_executors()
    thunder.jit(F.linear)(x, weight)
    extend.remove_default_executor("default_tests")
    thunder.jit(F.linear)(x, weight)
    assert calls == ["linear"]
    thunder.jit(F.linear, executors=["default_tests"])(x, weight)
    assert calls == ["linear"] * 2
    extend.deregister_executor(executor)
    with pytest.raises(ValueError, match="aten"):
        extend.get_executor("default_tests")
    with pytest.raises(ValueError, match=r"aten.*default_tests"):
        thunder.jit(F.linear, executors=["default_tests"])


def test_name_of_a_registered_executor_is_the_last_one_registered() -> None:
    for _ in range(2):
        executor = extend.register_executor(linear_executor("again_tests"))
    assert extend.get_executor("again_tests") is executor
    extend.deregister_executor("again_tests")


def test_compiled_function_with_executors_is_pickled_by_their_names() -> None:
    executor = extend.register_executor(linear_executor("pickle_tests"))
    module = pickle.loads(pickle.dumps(thunder.jit(torch.nn.Linear(4, 3), executors=[executor])))
    assert module.__options__.executors == (executor,)
    module(torch.ones(2, 4))
    assert calls == ["linear"]
    extend.deregister_executor("pickle_tests")


def test_nested_jit_in_a_function_of_an_executor() -> None:
    executor = OperatorExecutor("nested_tests")
    op = executor.register_operator("relu", like=torch.relu, fn=thunder.jit(lambda x: torch.clamp(x, min=0)))
    executor.register_implementation(torch.relu, op)
    assert_as_eager(lambda x: torch.relu(x.sin()), values(4), options={"executors": [executor]})
