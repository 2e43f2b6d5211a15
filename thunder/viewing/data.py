"""Collects what a page shows: traces line by line, the program's source, fusions, memory."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from typing import Any

from thunder import inspect as reports
from thunder.examine.examination import executor_of, is_fusion
from thunder.examine.traffic import is_view
from thunder.extend.operations import operator_named
from thunder.trace import BoundSymbol, Trace, Value

__all__ = ["collect"]

_KINDS = {
    "prologue": reports.last_prologue_traces,
    "computation": reports.last_traces,
    "backward": reports.last_backward_traces,
    "epilogue": reports.last_epilogue_traces,
}
_CONTEXT = 3  # lines of source around those that have operations


def collect(fn: Any, measure: bool) -> dict[str, Any]:
    """Return what a page shows of a compiled callable, as JSON has it.

    Raises ValueError when the callable was not called yet.
    """
    traces = {kind: traces_of(fn) for kind, traces_of in _KINDS.items()}
    if not traces["computation"] and not traces["prologue"]:
        raise ValueError("thunder.view: expected a callable that was called, as calls are what traces are made by")
    stages = {kind: [_stage(trace) for trace in _changed(found)] for kind, found in traces.items() if found}
    places = {(line["file"], line["line"]) for found in stages.values() for stage in found for line in stage["lines"]}
    executed = {kind: found[-1] for kind, found in traces.items() if kind in ("computation", "backward") and found}
    _number_fusions(executed, stages)
    fusions, kernels = _fusions(fn, measure)
    return {
        "name": _name(fn),
        "stages": stages,
        "sources": _sources({(file, line) for file, line in places if file}),
        "fusions": fusions,
        "kernels": kernels,
        "memory": {kind: _memory(trace) for kind, trace in executed.items()},
        "statistics": str(reports.compile_stats(fn)),
        "misses": str(reports.explain_misses(fn)),
    }


def _name(fn: Any) -> str:
    name: str = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    return name


def _changed(traces: Sequence[Trace]) -> list[Trace]:
    """Leave out stages that print as the one before."""
    found: list[Trace] = []
    for trace in traces:
        if not found or _body(str(trace)) != _body(str(found[-1])):
            found.append(trace)
    return found


def _body(text: str) -> str:
    return text.partition("\n")[2]


def _stage(trace: Trace) -> dict[str, Any]:
    history = trace.history
    return {
        "title": history[-1] if history else "recorded",
        "history": history,
        "lines": _lines(trace),
    }


def _lines(trace: Trace) -> list[dict[str, Any]]:
    """Return the printed lines, each with the operation that it belongs to, and that one's line of the program."""
    symbols = iter(trace.bound_symbols)
    current: BoundSymbol | None = None
    found = []
    for text in str(trace).splitlines():
        depth = len(text) - len(text.lstrip())
        if depth <= 2:
            current = next(symbols, None) if _begins_symbol(text, depth) else None
        found.append(
            {
                "text": text,
                "operation": None if current is None else current.index,
                "file": (current.file or "") if current is not None else "",
                "line": current.line if current is not None else 0,
                "executor": executor_of(current) if current is not None else "",
                "fused": current is not None and is_fusion(current),
                "fusion": None,
            }
        )
    return found


def _begins_symbol(text: str, depth: int) -> bool:
    return depth == 2 and not text.lstrip().startswith(("#", "del ", "return"))


def _sources(places: set[tuple[str, int]]) -> dict[str, list[dict[str, Any]]]:
    """Return the source of each file around the lines that have operations; gaps are where numbers jump."""
    sources: dict[str, list[dict[str, Any]]] = {}
    for file in sorted({file for file, _ in places}):
        wanted = {line for name, line in places if name == file}
        shown = sorted({near for line in wanted for near in range(line - _CONTEXT, line + _CONTEXT + 1)})
        content = linecache.getlines(file)
        sources[file] = [
            {"line": line, "text": content[line - 1].rstrip("\n"), "used": line in wanted}
            for line in shown
            if 1 <= line <= len(content)
        ]
    return sources


def _number_fusions(executed: dict[str, Trace], stages: dict[str, list[dict[str, Any]]]) -> None:
    """Give the lines of fusions, as executed, the number of their fusion in `thunder.fusions`, which has this order."""
    count = 0
    for kind, trace in executed.items():
        fused = [symbol.index for symbol in trace.bound_symbols if symbol.name == "prims.fused"]
        numbers = {index: count + i for i, index in enumerate(fused)}
        for line in stages[kind][-1]["lines"]:
            line["fusion"] = numbers.get(line["operation"])
        count += len(fused)


def _fusions(fn: Any, measure: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the fusions, each with the index of its kernel, and the sources of kernels, each once."""
    found = reports.fusions(fn, measure=measure, sources=True)
    indices = {source: i for i, source in enumerate(dict.fromkeys(f.cuda_source for f in found if f.cuda_source))}
    rows = [
        {
            "trace": fusion.trace,
            "executor": fusion.executor,
            "operations": list(fusion.operations),
            "bytes": fusion.bytes_read + fusion.bytes_written,
            "file": fusion.file or "",
            "line": fusion.line,
            "seconds": fusion.seconds,
            "of_copy": fusion.of_copy,
            "kernel": indices.get(fusion.cuda_source or ""),
        }
        for fusion in found
    ]
    return rows, [source.strip() for source in indices]


def _memory(trace: Trace) -> list[dict[str, Any]]:
    """Return, for each operation as executed, the bytes of what the trace has made by then and not let go.

    Views count with what they are of.
    """
    alive: dict[str, int] = {}
    found = []
    symbols = iter(trace.bound_symbols)
    for text in str(trace).splitlines():
        depth = len(text) - len(text.lstrip())
        if _begins_symbol(text, depth):
            symbol = next(symbols, None)
            if symbol is None:
                break
            alive.update(_allocated(symbol))
            found.append({"operation": symbol.index, "bytes": sum(alive.values()), "line": symbol.line})
        elif depth == 2 and text.lstrip().startswith("del "):
            for name in text.strip().removeprefix("del ").split(", "):
                alive.pop(name, None)
    return found


def _allocated(symbol: BoundSymbol) -> dict[str, int]:
    op = operator_named(symbol.name)
    if is_view(symbol) or (op is not None and op._schema.is_mutable):
        return {}
    leaves: list[Any] = []
    for result in symbol.results:
        leaves += result if isinstance(result, list | tuple) else [result]
    return {
        leaf.name: leaf.numel() * leaf.dtype.itemsize for leaf in leaves if isinstance(leaf, Value) and leaf.is_tensor
    }
