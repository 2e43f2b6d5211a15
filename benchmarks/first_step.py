"""Seconds of the first training step of a process that has imported what it needs: nothing is warm, nothing cached.

python benchmarks/first_step.py [--compilers eager,thunder] [--rounds 5]

Networks are of plain PyTorch, without an optimizer of torch.optim and without transformers: either imports
torch._dynamo before the first step. Each measurement is a fresh process; `import_time.py` tells what the import takes.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import common
import torch
from torch import nn

Network = tuple[nn.Module, tuple[torch.Tensor, ...]]

NETWORKS: dict[str, Callable[[], Network]] = {
    "perceptron with layer norm": lambda: (
        nn.Sequential(nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU(), nn.Linear(256, 10)),
        (torch.randn(64, 256),),
    ),
    "convolutions with batch norm": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 32, 3),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3),
            nn.GroupNorm(8, 64),
            nn.SiLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.1),
            nn.Linear(64, 10),
        ),
        (torch.randn(8, 3, 64, 64),),
    ),
    "transformer encoder": lambda: (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 512, batch_first=True), 2),
        (torch.randn(8, 64, 128),),
    ),
    "encoder and decoder": lambda: (
        nn.Transformer(128, 4, 2, 2, 512, batch_first=True),
        (torch.randn(4, 32, 128), torch.randn(4, 32, 128)),
    ),
}


def first_step(arguments: Any) -> dict[str, Any]:
    (compiler,) = arguments.compilers
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    module, inputs = NETWORKS[arguments.network]()
    if compiler == "thunder":
        import thunder  # noqa: F401 (its import is not what is timed)
    seconds = common.seconds(lambda: common.compiled(compiler, module)(*inputs).square().mean().backward())
    return {"name": arguments.network, "compiler": compiler, "first_s": seconds}


def measure(name: str, arguments: Any) -> list[dict[str, Any]]:
    seconds: dict[str, list[float]] = {compiler: [] for compiler in arguments.compilers}
    for _ in range(arguments.rounds):
        for compiler, values in seconds.items():
            values += [row["first_s"] for row in common.in_own_process(compiler, "--network", name)]
    return [
        {"name": name, "compiler": compiler, "first_s": min(values), "median_s": statistics.median(values)}
        for compiler, values in seconds.items()
    ]


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--network", choices=NETWORKS, help="only that one")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(compilers=["eager", "thunder"], rounds=5)
    arguments = parser.parse_args()
    if arguments.alone:
        rows = [first_step(arguments)]
    else:
        names = [arguments.network] if arguments.network else NETWORKS
        rows = [row for name in names for row in measure(name, arguments)]
        common.add_ratios(rows, "first_s")
        for row in rows:
            common.report(row)
    common.write(arguments, rows)


if __name__ == "__main__":
    main()
