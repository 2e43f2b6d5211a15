"""Run C++ tests inside of this Python: run_in_python.py <library of tests> [<file stem> [<test>]]."""

from __future__ import annotations

import ctypes
import sys


def main(library: str, stem: str = "", name: str = "") -> int:
    """Return the exit status of the tests; PyDLL keeps the GIL while they run."""
    return int(ctypes.PyDLL(library).thunder_run_tests(stem.encode(), name.encode()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
