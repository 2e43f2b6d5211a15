"""Each strategy trains models of transformers as one process does, with AdamW, clipping and accumulation."""

from __future__ import annotations

from typing import Any

import distributed_models
import pytest
from processes import BACKENDS, needs_gloo, run_in_processes


@pytest.fixture(scope="module", params=BACKENDS)
def found(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return run_in_processes(distributed_models.compare_all, backend=request.param, seconds=600)


@pytest.fixture(scope="module")
def found_in_four() -> list[dict[str, Any]]:
    return run_in_processes(distributed_models.compare_all, processes=4, seconds=600)


@pytest.mark.parametrize("model", distributed_models.MODELS)
@pytest.mark.parametrize("strategy", ["ddp", "zero2", "zero3", "tp"])
def test_training_equals_that_of_one_process(found: list[dict[str, Any]], strategy: str, model: str) -> None:
    assert all(each[f"{strategy} {model}"] < 1e-5 for each in found), [each[f"{strategy} {model}"] for each in found]


@pytest.fixture(scope="module", params=BACKENDS)
def loops(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return run_in_processes(distributed_models.compare_loops, backend=request.param)


@pytest.mark.parametrize("strategy", ["ddp", "zero2", "zero3", "tp"])
def test_the_loop_of_litgpt_gives_the_losses_of_one_process(loops: list[dict[str, Any]], strategy: str) -> None:
    pytest.importorskip("litgpt", reason="pip install --no-deps -r requirements/litgpt.txt")
    assert all(each[f"{strategy} litgpt"] < 1e-5 for each in loops)


@pytest.mark.parametrize("strategy", ["ddp", "zero2", "zero3"])
def test_trainer_gives_the_losses_of_distributed_data_parallel(loops: list[dict[str, Any]], strategy: str) -> None:
    for each in loops:
        if f"{strategy} trainer" not in each:
            pytest.skip("runs on the CPU alone")
        assert each[f"{strategy} trainer"] < 1e-5


@needs_gloo
@pytest.mark.parametrize("model", distributed_models.MODELS)
def test_training_on_a_mesh_equals_that_of_one_process(found_in_four: list[dict[str, Any]], model: str) -> None:
    assert all(each[f"2-d {model}"] < 1e-5 for each in found_in_four), [each[f"2-d {model}"] for each in found_in_four]
