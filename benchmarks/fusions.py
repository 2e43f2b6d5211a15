"""Chains of memory-bound operations on the CPU, beside a copy of as many bytes in the same run.

python benchmarks/fusions.py [--compilers eager,inductor,thunder] [--threads 2] [--size 4096] [--chains REGEX]

"forward" runs the chain alone, without gradients; "training" differentiates it too. `of_copy` is the time of a copy
that moves as many bytes (inputs read once, results written once) divided by the time of the forward: 1 is all that
memory gives.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import common
import torch
import torch.nn.functional as F

Chain = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def shuffled(x: torch.Tensor) -> torch.Tensor:
    """Return indices of the rows."""
    return torch.arange(x.shape[0]) * 7 % x.shape[0]


CHAINS: dict[str, Chain] = {
    "add_mul": lambda x, y, w: (x + y) * y + 1.0,
    "relu_bias": lambda x, y, w: torch.relu(x + w) * y,
    "gelu_tanh": lambda x, y, w: (F.gelu(x * y + 1.0, approximate="tanh") * torch.sigmoid(y) - x).square(),
    "gelu": lambda x, y, w: F.gelu(x + w) * y,
    "swiglu": lambda x, y, w: F.silu(x) * y,
    "rms_norm": lambda x, y, w: (x + y) * torch.rsqrt((x + y).pow(2).mean(-1, keepdim=True) + 1e-6) * w,
    "layer_norm_gelu": lambda x, y, w: F.gelu(F.layer_norm(x + y, (x.shape[-1],), w)),
    "group_norm_silu": lambda x, y, w: F.silu(F.group_norm(x.view(-1, 64, x.shape[-1] // 64), 8, w[:64], w[:64])),
    "embedding_layer_norm": lambda x, y, w: F.layer_norm(F.embedding(shuffled(x), y) + x, (x.shape[-1],), w),
    "softmax": lambda x, y, w: torch.softmax(x * 0.5 + y, -1) * w,
    "cross_entropy": lambda x, y, w: F.cross_entropy(x * w, torch.arange(x.shape[0]) % x.shape[1]),
    "bias_gradient": lambda x, y, w: (x * y).sum(0),
}


def bytes_moved(function: Any) -> int:
    """Return the bytes that the fusions of a compiled chain read and write."""
    import thunder

    return sum(each.bytes_read + each.bytes_written for each in thunder.fusions(function))


def measure(name: str, dtype: torch.dtype, arguments: Any) -> list[dict[str, Any]]:
    size = arguments.size
    x, y = (torch.randn(size, size, dtype=dtype, requires_grad=True) for _ in range(2))
    inputs = (x, y, torch.randn(size, dtype=dtype, requires_grad=True))
    rows = []
    for kind in ("forward", "training"):
        calls, moved = {}, 0
        with torch.set_grad_enabled(kind == "training"):
            for compiler in arguments.compilers:
                function = common.compiled(compiler, CHAINS[name])
                if kind == "training":
                    calls[compiler] = lambda function=function: function(*inputs).sum().backward()
                else:
                    calls[compiler] = lambda function=function: function(*inputs)
                calls[compiler]()
                common.settle(compiler, function)
                if compiler == "thunder" and kind == "forward":
                    moved = bytes_moved(function)
            if moved:
                source = torch.zeros(moved // 2, dtype=torch.uint8)
                target = torch.zeros_like(source)
                calls["copy"] = functools.partial(target.copy_, source)
            figures = common.take_turns(calls, count=1, rounds=arguments.rounds)
        for compiler, figure in figures.items():
            row = {"name": f"{name} {str(dtype)[6:]}", "kind": kind, "compiler": compiler, **figure}
            if "copy" in figures:
                row["of_copy"] = figures["copy"]["us"] / figure["us"]
            rows.append(row)
            common.report(row)
    return rows


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--size", type=int, default=4096, help="rows and columns")
    parser.add_argument("--chains", default="", help="regular expression over the names of chains")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for name in CHAINS:
            if re.search(arguments.chains, name):
                rows += measure(name, dtype, arguments)
    common.write(arguments, rows)


if __name__ == "__main__":
    main()
