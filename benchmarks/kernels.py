"""Single operations that the CPU executor runs in kernels of its own, beside ATen's.

python benchmarks/kernels.py [--threads 2] [--names REGEX]

`ns` is the time for one element of the result, or of the gradient that comes in.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import common
import torch

Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


def bernoulli(dtype: torch.dtype) -> Case:
    return lambda x: x.bernoulli_(0.9), (torch.empty(4, 12, 128, 512, dtype=dtype),)


CASES: dict[str, Callable[[], Case]] = {
    "bernoulli bool": lambda: bernoulli(torch.bool),
    "bernoulli float32": lambda: bernoulli(torch.float32),
}


def measure(name: str, arguments: Any) -> list[dict[str, Any]]:
    function, inputs = CASES[name]()
    calls = {}
    for compiler in arguments.compilers:
        compiled = common.compiled(compiler, function)
        calls[compiler] = lambda compiled=compiled: compiled(*inputs)
        calls[compiler]()
        common.settle(compiler, compiled)
    rows = []
    for compiler, figure in common.take_turns(calls, count=1, rounds=arguments.rounds).items():
        row = {"name": name, "compiler": compiler, **figure, "ns": figure["us"] * 1e3 / inputs[0].numel()}
        rows.append(row)
        common.report(row)
    return rows


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--names", default="", help="regular expression over the names of operations")
    parser.set_defaults(compilers=["eager", "thunder"], rounds=15)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    rows = [row for name in CASES if re.search(arguments.names, name) for row in measure(name, arguments)]
    common.write(arguments, rows)


if __name__ == "__main__":
    main()
