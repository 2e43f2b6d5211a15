"""Milliseconds that `import thunder` takes beyond `import torch`, each in fresh processes.

python benchmarks/import_time.py [--rounds 7]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

# Public names load what is behind them when first used: all of it counts.
PROGRAM = """
import time
start = time.perf_counter()
import torch
torch_loaded = time.perf_counter()
import thunder
package_loaded = time.perf_counter()
for name in thunder.__all__:
    getattr(thunder, name)
end = time.perf_counter()
print(torch_loaded - start, package_loaded - torch_loaded, end - torch_loaded)
"""


def measure() -> list[float]:
    """Return the milliseconds of torch, of `import thunder` after it, and of that with all public names."""
    process = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    return [1000 * float(seconds) for seconds in process.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    rounds = list(zip(*(measure() for _ in range(arguments.rounds)), strict=True))
    for name, values in zip(("torch", "thunder", "thunder, all public names"), rounds, strict=True):
        print(f"import {name:26s} fastest {min(values):7.1f} ms   median {statistics.median(values):7.1f} ms")


if __name__ == "__main__":
    main()
