"""Rewrite the measured table of README.md from benchmarks/results/*.json.

    python benchmarks/table.py

The table stands between the two marker comments. A figure is the ratio to eager of the same run: below 1 is better.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARKERS = "<!-- measured: begin -->", "<!-- measured: end -->"
QUANTITY = {
    "calls": "time of a call",
    "capture": "first step",
    "fusions": "time of a chain, with backward",
    "step": "time of a step",
    "optimizer_step": "time of a step with its update",
    "memory": "peak memory",
}


def table_lines() -> list[str]:
    """Return the table in Markdown, one line for each measured name."""
    lines = ["| what | | torch.compile | thunder | command | date |", "|---|---|---|---|---|---|"]
    for path in sorted((ROOT / "benchmarks/results").glob("*.json")):
        document = json.loads(path.read_text())
        if document["program"] not in QUANTITY:
            continue
        ratios: dict[str, dict[str, float]] = {}
        for row in document["rows"]:
            if row.get("kind", "training") != "training":
                continue
            ratios.setdefault(row["name"], {})[row["compiler"]] = row.get("ratio", float("nan"))
        for name, of in ratios.items():
            cells = [f"{of[compiler]:.2f}" if compiler in of else "–" for compiler in ("inductor", "thunder")]
            date = document["date"][:10]
            quantity = QUANTITY[document["program"]]
            lines.append(f"| {name} | {quantity} | {cells[0]} | {cells[1]} | `{document['command']}` | {date} |")
    return lines


def main() -> None:
    readme = ROOT / "README.md"
    begin, end = (re.escape(marker) for marker in MARKERS)
    body = "\n".join([MARKERS[0], *table_lines(), MARKERS[1]])
    readme.write_text(re.sub(f"{begin}.*{end}", lambda _: body, readme.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    main()
