"""Seconds to the first loss and gradients of a 32-layer Llama (hidden 256), cold, beside a step in eager.

    python benchmarks/capture.py [--compilers eager,inductor,thunder] [--layers 32]

Each compiler runs in a process of its own with empty caches; imports and the model's construction are not counted.
"""

from __future__ import annotations

import argparse
from typing import Any

import common
import torch


def measure(arguments: argparse.Namespace, compiler: str) -> dict[str, Any]:
    torch.manual_seed(0)
    torch.set_num_threads(arguments.threads)
    model = common.llama(arguments.layers, 256).to(arguments.device)
    tokens = torch.randint(0, 1000, (1, 32), device=arguments.device)

    def step(candidate) -> None:
        candidate(input_ids=tokens, labels=tokens).loss.backward()

    first_eager = common.seconds(lambda: step(model))
    eager = min(common.seconds(lambda: step(model)) for _ in range(3))
    candidate = common.compiled(compiler, model)
    first = first_eager if compiler == "eager" else common.seconds(lambda: step(candidate))
    return {
        "name": f"llama {arguments.layers}x256",
        "compiler": compiler,
        "first_s": first,
        "eager_first_s": first_eager,
        "eager_step_s": eager,
    }


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        rows = [measure(arguments, arguments.compilers[0])]
    else:
        rows = [row for compiler in arguments.compilers for row in common.in_own_process(compiler)]
        common.add_ratios(rows, "first_s")
        for row in rows:
            common.report(row)
    common.write(arguments, rows)


if __name__ == "__main__":
    main()
