"""Statistics, fusions and misses as objects that print, and `thunder.examine`."""

from __future__ import annotations

import copy
import pickle
import time
import xml.dom.minidom
from typing import Any

import pytest
import torch

import thunder


def called() -> Any:
    f = thunder.jit(lambda x: (x.sin() * 2).cos())
    for size in (3, 3, 4):
        f(torch.ones(size, requires_grad=True)).sum().backward()
    return f


def is_well_formed(text: str) -> bool:
    return xml.dom.minidom.parseString(text.replace("<br>", "<br/>")) is not None


def test_statistics_are_a_dict_with_attributes() -> None:
    stats = thunder.compile_stats(called())
    assert isinstance(stats, dict)
    assert (stats.calls, stats["cache_hits"], stats.cache_misses) == (3, 1, 2)
    assert stats.passes == stats["passes"]


@pytest.mark.parametrize(
    "name", ["last_traces", "last_backward_traces", "last_prologue_traces", "last_epilogue_traces"]
)
def test_statistics_have_the_traces(name: str) -> None:
    f = called()
    traces = getattr(thunder.compile_stats(f), name)
    assert list(map(str, traces)) == list(map(str, getattr(thunder, name)(f)))


def test_unknown_statistic_lists_the_others() -> None:
    with pytest.raises(AttributeError, match="no attribute 'hits'; its attributes are calls, cache_hits"):
        thunder.compile_stats(called()).hits  # noqa: B018


def test_statistics_are_copied_and_pickled_as_a_dict() -> None:
    stats = thunder.compile_stats(called())
    assert pickle.loads(pickle.dumps(stats)) == stats
    assert copy.copy(stats) == stats


def test_statistics_print_as_a_table() -> None:
    lines = str(thunder.compile_stats(called())).splitlines()
    assert lines[0].split() == ["calls", "3"]
    assert len({len(line) - len(line.split("  ")[-1].lstrip()) for line in lines}) == 1


@pytest.mark.parametrize(
    "report",
    [
        thunder.compile_stats,
        thunder.compile_data,
        thunder.fusions,
        thunder.explain_misses,
        lambda f: thunder.fusions(f)[0],
        lambda f: thunder.explain_misses(f)[1],
        lambda f: thunder.last_traces(f)[0],
    ],
)
def test_reports_are_shown_in_notebooks(report: Any) -> None:
    assert is_well_formed(report(called())._repr_html_())


def test_fusions_print_one_a_line() -> None:
    text = str(thunder.fusions(called()))
    assert "forward: 3 operations by cpu" in text
    assert "backward: " in text


def test_misses_name_the_guard_in_notebooks() -> None:
    assert (
        "<td>float32[3] requires_grad</td><td>float32[4] requires_grad</td>"
        in thunder.explain_misses(called())._repr_html_()
    )


def test_compile_data_holds_the_options() -> None:
    f = thunder.jit(torch.nn.Linear(2, 2), executors=["aten"], sharp_edges="error")
    data = thunder.compile_data(f)
    assert data.fn is f.__wrapped__
    assert data.options == f.__options__
    assert [executor.name for executor in data.executors_list] == ["aten"]
    assert data.sharp_edges is thunder.SHARP_EDGES_OPTIONS.ERROR
    assert data.compile_options == {"executors": ("aten",), "sharp_edges": "error"}


def test_transforms_are_listed() -> None:
    transform = thunder.Transform()
    assert thunder.list_transforms(thunder.jit(torch.sin, transforms=[transform])) == [transform]


# --- examine


def test_compiled_program_is_examined() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))
    found = thunder.examine(model, torch.randn(3, 4))
    assert found.compiles
    assert found.refused == ""
    assert set(found.operations) == {"forward", "backward"}
    assert found.executors["cpu"]["aten.gelu.default"] >= 1
    assert found.executors["aten"]["aten.mm.default"] >= 1
    assert found.fusions[0] > found.fusions[1] > 0
    assert found.saved_bytes > 0
    assert found.difference is not None
    assert found.difference < 1e-5
    assert found.gain == found.eager_seconds / found.seconds
    assert "times as fast" in str(found)


