"""Sources of one layer include one another without cycles, and so do the folders of a layer."""

from __future__ import annotations

import re
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parents[2] / "csrc"
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
LAYERS = sorted({path.parent for path in CSRC.rglob("CMakeLists.txt")})


def unit_of(path: Path) -> str:
    """A header and its source are one unit: `ir/trace`."""
    return str(path.relative_to(CSRC).with_suffix(""))


def includes_within(layer: Path) -> dict[str, set[str]]:
    """The units of a layer, each with those of the layer that it includes."""
    files = [path for suffix in ("h", "cpp") for path in layer.rglob(f"*.{suffix}")]
    units = {unit_of(path) for path in files}
    graph: dict[str, set[str]] = {unit: set() for unit in units}
    for path in files:
        for name in INCLUDE.findall(path.read_text()):
            included = unit_of(CSRC / name)
            if included in units and included != unit_of(path):
                graph[unit_of(path)].add(included)
    return graph


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: str(layer.relative_to(CSRC)))
def test_sources_do_not_include_each_other(layer: Path) -> None:
    assert cycle_in(includes_within(layer)) == []


@pytest.mark.parametrize("name", ["dispatch", "interpreter"])
def test_folders_do_not_include_each_other(name: str) -> None:
    layer = CSRC / name
    folders: dict[str, set[str]] = defaultdict(set)
    for unit, included in includes_within(layer).items():
        folder = str(Path(unit).parent)
        folders[folder] |= {str(Path(other).parent) for other in included} - {folder}
    assert len(folders) > 4
    assert cycle_in(folders) == []
