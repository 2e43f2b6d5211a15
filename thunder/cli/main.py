"""The commands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

import thunder
from thunder.cli.failures import told
from thunder.cli.target import HELP, WrongTarget, load

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit status: 0, 1 where what is looked at does not work, 2 for wrong arguments.

    What the program raises is shown with its traceback, without thunder's own part of it, and a line for the command.
    Where the reader of a pipe has closed it, as `head` does, the command ends without a word, with 1.
    """
    try:
        status = _run(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Python flushes standard output once more as it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(arguments: Sequence[str] | None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return 2
    try:
        status: int = given.run(given)
        return status
    except WrongTarget as error:
        print(f"thunder {given.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        raise
    except Exception as error:
        sys.stdout.flush()
        sys.stderr.write(told(error))
        print(f"thunder {given.command}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="thunder", description="A source-to-source compiler for PyTorch.")
    parser.add_argument("--version", action="version", version=f"thunder {thunder.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")

    def add(name: str, run: Any, text: str, *, target: bool = True) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        if target:
            command.add_argument("target", help=HELP)
        return command

    add("env", _env, "versions, processor, executors: what a report of a problem needs", target=False)
    add("examine", _examine, "what compiles, what is refused and where, who runs it, memory, time")
    bench = add("bench", _bench, "time of a call, with its backward, in eager and compiled")
    bench.add_argument("--torch-compile", action="store_true", help="torch.compile too")
    cache = add("cache", _cache, "what is kept on disk", target=False)
    cache.add_argument("--clear", action="store_true", help="delete it")
    repro = add("repro", _repro, "make a failing program small, and write a script that shows it")
    repro.add_argument("-o", "--output", type=_writable, default="repro.py", help="the script (default: %(default)s)")
    repro.add_argument("--seconds", type=float, default=60.0, help="at most so long (default: %(default)s)")
    view = add("view", _view, "a page in HTML: source, traces of all stages, fusions, memory")
    view.add_argument("-o", "--output", type=_writable, default="thunder.html", help="the page (default: %(default)s)")
    view.add_argument("--measure", action="store_true", help="run each fusion by itself, and show its time")
    return parser


def _writable(path: str) -> str:
    """Return the path of a file that is to be written, if it can be."""
    from thunder._arguments import require_writable

    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise argparse.ArgumentTypeError(f"there is no folder {folder}")
    try:
        require_writable(path)
    except OSError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return path


def _env(given: argparse.Namespace) -> int:
    from thunder.cli.environment import describe

    print(describe())
    return 0


def _examine(given: argparse.Namespace) -> int:
    fn, arguments, keywords = load(given.target)
    found = thunder.examine(fn, *arguments, **keywords)
    print(found)
    return 0 if found.compiles else 1


def _bench(given: argparse.Namespace) -> int:
    from thunder.cli.bench import measure

    fn, arguments, keywords = load(given.target)
    measure(fn, arguments, keywords, with_torch_compile=given.torch_compile)
    return 0


def _cache(given: argparse.Namespace) -> int:
    from thunder.cli import cache

    print(cache.clear() if given.clear else cache.describe())
    return 0


def _repro(given: argparse.Namespace) -> int:
    import functools

    fn, arguments, keywords = load(given.target)
    bound = functools.partial(fn, **keywords) if keywords else fn
    try:
        small = thunder.minify(bound, *arguments, seconds=given.seconds, path=given.output)
    except ValueError as error:
        print(f"thunder repro: {error}")
        return 1
    print(small)
    return 0


def _view(given: argparse.Namespace) -> int:
    from thunder.cli.bench import call

    fn, arguments, keywords = load(given.target)
    compiled = thunder.jit(fn)
    call(compiled, arguments, keywords)
    thunder.view(compiled, given.output, measure=given.measure)
    print(f"{given.output}: open it in a browser")
    return 0
