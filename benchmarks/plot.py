"""Draw how many times as fast as eager, from benchmarks/results/*.json: docs/performance.svg, means: docs/summary.svg.

python benchmarks/plot.py
"""

from __future__ import annotations

import json
import math
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = {
    "step": "training step",
    "inference": "forward",
    "fusions": "chain, with backward",
    "calls": "call",
    "kernels": "kernel",
}
COLORS = {"thunder": "#3f51b5", "inductor": "#9e9e9e"}
ROW, LABEL, WIDTH, PER_UNIT = 16, 330, 900, 40
SUMMARY = {
    "step": "training step, EPYC, 2 cores",
    "inference-8-threads": "forward, Xeon, 8 cores",
    "inference": "forward, EPYC, 2 cores",
    "calls": "call of something small, EPYC",
    "step-cuda": "training step, H100",
    "training-cuda": "training step with its update, H100",
    "training_h200-cuda": "training step with its update, H200",
}


def speedups() -> list[tuple[str, str, float]]:
    """Return (what, compiler, eager's time over the compiler's) for each measured name."""
    found = []
    for program, kind in PROGRAMS.items():
        path = ROOT / f"benchmarks/results/{program}-cpu.json"
        if not path.exists():
            continue
        for row in json.loads(path.read_text())["rows"]:
            if row["compiler"] in COLORS and row.get("kind", "training") == "training":
                found.append((f"{kind}: {row['name']}", row["compiler"], 1 / row["ratio"]))
    return found


def means() -> list[tuple[str, str, float]]:
    """Return (what, compiler, geometric mean of eager's time over the compiler's) for each file of the summary."""
    found = []
    for name, what in SUMMARY.items():
        path = ROOT / f"benchmarks/results/{name if name.endswith('-cuda') else f'{name}-cpu'}.json"
        if not path.exists():
            continue
        rows = json.loads(path.read_text())["rows"]
        for compiler, title in (("inductor", "torch.compile"), ("thunder", "thunder")):
            logarithms = [math.log(row["ratio"]) for row in rows if row["compiler"] == compiler and "ratio" in row]
            if logarithms:
                speed = math.exp(-sum(logarithms) / len(logarithms))
                found.append((f"{what}: {title}", compiler, speed))
    return found


def draw(rows: list[tuple[str, str, float]], per_unit: int = PER_UNIT) -> str:
    """Return the chart: one bar for each row, a line at eager's speed; bars that leave the chart are cut there."""
    height = ROW * (len(rows) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        'font-size="11" fill="currentColor">',
        f'<text x="{LABEL}" y="{ROW - 5}">eager = 1</text>',
    ]
    for i, (what, compiler, speed) in enumerate(rows, start=1):
        y, length = i * ROW, min(speed * per_unit, WIDTH - LABEL - 50)
        parts.append(f'<text x="{LABEL - 6}" y="{y + 11}" text-anchor="end">{escape(what)}</text>')
        parts.append(f'<rect x="{LABEL}" y="{y + 2}" width="{length:.1f}" height="11" fill="{COLORS[compiler]}"/>')
        parts.append(f'<text x="{LABEL + length + 4:.1f}" y="{y + 11}">{speed:.2f}</text>')
    x = LABEL + per_unit
    parts.append(f'<line x1="{x}" y1="{ROW}" x2="{x}" y2="{height}" stroke="#e53935"/></svg>\n')
    return "\n".join(parts)


if __name__ == "__main__":
    (ROOT / "docs/performance.svg").write_text(draw(speedups()))
    (ROOT / "docs/summary.svg").write_text(draw(means(), per_unit=150))
