"""Names of operators stand in `csrc/operators/`, and in the tables named here; elsewhere their number may only fall."""

from __future__ import annotations

import re
from pathlib import Path

CSRC = Path(__file__).resolve().parents[2] / "csrc"
NAME = re.compile(r'"(?:aten|prims)::[a-zA-Z_0-9.]+"')

# Tables whose rows are operators, each with a function or a rule that is about that operator alone.
TABLES = {
    "executors/api/primitives.cpp": "how a primitive of thunder's own runs",
    "fusion/rowwise.cpp": "how reductions, norms and losses are computed",
    "fusion/placements.cpp": "how results are put together of parts",
    "passes/algebraic_simplification.cpp": "a rewrite each",
    "passes/layout_cleanup.cpp": "a rewrite each",
    "tracer/views.cpp": "how a value is written through a view",
    "tracer/result_rules.cpp": "sizes of results",
    "tracer/result_rules_elements.cpp": "sizes of results",
    "tracer/result_rules_layers.cpp": "sizes of results",
    "tracer/data_rewrites.cpp": "operators whose result's size follows from data",
    "tracer/evaluate.cpp": "operators that are run while tracing",
}
# Those that remain, to be moved to `csrc/operators/`.
MOST_ELSEWHERE = 215


def test_names_of_operators_do_not_spread() -> None:
    counts = {}
    for path in sorted([*CSRC.rglob("*.cpp"), *CSRC.rglob("*.h")]):
        name = path.relative_to(CSRC).as_posix()
        found = len(NAME.findall(path.read_text()))
        if found and not name.startswith("operators/") and name not in TABLES:
            counts[name] = found
    total = sum(counts.values())
    assert total <= MOST_ELSEWHERE, f"{total} names of operators outside of csrc/operators: {counts}"


def test_tables_exist() -> None:
    assert all(NAME.search((CSRC / name).read_text()) for name in TABLES)
