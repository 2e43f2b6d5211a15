from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from thunder._check import load_extension

# Two workers on two cores: one thread each.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def round_trips() -> Iterator[None]:
    """Store, load and compare every trace that thunder makes."""
    traces = load_extension().trace
    traces.check_round_trips(True)
    traces.take_round_trips()
    yield
    count, failures = traces.take_round_trips()
    assert not failures, f"{len(failures)} of {count} traces are other ones when they are loaded:\n{failures[0]}"


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
