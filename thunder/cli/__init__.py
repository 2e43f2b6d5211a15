"""The command line: `thunder` and `python -m thunder`."""

from thunder.cli.main import main

__all__ = ["main"]
