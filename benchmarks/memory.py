"""Peak memory of a training step (forward, backward, AdamW), each compiler in a process of its own.

    python benchmarks/memory.py [--compilers eager,inductor,thunder] [--models REGEX] [--batch FACTOR] [--device cuda]

On the CPU the peak is that of torch's allocator, from the profiler's record of each allocation during the third step,
above what was allocated when the step began; with small batches that of the optimizer may be it. On a GPU it is
`torch.cuda.max_memory_allocated` of that step.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import models
import torch


def peak_bytes(step: Callable[[], Any], device: str) -> int:
    """Return the most bytes allocated during `step`, above those allocated at its begin."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        profile.export_chrome_trace(str(file))
        events = json.loads(file.read_text())["traceEvents"]
    changes = [event for event in events if event.get("name") == "[memory]"]
    changes.sort(key=lambda event: event["ts"])
    total = peak = 0
    for event in changes:
        total += event["args"]["Bytes"]
        peak = max(peak, total)
    return peak


def measure(arguments: argparse.Namespace, compiler: str, name: str) -> dict[str, Any]:
    torch.set_num_threads(arguments.threads)
    model, inputs = models.chosen(arguments)[name]()
    candidate = common.compiled(compiler, model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        candidate(**inputs).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    common.settle(compiler, candidate)
    step()
    return {"name": name, "compiler": compiler, "peak_mb": peak_bytes(step, arguments.device) / 1e6}


def main() -> None:
    parser = models.parser(__doc__)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names = list(models.chosen(arguments))
    if arguments.alone:
        rows = [measure(arguments, arguments.compilers[0], name) for name in names]
    else:
        rows = [row for compiler in arguments.compilers for row in common.in_own_process(compiler)]
        common.add_ratios(rows, "peak_mb")
        for row in rows:
            common.report(row)
    common.write(arguments, rows)


if __name__ == "__main__":
    main()
