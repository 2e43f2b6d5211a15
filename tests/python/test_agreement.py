"""Processes that compile different programs raise all, with the place, instead of waiting for each other."""

from __future__ import annotations

import functools
from typing import Any

import agreement
import processes
import pytest
from processes import BACKENDS, needs_gloo, run_in_processes

SECONDS = 20  # the time-out of the group is 60


@pytest.fixture(scope="module", params=BACKENDS)
def found(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return run_in_processes(agreement.disagree, backend=request.param)


@pytest.mark.parametrize(
    ("case", "place"),
    [
        ("ddp", "number 1 of the backward:\n  process 0: all_reduce_ {device} f32[21]"),
        ("fsdp", "number 5 of the forward:\n  process 0: none\n  process 1: all_gather_into_tensor {device} f32[2, 6]"),
    ],
)
def test_different_collectives_raise_in_all_processes(found: list[dict[str, Any]], case: str, place: str) -> None:
    for each in found:
        error, seconds = each[f"{case}: other collectives"]
        assert f"processes compiled different collectives, which part at {place.format(**each)}" in error
        assert "agreement.py, line" in error
        assert seconds < SECONDS


@pytest.mark.parametrize("case", agreement.WRAPS)
def test_other_parameters_of_the_same_size_raise_in_all_processes(found: list[dict[str, Any]], case: str) -> None:
    for each in found:
        error, seconds = each[f"{case}: other parameters"]
        assert "read other parameters" in error
        assert "process 0: one.weight\n  process 1: other.weight" in error
        assert seconds < SECONDS


def test_programs_that_could_be_confused_are_warned_of(found: list[dict[str, Any]]) -> None:
    message = "two programs have the same collectives for other parameters"
    for each in found:
        assert [message in text for text in each["ddp: warnings"]] == [True]
        assert not any(message in text for text in each["fsdp: warnings"])


@pytest.mark.parametrize("case", agreement.WRAPS)
def test_training_goes_on_after_a_mismatch(found: list[dict[str, Any]], case: str) -> None:
    assert all(each[f"{case}: goes on"] for each in found)


@pytest.mark.parametrize("case", agreement.WRAPS)
def test_an_error_of_one_process_ends_the_others(found: list[dict[str, Any]], case: str) -> None:
    (first, seconds), (second, _) = [each[f"{case}: one fails"] for each in found]
    assert second == "KeyError: 'not in this process'"
    assert first.endswith("thunder.distributed: process 1 could not compile its program: " + second)
    assert seconds < SECONDS


@pytest.mark.parametrize("case", agreement.WRAPS)
def test_an_error_of_all_is_its_own(found: list[dict[str, Any]], case: str) -> None:
    assert all(each[f"{case}: all fail"][0] == "KeyError: 'not in this process'" for each in found)


def test_a_process_that_compiles_alone_is_noticed(found: list[dict[str, Any]]) -> None:
    error, seconds = found[1]["one retraces"]
    assert "process 0 compiled no program while others did, within the time-out of the process group" in error
    assert seconds < SECONDS


@needs_gloo
@pytest.mark.parametrize("name", agreement.WRAPS)
def test_a_process_that_compiles_alone_ends_those_that_wait_in_a_collective(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "AFTER_FAILURE", 60.0)  # process 0 raises when process 1 has ended
    with pytest.raises(RuntimeError) as raised:
        run_in_processes(functools.partial(agreement.retraces_while_others_wait, name))
    first, second = str(raised.value).split("\nrank 1:")
    for text in (first, second):
        assert "process 1 compiles a " in text
        assert "agreement.py, line" in text
        assert int(text.split(", after ")[-1].split(" s")[0]) < 2 * SECONDS
    assert "raised: RuntimeError" in first


@needs_gloo
@pytest.mark.parametrize("name", agreement.WRAPS)
def test_a_process_that_is_killed_ends_the_others(name: str) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)by peer.*, after \d s.*rank 1 died"):
        run_in_processes(functools.partial(agreement.one_is_killed, name))


def test_one_process_may_evaluate_alone(found: list[dict[str, Any]]) -> None:
    assert all(each["one process evaluates alone"] for each in found)
