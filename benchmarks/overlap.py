"""How much of communication runs while something is computed, of a profile of one GPU."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile

Interval = tuple[float, float]


def kernel_intervals(step: Callable[[], Any]) -> tuple[list[Interval], list[Interval]]:
    """Run a step; return when kernels of NCCL ran, and when others did, in microseconds."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        step()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        events = json.loads(file.read_text())["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    parts: dict[bool, list[Interval]] = {True: [], False: []}
    for kernel in kernels:
        parts["nccl" in kernel["name"].lower()].append((kernel["ts"], kernel["ts"] + kernel["dur"]))
    return parts[True], parts[False]


def length(intervals: Iterable[Interval]) -> float:
    """Return the length of the union of intervals."""
    total, end = 0.0, float("-inf")
    for first, last in sorted(intervals):
        total += max(0.0, last - max(first, end))
        end = max(end, last)
    return total


def hidden_share(communication: list[Interval], computation: list[Interval]) -> float:
    """Return which share of the time of communication is covered by computation; 1.0 where nothing communicates."""
    together = length(communication)
    exposed = length([*communication, *computation]) - length(computation)
    return 1.0 - exposed / together if together else 1.0
