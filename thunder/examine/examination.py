"""Looking at what thunder makes of a program, before using it."""

from __future__ import annotations

import collections
import copy
import dataclasses
import html
import itertools
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from thunder import inspect as reports
from thunder._arguments import require_callable, shown_instance
from thunder._jit import jit
from thunder.errors import EagerFallbackWarning, SharpEdgeError
from thunder.examine.traffic import FUSIONS, bytes_moved, bytes_unfused
from thunder.options import Options, require_bool
from thunder.trace import BoundSymbol, Trace, Value

__all__ = ["Examination", "examine"]

# For timing each of the two.
_SECONDS = 0.2
_CALLS = 3
_REFUSALS = (NotImplementedError, SharpEdgeError)


@dataclasses.dataclass(frozen=True)
class Examination:
    """The answers of `thunder.examine`.

    Attributes:
        name: of the program.
        compiles: whether the call ran compiled.
        refused: why not, with the line; empty where it did.
        segments: how many compiled segments the call ran: more than one where Python reads data.
        operations: how many operations the traces of the last segment have as executed, by trace ("computation",
            "forward", "backward").
        executors: for each executor, the operations that it runs and how often; a fusion counts as its operations.
        fusions: how many operations run in fusions, and in how many.
        saved_bytes: of the tensors that the forward keeps for the backward, besides parameters and arguments.
        traffic: the bytes that operations of a call and its backward read and write, and those that they would without
            fusions.
        difference: the largest difference from eager's results, relative to the largest of these; None without floats
            that have data.
        first_seconds: of the first call, with its backward, which traces and compiles.
        seconds: of a later call, with its backward; None where it was not measured.
        eager_seconds: of the same call in eager.
    """

    name: str
    compiles: bool
    refused: str
    segments: int
    operations: dict[str, int]
    executors: dict[str, dict[str, int]]
    fusions: tuple[int, int]
    saved_bytes: int
    traffic: tuple[int, int]
    difference: float | None
    first_seconds: float
    seconds: float | None
    eager_seconds: float | None

    @property
    def gain(self) -> float | None:
        """How many times as fast as eager a later call is."""
        return self.eager_seconds / self.seconds if self.seconds and self.eager_seconds else None

    @property
    def expected_gain(self) -> float:
        """How many times as fast as without fusions a call is where the memory is the limit; matmuls gain less."""
        return self.traffic[1] / self.traffic[0] if self.traffic[0] else 1.0

    def __str__(self) -> str:
        lines = [f"{self.name}: {'compiled' if self.compiles else 'runs in eager'}"]
        if not self.compiles:
            return "\n".join([*lines, *(f"  {line}" for line in self.refused.splitlines())])
        if self.segments > 1:
            lines.append(f"  segments: {self.segments}, as Python reads data of tensors in between; of the last one:")
        lines += [f"  {trace}: {count} operations" for trace, count in self.operations.items()]
        lines.append(f"  fusions: {self.fusions[0]} operations in {self.fusions[1]}")
        for executor, names in self.executors.items():
            most = sorted(names.items(), key=lambda item: -item[1])[:6]
            listed = ", ".join(f"{count} {name}" for name, count in most) + (", …" if len(names) > 6 else "")
            lines.append(f"  {executor} runs {sum(names.values())}: {listed}")
        lines.append(self._described_traffic())
        if "backward" in self.operations:
            lines.append(f"  kept for the backward: {self.saved_bytes / 2**20:.3g} MiB")
        if self.difference is not None:
            lines.append(f"  largest difference from eager: {self.difference:.2g} of the largest result")
        lines.append(f"  first call: {1000 * self.first_seconds:.3g} ms")
        if self.gain is not None and self.seconds and self.eager_seconds:
            lines.append(
                f"  later calls: {1000 * self.seconds:.3g} ms, eager {1000 * self.eager_seconds:.3g} ms: "
                f"{self.gain:.2f} times as fast"
            )
        return "\n".join(lines)

    def _described_traffic(self) -> str:
        moved, unfused = (f"{size / 2**20:.3g} MiB" for size in self.traffic)
        if self.traffic[0] == self.traffic[1]:
            return f"  memory traffic: {moved}"
        gain = f"{self.expected_gain:.2f} times as fast where memory is the limit"
        return f"  memory traffic: {moved}, {unfused} without fusions: {gain}"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def examine(fn: Any, *args: Any, measure: bool = True, options: Any = None, **kwargs: Any) -> Examination:
    """Return what thunder makes of `fn(*args, **kwargs)`: what is compiled or refused, who runs it, what it gains.

    Copies are called, so that nothing of the caller's changes but for side effects outside of `fn` and its arguments,
    which happen as often as it is called. Where results require grad, a backward is run too.

    Args:
        fn: a function or module, plain or compiled by `thunder.jit`, whose options then count.
        *args: its arguments.
        measure: False leaves out the times of later calls.
        options: `thunder.Options`.
        **kwargs: its keyword arguments.

    Raises:
        TypeError: `fn` is not callable, `measure` is no bool or `options` no `thunder.Options`.
        Exception: what `fn` raises in eager.

    Example:
        >>> import torch, thunder
        >>> found = thunder.examine(torch.nn.Linear(4, 3), torch.ones(2, 4), measure=False)
        >>> found.compiles, found.operations["forward"]
        (True, 2)
    """
    require_callable("thunder.examine", fn)
    require_bool("measure", measure, function="thunder.examine")
    if options is not None and not isinstance(options, Options):
        raise TypeError(f"thunder.examine: options: expected thunder.Options, got {shown_instance(options)}")
    chosen = options
    if hasattr(fn, "__options__") or hasattr(fn, "options"):
        chosen = chosen or getattr(fn, "__options__", None) or fn.options
    plain = _copied(getattr(fn, "__wrapped__", fn))
    state = torch.random.get_rng_state()
    eager = _call(plain, args, kwargs)
    torch.random.set_rng_state(state)
    compiled = jit(_copied(getattr(fn, "__wrapped__", fn)), options=chosen)
    start = time.perf_counter()
    result, refused = _call_compiled(compiled, args, kwargs)
    first_seconds = time.perf_counter() - start
    traces = _executed(compiled)
    fused = [symbol for trace in traces for symbol in trace.bound_symbols if is_fusion(symbol)]
    measured = measure and not refused
    return Examination(
        name=getattr(fn, "__qualname__", type(fn).__qualname__),
        compiles=not refused,
        refused=refused,
        segments=max((int("".join(filter(str.isdigit, trace.name)) or 0) for trace in traces), default=0) + 1,
        operations={trace.name: sum(max(1, len(each.nested)) for each in trace.bound_symbols) for trace in traces},
        executors=_by_executor(traces),
        fusions=(sum(max(1, len(symbol.nested)) for symbol in fused), len(fused)),
        saved_bytes=_saved_bytes(compiled),
        traffic=_traffic(compiled),
        difference=None if refused else _difference(result, eager),
        first_seconds=first_seconds,
        seconds=_time(compiled, args, kwargs) if measured else None,
        eager_seconds=_time(plain, args, kwargs) if measured else None,
    )


