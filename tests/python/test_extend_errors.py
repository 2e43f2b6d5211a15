"""Mistakes of executors written in Python: each is an error that names executor, operation and line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder
from thunder import extend
from thunder.extend import OperatorExecutor, get_grad, put_grad


def values(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


def relu_executor(fn: Callable[..., Any], name: str = "wrong_tests", **options: Any) -> OperatorExecutor:
    executor = OperatorExecutor(name)
    op = executor.register_operator("relu", like=torch.relu, fn=fn)
    executor.register_implementation(torch.relu, op, **options)
    return executor


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda x: x[:1].clone(), r"expected cpu f32\[3\], as it is declared, got cpu f32\[1\]"),
        (lambda x: x.double(), r"expected cpu f32\[3\].*got cpu f64\[3\]"),
        (lambda x: x.to("meta"), r"expected cpu f32\[3\].*got meta f32\[3\]"),
        (lambda x: x, "memory of its own"),
        (lambda x: x.view(3), "memory of its own"),
        (lambda x: 3, "expected tensors, got an object of type 'int'"),
        (lambda x: None, "None"),
        (lambda x: (x.clone(), x.clone()), "expected one tensor, got 2"),
    ],
    ids=["shape", "dtype", "device", "argument", "view", "number", "none", "two"],
)
def test_wrong_results_name_executor_operator_and_line(fn: Callable[..., Any], message: str) -> None:
    compiled = thunder.jit(lambda x: torch.relu(x), executors=[relu_executor(fn)])
    line = compiled.__wrapped__.__code__.co_firstlineno
    with pytest.raises((RuntimeError, TypeError), match=message) as caught:
        compiled(torch.ones(3))
    assert "executor 'wrong_tests': wrong_tests.relu" in str(caught.value)
    assert f"test_extend_errors.py, line {line}" in str(caught.value)


def test_exception_in_a_function_keeps_its_type() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("no luck")

    compiled = thunder.jit(lambda x: torch.relu(x), executors=[relu_executor(fn)])
    with pytest.raises(
        ValueError, match=r"(?s)no luck.*executor 'wrong_tests': wrong_tests.relu.*test_extend_errors.py, line"
    ):
        compiled(torch.ones(3))


def test_exception_in_a_backward_keeps_its_type() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 4:
            raise ValueError("no luck")
        return torch.mm(x, y)

    executor = OperatorExecutor("wrong_tests")
    executor.register_implementation(torch.mm, executor.register_operator("mm", like=torch.mm, fn=fn))
    x, y = values(3, 4), values(4, 5)
    result = thunder.jit(lambda x, y: torch.mm(x, y), executors=[executor])(x, y).sum()
    with pytest.raises(ValueError, match=r"(?s)no luck.*'wrong_tests': wrong_tests.mm.*test_extend_errors.py, line"):
        result.backward()


def test_exception_in_a_checker_names_executor_operation_and_line() -> None:
    executor = relu_executor(torch.relu, checker=lambda x: x.shape[7] == 1)
    compiled = thunder.jit(lambda x: torch.relu(x), executors=[executor])
    with pytest.raises(IndexError, match=r"(?s)checker of executor 'wrong_tests' for aten.relu.default.*line"):
        compiled(torch.ones(3))


def test_exception_in_an_execution_transform_names_executor_operation_and_line() -> None:
    executor = OperatorExecutor("wrong_tests")
    executor.register_implementation(torch.relu, execution_transform=lambda x: x @ x.t() @ torch.ones(7))
    compiled = thunder.jit(lambda x: torch.relu(x), executors=[executor])
    with pytest.raises(RuntimeError, match=r"(?s)implementation of executor 'wrong_tests' for aten.relu.default.*line"):
        compiled(torch.ones(3, 2))


def test_implementation_of_other_metadata_is_refused() -> None:
    executor = OperatorExecutor("wrong_tests")
    executor.register_implementation(torch.relu, execution_transform=lambda x: x.sum())
    with pytest.raises(ValueError, match=r"(?s)wrong_tests.*aten.relu.*expected cpu f32\[3\].*got cpu f32\[\].*line"):
        thunder.jit(lambda x: torch.relu(x), executors=[executor])(torch.ones(3))


def test_operator_whose_meta_function_fails_runs_once_for_its_shapes() -> None:
    executor = OperatorExecutor("wrong_tests")

    def meta(x: torch.Tensor) -> torch.Tensor:
        return torch.empty(x.shape[5])

    op = executor.register_operator("bad_meta", meta=meta, fn=torch.sin)
    compiled = thunder.jit(lambda x: op(x))
    torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3).sin())
    torch.testing.assert_close(compiled(torch.ones(5)), torch.ones(5).sin())


@torch.library.custom_op("thunder_tests::raises_in_backward", mutates_args=())
def raises_in_backward(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@raises_in_backward.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _raise(context: Any, gradient: torch.Tensor) -> Any:
    raise KeyError("no derivative yet")


raises_in_backward.register_autograd(_raise)


def test_exception_in_a_backward_of_the_user_is_no_bug_of_thunder() -> None:
    with pytest.raises(KeyError, match="no derivative yet"):
        thunder.jit(lambda x: raises_in_backward(x), fullgraph=True)(values(3))


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_exception_in_a_backward_of_the_user_is_raised_when_it_runs() -> None:
    result = thunder.jit(lambda x: raises_in_backward(x))(values(3))
    with pytest.raises(KeyError, match="no derivative yet"):
        result.sum().backward()


def test_exception_in_a_grad_transform_names_executor_and_operation() -> None:
    def gradient(x: torch.Tensor) -> torch.Tensor:
        put_grad(torch.ones(3), get_grad(x))
        return torch.relu(x)

    executor = relu_executor(torch.relu, grad_transform=gradient)
    with pytest.raises(
        ValueError, match=r"(?s)get_grad: expected a tensor that the grad_transform returns.*'wrong_tests'"
    ):
        thunder.jit(lambda x: torch.relu(x), executors=[executor])(values(3))


def test_operation_that_draws_numbers_needs_a_grad_transform() -> None:
    executor = OperatorExecutor("wrong_tests")
    executor.register_implementation(F.dropout, execution_transform=lambda x, p, train: F.dropout(x, p, train))
    with pytest.raises(NotImplementedError, match=r"wrong_tests.*dropout.*grad_transform"):
        thunder.jit(lambda x: F.dropout(x, 0.5), executors=[executor])(values(3))


@pytest.mark.parametrize(
    ("register", "error", "message"),
    [
        (lambda e: e.register_operator("f", fn=torch.sin), TypeError, "like and meta, got neither"),
        (lambda e: e.register_operator("f", like=torch.sin, meta=torch.sin, fn=torch.sin), TypeError, "got both"),
        (lambda e: e.register_operator("no name", like=torch.sin, fn=torch.sin), ValueError, "identifier"),
        (lambda e: e.register_operator("f", like="aten::no_such", fn=torch.sin), ValueError, "aten::no_such"),
        (lambda e: e.register_operator("f", like=torch.Tensor.t, fn=torch.sin), ValueError, "gives new tensors"),
        (lambda e: e.register_operator("f", like=torch.sin, fn=3), TypeError, "fn: expected a function, got 3"),
        (lambda e: e.register_operator("f", meta=3, fn=torch.sin), TypeError, "meta: expected a function, got 3"),
        (
            lambda e: e.register_operator("f", meta=_like, fn=lambda x: x),
            TypeError,
            r"takes \(x, y, scale\).*got \(x\)",
        ),
        (lambda e: e.register_operator("f", meta=_like, fn=lambda x, y: x), TypeError, r"takes \(x, y, scale\)"),
        (lambda e: e.register_operator("f", meta=_like, fn=lambda x, y, z: x), TypeError, r"takes \(x, y\), .* 'z'"),
        (lambda e: e.register_operator("f", meta=_like, fn=lambda y, x, scale=1.0: x), TypeError, "in this order"),
        (
            lambda e: e.register_operator("f", like=torch.mm, fn=lambda x: x),
            TypeError,
            r"takes \(self, mat2\).*got \(x\)",
        ),
        (
            lambda e: OperatorExecutor("prims").register_operator("sin", like=torch.sin, fn=torch.sin),
            ValueError,
            r"torch\.ops\.prims\.sin exists",
        ),
        (lambda e: e.register_operator("f", meta=_gives_int, fn=torch.sin), ValueError, "results that are tensors"),
        (lambda e: e.register_operator("f", meta=lambda *x: x, fn=torch.sin), ValueError, "named parameters"),
        (
            lambda e: e.register_implementation("aten::linera", torch.sin),
            ValueError,
            "'refused_tests'.*did you mean.*linear",
        ),
        (lambda e: e.register_implementation(F.interpolate, torch.sin), ValueError, "no single operator"),
        (lambda e: e.register_implementation(3, torch.sin), TypeError, "expected an operation"),
        (
            lambda e: e.register_implementation(torch.sin),
            TypeError,
            "expected op, execution_transform or grad_transform",
        ),
        (lambda e: e.register_implementation(torch.sin, torch.sin, checker=3), TypeError, "expected functions"),
        (lambda e: OperatorExecutor("aten"), ValueError, "another name"),
        (lambda e: OperatorExecutor("not a name"), ValueError, "identifier"),
        (lambda e: extend.register_executor("aten"), TypeError, "expected an executor"),
        (lambda e: extend.get_executor("no_such"), ValueError, "no_such"),
        (lambda e: thunder.jit(torch.sin, executors=[3]), TypeError, "expected executors"),
        (lambda e: get_grad(torch.ones(1)), RuntimeError, "grad_transform"),
    ],
)
def test_wrong_registration_is_refused(register: Callable[..., Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        register(OperatorExecutor("refused_tests"))


@pytest.mark.parametrize("fn", [lambda x, y, scale=1.0: x + y, lambda *a, **k: a[0] + a[1], lambda a, b, c=1: a + b])
def test_functions_that_take_the_arguments_are_registered(fn: Callable[..., Any]) -> None:
    op = OperatorExecutor("taken_tests").register_operator("f", meta=_like, fn=fn)
    for function in (op, thunder.jit(lambda x, y: op(x, y)), thunder.jit(lambda x, y: op(x, y, 2.0))):
        assert torch.equal(function(values(3), values(3)), 2 * values(3))


def _like(x: torch.Tensor, y: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    return torch.empty_like(x)


def _gives_int(x: torch.Tensor) -> int:
    return 3
