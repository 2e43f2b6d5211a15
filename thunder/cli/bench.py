"""`thunder bench`: eager and compilers in turns."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from torch.utils import _pytree as pytree

__all__ = ["call", "measure"]

_ROUNDS = 7
_SECONDS = 0.1  # of a round, at least


def call(fn: Any, arguments: Any, keywords: Any) -> None:
    """Call a program, with a backward where its results require grad."""
    leaves = pytree.tree_leaves(fn(*arguments, **keywords))
    outputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if outputs:
        torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])


def measure(fn: Any, arguments: Any, keywords: Any, *, with_torch_compile: bool) -> None:
    """Print, for each compiler, the seconds of the first call, and the median of rounds that they take in turns."""
    import thunder

    programs = {"eager": fn, "thunder": thunder.jit(fn)}
    if with_torch_compile:
        programs["torch.compile"] = torch.compile(fn)
    first = {name: _seconds(program, arguments, keywords, 1) for name, program in programs.items()}
    count = max(1, int(_SECONDS / max(_seconds(fn, arguments, keywords, 1), 1e-7)))
    rounds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(_ROUNDS):
        for name, program in programs.items():
            rounds[name].append(_seconds(program, arguments, keywords, count))
    eager = statistics.median(rounds["eager"])
    for name, times in rounds.items():
        median = statistics.median(times)
        print(
            f"{name:14} first call {1000 * first[name]:10.3f} ms   call {1000 * median:10.4f} ms   "
            f"{median / eager:5.2f} of eager"
        )


def _seconds(fn: Any, arguments: Any, keywords: Any, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call(fn, arguments, keywords)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / count
