"""thunder as a back end of torch.compile."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.backends import registry
from torch._dynamo.backends.registry import lookup_backend
from torch.utils.checkpoint import checkpoint

import thunder
from thunder._backend import announce
from thunder.dynamo import ThunderCompiler, thunder_backend, thunderfx
from thunder.plugins import engines

FALLBACK = pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """TorchDynamo keeps what it compiled, by code."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def matrix() -> torch.Tensor:
    return torch.randn(4, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()


def executors(backend: Any) -> list[str]:
    return [report.executor for info in backend.subgraph_infos for report in info.reports]


def assert_as_eager(f: Callable[..., Any], backend: Any, calls: int = 2) -> None:
    compiled = torch.compile(f, backend=backend)
    for _ in range(calls):
        results = []
        for function in (compiled, f):
            torch.manual_seed(1)
            x = matrix()
            y = function(x)
            (gradient,) = torch.autograd.grad(y.sin().sum(), x) if y.requires_grad else (None,)
            results.append((y.detach(), gradient))
        torch.testing.assert_close(*results)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient * x * 3


def autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x


def without_gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x * 2
    return y + x


def branching(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


TAKEN: dict[str, Callable[..., Any]] = {
    "autocast": autocast,
    "branch": branching,
    "checkpoint": lambda x: checkpoint(lambda y: y.sin().cos(), x, use_reentrant=False) * 2,
    "cond": lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x.detach(),)),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x),
    "fft": lambda x: torch.fft.fft(x).abs(),
    "gelu": lambda x: torch.nn.functional.gelu(x @ x).sum(),
    "no_grad": without_gradients,
    "write": lambda x: x.clone().mul_(2),
}


@pytest.mark.parametrize("name", TAKEN)
def test_graphs_are_compiled_by_thunder(name: str) -> None:
    backend = ThunderCompiler()
    assert_as_eager(TAKEN[name], backend)
    assert set(executors(backend)) == {"thunder"}


@pytest.mark.skipif(torch.__version__ < "2.12", reason="TorchDynamo itself ends the graph at quantize_per_tensor")
@FALLBACK
def test_refused_operation_runs_in_eager_with_its_line() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = (x.sin() + 1) * 2
        z = torch.quantize_per_tensor(y.detach(), 0.1, 0, torch.qint8).dequantize()
        return (z * 3 + y).cos() - 1

    backend = ThunderCompiler()
    assert_as_eager(f, backend, calls=3)
    (info,) = backend.subgraph_infos
    assert [report.executor for report in info.reports] == ["thunder", "eager", "thunder"]
    assert info.reports[1].operations == ("quantize_per_tensor", "dequantize")
    assert "QInt8" in info.reports[1].reason
    assert "z = torch.quantize_per_tensor" in info.reports[1].line
    assert info.split_reasons == [info.reports[1].reason]
    assert len(info.thunder_compiled_fns) == 2
    assert "eager: 2 operations (quantize_per_tensor, dequantize)" in backend.report()


def test_refused_operation_warns() -> None:
    compiled = torch.compile(lambda x: Square.apply(x) + 1, backend="thunder")
    with pytest.warns(thunder.EagerFallbackWarning, match="autograd_function_apply runs in eager"):
        compiled(matrix())


@FALLBACK
def test_autograd_functions_keep_their_backward() -> None:
    backend = ThunderCompiler()
    assert_as_eager(lambda x: (Square.apply(x.cos()) + 1).sin(), backend)
    assert executors(backend) == ["thunder", "eager", "thunder"]


@FALLBACK
def test_settings_around_a_refused_operation_hold() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = Square.apply(x.sin()) * x
        return (y * x).cos()

    assert_as_eager(f, ThunderCompiler())


def test_fullgraph_of_thunder_raises_what_is_refused() -> None:
    compiled = torch.compile(lambda x: Square.apply(x) + 1, backend=ThunderCompiler(fullgraph=True))
    with pytest.raises(NotImplementedError, match=r"thunder\.jit"):
        compiled(matrix())


