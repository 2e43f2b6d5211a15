"""What a compiled callable has done: its traces, its cache, its figures."""

from __future__ import annotations

from typing import Any

from thunder._check import load_extension
from thunder.module import ThunderModule
from thunder.trace import Trace

__all__ = [
    "cache_hits",
    "cache_misses",
    "compile_stats",
    "last_backward_traces",
    "last_epilogue_traces",
    "last_prologue_traces",
    "last_traces",
    "wait_until_compiled",
]


def last_traces(fn: Any) -> list[Trace]:
    """Return the stages of the computation trace of `fn`'s last compilation, as recorded first, as executed last.

    Empty before the first call. With gradients, this is the forward; see `last_backward_traces`.
    """
    return _traces(_compiled(fn).last_traces())


def last_backward_traces(fn: Any) -> list[Trace]:
    """Return the stages of the backward trace; empty when no gradient was needed."""
    return _traces(_compiled(fn).last_backward_traces())


def last_prologue_traces(fn: Any) -> list[Trace]:
    """Return the stages of the prologue: it takes the arguments apart, checks the guards, and gives the inputs."""
    return _traces(_compiled(fn).last_prologue_traces())


def last_epilogue_traces(fn: Any) -> list[Trace]:
    """Return the stages of the epilogue, which writes side effects back; empty when there are none."""
    return _traces(_compiled(fn).last_epilogue_traces())


def cache_hits(fn: Any) -> int:
    """Return the number of calls that ran an existing specialization."""
    return int(_compiled(fn).cache_hits)


def cache_misses(fn: Any) -> int:
    """Return the number of calls that were traced and compiled."""
    return int(_compiled(fn).cache_misses)


def compile_stats(fn: Any) -> dict[str, Any]:
    """Return the figures of `fn`: counts of calls, hits and misses, and the seconds of each stage of compilation."""
    return dict(_compiled(fn).stats())


def wait_until_compiled(fn: Any) -> None:
    """Block until everything that compiles in the background for `fn` is in place."""
    _compiled(fn).wait()


def _compiled(fn: Any) -> Any:
    """Return the extension's object behind `fn`; TypeError when `fn` was not made by `thunder.jit`."""
    if isinstance(fn, ThunderModule):
        return fn.__compiled__
    extension = load_extension()
    if isinstance(fn, extension.CompiledFunction):
        return fn
    # A method: the compiled function lies below it.
    function = getattr(fn, "__func__", None)
    if isinstance(function, extension.CompiledFunction):
        return function
    raise TypeError(f"expected a callable that thunder.jit returned, got {fn!r}")


def _traces(native: list[Any]) -> list[Trace]:
    return [Trace(trace) for trace in native]
