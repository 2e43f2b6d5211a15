"""Measured results: each comes from a program of the repository, and each page that has figures names their files."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = sorted((ROOT / "benchmarks/results").glob("*.json"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Files of results that pages speak of, such as `step-cpu.json`; not those of an example.
FILE = re.compile(r"\b\w+(?:-\d+-threads)?-(?:cpu|cuda|meta)\.json\b")


def program(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", ROOT / f"benchmarks/{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def figures(name: str) -> dict[tuple[str, str], float]:
    """Return the ratios of a file, by what was measured and compiler."""
    rows = json.loads((ROOT / "benchmarks/results" / name).read_text())["rows"]
    return {(row["name"], row["compiler"]): row["ratio"] for row in rows}


def options_of(source: Path) -> set[str]:
    """Return the options of a program, with those of the modules beside it that it uses."""
    imported = re.findall(r"^import (\w+)$", source.read_text(), re.MULTILINE)
    paths = [source, *(source.with_name(f"{name}.py") for name in ("common", *imported))]
    return {option for path in paths if path.exists() for option in re.findall(r'"(--[\w-]+)"', path.read_text())}


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_command_is_a_program_of_the_repository(path: Path) -> None:
    document: dict[str, Any] = json.loads(path.read_text())
    command = document["command"]
    if document["program"] == "tests.fuzz":
        assert command.startswith("python -m tests.fuzz ")
        source = ROOT / "tests/fuzz/__main__.py"
    else:
        assert re.match(r"python |torchrun (--standalone|--nproc-per-node 2| )+", command)
        source = ROOT / re.search(r"\S+\.py", command)[0]
        assert source == ROOT / f"benchmarks/{document['program']}.py"
    given = set(re.findall(r"--[a-z-]+", command)) - {"--standalone", "--nproc-per-node"}
    assert source.exists()
    assert given <= options_of(source)
    assert document["versions"]["torch"]
    assert re.match(r"\d{4}-\d\d-\d\d", document["date"])


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_a_page_names_the_file(path: Path) -> None:
    assert any(path.name in page.read_text(encoding="utf8") for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_files_of_results_exist(page: Path) -> None:
    named = set(FILE.findall(page.read_text(encoding="utf8")))
    assert named <= {path.name for path in RESULTS}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_programs_of_benchmarks_exist(page: Path) -> None:
    for name in re.findall(r"benchmarks/(\w+\.(?:py|sh))", page.read_text(encoding="utf8")):
        assert (ROOT / "benchmarks" / name).exists()


def test_tables_are_those_of_the_files() -> None:
    table = program("table")
    page = (ROOT / "docs/performance.md").read_text(encoding="utf8")
    means, measured = table.tables()
    assert table.rewrite(table.rewrite(page, "means", means), "measured", measured) == page


def test_charts_are_those_of_the_files() -> None:
    plot = program("plot")
    assert (ROOT / "docs/performance.svg").read_text() == plot.draw(plot.speedups())
    assert (ROOT / "docs/summary.svg").read_text() == plot.draw(plot.means(), per_unit=150)
    for name in plot.SUMMARY:
        assert (ROOT / f"benchmarks/results/{name if name.endswith('-cuda') else f'{name}-cpu'}.json").exists()


def test_figures_in_the_text_are_those_of_the_files() -> None:
    capture = figures("capture-cpu.json")
    ours, theirs = (f"{capture['llama 32x256', compiler]:.1f}" for compiler in ("thunder", "inductor"))
    readme = (ROOT / "README.md").read_text(encoding="utf8")
    assert f"takes {ours} times as long as eager's; `torch.compile`'s {float(theirs):.0f} times" in readme
    comparison = (ROOT / "docs/comparison.md").read_text(encoding="utf8")
    assert f"| {ours} times eager's | {float(theirs):.0f} times eager's |" in comparison
