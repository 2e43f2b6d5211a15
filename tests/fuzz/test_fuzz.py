"""Random programs, for three minutes of two cores. Longer: `python -m tests.fuzz`; see docs/maintainers/fuzzing.md."""

from __future__ import annotations

import os

import pytest

from tests.fuzz import kernels_on_host, runner

# A program that cannot be compiled runs in eager, and is compared all the same.
pytestmark = pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")

_PARTS = 10  # which the workers of pytest share among them
_SEED = int(os.environ.get("THUNDER_FUZZ_SEED", "0"))
_PROGRAMS = int(os.environ.get("THUNDER_FUZZ_PROGRAMS", "4700"))
_SECONDS = float(os.environ.get("THUNDER_FUZZ_SECONDS", "400"))  # of one core, on all parts together


@pytest.mark.slow
@pytest.mark.parametrize("part", range(_PARTS))
def test_random_programs(part: int) -> None:
    first, end = (_PROGRAMS * number // _PARTS for number in (part, part + 1))
    report = runner.run(end - first, _SEED + first, workers=1, seconds=_SECONDS / _PARTS)
    print(report)
    assert report.programs == end - first or report.seconds >= _SECONDS / _PARTS
    assert report.outcomes["call"]["passed"] > report.programs // 2
    unknown = [str(found) for found in report.failures if not found.known]
    assert not unknown, "\n\n".join(unknown)


@pytest.mark.slow
@pytest.mark.skipif(not kernels_on_host.EXTENSION.exists(), reason="the extension of the tests has not been built")
def test_random_programs_of_cuda_kernels_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernels_on_host.CHOICE, "1")
    report = runner.run(60, _SEED, workers=1, seconds=_SECONDS / _PARTS, device=kernels_on_host.DEVICE)
    print(report)
    assert report.outcomes["call"]["passed"] > report.programs // 2
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
