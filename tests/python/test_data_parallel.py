"""`thunder.distributed.ddp` trains as one process on the whole batch, or as DistributedDataParallel."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import data_parallel
import distributed_wrappers
import pytest
import torch
from processes import BACKENDS, needs_gloo, run_in_processes
from small_language_models import MODELS

import thunder

pytestmark = needs_gloo


@pytest.fixture(scope="module", params=BACKENDS)
def found(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return run_in_processes(data_parallel.compare_all, backend=request.param)


@pytest.fixture(scope="module")
def facts(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["facts"] for each in found]


@pytest.mark.parametrize("accumulated", ["", " accumulated"])
@pytest.mark.parametrize("model", MODELS)
def test_training_equals_that_of_one_process(found: list[dict[str, Any]], model: str, accumulated: str) -> None:
    assert all(each[model + accumulated] < 1e-5 for each in found)


@pytest.mark.parametrize("model", MODELS)
def test_two_runs_are_equal(found: list[dict[str, Any]], model: str) -> None:
    assert all(each[f"{model} again"] == 0 for each in found)


def test_a_compiled_module_keeps_its_options(found: list[dict[str, Any]]) -> None:
    assert all(each["ddp of jit"] < 1e-5 for each in found)


@pytest.mark.parametrize("case", [*distributed_wrappers.DATA_PARALLEL, *data_parallel.BRANCHES])
def test_training_equals_that_of_distributed_data_parallel(found: list[dict[str, Any]], case: str) -> None:
    assert all(each[f"beside DistributedDataParallel: {case}"] < 1e-5 for each in found)


def test_gradients_are_sent_in_a_lower_precision(found: list[dict[str, Any]]) -> None:
    assert all(0 < each["bfloat16"] < 1e-2 for each in found)


@pytest.mark.parametrize("what", ["weights", "gradient"])
def test_processes_have_the_same(facts: list[dict[str, Any]], what: str) -> None:
    assert facts[0][what] == facts[1][what]


@pytest.mark.parametrize(
    "fact",
    [
        "waits come last",
        "overlaps",
        "views",
        "original",
        "jitted again",
        "copied",
        "pickled",
        "unused",
        "in a context",
        "inside of another program",
        "by forward",
    ],
)
def test_fact(facts: list[dict[str, Any]], fact: str) -> None:
    assert all(each[fact] for each in facts)


def test_gradients_come_in_buckets(facts: list[dict[str, Any]]) -> None:
    assert all(1 < each["starts"] < 6 for each in facts)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("outside of a program", "RuntimeError: thunder.jit: an object of type Layers cannot run in eager, as ddp("),
        ("twice", "ValueError: thunder.distributed.ddp: the module is parallel already"),
        ("written", "ValueError: thunder.distributed.ddp: the program writes to the parameter weight"),
        ("shapes", "RuntimeError: thunder.distributed.ddp: weight: expected the same in all processes, got float32 [2"),
    ],
)
def test_errors_in_processes(facts: list[dict[str, Any]], case: str, message: str) -> None:
    assert all(each[case].startswith(message) for each in facts), facts


def test_without_a_process_group_an_error_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"ddp: there is no process group; start the program by torchrun"):
        thunder.distributed.ddp(torch.nn.Linear(2, 2))


def test_without_distributed_importing_works_and_using_says_what_to_do() -> None:
    program = (
        "import torch, torch.distributed as dist\n"
        "dist.is_available = lambda: False\n"
        "import thunder.distributed\n"
        "try: thunder.distributed.ddp(torch.nn.Linear(2, 2))\n"
        "except RuntimeError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "ddp: this torch was built without torch.distributed; install one" in done.stdout


def test_no_sync_of_another_module_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"no_sync: expected a module that ddp or fsdp returned, got Linear"):
        thunder.distributed.no_sync(torch.nn.Linear(2, 2))


class OneProcess:
    """A process group of this process alone."""

    def __enter__(self) -> None:
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)

    def __exit__(self, *error: object) -> None:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"bucket_size_in_mb": -1}, ValueError, "bucket_size_in_mb: expected a size, got -1"),
        ({"broadcast_from": 1}, ValueError, "broadcast_from: expected a rank below 1, got 1"),
        ({"communication_dtype": torch.int8}, ValueError, "communication_dtype: expected a floating-point dtype"),
        ({"bucket_size_in_mb": "25"}, TypeError, "bucket_size_in_mb: expected a size, which is a number, got '25'"),
        ({"broadcast_from": "0"}, TypeError, "broadcast_from: expected a rank, which is an int, or None, got '0'"),
        ({"communication_dtype": "bf16"}, TypeError, "communication_dtype: expected a dtype, such as torch.bfloat16"),
        ({"find_unused_parameters": "yes"}, TypeError, "find_unused_parameters: expected True or False, got 'yes'"),
        ({"broadcast_buffers": 2}, TypeError, "broadcast_buffers: expected True or False, got 2"),
        ({"process_group": 3}, TypeError, "process_group: expected a ProcessGroup, got 3"),
    ],
)
def test_argument_that_is_no_choice(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with OneProcess(), pytest.raises(error, match=message):
        thunder.distributed.ddp(torch.nn.Linear(2, 2), **options)


def test_one_process_has_no_collectives() -> None:
    with OneProcess():
        model = thunder.distributed.ddp(torch.nn.Linear(2, 2))
        model(torch.ones(1, 2)).sum().backward()
        assert "c10d" not in str(thunder.last_backward_traces(model)[-1])
        assert model.weight.grad.equal(torch.ones(2, 2))
