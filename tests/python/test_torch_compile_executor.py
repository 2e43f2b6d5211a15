"""The executor "torchcompile": regions of traces compiled by torch.compile."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager

import thunder
from thunder.executors.torch_compile import TorchCompileExecutor
from thunder.extend import get_executor

# TorchDynamo and AOTAutograd without TorchInductor, which takes seconds for each region.
aot = TorchCompileExecutor("aot_tests", backend="aot_eager")


def regions(traces: list[thunder.Trace]) -> int:
    return sum(symbol.name == "prims.fusion" for symbol in traces[-1].bound_symbols)


def values(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


def layers(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
    y = torch.nn.functional.layer_norm(torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b)), (6,))
    return y.view(2, 2, 6).transpose(0, 1).softmax(-1).sum(), y


def test_inductor_computes_as_eager() -> None:
    compiled = assert_as_eager(layers, values(4, 3), values(6, 3), values(6), options={"executors": ["torchcompile"]})
    assert regions(thunder.last_traces(compiled)) == 1
    assert regions(thunder.last_backward_traces(compiled)) == 1


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "dropout": lambda x: torch.nn.functional.dropout(x.sin() + 1, 0.5).cos() * 2,
    "expand": lambda x: (x.sum(0, keepdim=True).exp() + 1).expand(4, 4),
    "index": lambda x: x.exp()[torch.tensor([0, 2])].sin(),
    "loss": lambda x: torch.nn.functional.cross_entropy(x, torch.tensor([0, 1, 2, 3])),
    "norm": lambda x: torch.nn.functional.layer_norm(x, (4,)).tanh(),
    "view": lambda x: (x.sin().cos().reshape(2, 8), x.exp().t() * 2),
    "view of an input": lambda x: (x.t(), x.sin().cos()),
    "write": lambda x: x.clone().add_(1).sin_().cos(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_regions_compute_as_eager(name: str) -> None:
    assert_as_eager(PROGRAMS[name], values(4, 4), options={"executors": [aot]})


def test_random_numbers_end_a_region() -> None:
    compiled = thunder.jit(lambda x: torch.rand_like(x.sin().cos()).exp().log(), executors=[aot])
    compiled(torch.ones(3))
    assert regions(thunder.last_traces(compiled)) == 2


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float32])
def test_complex_numbers_are_left_out(dtype: torch.dtype) -> None:
    compiled = thunder.jit(lambda x: x.sin().cos() * 2, executors=[aot])
    x = torch.ones(3, dtype=dtype)
    torch.testing.assert_close(compiled(x), x.sin().cos() * 2)
    assert regions(thunder.last_traces(compiled)) == (dtype == torch.float32)


def test_one_operation_is_no_region() -> None:
    compiled = thunder.jit(lambda x: x.sin().reshape(2, 8), executors=[aot])
    compiled(torch.ones(4, 4))
    assert regions(thunder.last_traces(compiled)) == 0


def test_mode_reaches_torch_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def fake(function: Any, **keywords: Any) -> Any:
        given.append(keywords)
        return function

    monkeypatch.setattr(torch, "compile", fake)
    executor = TorchCompileExecutor("tuned_tests", mode="max-autotune")
    thunder.jit(lambda x: x.sin().cos(), executors=[executor])(torch.ones(3))
    assert given == [{"mode": "max-autotune", "backend": "inductor", "fullgraph": True, "dynamic": False}]


def test_executor_is_registered_when_asked_for() -> None:
    assert get_executor("torchcompile") is get_executor("torchcompile")
    assert get_executor("torchcompile") in thunder.extend.get_all_executors()
    assert pickle.loads(pickle.dumps(get_executor("torchcompile"))) is get_executor("torchcompile")


def test_recipe_picks_the_fuser() -> None:
    recipe = thunder.recipes.BaseRecipe(fuser="torch.compile")
    assert thunder.compile(torch.sin, recipe).options.executors == ("torchcompile",)


@pytest.mark.parametrize(
    ("name", "instead"), [("nvfuser", "'cuda' fuses on GPUs"), ("sdpa", "attention runs"), ("torch", "'aten' runs")]
)
def test_executors_of_lightning_thunder_are_answered(name: str, instead: str) -> None:
    with pytest.raises(
        ValueError, match=rf"thunder\.jit: executors: expected .*of Lightning Thunder's '{name}': {instead}"
    ):
        thunder.jit(torch.sin, executors=[name])
