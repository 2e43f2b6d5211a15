"""The worked examples of docs/extending.md, and the code on that page and on docs/program-transforms.md."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager

import thunder

ROOT = Path(__file__).resolve().parents[2]
EXTENDING = sorted((ROOT / "examples/extending").glob("*.py"))


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"thunder_example_{name}", ROOT / f"examples/extending/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[spec.name] = module  # for pickle
    return module


def saved_bytes(compiled: Any) -> int:
    """Return what the last forward saved besides its inputs."""
    trace = thunder.last_traces(compiled)[-1]
    saved = {value for value in trace.outputs[1:] if value is not None} - set(trace.inputs)
    return sum(value.numel() * value.dtype.itemsize for value in saved)


def layers() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 128), torch.nn.GELU(), torch.nn.Linear(128, 64), torch.nn.Tanh())


def activations(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).requires_grad_()


@pytest.mark.parametrize("path", EXTENDING, ids=lambda path: path.stem)
def test_example_runs_as_a_program(path: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(path), run_name="__main__")
    assert printed.getvalue()


@pytest.mark.parametrize("listed", [True, False])
def test_custom_operator_is_as_eager_computes_it(listed: bool) -> None:
    module = example("custom_operator")
    options = {"executors": [module.swiglu_executor]} if listed else None

    class Plain(torch.nn.Module):
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inner = self.inner
            return inner.down(torch.nn.functional.silu(inner.gate(x)) * inner.up(x))

    feed_forward = module.FeedForward(8, 16)
    compiled = assert_as_eager(feed_forward, activations(4, 8), options=options)
    x = activations(4, 8)
    feed_forward.zero_grad()
    results = [compiled(x), Plain(feed_forward)(x)]
    torch.testing.assert_close(*results)
    gradients = [torch.autograd.grad(each.sin().sum(), [x, *feed_forward.parameters()]) for each in results]
    torch.testing.assert_close(*gradients)
    assert "swiglu.swiglu_backward" in str(thunder.last_backward_traces(compiled)[-1])


def test_own_linear_runs_where_it_can() -> None:
    executor = example("own_linear").blocks_executor
    compiled = assert_as_eager(layers(), activations(4, 16), options={"executors": [executor]})
    names = [symbol.name for symbol in thunder.last_traces(compiled)[-1].bound_symbols]
    assert sum(name.startswith("blocks.linear.") for name in names) == 2
    assert_as_eager(layers().double(), activations(4, 16).detach().double(), options={"executors": [executor]})
    small = thunder.jit(torch.nn.Linear(4, 3), executors=[executor])
    small(torch.ones(2, 4))
    assert "blocks.linear" not in str(thunder.last_traces(small)[-1])


MATMULS: dict[str, Any] = {
    "mm": lambda x, y, z: x[0] @ y[0],
    "bmm": lambda x, y, z: torch.bmm(x, y),
    "addmm": lambda x, y, z: torch.addmm(z[0], x[0], y[0], alpha=2),
    "linear": lambda x, y, z: torch.nn.functional.linear(x, y[0].t()),
}


@pytest.mark.parametrize("name", MATMULS)
def test_exact_matmuls_round_once(name: str) -> None:
    compiled = thunder.jit(MATMULS[name], executors=[example("exact_matmul").exact_executor])
    inputs = [torch.randn(shape) for shape in ((2, 3, 40), (2, 40, 5), (2, 3, 5))]
    results = []
    for function, dtype in ((compiled, torch.float32), (MATMULS[name], torch.float64)):
        given = [x.to(dtype).requires_grad_() for x in inputs]
        result = function(*given)
        gradients = torch.autograd.grad(result.sum(), given, allow_unused=True)
        results.append([x.float() for x in (result, *gradients) if x is not None])
    assert all(torch.equal(got, exact) for got, exact in zip(*results, strict=True))
    for trace in (thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1]):
        assert "torch.ops.exact." in str(trace)


def test_saved_activations_are_kept_in_half_the_memory() -> None:
    module, x = layers(), activations(32, 16)
    transform = example("save_elsewhere").SaveAsBfloat16()
    plain, packed = thunder.jit(module), thunder.jit(module, transforms=[transform])
    gradients = []
    for compiled in (plain, packed):
        result = compiled(x)
        gradients.append(torch.autograd.grad(result.sum(), [x, *module.parameters()]))
        torch.testing.assert_close(result, module(x))
    # The result of tanh is saved as it is: the caller has it anyway.
    result_bytes = 32 * 64 * 4
    assert saved_bytes(packed) - result_bytes == (saved_bytes(plain) - result_bytes) // 2 > 0
    torch.testing.assert_close(*gradients, rtol=2e-2, atol=2e-2)
    assert not all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_saved_activations_are_offloaded_to_the_cpu() -> None:
    module, x = layers().cuda(), activations(1024, 16).detach().cuda().requires_grad_()
    held, gradients = [], []
    for transforms in ([], [example("save_elsewhere").OffloadToCpu()]):
        compiled = thunder.jit(module, transforms=transforms)
        compiled(x).sum().backward()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        result = compiled(x)
        held.append(torch.cuda.memory_allocated() - before)
        gradients.append(torch.autograd.grad(result.sum(), [x, *module.parameters()]))
    assert held[1] < held[0] - 1024 * 128 * 4 // 2
    torch.testing.assert_close(*gradients)


def test_flops_are_counted_in_forward_and_backward() -> None:
    module = example("count_flops")
    counter = module.CountFlops()
    compiled = thunder.jit(layers(), transforms=[counter])
    compiled(activations(32, 16))
    forward = 2 * 32 * (16 * 128 + 128 * 64)
    assert counter.flops == {"forward": forward, "backward": 2 * forward}
    assert module.count_flops(thunder.last_traces(compiled)[0]) == forward


@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs torch.distributed")
def test_shards_are_trained_as_the_whole_model_is() -> None:
    path = ROOT / "examples/extending/sharded_parameters.py"
    run = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr
    differences = [float(number) for number in re.findall(r"difference (\S+)", run.stdout)]
    assert len(differences) == 6  # three steps of two processes
    assert max(differences) < 1e-5
    assert "'0.weight': (3, 4)" in run.stdout
    assert run.stdout.count("_c10d_functional.reduce_scatter_tensor.default") == 4


def test_two_processes_train_one_model() -> None:
    program = [str(ROOT / "examples/distributed_training.py")]
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    sums = {}
    for kind in ("ddp", "fsdp"):
        run = subprocess.run([*start, *program, kind], capture_output=True, text=True, check=False, timeout=300)
        assert run.returncode == 0, run.stderr
        sums[kind] = [float(number) for number in re.findall(r"sum is (\S+),", run.stdout)]
    assert len(sums["ddp"]) == 2
    assert sums["ddp"][0] == sums["ddp"][1] == pytest.approx(sum(sums["fsdp"]), abs=1e-4)


@pytest.mark.parametrize("page", ["docs/extending.md", "docs/program-transforms.md"])
def test_code_on_the_page_runs(page: str) -> None:
    text = (ROOT / page).read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) > 5
    namespace: dict[str, Any] = {"__name__": "extending"}
    for block in blocks:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, page, "exec"), namespace)
