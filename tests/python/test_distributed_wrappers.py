"""PyTorch's own wrappers around compiled models, and inside of `thunder.jit`, train as in eager."""

from __future__ import annotations

from typing import Any

import distributed_wrappers
import pytest
from processes import BACKENDS, run_in_processes

ORDERS = ["around", "inside"]


@pytest.fixture(scope="module", params=BACKENDS)
def found(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return run_in_processes(distributed_wrappers.compare_all, backend=request.param)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("case", distributed_wrappers.DATA_PARALLEL)
def test_data_parallel_trains_as_in_eager(found: list[dict[str, Any]], case: str, order: str) -> None:
    for of_rank in found:
        difference, in_eager = of_rank[f"{case}, {order}"]
        assert difference < 1e-5
        assert not in_eager


@pytest.mark.parametrize("case", distributed_wrappers.SHARDED)
@pytest.mark.parametrize("order", [*ORDERS, "layers"])
def test_fully_sharded_models_train_as_in_eager(found: list[dict[str, Any]], case: str, order: str) -> None:
    for of_rank in found:
        difference, in_eager = of_rank[f"sharded {case}, {order}"]
        assert difference < (2e-2 if case == "mixed precision" else 1e-5)
        # The hooks of FSDP talk to other processes: a program cannot hold them, nor the model around them.
        assert in_eager == (order != "layers")


@pytest.mark.parametrize("order", ORDERS)
def test_tensor_parallel_models_train_as_in_eager(found: list[dict[str, Any]], order: str) -> None:
    for of_rank in found:
        difference, in_eager = of_rank[f"tensor parallel, {order}"]
        assert difference < 1e-5
        assert in_eager


def test_tensor_parallel_parameters_are_refused_by_name(found: list[dict[str, Any]]) -> None:
    assert all("the tensor subclass DTensor" in of_rank["refusal"] for of_rank in found), found[0]["refusal"]


def test_a_compiled_wrapper_is_the_wrapper(found: list[dict[str, Any]]) -> None:
    for of_rank in found:
        facts = of_rank["inspection"]
        refusal = facts.pop("refusal")
        assert all(facts.values()), facts
        assert "DistributedDataParallel(thunder.jit(model, transforms=[...]))" in refusal
