"""`thunder.distributed.tensor_parallel` trains as one process, with parts of layers and of activations."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import fully_sharded
import pytest
import tensor_parallel
import torch
from processes import BACKENDS, needs_gloo, run_in_processes
from test_data_parallel import OneProcess

import thunder


@pytest.fixture(scope="module", params=BACKENDS)
def found(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return run_in_processes(tensor_parallel.compare_all, backend=request.param)


@pytest.fixture(scope="module")
def facts(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["facts"] for each in found]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoint")


@pytest.fixture(scope="module")
def found_in_four(folder: Path) -> list[dict[str, Any]]:
    return run_in_processes(functools.partial(tensor_parallel.compare_in_four, str(folder)), processes=4)


@pytest.mark.parametrize("case", tensor_parallel.CASES)
def test_training_equals_that_of_one_process(found: list[dict[str, Any]], case: str) -> None:
    assert all(each[case] < 1e-5 for each in found)


def test_two_runs_are_equal(found: list[dict[str, Any]]) -> None:
    assert all(each["again"] == 0 for each in found)


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("sums", 7),  # of the embedding, behind attention and MLP of each layer, and two in the loss
        ("gathers", 2),  # maxima of logits for the loss, logits for the caller
        ("part", [24, 32]),
        # With parts of sequences: of the embedding, behind attention and MLP of each layer.
        ("forward scatter_sum", 5),
        ("forward gather_summing", 5),  # in front of attention and MLP of each layer, and of the head
        ("forward gather_parts", 2),
        ("backward scatter_sum", 5),
        ("backward gather_parts", 5),
        ("norms", {(2, 3, 1)}),
        ("full state", True),
        ("autocast", True),
    ],
)
def test_fact(facts: list[dict[str, Any]], fact: str, value: object) -> None:
    assert all(each[fact] == value for each in facts)


@pytest.mark.parametrize("case", tensor_parallel.LOSSES)
def test_cross_entropy_of_parts_equals_that_of_one_process(facts: list[dict[str, Any]], case: str) -> None:
    assert all(each["losses"][case] < 1e-5 for each in facts)
    assert all(each["losses of gathered"][case] == (case == "probabilities") for each in facts)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("no such module", "ValueError: thunder.distributed.tensor_parallel: column: the module has no *.q_proj"),
        (
            "not a layer",
            "TypeError: thunder.distributed.tensor_parallel: column: expected a Linear or an Embedding, got 0",
        ),
        (
            "odd",
            "ValueError: thunder.distributed.tensor_parallel: 0.weight: expected a size that 2 processes share, got 3",
        ),
        ("shared", "ValueError: thunder.distributed.tensor_parallel: lm_head.weight is shared by layers that split it"),
        ("twice", "ValueError: thunder.distributed.tensor_parallel: the module is parallel already"),
        (
            "read otherwise",
            "ValueError: thunder.distributed.tensor_parallel: one.weight: expected to be read by a linear",
        ),
    ],
)
def test_errors_in_processes(facts: list[dict[str, Any]], case: str, message: str) -> None:
    assert all(each[case].startswith(message) for each in facts), [each[case] for each in facts]


IN_FOUR = {
    "four": 1e-5,
    "with ddp, first step": 1e-5,
    "with ddp": 1e-4,
    **{f"with fsdp: {name}": 1e-5 for name in tensor_parallel.SPLIT},
    **{f"with fsdp, again: {name}": 1e-30 for name in tensor_parallel.SPLIT},
}


@needs_gloo
@pytest.mark.parametrize(("case", "bound"), IN_FOUR.items())
def test_four_processes_train_as_one(found_in_four: list[dict[str, Any]], case: str, bound: float) -> None:
    assert all(each[case] < bound for each in found_in_four)


@needs_gloo
@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("gradients", True),
        ("full state", True),
        ("tied", True),
        ("shards", [[16, 32], [16]]),
        ("names", ("parts", "shards")),
        ("placements", "(Shard(dim=1), Shard(dim=0))"),
        ("copied", True),
        ("pickled", True),
    ],
)
def test_shards_of_parts(found_in_four: list[dict[str, Any]], fact: str, value: object) -> None:
    assert all(each["facts"][fact] == value for each in found_in_four), found_in_four[0]["facts"][fact]


@needs_gloo
@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            "other group",
            "ValueError: thunder.distributed.fsdp: process_group: expected the processes that have the sam",
        ),
        ("two dimensions", "ValueError: thunder.distributed.fsdp: device_mesh: expected one dimension around tensor_"),
    ],
)
def test_fsdp_around_it_wants_the_other_dimension(found_in_four: list[dict[str, Any]], case: str, message: str) -> None:
    assert all(each["facts"][case].startswith(message) for each in found_in_four)


@needs_gloo
def test_processes_go_on_from_a_checkpoint_of_shards_of_parts(found_in_four: list[dict[str, Any]]) -> None:
    expected = fully_sharded.straight_on()
    assert all(each["resumed"] == pytest.approx(expected, abs=1e-5) for each in found_in_four)


@needs_gloo
def test_one_process_goes_on_from_a_checkpoint_of_shards_of_parts(
    found_in_four: list[dict[str, Any]], folder: Path
) -> None:
    with OneProcess():
        assert fully_sharded.resume(str(folder), 0) == pytest.approx(fully_sharded.straight_on(), abs=1e-5)


def test_a_target_that_is_no_word_fails_in_every_process(facts: list[dict[str, Any]]) -> None:
    message = "RuntimeError: index 9 is out of bounds for dimension 0 with size 8"
    assert all(not each["no such word"] or each["no such word"].startswith(message) for each in facts)


def test_without_a_process_group_an_error_says_what_to_do() -> None:
    with pytest.raises(
        RuntimeError, match=r"tensor_parallel: there is no process group; start the program by torchrun"
    ):
        thunder.distributed.column_parallel(torch.nn.Sequential(torch.nn.Linear(2, 2)), ["0"])


@needs_gloo
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"column": "0"}, TypeError, r"column: expected a list of names, got a single one; write \['0'\]"),
        ({"row": [0]}, TypeError, r"row: expected a list of names of modules, or of patterns of them, got \[0\]"),
        ({"column": None}, TypeError, "column: expected a list of names of modules, or of patterns of them, got None"),
        ({}, ValueError, "expected names of layers in column or row, got none"),
        ({"column": ["0"], "row": ["0"]}, ValueError, "0: expected in column or row, got in both"),
        ({"column": ["0"], "broadcast_from": 3}, ValueError, "broadcast_from: expected a rank below 1, got 3"),
        ({"column": ["0"], "sequence_parallel": 1}, TypeError, "sequence_parallel: expected True or False, got 1"),
    ],
)
def test_argument_that_is_no_choice(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with OneProcess(), pytest.raises(error, match=message):
        thunder.distributed.tensor_parallel(torch.nn.Sequential(torch.nn.Linear(2, 2)), **options)


@needs_gloo
def test_one_process_has_no_parts() -> None:
    with OneProcess():
        model = thunder.distributed.column_parallel(torch.nn.Sequential(torch.nn.Linear(2, 2)), ["0"])
        assert model(torch.ones(1, 2)).shape == (1, 2)
        assert "sum_over_processes" not in str(thunder.last_traces(model)[-1])
