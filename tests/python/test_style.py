"""Comments can be read alone: they name what they describe, and do not begin with `What`, `Whose`, `Of`, `The same`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORDS = r"(?:What|Whose|Of|The same)\b"
# Comments behind code begin in lower case.
IN_CPP = re.compile(rf"^\s*//+ *{WORDS}|(?://+<|\S +//+) *(?i:{WORDS})")
IN_PYTHON = re.compile(rf'^\s*(?:#|""") *{WORDS}')
SOURCES = {
    "csrc": (IN_CPP, ("*.cpp", "*.h")),
    "tests/cpp": (IN_CPP, ("*.cpp", "*.h")),
    "thunder": (IN_PYTHON, ("*.py",)),
    "tests": (IN_PYTHON, ("*.py",)),
    "benchmarks": (IN_PYTHON, ("*.py",)),
    "examples": (IN_PYTHON, ("*.py",)),
}


@pytest.mark.parametrize("folder", SOURCES)
def test_comments_name_what_they_describe(folder: str) -> None:
    begins_badly, patterns = SOURCES[folder]
    paths = sorted(path for pattern in patterns for path in (ROOT / folder).rglob(pattern))
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf8").splitlines(), 1)
        if begins_badly.search(line)
    ]
    assert paths
    assert not found, "comments that say `What`, `Whose`, `Of` or `The same` before they name a thing:\n" + "\n".join(
        found
    )


@pytest.mark.parametrize(
    "line",
    [
        "/// What a run found.",
        "  // Of rows only.",
        "int rows;  ///< of the block",
        "int rows;  // whose sums are kept",
        "/// The same, for lists.",
    ],
)
def test_riddles_are_found(line: str) -> None:
    assert IN_CPP.search(line)


@pytest.mark.parametrize(
    "line", ["/// Offsets of rows.", 'auto url = "https://of.example";', "int rows;  ///< rows of it"]
)
def test_names_are_not_riddles(line: str) -> None:
    assert not IN_CPP.search(line)
