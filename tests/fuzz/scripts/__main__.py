"""`python -m tests.fuzz.scripts`: checks random scripts. See docs/maintainers/fuzzing.md."""

from __future__ import annotations

import argparse
import os
import sys

from tests.fuzz.scripts import runner


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.scripts", description="Checks scripts against eager.")
    parser.add_argument("--count", type=int, default=1000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of the first; the next ones follow")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--seconds", type=float, default=None, help="begin no script after so long")
    parser.add_argument("--json", default=None, help="file to write the report to")
    parser.add_argument("--whole", action="store_true", help="leave failing scripts as they are")
    parser.add_argument("--print", action="store_true", help="print the scripts and check nothing")
    parser.add_argument("--sizes", action="store_true", help="scripts whose tensors have other sizes at each call")
    arguments = parser.parse_args()
    if arguments.print:
        from tests.fuzz.scripts.generator import generate

        for seed in range(arguments.seed, arguments.seed + arguments.count):
            print(generate(seed, arguments.sizes))
        return 0

    def on_found(found: runner.Found) -> None:
        if not found.known:
            print(f"{found}\n", flush=True)

    report = runner.run(
        arguments.count, arguments.seed, arguments.jobs,
        seconds=arguments.seconds, shrinks=not arguments.whole, sizes=arguments.sizes, on_found=on_found,
    )  # fmt: skip
    print(report)
    if arguments.json:
        runner.write_json(report, arguments.json)
    return any(not found.known for found in report.failures)


if __name__ == "__main__":
    sys.exit(main())
