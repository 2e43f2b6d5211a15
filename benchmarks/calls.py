"""The cost of one call: a+b, gelu(x@y)+1, a small MLP; forward, and forward with backward.

python benchmarks/calls.py [--compilers eager,inductor,thunder] [--device cuda]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import common
import torch
from torch import nn


def cases(device: str) -> dict[str, tuple[Callable[..., Any], Callable[[Callable[..., Any]], Any], bool, int]]:
    """Return name -> (what is compiled, how it is called, whether it needs a gradient, calls per round)."""
    a, b = (torch.randn(8, 8, device=device) for _ in range(2))
    x, y = (torch.randn(2, 2, device=device) for _ in range(2))
    batch = torch.randn(8, 32, device=device)
    layers = [nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32)]
    mlp = nn.Sequential(*layers).to(device)
    return {
        "a+b": (lambda p, q: p + q, lambda f: f(a, b), False, 2000),
        "gelu(x@y)+1": (lambda p, q: nn.functional.gelu(p @ q) + 1, lambda f: f(x, y), False, 2000),
        "mlp forward": (mlp, lambda f: f(batch), False, 1000),
        "mlp forward+backward": (mlp, lambda f: f(batch).sum().backward(), True, 300),
    }


def main() -> None:
    arguments = common.parser(__doc__).parse_args()
    torch.set_num_threads(arguments.threads)
    rows = []
    for name, (target, call, gradient, count) in cases(arguments.device).items():
        with torch.set_grad_enabled(gradient):
            calls = {}
            for compiler in arguments.compilers:
                candidate = common.compiled(compiler, target)
                call(candidate)
                common.settle(compiler, candidate)
                common.seconds(lambda call=call, candidate=candidate: call(candidate), 5)
                calls[compiler] = lambda call=call, candidate=candidate: call(candidate)
            figures = common.take_turns(calls, count=count, rounds=arguments.rounds)
        for compiler, figure in figures.items():
            rows.append({"name": name, "compiler": compiler, **figure})
            common.report(rows[-1])
    common.write(arguments, rows)


if __name__ == "__main__":
    main()
