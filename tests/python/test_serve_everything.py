"""Executors that serve every operation of a program, each by itself: nothing may change."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import small_modules
import torch
from beside_eager import assert_as_eager
from torch import nn

import thunder
from thunder.extend import OperatorExecutor

# Their schemas do not say that they give views.
HIDDEN_VIEWS = {"aten._unsafe_view.default", "aten.unsafe_split.Tensor", "aten.unsafe_chunk.default"}


def operators_of(compiled: Any) -> set[str]:
    traces = [*thunder.last_traces(compiled), *thunder.last_backward_traces(compiled)]
    return {symbol.name for trace in traces for symbol in trace.bound_symbols if symbol.name.startswith("aten.")}


def overload(name: str) -> Any:
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


def is_served(op: Any) -> bool:
    writes = op._schema.is_mutable or "batch_norm" in op._schema.name
    return not writes and torch.Tag.nondeterministic_seeded not in op.tags and "dropout" not in op._schema.name


def by_itself(executor: OperatorExecutor, op: Any) -> None:
    executor.register_implementation(op, execution_transform=op)


def by_an_operator_like_it(executor: OperatorExecutor, op: Any) -> None:
    if str(op) in HIDDEN_VIEWS or any(result.alias_info is not None for result in op._schema.returns):
        return
    alike = executor.register_operator(
        str(op).replace(".", "_"), like=op, fn=lambda *args, **kwargs: op(*args, **kwargs)
    )
    executor.register_implementation(op, alike)


class LooksAtData(nn.Module):
    """Reads numbers, and has shapes that follow from data."""

    def forward(self, x: torch.Tensor) -> Any:
        y = x.sin()
        if y.sum() > 0:
            y = y * y.amax().item()
        return y[y > 0.1].exp(), torch.unique(x.detach().round())


CASES: dict[str, tuple[Callable[[], Any], Callable[[], torch.Tensor]]] = {
    "resnet": (small_modules.resnet, small_modules.picture),
    "mlp": (small_modules.mlp, small_modules.sequence),
    "recurrent": (small_modules.Recurrent, small_modules.sequence),
    "attention": (small_modules.Attention, small_modules.sequence),
    "decoder": (lambda: small_modules.Decoder().eval(), small_modules.sequence),
    "tied": (small_modules.Tied, small_modules.tokens),
    "checkpointed": (small_modules.Checkpointed, small_modules.sequence),
    "dropout": (lambda: nn.Sequential(nn.Dropout(0.3), nn.Linear(4, 4), nn.Dropout(0.1)), small_modules.sequence),
    "data": (LooksAtData, small_modules.sequence),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("serve", [by_itself, by_an_operator_like_it])
def test_nothing_changes(name: str, serve: Callable[..., None]) -> None:
    make_module, make_input = CASES[name]
    torch.manual_seed(0)
    module, x = make_module(), make_input()
    compiled = thunder.jit(copy.deepcopy(module))
    compiled(x)
    executor = OperatorExecutor(f"everything_{name}")
    served = [overload(op) for op in sorted(operators_of(compiled)) if is_served(overload(op))]
    for op in served:
        serve(executor, op)
    assert len(served) > 3
    compiled = assert_as_eager(module, x, misses=None, options={"executors": [executor]})
    assert any("executor everything_" in str(trace) for trace in thunder.last_traces(compiled))
