"""Traces print as Python programs that run."""

from __future__ import annotations

import gc
import inspect
import linecache
import traceback

import pytest
import torch

import thunder

QUERIES = (thunder.last_traces, thunder.last_backward_traces, thunder.last_prologue_traces)


def compiled_example():
    f = thunder.jit(lambda x, w: torch.nn.functional.gelu(x @ w).sum())
    x, w = torch.randn(2, 3), torch.randn(3, 4, requires_grad=True)
    return f, x, w, f(x, w)


def test_no_traces_before_the_first_call() -> None:
    f = thunder.jit(torch.sin)
    assert thunder.last_traces(f) == []
    assert thunder.last_backward_traces(f) == []


def test_each_kind_of_trace_is_there_after_a_call() -> None:
    f, *_ = compiled_example()
    for traces in (thunder.last_traces(f), thunder.last_backward_traces(f), thunder.last_prologue_traces(f)):
        assert traces
        assert all(isinstance(trace, thunder.Trace) for trace in traces)


def test_traces_know_their_kind() -> None:
    f, *_ = compiled_example()
    kinds = [{trace.kind for trace in query(f)} for query in QUERIES]
    assert kinds == [{"computation", "forward"}, {"backward"}, {"prologue"}]
    assert thunder.Trace.of_function(torch.sin, torch.ones(2), name="backward").kind == "part"


def test_function_of_a_trace_has_its_source_for_as_long_as_it_lives() -> None:
    f, x, *_ = compiled_example()
    stages = [thunder.last_traces(f)[0], thunder.last_traces(f)[-1]]
    functions = [stage.python_callable() for stage in stages]
    for stage, function in zip(stages, functions, strict=True):
        assert inspect.getsource(function).strip() in str(stage)
    with pytest.raises(RuntimeError) as caught:
        functions[0](x, x)
    lines = [frame.line for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert any("matmul" in (line or "") for line in lines), lines
    files = [inspect.getsourcefile(inspect.unwrap(function)) for function in functions]
    assert len(set(files)) == 2
    again = stages[0].python_callable()
    assert inspect.getsourcefile(inspect.unwrap(again)) == files[0]
    del functions, function, caught
    gc.collect()
    assert set(files) & set(linecache.cache) == {files[0]}
    assert inspect.getsource(again).strip() in str(stages[0])
    del again
    gc.collect()
    assert not set(files) & set(linecache.cache)


def test_every_stage_compiles_as_python() -> None:
    f, *_ = compiled_example()
    stages = thunder.last_traces(f) + thunder.last_backward_traces(f) + thunder.last_prologue_traces(f)
    for trace in stages:
        assert callable(trace.python_callable()), str(trace)


def test_trace_shows_shapes_types_and_the_source_line() -> None:
    f, *_ = compiled_example()
    text = str(thunder.last_traces(f)[0])
    assert "gelu" in text
    assert "test_traces.py" in text
    assert "2, 3" in text
    assert "float32" in text or "f32" in text


def test_traces_outlive_the_program() -> None:
    f, *_ = compiled_example()
    traces = [trace for query in QUERIES for trace in query(f)]
    texts = [str(trace) for trace in traces]
    del f, _
    gc.collect()
    assert [str(trace) for trace in traces] == texts


def test_same_input_gives_the_same_text() -> None:
    first, second = compiled_example()[0], compiled_example()[0]
    for query in QUERIES:
        assert [str(trace) for trace in query(first)] == [str(trace) for trace in query(second)]


def test_backward_has_no_trace_without_gradients() -> None:
    f = thunder.jit(torch.sin)
    f(torch.ones(2))
    assert thunder.last_backward_traces(f) == []


def test_compile_stats_count_calls() -> None:
    f, x, w, _ = compiled_example()
    f(x, w)
    stats = thunder.compile_stats(f)
    assert stats["cache_hits"] == thunder.cache_hits(f) == 1
    assert stats["cache_misses"] == thunder.cache_misses(f) == 1


def test_wait_until_compiled_returns() -> None:
    f, x, w, expected = compiled_example()
    thunder.wait_until_compiled(f)
    torch.testing.assert_close(f(x, w), expected)