def test_operations_are_counted_once() -> None:
    found = thunder.examine(lambda x: (x.sin() * 2).cos(), torch.ones(3), measure=False)
    assert found.operations == {"computation": 3}
    assert found.executors == {"cpu": {"aten.sin.default": 1, "aten.mul.Tensor": 1, "aten.cos.default": 1}}
    assert found.seconds is None


def refused(x: torch.Tensor) -> torch.Tensor:
    return x * time.time()


def test_traffic_with_and_without_fusions_is_examined() -> None:
    size = 4 * 100 * 100
    found = thunder.examine(lambda x: (x.sin() * 2 + 1).tanh() * x, torch.randn(100, 100), measure=False)
    # One by one: four operations that read one tensor and write one, one that reads two.
    assert found.traffic == (2 * size, (4 * 2 + 3) * size)
    assert found.expected_gain == 5.5
    assert found.gain is None
    assert "0.0763 MiB, 0.42 MiB without fusions: 5.50 times as fast where memory is the limit" in str(found)


def test_traffic_of_a_backward_is_examined_and_views_move_nothing() -> None:
    x = torch.randn(100, 100, requires_grad=True)
    found = thunder.examine(lambda x: x.t().sin(), x, measure=False)
    size = 4 * 100 * 100
    # The sine; and its derivative, cos(x) times the gradient, which is fused.
    assert found.traffic == (5 * size, 7 * size)


def test_a_program_without_fusions_has_no_expected_gain() -> None:
    found = thunder.examine(torch.matmul, torch.ones(8, 8), torch.ones(8, 8), measure=False)
    assert found.traffic == (3 * 256, 3 * 256)
    assert "without fusions" not in str(found)
    assert thunder.examine(lambda x: x, torch.ones(2), measure=False).expected_gain == 1


@pytest.mark.parametrize("options", [None, thunder.Options(fullgraph=True), thunder.Options(sharp_edges="error")])
def test_refusal_is_examined_with_its_line(options: Any) -> None:
    found = thunder.examine(refused, torch.ones(3), options=options)
    assert not found.compiles
    assert "time.time" in found.refused
    assert "test_reports.py, line" in found.refused
    assert str(found).startswith("refused: runs in eager\n")


def test_nothing_of_the_caller_changes() -> None:
    model = torch.nn.BatchNorm1d(4)
    state, x = copy.deepcopy(model.state_dict()), torch.randn(3, 4, requires_grad=True)
    thunder.examine(model, x, measure=False)
    torch.testing.assert_close(model.state_dict(), state)
    assert x.grad is None
    assert model.weight.grad is None


def test_data_dependence_is_examined() -> None:
    found = thunder.examine(lambda x: x * 2 if x.sum() > 0 else x, torch.ones(3), measure=False)
    assert found.segments == 2
    assert "segments: 2" in str(found)


def test_options_of_a_compiled_callable_count() -> None:
    found = thunder.examine(thunder.jit(torch.sin, executors=["aten"]), torch.ones(3), measure=False)
    assert set(found.executors) == {"aten"}


def test_error_of_the_program_is_raised() -> None:
    with pytest.raises(IndexError):
        thunder.examine(lambda x: x[5], torch.ones(3))


@pytest.mark.parametrize("which", ["last_traces", "last_backward_traces"])
def test_fusions_of_a_trace_run(which: str) -> None:
    trace = getattr(thunder, which)(called())[-1]
    ((name, function),) = thunder.examine.get_fusions(trace)
    (symbol,) = thunder.examine.get_fusion_symbols(trace)
    assert name == "cpu_fusion0"
    inputs = [torch.ones(value.shape, dtype=value.dtype) for value in symbol.args[1]]
    results = function(*inputs)
    assert [tuple(result.shape) for result in results] == [value.shape for value in symbol.results[0]]
