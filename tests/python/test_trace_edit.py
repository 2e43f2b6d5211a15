"""Traces read and rewritten from Python."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder
from thunder import Trace


def traced(function: Callable[..., Any], *examples: torch.Tensor) -> Trace:
    return Trace.of_function(function, *examples)


def run(trace: Trace, *inputs: torch.Tensor) -> Any:
    return trace.python_callable()(*inputs)


def names(trace: Trace) -> list[str]:
    return [symbol.name for symbol in trace.bound_symbols]


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
W = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(F.linear(x, w)).sum(dim=1, keepdim=True)


def test_symbols_have_names_arguments_results_and_places() -> None:
    compiled = thunder.jit(program)
    compiled(X, W)
    trace = thunder.last_traces(compiled)[0]
    linear, relu, total = trace.bound_symbols
    assert names(trace) == ["aten.linear.default", "aten.relu.default", "aten.sum.dim_IntList"]
    assert [value.name for value in linear.args] == ["x", "w"]
    assert linear.args == tuple(trace.inputs)
    assert relu.args[0] == linear.results[0]
    assert total.args[1:] == ([1], True)
    assert total.kwargs == {}
    assert trace.outputs == total.results
    assert (linear.file, linear.line) == (__file__, program.__code__.co_firstlineno + 1)
    assert str(relu) == 't3 = torch.ops.aten.relu.default(t2)  # t3: "cpu f32[3, 5]"'
    value = linear.results[0]
    assert (value.shape, value.dtype, value.device, value.requires_grad) == (
        (3, 5),
        torch.float32,
        torch.device("cpu"),
        False,
    )
    assert (value.stride(), value.ndim, value.numel()) == ((5, 1), 2, 15)
    assert repr(value) == 't2: "cpu f32[3, 5]"'


def test_symbols_are_a_sequence() -> None:
    symbols = traced(program, X, W).bound_symbols
    assert len(symbols) == 3
    assert symbols[-1].name == "aten.sum.dim_IntList"
    assert [symbol.index for symbol in symbols[1:]] == [1, 2]
    with pytest.raises(IndexError, match="3 symbols"):
        symbols[3]


def test_constants_of_every_kind() -> None:
    def constants(x: torch.Tensor) -> Any:
        y = x.to(torch.float64, memory_format=torch.contiguous_format)
        return (
            torch.full_like(y, 2.5, device="cpu"),
            torch.nn.functional.pad(y, (1, 2), mode="replicate"),
            torch.tensor([1.0]) + y,
        )

    trace = traced(constants, X)
    found = [*(argument for symbol in trace.bound_symbols for argument in (*symbol.args, *symbol.kwargs.values()))]
    for constant in (torch.float64, 2.5, [1, 2], torch.device("cpu"), "replicate"):
        assert any(type(each) is type(constant) and each == constant for each in found), constant
    assert any(isinstance(each, torch.Tensor) for each in found)


def test_trace_of_a_function() -> None:
    trace = Trace.of_function(lambda x, w: {"a": x @ w.t(), "b": [x.sin()]}, X, W, name="mine")
    assert trace.name == "mine"
    product, sine = run(trace, X, W)
    torch.testing.assert_close(product, X @ W.t())
    torch.testing.assert_close(sine, X.sin())


def test_replace() -> None:
    trace = traced(program, X, W)
    edit = trace.edit("clamp")
    edit.replace(trace.bound_symbols[1], lambda x: torch.clamp(x, min=0))
    made = edit.finish()
    assert names(made) == ["aten.linear.default", "aten.clamp.default", "aten.sum.dim_IntList"]
    assert names(trace)[1] == "aten.relu.default"
    assert made.history[-1] == "clamp"
    assert "clamp" in str(made).splitlines()[0]
    torch.testing.assert_close(run(made, X, W)[0], program(X, W))


def test_insert_before_and_after_and_substitute() -> None:
    trace = traced(program, X, W)
    linear, relu, _ = trace.bound_symbols
    edit = trace.edit("scale")
    double = edit.insert_before(linear, lambda x: x * 2, linear.args[0])
    edit.substitute(linear.args[0], double)
    halves = edit.insert_after(relu, lambda y: {"half": y / 2}, relu.results[0])
    edit.substitute(relu.results[0], halves["half"])
    made = edit.finish()
    assert names(made) == [
        "aten.mul.Tensor",
        "aten.linear.default",
        "aten.relu.default",
        "aten.div.Tensor",
        "aten.sum.dim_IntList",
    ]
    torch.testing.assert_close(run(made, X, W)[0], program(X, W))


def test_replaced_values_may_be_substituted_and_inserted_code_sees_replacements() -> None:
    trace = traced(program, X, W)
    _, relu, total = trace.bound_symbols
    edit = trace.edit("both")
    edit.replace(relu, lambda x: x.abs())
    edit.substitute(total.results[0], edit.insert_last(lambda y, z: y + z.amax(), total.results[0], relu.results[0]))
    made = edit.finish()
    inner = F.linear(X, W).abs()
    torch.testing.assert_close(run(made, X, W)[0], inner.sum(1, keepdim=True) + inner.amax())


def test_inputs_and_outputs_of_another_type() -> None:
    trace = traced(program, X, W)
    edit = trace.edit("half")
    half = edit.insert_last(lambda y: y.bfloat16(), trace.outputs[0])
    edit.set_output(0, half)
    low = traced(lambda x: x, X.bfloat16()).inputs[0]
    old = trace.inputs[0]
    edit.substitute(old, edit.insert_first(lambda x: x.float(), edit.set_input(0, low)))
    made = edit.finish()
    assert made.inputs[0].dtype == torch.bfloat16
    torch.testing.assert_close(run(made, X.bfloat16(), W)[0], program(X.bfloat16().float(), W).bfloat16())


def test_remove_and_fuse() -> None:
    trace = traced(program, X, W)
    _, relu, total = trace.bound_symbols
    edit = trace.edit("without relu")
    edit.substitute(relu.results[0], relu.args[0])
    edit.remove(relu)
    torch.testing.assert_close(run(edit.finish(), X, W)[0], F.linear(X, W).sum(1, keepdim=True))
    edit = trace.edit("fused")
    edit.fuse([relu, total], "relu and sum", lambda region: region.python_callable())
    made = edit.finish()
    assert names(made) == ["aten.linear.default", "prims.fusion"]
    torch.testing.assert_close(run(made, X, W)[0], program(X, W))


def test_calls_to_many_results_and_list_arguments() -> None:
    trace = traced(lambda x: torch.cat([x, x.sin()]).chunk(2), X)
    edit = trace.edit("stack")
    for symbol in trace.bound_symbols:
        if symbol.name == "aten.cat.default":
            assert symbol.args[0] == [trace.inputs[0], trace.bound_symbols[0].results[0]]
            edit.replace(symbol, lambda tensors: torch.concat(tensors, dim=0))
    for got, expected in zip(run(edit.finish(), X), (X, X.sin()), strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda edit, trace: edit.remove(trace.bound_symbols[1]), r"t3 is used before it is made.*aten.sum"),
        (
            lambda edit, trace: edit.replace(trace.bound_symbols[1], lambda x: x.sum()),
            r"expected a result like.*aten.relu",
        ),
        (lambda edit, trace: edit.replace(trace.bound_symbols[1], lambda x: x.double()), "f64.*aten.relu"),
        (
            lambda edit, trace: edit.replace(trace.bound_symbols[1], lambda x: (x, x)),
            "expected 1 results, got 2.*aten.relu",
        ),
        (
            lambda edit, trace: edit.insert_before(trace.bound_symbols[0], torch.sin, trace.outputs[0]),
            r"used before it is made.*aten.sin",
        ),
        (
            lambda edit, trace: edit.fuse([trace.bound_symbols[0], trace.bound_symbols[2]], "f", Trace.python_callable),
            r"used before it is made.*aten.relu",
        ),
    ],
    ids=["removed", "shape", "dtype", "count", "too early", "hole"],
)
def test_wrong_edit_names_the_symbol(change: Callable[..., Any], message: str) -> None:
    compiled = thunder.jit(program)
    compiled(X, W)
    trace = thunder.last_traces(compiled)[0]
    edit = trace.edit("wrong")
    with pytest.raises(ValueError, match=f"(?s)wrong: .*{message}.*test_trace_edit.py:") as caught:
        (change(edit, trace), edit.finish())
    assert "bug in thunder" not in str(caught.value)


def test_function_that_raises_leaves_its_exception() -> None:
    trace = traced(program, X, W)
    with pytest.raises(ZeroDivisionError):
        trace.edit("raises").replace(trace.bound_symbols[1], lambda x: x / (1 // 0))
    with pytest.raises(TypeError, match="expected tensors"):
        trace.edit("number").replace(trace.bound_symbols[1], lambda x: 3)


def test_reading_a_symbol_of_a_long_trace_copies_nothing_else() -> None:
    def long(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4000):
            x = x + 1
        return x

    trace = traced(long, X)
    short = traced(lambda x: x + 1, X)
    trace.bound_symbols[0], short.bound_symbols[0]

    def seconds(symbols: Any) -> float:
        begin = time.perf_counter()
        for _ in range(200):
            symbols[0].args  # noqa: B018
        return time.perf_counter() - begin

    fastest = [min(seconds(each.bound_symbols) for _ in range(5)) for each in (trace, short)]
    assert fastest[0] < 10 * fastest[1]


def test_edit_of_a_long_trace_takes_time_in_proportion() -> None:
    def long(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2000):
            x = torch.relu(x)
        return x

    trace = traced(long, X)
    edit = trace.edit("all")
    for symbol in trace.bound_symbols:
        edit.replace(symbol, torch.abs)
    made = edit.finish()
    assert set(names(made)) == {"aten.abs.default"}
    assert len(made.bound_symbols) == 2000


def sine() -> thunder.Trace:
    return thunder.Trace.of_function(lambda x: x.sin(), torch.ones(2))


@pytest.mark.parametrize("is_possible", [True, False])
def test_an_edit_that_is_finished_takes_no_other_change(is_possible: bool) -> None:
    trace = sine()
    edit = trace.edit("mine")
    if is_possible:
        edit.finish()
    else:
        edit.remove(trace.bound_symbols[0])
        with pytest.raises(ValueError, match="used before it is made"):
            edit.finish()
    with pytest.raises(RuntimeError, match="mine: this edit is finished"):
        edit.insert_last(torch.sin, torch.ones(2))
    with pytest.raises(RuntimeError, match="this edit is finished"):
        edit.finish()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda edit, trace: edit.remove("aten.sin.default"), TypeError, "expected a symbol among trace.bound_symbols"),
        (lambda edit, trace: edit.replace(None, torch.cos), TypeError, "expected a symbol .* got None"),
        (lambda edit, trace: edit.replace(trace.bound_symbols[0], 3), TypeError, "mine: expected a function"),
        (lambda edit, trace: edit.substitute(1, 2), TypeError, "expected a value of the trace .* got 1"),
        (lambda edit, trace: edit.set_output(0, None), TypeError, "expected a value of the trace .* got None"),
        (
            lambda edit, trace: edit.remove(thunder.Trace.of_function(torch.cos, torch.ones(2)).bound_symbols[0]),
            ValueError,
            "expected a symbol of the edited trace, got one of another: .*cos",
        ),
        (lambda edit, trace: edit.set_output(9, trace.inputs[0]), IndexError, "an output from 0 to 0, got 9"),
        (lambda edit, trace: edit.set_input(9, torch.ones(2)), IndexError, "an input from 0 to 0, got 9"),
        (lambda edit, trace: edit.set_input(0, 3), TypeError, "a value of a trace or a tensor, got 3"),
        (lambda edit, trace: edit.add_input(3), TypeError, "a value of a trace or a tensor, got 3"),
        (lambda edit, trace: edit.add_tensor(3), TypeError, "expected a tensor, got 3"),
        (lambda edit, trace: edit.remove_input(-1), IndexError, "an input from 0 to 0, got -1"),
        (lambda edit, trace: edit.remove_output(7), IndexError, "an output from 0 to 0, got 7"),
        (lambda edit, trace: edit.fuse([], "n", str), ValueError, "fuse: expected one symbol or more, got none"),
        (lambda edit, trace: edit.fuse(trace.bound_symbols[:1], 3, str), TypeError, "name: expected a name"),
        (
            lambda edit, trace: edit.fuse(trace.bound_symbols[:1], "n", lambda region: None),
            TypeError,
            "a compiler that returns a fun",
        ),
        (lambda edit, trace: edit.substitute(trace.inputs[0], trace.inputs[0]), ValueError, "stand for itself"),
        (lambda edit, trace: trace.edit(3), TypeError, "step: expected a name, got 3"),
        (lambda edit, trace: trace.python_ctx(), AttributeError, r"Lightning Thunder's: trace\.python_callable"),
        (
            lambda edit, trace: trace.zzz,
            AttributeError,
            "'Trace' object has no attribute 'zzz'; its attributes are bound_symbols, ",
        ),
    ],
)
def test_wrong_arguments_of_an_edit_say_what_is_expected(change: Any, error: type[Exception], words: str) -> None:
    trace = sine()
    with pytest.raises(error, match=words):
        change(trace.edit("mine"), trace)


def test_values_that_would_stand_for_one_another_are_refused() -> None:
    trace = thunder.Trace.of_function(lambda x: x.sin().cos(), torch.ones(2))
    edit = trace.edit("mine")
    first, second = (symbol.results[0] for symbol in trace.bound_symbols[:2])
    edit.substitute(first, second)
    with pytest.raises(ValueError, match="stand for itself"):
        edit.substitute(second, first)
