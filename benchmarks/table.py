"""Rewrite the measured tables of docs/performance.md, of means and of all figures, from benchmarks/results/*.json.

    python benchmarks/table.py

A table stands between two marker comments. A figure is the ratio to eager of the same run: below 1 is better.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
QUANTITY = {
    "calls": "time of a call",
    "capture": "first step",
    "fusions": "time of a chain, with backward",
    "step": "time of a training step",
    "inference": "time of a forward",
    "optimizer_step": "time of a step with its update",
    "training": "time of a step with its update",
    "memory": "peak memory",
}
COMPILERS = ("inductor", "thunder")

Ratios = dict[str, dict[str, float]]  # name -> compiler -> ratio to eager


def ratios_of(document: dict[str, Any]) -> Ratios:
    ratios: Ratios = {}
    for row in document["rows"]:
        if row.get("kind", "training") == "training":
            ratios.setdefault(row["name"], {})[row["compiler"]] = row.get("ratio", float("nan"))
    return ratios


def cell(values: list[float]) -> str:
    """Return the geometric mean of ratios."""
    return f"{math.exp(sum(map(math.log, values)) / len(values)):.2f}" if values else "–"


def machine_of(document: dict[str, Any]) -> str:
    """Return where a file's figures were measured, and with which PyTorch."""
    machine = document["machine"]
    device = machine["device"] if machine["device"] != "x86_64" else machine.get("cpu", "CPU")
    return f"{device}, {machine['threads']} of {machine['cores']} cores, {document['versions']['torch'].split('+')[0]}"


def line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def tables() -> tuple[list[str], list[str]]:
    """Return the table of means and that of all figures in Markdown, a line for each result file and each name."""
    heading = ["torch.compile", "thunder"]
    means = [line("", *heading, "best to worst", "file", "machine", "date"), "|---" * 7 + "|"]
    figures = [line("", "what", *heading), "|---" * 4 + "|"]
    for path in sorted((ROOT / "benchmarks/results").glob("*.json")):
        document = json.loads(path.read_text())
        quantity = QUANTITY.get(document["program"])
        if quantity is None:
            continue
        ratios = ratios_of(document)
        columns = [[of[compiler] for of in ratios.values() if compiler in of] for compiler in COMPILERS]
        cells = [cell(column) if len(column) == len(ratios) else "–" for column in columns]
        extent = f"{min(columns[-1]):.2f} to {max(columns[-1]):.2f}" if len(ratios) > 1 else ""
        about = [f"`{path.name}`", machine_of(document), document["date"][:10]]
        means.append(line(f"{quantity} ({len(ratios)})", *cells, extent, *about))
        for name, of in ratios.items():
            cells = [cell([of[compiler]] if compiler in of else []) for compiler in COMPILERS]
            figures.append(line(f"`{path.name}`", name, *cells))
    return means, figures


def rewrite(text: str, name: str, table: list[str]) -> str:
    """Return a page with another table between the markers of `name`."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    body = "\n".join([begin, *table, end])
    return re.sub(f"{re.escape(begin)}.*{re.escape(end)}", lambda _: body, text, flags=re.DOTALL)


if __name__ == "__main__":
    page = ROOT / "docs/performance.md"
    of_means, of_all = tables()
    page.write_text(rewrite(rewrite(page.read_text(), "means", of_means), "measured", of_all))
