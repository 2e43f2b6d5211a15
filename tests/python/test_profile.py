"""`thunder.profile`, and the ranges that compiled programs give to PyTorch's profilers."""

from __future__ import annotations

import gzip
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from thunder.profiling import Profile, ProfileRow

LAYER = torch.nn.Linear(8, 8)


def program(x: torch.Tensor) -> torch.Tensor:
    y = LAYER(x)
    return (torch.softmax(y, -1) * 2).sum()


SECOND_LINE = inspect.getsourcelines(program)[1] + 2


def names_of(recorded: Any) -> list[str]:
    return [event.name for event in recorded.events()]


@pytest.fixture
def compiled() -> Any:
    f = thunder.jit(program)
    f(torch.randn(4, 8)).backward()
    return f


def test_ranges_carry_the_line_of_the_program(compiled: Any) -> None:
    with torch.profiler.profile() as recorded:
        compiled(torch.randn(4, 8)).backward()
    fusions = [name for name in names_of(recorded) if name.startswith("a fusion of 3 operations")]
    assert fusions == [next(name for name in fusions if name.endswith(f"{__file__}:{SECOND_LINE}"))]
    backward = names_of(recorded)[names_of(recorded).index("ThunderBackward") :]
    assert any(name.startswith("aten::mm of ") for name in backward)


def test_operations_of_pytorch_lie_inside_of_their_range(compiled: Any) -> None:
    with torch.profiler.profile() as recorded:
        compiled(torch.randn(4, 8))
    inner = next(event for event in recorded.events() if event.name == "aten::addmm")
    assert inner.cpu_parent.name.startswith("aten::addmm of ")


def test_ranges_are_given_to_a_profiler_that_starts_later(compiled: Any) -> None:
    for _ in range(2):
        with torch.profiler.profile() as recorded:
            compiled(torch.randn(4, 8))
        assert any(" of " in name and __file__ in name for name in names_of(recorded))


def test_profile_sums_calls_by_line(compiled: Any) -> None:
    profile = thunder.profile(compiled, torch.randn(4, 8), calls=4)
    row = next(row for row in profile if row.line == SECOND_LINE and "3 operations" in row.operation)
    assert row.calls == 4
    assert row.file == __file__
    assert row.seconds > 0
    assert [row.seconds for row in profile] == sorted((row.seconds for row in profile), reverse=True)
    seconds = {line: seconds for _, line, seconds in profile.by_line()}
    assert seconds[SECOND_LINE] == pytest.approx(sum(row.seconds for row in profile if row.line == SECOND_LINE))


def test_profile_prints_and_is_shown_in_notebooks(compiled: Any) -> None:
    profile = thunder.profile(compiled, torch.randn(4, 8))
    assert f"# {__file__}:{SECOND_LINE}" in str(profile)
    assert f"<td>{__file__}:{SECOND_LINE}</td>" in profile._repr_html_()
    assert str(type(profile)()).startswith("no compiled operation ran")


def test_profile_is_saved_for_perfetto(compiled: Any, tmp_path: Path) -> None:
    thunder.profile(compiled, torch.randn(4, 8)).save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(__file__ in event.get("name", "") for event in events)


def test_profile_is_saved_again_and_compressed(compiled: Any, tmp_path: Path) -> None:
    profile = thunder.profile(compiled, torch.randn(4, 8))
    for name in ("a.json", "b.json", "c.json.gz"):
        profile.save(tmp_path / name)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert gzip.decompress((tmp_path / "c.json.gz").read_bytes()) == (tmp_path / "a.json").read_bytes()


@pytest.mark.parametrize(
    ("path", "error"),
    [("no/such/folder/t.json", FileNotFoundError), (".", IsADirectoryError), (None, TypeError), (1, TypeError)],
)
def test_profile_that_cannot_be_saved_raises(
    path: Any, error: type[Exception], compiled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    profile = thunder.profile(compiled, torch.randn(4, 8))
    with pytest.raises(error):
        profile.save(path)
    profile.save("t.json")
    assert json.loads(Path("t.json").read_text())["traceEvents"]


def test_profile_leaves_gradients_alone() -> None:
    model = thunder.jit(torch.nn.Linear(4, 2))
    profile = thunder.profile(model, torch.randn(3, 4))
    assert any(row.operation == "aten::mm" for row in profile)
    assert model.weight.grad is None


def test_profile_needs_a_call(compiled: Any) -> None:
    with pytest.raises(ValueError, match="calls: expected a number from 1 on"):
        thunder.profile(compiled, torch.randn(4, 8), calls=0)


def test_profile_of_a_plugin_names_what_serves() -> None:
    with pytest.raises(NotImplementedError, match=r"thunder\.profile"):
        thunder.compile(torch.sin, plugins="profile")


def test_lines_of_what_was_not_called_before_are_the_callers() -> None:
    rows = thunder.profile(thunder.jit(torch.nn.Linear(4, 3)), torch.randn(2, 4))
    assert {row.file for row in rows} == {__file__}


def test_the_longest_rows_are_printed_and_the_others_summed_up() -> None:
    rows = [ProfileRow(f"aten::op{i}", "model.py", i, 1, 1e-6 * (100 - i), 0.0) for i in range(43)]
    printed = str(Profile(rows)).splitlines()
    assert len(printed) == 41
    assert printed[39].endswith("aten::op39  # model.py:39")
    assert printed[40].strip() == "177.0 us  3 more rows, which a loop over the profile gives"


@pytest.mark.parametrize("option", ["record_shapes", "with_flops", "profile_memory"])
def test_a_profiler_says_nothing_of_what_is_traced(option: str, capfd: pytest.CaptureFixture[str]) -> None:
    compiled = thunder.jit(program)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **{option: True}) as recorded:
        compiled(torch.randn(4, 8)).backward()
        compiled(torch.randn(5, 8)).backward()
    said = capfd.readouterr().err.splitlines()
    assert [line for line in said if "ActivityProfiler" not in line] == []
    assert names_of(recorded).count("aten::addmm") == 2
