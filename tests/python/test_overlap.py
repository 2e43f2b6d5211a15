"""The benchmarks' measure of hidden communication."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from overlap import hidden_share


@pytest.mark.parametrize(
    ("communication", "computation", "share"),
    [
        ([(0, 10)], [], 0.0),
        ([(0, 10)], [(0, 4), (6, 20)], 0.8),
        ([(0, 4), (2, 10)], [(5, 10), (5, 7)], 0.5),
        ([], [(0, 1)], 1.0),
    ],
)
def test_share_of_communication_that_is_hidden(
    communication: list[tuple[float, float]], computation: list[tuple[float, float]], share: float
) -> None:
    assert hidden_share(communication, computation) == pytest.approx(share)
