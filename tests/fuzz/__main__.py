"""`python -m tests.fuzz`: checks random programs. See docs/maintainers/fuzzing.md."""

from __future__ import annotations

import argparse
import os
import sys

import torch

from tests.fuzz import kernels_on_host, runner


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Checks random programs against eager.")
    parser.add_argument("--programs", type=int, default=1000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of the first; the next ones follow")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--seconds", type=float, default=None, help="start no program after so long")
    parser.add_argument(
        "--device",
        default="cpu",
        choices=("cpu", "cuda", kernels_on_host.DEVICE),
        help=f"where the programs' inputs are; {kernels_on_host.DEVICE}: on the CPU, which runs CUDA kernels too",
    )
    parser.add_argument("--json", default=None, help="file to write the report to")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: there is no GPU")
    if arguments.device == kernels_on_host.DEVICE:
        kernels_on_host.choose()
    report = runner.run(
        arguments.programs, arguments.seed, arguments.workers, arguments.seconds, True, arguments.device
    )
    print(report)
    if arguments.json:
        runner.write_json(report, arguments.json)
    return any(not found.known for found in report.failures)


if __name__ == "__main__":
    sys.exit(main())