def is_fusion(symbol: BoundSymbol) -> bool:
    """Return whether a symbol is several operations that run as one."""
    return symbol.name in FUSIONS


def executor_of(symbol: BoundSymbol) -> str:
    """Return the name of the executor that runs a symbol."""
    if symbol.name == "prims.fused":
        return str(symbol.args[0])
    if symbol.name == "prims.fusion":
        return symbol.comment.partition(".")[0] or "fusion"
    return symbol.name.partition(".")[0]


def _copied(fn: Any) -> Any:
    if isinstance(fn, torch.nn.Module):
        return copy.deepcopy(fn)
    owner = getattr(fn, "__self__", None)
    return getattr(copy.deepcopy(owner), fn.__name__) if isinstance(owner, torch.nn.Module) else fn


def _copies(values: Any) -> Any:
    def copied(leaf: Any) -> Any:
        if type(leaf) is not torch.Tensor:
            return leaf
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)

    return pytree.tree_map(copied, values)


def _call(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    args, kwargs = _copies((args, kwargs))
    result = fn(*args, **kwargs)
    outputs = [leaf for leaf in _tensors(result) if leaf.requires_grad]
    if outputs:
        torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
    return result


def _tensors(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _call_compiled(compiled: Any, args: Any, kwargs: Any) -> tuple[Any, str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", EagerFallbackWarning)
        try:
            result = _call(compiled, args, kwargs)
        except _REFUSALS as error:
            return None, str(error)
    reasons = [str(each.message) for each in caught if issubclass(each.category, EagerFallbackWarning)]
    return result, "\n".join(reasons)


def _executed(compiled: Any) -> list[Trace]:
    found = [reports.last_traces(compiled), reports.last_backward_traces(compiled)]
    return [traces[-1] for traces in found if traces]


def _by_executor(traces: list[Trace]) -> dict[str, dict[str, int]]:
    counts: dict[str, collections.Counter[str]] = {}
    for trace in traces:
        for symbol in trace.bound_symbols:
            names = symbol.nested if is_fusion(symbol) and symbol.nested else [symbol.name]
            counts.setdefault(executor_of(symbol), collections.Counter()).update(names)
    return {executor: dict(counts[executor]) for executor in sorted(counts)}


def _traffic(compiled: Any) -> tuple[int, int]:
    found = [stages for stages in (reports.last_traces(compiled), reports.last_backward_traces(compiled)) if stages]
    return sum(bytes_moved(stages[-1]) for stages in found), sum(map(bytes_unfused, found))


def _saved_bytes(compiled: Any) -> int:
    stages = reports.last_traces(compiled)
    if not stages:
        return 0
    saved = {value for value in stages[-1].saved if isinstance(value, Value) and value.is_tensor}
    kept = saved - set(stages[-1].inputs)
    return sum(value.numel() * value.dtype.itemsize for value in kept)


def _difference(result: Any, eager: Any) -> float | None:
    found = None
    for got, expected in zip(_tensors(result), _tensors(eager), strict=True):
        if not expected.is_floating_point() or expected.numel() == 0 or expected.is_meta:
            continue
        size = expected.double().abs().max().item()
        difference = (got.double() - expected.double()).abs().max().item()
        found = max(found or 0.0, difference / size if size > 0 and math.isfinite(size) else difference)
    return found


def _time(fn: Callable[..., Any], args: Any, kwargs: Any) -> float:
    """Return the fastest of several calls."""
    fastest, end = math.inf, time.perf_counter() + _SECONDS
    for count in itertools.count():
        if count >= _CALLS and time.perf_counter() > end:
            break
        start = time.perf_counter()
        _call(fn, args, kwargs)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        fastest = min(fastest, time.perf_counter() - start)
    return fastest
