"""A fixed number of random programs. Longer runs: `python -m tests.fuzz`; see docs/fuzzing.md."""

from __future__ import annotations

import os

import pytest

from tests.fuzz import runner

_PARTS = 2
_SEED = int(os.environ.get("THUNDER_FUZZ_SEED", "0"))
_PROGRAMS = int(os.environ.get("THUNDER_FUZZ_PROGRAMS", "600"))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(_PARTS))
def test_random_programs(part: int) -> None:
    share = _PROGRAMS // _PARTS
    report = runner.run(share, _SEED + part * share, workers=1)
    print(report)
    assert report.programs == share
    assert report.outcomes["call"]["passed"] > share // 2
    unknown = [str(found) for found in report.failures if not found.known]
    assert not unknown, "\n\n".join(unknown)


def test_seed_gives_the_same_program() -> None:
    from tests.fuzz.generator import generate

    first, second = generate(5), generate(5)
    assert first is not None
    assert second is not None
    assert first.program.text() == second.program.text()
    assert first.expressions == second.expressions


def test_table_holds_the_common_operators() -> None:
    from tests.fuzz.operators import operators

    table = operators()
    for kind, names in {
        "pure": ("add", "matmul", "softmax", "where", "cat", "sum", "topk", "gather"),
        "view": ("transpose", "view", "select", "split", "unfold", "diagonal"),
        "write": ("add_", "copy_", "masked_fill_", "index_put_", "t_", "zero_"),
        "out": ("add", "matmul", "cumsum"),
    }.items():
        assert not set(names) - table[kind].keys()
    assert sum(map(len, table.values())) > 900