def test_error_of_the_program_is_its_own() -> None:
    compiled = torch.compile(lambda x, y: x.view(16) + y, backend="thunder", fullgraph=True)
    compiled(torch.ones(4, 4), torch.ones(16))
    index = torch.compile(lambda x, i: x[i] + 1, backend="thunder")
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        index(torch.ones(3), torch.tensor([7]))


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_sizes_that_change_are_followed(dynamic: bool | None) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0] * 2, -1).softmax(-1) * x.shape[0]

    compiled = torch.compile(f, backend="thunder", dynamic=dynamic)
    for rows in (2, 3, 5, 3):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(compiled(x), f(x))


def test_sizes_are_returned() -> None:
    compiled = torch.compile(lambda x: (x + 1, x.shape[0] * 3), backend="thunder", dynamic=True)
    for rows in (2, 5):
        assert compiled(torch.ones(rows, 2))[1] == rows * 3


def test_module_is_trained_as_in_eager() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.ReLU(), torch.nn.Linear(8, 1)
    )
    models = [model, copy.deepcopy(model)]
    compiled = torch.compile(models[0], backend="thunder")
    for function, each in ((compiled, models[0]), (models[1], models[1])):
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(each.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            function(torch.randn(6, 4)).sum().backward()
            optimizer.step()
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict())


def test_back_end_is_found_by_name() -> None:
    assert lookup_backend("thunder") is thunder_backend
    assert "thunder" in torch._dynamo.list_backends()


def test_import_announces_the_back_end_without_an_entry_point() -> None:
    code = (
        "import thunder, torch; import importlib.metadata as m; m.entry_points = lambda group=None: m.EntryPoints(); "
        "f = torch.compile(lambda x: x + 1, backend='thunder'); assert f(torch.ones(1)).item() == 2; "
        "import torch._dynamo.backends.registry as r; assert type(r.__spec__.loader).__name__ == 'SourceFileLoader'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_registry_that_is_loaded_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(registry._BACKENDS, "thunder", raising=False)
    announce()
    assert registry._BACKENDS["thunder"].load() is thunder_backend


def test_entry_point_is_installed() -> None:
    code = (
        "import torch; f = torch.compile(lambda x: x + 1, backend='thunder'); "
        "print(f(torch.ones(1, requires_grad=True)).grad_fn.name())"
    )
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "ThunderBackward"


def test_options_reach_thunder() -> None:
    torch.compile(torch.sin, backend="thunder", options={"rematerialize": False})(torch.ones(2))
    with pytest.raises(Exception, match="unknown option 'no_such'"):
        torch.compile(lambda x: x + 1, backend="thunder", options={"no_such": 1})(torch.ones(2))


@pytest.mark.parametrize(
    ("mode", "error", "words"),
    [("no-such", ValueError, "mode: expected one of"), ("reduce-overhead", NotImplementedError, "cuda_graphs")],
)
def test_modes_that_are_not_there(
    mode: str, error: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_has_option", lambda name: False)
    with pytest.raises(error, match=words):
        thunderfx(torch.sin, mode=mode)


# --- thunderfx


def test_thunderfx_has_traces_and_a_report() -> None:
    compiled = thunderfx(lambda x: x.sin().cos().sum(), rematerialize=False, fullgraph=True)
    assert compiled.report() == "no graph was compiled"
    compiled(matrix()).backward()
    assert compiled.backend.options == {"rematerialize": False}
    (forward,), (backward,) = compiled.last_traces, compiled.last_backward_traces
    assert forward.kind == "forward"
    assert backward.kind == "backward"
    assert compiled.report() == "graph 0:\n  thunder: 3 operations"


def test_thunderfx_of_a_module_has_its_attributes() -> None:
    model = torch.nn.Linear(4, 2)
    compiled = thunderfx(model)
    torch.testing.assert_close(compiled(matrix()), model(matrix()))
    assert [*compiled.parameters()] == [*model.parameters()]
    assert compiled.train() is not None
    with pytest.raises(AttributeError):
        compiled.no_such_attribute  # noqa: B018


def test_recipes_use_thunderfx() -> None:
    compiled = thunder.compile(torch.sin, recipe=thunder.recipes.BaseRecipe(interpreter="thunder.fx"))
    torch.testing.assert_close(compiled(torch.ones(2)), torch.ones(2).sin())
    assert "thunder: 1 operations" in compiled.report()
