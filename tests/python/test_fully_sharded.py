"""`thunder.distributed.fsdp` trains as one process on the whole batch, with a shard of each parameter."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import fully_sharded
import pytest
import torch
from processes import BACKENDS, OFFLOADING, needs_gloo, run_in_processes
from small_language_models import MODELS
from test_data_parallel import OneProcess

import thunder
from thunder.distributed import FSDPBucketingStrategy, FSDPType

pytestmark = needs_gloo


@pytest.fixture(scope="module", params=BACKENDS)
def found(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return run_in_processes(fully_sharded.compare_all, backend=request.param)


@pytest.fixture(scope="module")
def facts(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each["facts"] for each in found]


@pytest.mark.parametrize("accumulates", [False, True])
@pytest.mark.parametrize("strategy", fully_sharded.STRATEGIES)
@pytest.mark.parametrize("model", MODELS)
def test_training_equals_that_of_one_process(
    found: list[dict[str, Any]], model: str, strategy: str, accumulates: bool
) -> None:
    assert all(each["models"][model, strategy, accumulates] < 1e-5 for each in found)


@pytest.fixture(scope="module")
def found_in_four() -> list[dict[Any, Any]]:
    return run_in_processes(fully_sharded.compare_in_four, processes=4)


@pytest.mark.parametrize("accumulates", [False, True])
@pytest.mark.parametrize("model", ["llama", "experts"])
@pytest.mark.parametrize("strategy", ["zero3 block", "hybrid"])
def test_four_processes_train_as_one(
    found_in_four: list[dict[Any, Any]], model: str, strategy: str, accumulates: bool
) -> None:
    assert all(each[model, strategy, accumulates] < 1e-5 for each in found_in_four)


def test_copies_of_shards_average_them_in_one_bucket(found_in_four: list[dict[Any, Any]]) -> None:
    collectives = [*["reduce_scatter_tensor_coalesced"] * 3, "all_reduce_"]
    assert all(each["collectives"] == collectives for each in found_in_four)


def test_two_runs_are_equal(found: list[dict[str, Any]]) -> None:
    assert all(each["again"] == 0 for each in found)


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        ("gathers", 6),
        ("gathers again", 2),  # the weights of the last two layers
        ("scatters", 6),
        ("zero2 gathers again", 0),
        (
            "sent in",
            {fully_sharded.GATHER: {"torch.bfloat16"}, fully_sharded.SCATTER: {"torch.float16"}},
        ),
        ("kept in", {"torch.float32"}),
    ],
)
def test_number(facts: list[dict[str, Any]], fact: str, value: object) -> None:
    assert all(each[fact] == value for each in facts)


@pytest.mark.parametrize(
    "fact",
    [
        "shards",
        "are DTensors",
        "autograd.grad",
        "hooks",
        "original keeps its own",
        "prefetches",
        "jitted again",
        "copied",
        "pickled",
        "full",
        "full shapes",
        "first only",
        "part",
        "part in no_sync",
        "materialized",
        "tied",
    ],
)
def test_fact(facts: list[dict[str, Any]], fact: str) -> None:
    assert all(each[fact] for each in facts)


def test_state_dict_has_sizes_of_full_parameters(facts: list[dict[str, Any]]) -> None:
    sizes = [[8, 6], [8], [6, 8], [6], [3, 6], [3]]
    assert all(list(each["state dict"].values()) == sizes for each in facts)


@pytest.mark.parametrize("case", ["clipped by PyTorch", "clipped by PyTorch, with a scalar"])
def test_pytorch_clips_by_the_norm_of_all_shards(found: list[dict[str, Any]], case: str) -> None:
    assert all(each[case] < 1e-5 for each in found)


def test_parameters_are_gathered_in_a_lower_precision(found: list[dict[str, Any]]) -> None:
    assert all(0 < each["bfloat16"] < 5e-2 for each in found)


@pytest.fixture(scope="module", params=OFFLOADING)
def offloaded(request: pytest.FixtureRequest) -> list[dict[Any, Any]]:
    return run_in_processes(fully_sharded.offload, backend=request.param)


@pytest.mark.parametrize("strategy", ["zero2 layer", "zero3 block"])
@pytest.mark.parametrize("model", MODELS)
def test_shards_on_the_cpu_train_as_one_process(offloaded: list[dict[Any, Any]], model: str, strategy: str) -> None:
    assert all(each[model, strategy] < 1e-5 for each in offloaded)


def test_shards_gradients_and_moments_lie_on_the_cpu(offloaded: list[dict[Any, Any]]) -> None:
    for each in offloaded:
        assert each["devices"] == {"cpu"}
        assert each["pinned"] == torch.cuda.is_available()
        assert each["copied at the end"]
        assert each["full state"]
        assert each["loss"] < 1e-5
        assert each["pickled"] == "cpu"


@pytest.mark.parametrize("processes", [1, 4])
def test_another_number_of_processes_goes_on_from_a_checkpoint(tmp_path: Path, processes: int) -> None:
    run_in_processes(functools.partial(fully_sharded.save, str(tmp_path)))
    expected = fully_sharded.straight_on()
    for losses in run_in_processes(functools.partial(fully_sharded.resume, str(tmp_path)), processes):
        assert losses == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("twice", "ValueError: thunder.distributed.fsdp: the module is parallel already"),
        ("plain module", "TypeError: thunder.distributed.full_state_dict: expected a module that fsdp or tensor"),
        ("clip of a plain module", "TypeError: thunder.distributed.clip_grad_norm_: expected a module that ddp, "),
        ("shards as full ones", "ValueError: thunder.distributed: one.weight: expected the full parameter, [8, 6], "),
        (
            "full ones as shards",
            "ValueError: load_state_dict: one.weight: expected a shard, which is a DTensor, got a f",
        ),
        (
            "optimizer of before",
            "RuntimeError: thunder.distributed.fsdp: the optimizer has parameters from before fsdp",
        ),
        ("replicated", "ValueError: thunder.distributed.fsdp: one.weight: expected a DTensor that is sharded by rows"),
        ("second derivative", "NotImplementedError: thunder: second derivatives by sharded parameters are not support"),
        (
            "without reset",
            "ValueError: thunder.distributed.fsdp: the module (WithoutReset) is on the meta device and has no reset_",
        ),
    ],
)
def test_errors_in_processes(facts: list[dict[str, Any]], case: str, message: str) -> None:
    assert all(each[case].startswith(message) for each in facts), [each[case] for each in facts]


def test_without_a_process_group_an_error_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"fsdp: there is no process group; start the program by torchrun"):
        thunder.distributed.fsdp(torch.nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sharding_strategy": "zero3"}, TypeError, "expected one of FSDPType.ZERO2, FSDPType.ZERO3, got 'zero3'"),
        ({"bucketing_strategy": FSDPType.ZERO2}, TypeError, "bucketing_strategy: expected one of FSDPBucketingStrateg"),
        ({"broadcast_from": 1}, ValueError, "broadcast_from: expected a rank below 1, got 1"),
        ({"device_mesh": 3}, TypeError, "device_mesh: expected a DeviceMesh, got 3"),
        ({"param_dtype": torch.int8}, ValueError, "param_dtype: expected a floating-point dtype, got torch.int8"),
        ({"reduce_dtype": torch.int8}, ValueError, "reduce_dtype: expected a floating-point dtype, got torch.int8"),
        ({"param_dtype": "bfloat16"}, TypeError, "param_dtype: expected a dtype, such as torch.bfloat16, or None"),
        ({"broadcast_from": "0"}, TypeError, "broadcast_from: expected a rank, which is an int, or None, got '0'"),
        ({"cpu_offload": "no"}, TypeError, "cpu_offload: expected True or False, got 'no'"),
        ({"device": "gpu"}, ValueError, "device: expected a device, such as .*, got 'gpu'"),
        ({"device": 3.5}, TypeError, "device: expected a device, such as .*, got 3.5"),
    ],
)
def test_argument_that_is_no_choice(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with OneProcess(), pytest.raises(error, match=message):
        thunder.distributed.fsdp(torch.nn.Linear(2, 2), **options)


@needs_gloo
def test_full_parameters_from_elsewhere_that_are_none() -> None:
    with OneProcess():
        model = thunder.distributed.fsdp(torch.nn.Linear(2, 2))
        with pytest.raises(TypeError, match=r"load_full_state_dict: state_dict: expected a dict of .*, got 'model.pt'"):
            thunder.distributed.load_full_state_dict(model, "model.pt")
        with pytest.raises(ValueError, match=r"full_state_dict: rank: expected a rank below 1, got 7"):
            thunder.distributed.full_state_dict(model, rank=7)


def test_one_process_has_no_shards() -> None:
    with OneProcess():
        model = thunder.distributed.fsdp(torch.nn.Linear(2, 2), bucketing_strategy=FSDPBucketingStrategy.BLOCK)
        model(torch.ones(1, 2)).sum().backward()
        assert "c10d" not in str(thunder.last_traces(model)[-1])
        assert model.weight.grad.equal(torch.ones(2, 2))
        assert thunder.distributed.full_state_dict(model)["weight"].shape == (2, 2)
