"""A chart of the predictions of `scaling_model.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

COLORS = ("#9e9e9e", "#3f51b5", "#d81b60", "#00897b")
WIDTH, HEIGHT, GAP, MARGIN = 360, 220, 60, 50


def draw(rows: list[dict[str, Any]], strategies: Sequence[str], scales: Sequence[int], file: Path) -> None:
    """Draw efficiency by number of GPUs, a panel for each model and scaling; hollow where memory does not suffice."""
    panels = sorted({(row["model"], row["scaling"]) for row in rows})
    parts: list[str] = []
    for index, (model, scaling) in enumerate(panels):
        left, top = MARGIN + index % 2 * (WIDTH + GAP), MARGIN + index // 2 * (HEIGHT + GAP)
        parts.append(f'<text x="{left}" y="{top - 8}" font-weight="bold">{model}, {scaling} scaling</text>')
        parts += _axes(left, top, scales)
        for strategy, color in zip(strategies, COLORS, strict=True):
            parts += _line([row for row in rows if _key(row) == (model, scaling, strategy)], color, left, top)
    legend = MARGIN + (len(panels) + 1) // 2 * (HEIGHT + GAP)
    for place, (strategy, color) in enumerate(zip(strategies, COLORS, strict=True)):
        parts.append(f'<text x="{MARGIN + place * 90}" y="{legend}" fill="{color}">{strategy}</text>')
    size = f'width="{2 * (WIDTH + GAP) + MARGIN}" height="{legend + 20}"'
    file.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["model"], row["scaling"], row["strategy"]


def _x(left: int, place: int, count: int) -> float:
    return left + WIDTH * place / (count - 1)


def _axes(left: int, top: int, scales: Sequence[int]) -> Iterator[str]:
    for share in (0.0, 0.5, 1.0):
        y = top + HEIGHT * (1 - share)
        yield f'<path d="M{left} {y}h{WIDTH}" stroke="#ddd"/><text x="{left - 40}" y="{y + 4}">{share:.0%}</text>'
    for place, count in enumerate(scales):
        yield f'<text x="{_x(left, place, len(scales)) - 8}" y="{top + HEIGHT + 16}">{count}</text>'


def _line(rows: list[dict[str, Any]], color: str, left: int, top: int) -> Iterator[str]:
    points = [
        (
            _x(left, place, len(rows)),
            top + HEIGHT * (1 - min(row["efficiency"], 1.0)),
            color if row["fits"] else "white",
        )
        for place, row in enumerate(rows)
    ]
    line = " ".join(f"{x:.0f},{y:.1f}" for x, y, _ in points)
    yield f'<polyline points="{line}" fill="none" stroke="{color}"/>'
    for x, y, fill in points:
        yield f'<circle cx="{x:.0f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{color}"/>'
