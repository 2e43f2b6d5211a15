"""Reports about a compiled callable: its traces, its cache, its measurements."""

from __future__ import annotations

import dataclasses
import functools
import linecache
from typing import Any

from thunder._compiled import compiled_behind
from thunder._html import table
from thunder.choices import CACHE_OPTIONS, SHARP_EDGES_OPTIONS
from thunder.module import ThunderModule
from thunder.options import Options, require_bool
from thunder.statistics import CompileData, CompileStats
from thunder.trace import Trace, Traces

__all__ = [
    "FailedGuard",
    "Fusion",
    "Fusions",
    "Miss",
    "Misses",
    "cache_hits",
    "cache_misses",
    "cache_option",
    "compile_data",
    "compile_stats",
    "explain_misses",
    "explain_shapes",
    "fusions",
    "last_backward_traces",
    "last_compile_options",
    "last_epilogue_traces",
    "last_prologue_traces",
    "last_traces",
    "list_transforms",
    "rules",
    "wait_until_compiled",
]


def last_traces(fn: Any) -> Traces:
    """Return the stages of the computation trace of `fn`'s last compilation, as recorded first, as executed last.

    Empty before the first call. With gradients, this is the forward, whose `saved` are the values that the backward
    reads; see `last_backward_traces`. Of a program that runs in segments, it is the last one's.

    Raises:
        TypeError: `fn` was not made by `thunder.jit`.

    Example:
        >>> import torch, thunder
        >>> f = thunder.jit(lambda x: torch.sin(x))
        >>> f(torch.ones(3)).shape
        torch.Size([3])
        >>> [symbol.name for symbol in thunder.last_traces(f)[0].bound_symbols]
        ['aten.sin.default']
    """
    traces = _traces(fn, compiled_behind(fn).last_traces(), "no call of it was compiled")
    for i, trace in enumerate(traces):
        if trace.kind == "forward":
            traces[i] = trace.saving_from(len(traces[0].outputs))
    return traces


def last_backward_traces(fn: Any) -> Traces:
    """Return the stages of the backward trace of `fn`'s last compilation; empty when no gradient was needed.

    Raises:
        TypeError: `fn` was not made by `thunder.jit`.

    Example:
        >>> import torch, thunder
        >>> f = thunder.jit(torch.sin)
        >>> f(torch.ones(3, requires_grad=True)).sum().backward()
        >>> [symbol.name for symbol in thunder.last_backward_traces(f)[0].bound_symbols]
        ['aten.cos.default', 'aten.mul.Tensor']
    """
    return _traces(
        fn,
        compiled_behind(fn).last_backward_traces(),
        "it has no backward, as nothing required grad at its last compilation",
    )


def last_prologue_traces(fn: Any) -> Traces:
    """Return the stages of `fn`'s prologue: it takes the arguments apart, checks the guards, and gives the inputs.

    Raises:
        TypeError: `fn` was not made by `thunder.jit`.

    Example:
        >>> import torch, thunder
        >>> f = thunder.jit(torch.sin)
        >>> y = f(torch.ones(3))
        >>> 'check_tensor' in str(thunder.last_prologue_traces(f)[-1])
        True
    """
    return _traces(fn, compiled_behind(fn).last_prologue_traces(), "no call of it was compiled")


def last_epilogue_traces(fn: Any) -> Traces:
    """Return the stages of `fn`'s epilogue, which writes side effects back; empty when there are none.

    Raises:
        TypeError: `fn` was not made by `thunder.jit`.

    Example:
        >>> import torch, thunder
        >>> results = []
        >>> f = thunder.jit(lambda x: results.append(x + 1))
        >>> f(torch.ones(3))
        >>> len(thunder.last_epilogue_traces(f)) > 0
        True
    """
    return _traces(fn, compiled_behind(fn).last_epilogue_traces(), "it has no side effects to write back")


def cache_hits(fn: Any) -> int:
    """Return the number of calls of `fn` that ran an existing specialization.

    Raises:
        TypeError: `fn` was not made by `thunder.jit`.

    Example:
        >>> import torch, thunder
        >>> f = thunder.jit(torch.sin)
        >>> y = f(torch.ones(3)), f(torch.zeros(3))
        >>> thunder.cache_hits(f)
        1
    """
    return int(compiled_behind(fn).cache_hits)


def cache_misses(fn: Any) -> int:
    """Return the number of calls of `fn` that were traced and compiled; `explain_misses` tells why.

    Raises:
        TypeError: `fn` was not made by `thunder.jit`.

    Example:
        >>> import torch, thunder
        >>> f = thunder.jit(torch.sin)
        >>> for size in (2, 2, 3):
        ...     y = f(torch.ones(size))
        >>> thunder.cache_misses(f), thunder.cache_hits(f)
        (2, 1)
    """
    return int(compiled_behind(fn).cache_misses)


def compile_stats(fn: Any) -> CompileStats:
    """Return the figures of `fn`: counts of calls, hits and misses, and what its last compilation took.

    A dict whose entries are attributes too: `compile_stats(fn).cache_hits`.

    "specializations" are those that are kept, "programs" what they run: those with equal traces share one. "seconds"
    are by stage; "passes" holds a `PassRun` for each pass over each trace, in the order in which they ran.
    "pool_bytes" is the memory of large CPU tensors that compiled programs of the process make: what is "live", what is
    "cached" for the next ones, and the "peak" of what was live at one time. "pinned_sizes" are those of the arguments
    that the last specialization needs as numbers where they would be symbols, with the line (docs/dynamic-shapes.md).

    Raises:
        TypeError: `fn` was not made by `thunder.jit`.

    Example:
        >>> import torch, thunder
        >>> f = thunder.jit(torch.sin)
        >>> y = f(torch.ones(2)), f(torch.zeros(2))
        >>> thunder.compile_stats(f).calls, thunder.compile_stats(f).cache_hits
        (2, 1)
    """
    compiled = compiled_behind(fn)
    traces = {
        function.__name__: functools.partial(function, fn)
        for function in (last_traces, last_backward_traces, last_prologue_traces, last_epilogue_traces)
    }
    return CompileStats({**compiled.stats(), "passes": [PassRun(*row) for row in compiled.passes()]}, traces)


def compile_data(fn: Any) -> CompileData:
    """Return the options with which `fn` was compiled.

    Raises:
        TypeError: `fn` was not made by `thunder.jit`.

    Example:
        >>> import torch, thunder
        >>> thunder.compile_data(thunder.jit(torch.sin, dynamic=True)).compile_options
        {'dynamic': True}
    """
    from thunder.extend.registry import resolve_executors

    compiled, options = compiled_behind(fn), _options(fn)
    defaults = Options()
    return CompileData(
        fn=compiled.__wrapped__,
        options=options,
        executors_list=resolve_executors(options.executors),
        cache_option=CACHE_OPTIONS(options.cache),
        sharp_edges=SHARP_EDGES_OPTIONS(options.sharp_edges),
        transforms=list(options.transforms),
        compile_options={
            field.name: getattr(options, field.name)
            for field in dataclasses.fields(options)
            if getattr(options, field.name) != getattr(defaults, field.name)
        },
    )


def cache_option(fn: Any) -> CACHE_OPTIONS:
    """Return the option `cache` of `fn`.

    Raises:
        TypeError: `fn` was not made by `thunder.jit`.

    Example:
        >>> import torch, thunder
        >>> thunder.cache_option(thunder.jit(torch.sin, cache='no caching')) == 'no caching'
        True
    """
    return CACHE_OPTIONS(_options(fn).cache)


def list_transforms(fn: Any) -> list[Any]:
    """Return the transforms that `fn` was compiled with, in the order in which they are applied.

    Raises:
        TypeError: `fn` was not made by `thunder.jit`.

    Example:
        >>> import torch, thunder
        >>> thunder.list_transforms(thunder.jit(torch.sin))
        []
    """
    return list(_options(fn).transforms)


def last_compile_options(fn: Any) -> None:
    """Print the options of `fn`: those that were given, then the defaults.

    Raises:
        TypeError: `fn` was not made by `thunder.jit`.

    Example:
        >>> import torch, thunder
        >>> thunder.last_compile_options(thunder.jit(torch.sin, dynamic=False))
        Given options:
          dynamic=False
        Defaults:
        ...
    """
    given = compile_data(fn).compile_options
    print("Given options:")
    for name, value in given.items():
        print(f"  {name}={value!r}")
    print("Defaults:")
    for field in dataclasses.fields(Options):
        if field.name not in given:
            print(f"  {field.name}={field.default!r}")


@dataclasses.dataclass(frozen=True)
class PassRun:
    """The effect of one pass on one trace.

    Attributes:
        name: as in `thunder.jit(…, passes=[…])` and in the headers of traces.
        trace: "computation", "forward" or "backward".
        seconds: that it took.
        symbols_before: operations in the trace.
        symbols_after: operations in the trace that it made.
    """

    name: str
    trace: str
    seconds: float
    symbols_before: int
    symbols_after: int


#: Runs of which `fusions(…, measure=True)` takes the shortest.
_ROUNDS = 7


@dataclasses.dataclass(frozen=True)
class Fusion:
    """Operations that run as one.

    Attributes:
        trace: "computation", "forward" or "backward".
        executor: who runs them.
        operations: their names, in order: "aten.mul.Tensor".
        bytes_read: of all tensors that come from outside, each once.
        bytes_written: of all tensors that it gives.
        file: file of the line that called the first operation; None where it is not known.
        line: number of that line.
        seconds: of a run by itself; None where it was not measured.
        copy_seconds: of a copy that moves as many bytes.
        cuda_source: CUDA C++ of its kernel, without the functions that all kernels share; None where it was not asked
            for, or where there is no kernel.
    """

    trace: str
    executor: str
    operations: tuple[str, ...]
    bytes_read: int
    bytes_written: int
    file: str | None
    line: int
    seconds: float | None = None
    copy_seconds: float | None = None
    cuda_source: str | None = dataclasses.field(default=None, repr=False)

    @property
    def of_copy(self) -> float | None:
        """The share of the memory's bandwidth that it reaches: 1 is as fast as a copy."""
        if self.seconds is None or self.copy_seconds is None:
            return None
        return self.copy_seconds / self.seconds

    def __str__(self) -> str:
        amount = (self.bytes_read + self.bytes_written) / 2**20
        text = f"{self.trace}: {len(self.operations)} operations by {self.executor}, {amount:.3g} MiB"
        if self.seconds is not None:
            text += f", {1e6 * self.seconds:.4g} us, {self.of_copy:.2f} of a copy's speed"
        return f"{text}: {', '.join(self.operations)}"

    def _repr_html_(self) -> str:
        return Fusions([self])._repr_html_()


class Fusions(list[Fusion]):
    """Fusions, with a text and a table for people."""

    def __str__(self) -> str:
        return "\n".join(map(str, self)) if self else "nothing is fused"

    def _repr_html_(self) -> str:
        return table(
            ("trace", "executor", "operations", "MiB", "line", "µs", "of a copy's speed"),
            (
                (
                    fusion.trace,
                    fusion.executor,
                    ", ".join(fusion.operations),
                    f"{(fusion.bytes_read + fusion.bytes_written) / 2**20:.3g}",
                    f"{fusion.file}:{fusion.line}" if fusion.file else "",
                    "" if fusion.seconds is None else f"{1e6 * fusion.seconds:.4g}",
                    "" if fusion.of_copy is None else f"{fusion.of_copy:.2f}",
                )
                for fusion in self
            ),
        )


def fusions(fn: Any, *, measure: bool = False, sources: bool = False) -> Fusions:
    """Return what runs as one in `fn`, as last compiled, in order: the forward's before the backward's.

    Args:
        fn: a function or module that `thunder.jit` gave.
        measure: run each fusion of the CPU by itself, on random numbers of the traced sizes, in turns with a copy that
            moves as many bytes, and say how long both take. Nothing of the caller is read or written.
        sources: give each fusion its `cuda_source`, for the traced sizes and strides. No GPU is needed: a fusion of the
            CPU has the kernel that its operations would have on a GPU.

    Raises:
        TypeError: `fn` was not made by `thunder.jit`.

    Example:
        >>> import torch, thunder
        >>> f = thunder.jit(lambda x: torch.sin(x) * 2)
        >>> f(torch.ones(3, 4)).shape
        torch.Size([3, 4])
        >>> print(thunder.fusions(f))
        computation: 2 operations by cpu, 9.16e-05 MiB: aten.sin.default, aten.mul.Tensor
    """
    require_bool("measure", measure, function="thunder.fusions")
    require_bool("sources", sources, function="thunder.fusions")
    found = Fusions()
    for traces in (last_traces(fn), last_backward_traces(fn)):
        for symbol in traces[-1].bound_symbols if traces else ():
            if symbol.name != "prims.fused":
                continue
            executor, tensors = symbol.args
            timing = symbol.timing(_ROUNDS) if measure else None
            found.append(
                Fusion(
                    trace=traces[-1].name,
                    executor=executor,
                    operations=tuple(symbol.nested),
                    bytes_read=_bytes(tensors),
                    bytes_written=_bytes(symbol.results[0]),
                    file=symbol.file,
                    line=symbol.line,
                    seconds=timing[0] if timing else None,
                    copy_seconds=timing[1] if timing else None,
                    cuda_source=_cuda_source(symbol) if sources else None,
                )
            )
    return found


def _cuda_source(symbol: Any) -> str | None:
    return "".join(text for _, text, *_ in symbol.kernels(on_gpu=True)) or None


def _bytes(values: list[Any]) -> int:
    return sum(value.numel() * value.dtype.itemsize for value in values if value.is_tensor)


@dataclasses.dataclass(frozen=True)
class ServedOperation:
    """Which rule differentiated one operation.

    Attributes:
        operation: as printed traces call it: "aten.dropout.default".
        rule: "registered" (a rule of thunder's or the user's), "derived" (PyTorch's autograd layer, replayed) or
            "custom" (a `torch.autograd.Function` of the program).
        reason: why a registered rule wins over the derived one.
        file: file of the line that called the operation.
        line: number of that line.
    """

    operation: str
    rule: str
    reason: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.operation}: {self.rule}: {self.reason}  # {self.file}:{self.line}"


def rules(fn: Any) -> list[ServedOperation]:
    """Return, for each operation of `fn`'s last compilation that was differentiated, which rule did it and why.

    Example:
        >>> import torch, thunder
        >>> f = thunder.jit(torch.sin)
        >>> y = f(torch.ones(2, requires_grad=True))
        >>> [(each.operation, each.rule) for each in thunder.rules(f)]
        [('aten.sin.default', 'derived')]
    """
    return [ServedOperation(*row) for row in compiled_behind(fn).rules()]


@dataclasses.dataclass(frozen=True)
class FailedGuard:
    """Something that the program reads, and that was not what it had been.

    Attributes:
        expression: how a person would write it: `model.layers[3].attn.scale`.
        old: what the closest specialization was made for; of a tensor: dtype, shape, and what is not the common case.
        new: what the call came with, written likewise.
        file: file of the line that read it first; "" when no line did, as with the thread's grad mode.
        line: number of that line; 0 when no line did.
    """

    expression: str
    old: str
    new: str
    file: str
    line: int

    @property
    def source(self) -> str:
        """The line that read it, without indentation; "" when it is not known."""
        return linecache.getline(self.file, self.line).strip() if self.file else ""

    def __str__(self) -> str:
        text = f"{self.expression} was {self.old} and is {self.new}"
        if self.file:
            text += f"\n    {self.file}:{self.line}: {self.source}"
        return text


@dataclasses.dataclass(frozen=True)
class Miss:
    """Why a call was traced.

    Attributes:
        call: number of the call, from 1.
        specialization: number of the specialization that the call made, from 0.
        compared_with: number of the existing specialization that came closest, from 0.
        guards: the guards of that one that the call did not meet, in the order of reads.
        reason: why it was traced when no guard failed: "the first call"; beside guards, the line of the program that
            needed a size as a number, if one did: "it was needed as a number: 24 by model.py, line 40".
    """

    call: int
    specialization: int
    compared_with: int
    guards: tuple[FailedGuard, ...]
    reason: str

    def __str__(self) -> str:
        if not self.guards:
            return f"call {self.call} was traced: {self.reason}"
        lines = [f"call {self.call} was traced, because unlike in specialization {self.compared_with}"]
        lines += [f"  {line}" for guard in self.guards for line in str(guard).splitlines()]
        if self.reason:
            lines.append(f"  {self.reason}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return Misses((self,))._repr_html_()


class Misses(tuple[Miss, ...]):
    """The misses of a compiled callable, in order, with a text for people."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self)) if self else "no call was traced"

    def _repr_html_(self) -> str:
        rows = [
            (miss.call, guard.expression, guard.old, guard.new, f"{guard.file}:{guard.line}" if guard.file else "")
            for miss in self
            for guard in miss.guards or (FailedGuard(miss.reason, "", "", "", 0),)
        ]
        return table(("call", "guard", "was", "is", "line"), rows)


def explain_misses(fn: Any) -> Misses:
    """Return, for each call of `fn` that was traced, which guards failed.

    Each call is compared with the existing specialization that comes closest. The first call is a miss without guards.
    Of more than 256 misses the first and the latest are kept; with `cache="no caching"` there are none.

    Example:
        >>> import torch, thunder
        >>> f = thunder.jit(lambda x, flag: x + 1 if flag else x)
        >>> y = f(torch.ones(2), True), f(torch.ones(2), False)
        >>> guard = thunder.explain_misses(f)[1].guards[0]
        >>> guard.expression, guard.old, guard.new
        ('flag', 'True', 'False')
    """
    return Misses(
        Miss(call, specialization, compared, tuple(FailedGuard(*guard) for guard in guards), reason)
        for call, specialization, compared, reason, guards in compiled_behind(fn).explained_misses()
    )


@dataclasses.dataclass(frozen=True)
class Shapes:
    """The sizes of one specialization.

    Attributes:
        symbols: sizes that may be others at the next call, by the names that traces have for them: "s0: x.shape[0]".
        conditions: what a call must meet, with the line of the program that decided on it: "x.shape[0] <= 10 (…)".
        pinned: sizes that would be symbols but are needed as numbers, with the line.
    """

    symbols: tuple[str, ...]
    conditions: tuple[str, ...]
    pinned: tuple[str, ...]

    def __str__(self) -> str:
        if not self.symbols and not self.pinned:
            return "all sizes are numbers"
        lines = list(self.symbols)
        lines += [f"  if {condition}" for condition in self.conditions]
        lines += [f"pinned: {size}" for size in self.pinned]
        return "\n".join(lines)


class ShapesOfAll(tuple[Shapes, ...]):
    """The sizes of all specializations of a compiled callable, with a text for people."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(f"specialization {i}:\n{shapes}" for i, shapes in enumerate(self)) or "nothing was traced"


def explain_shapes(fn: Any) -> ShapesOfAll:
    """Return, for each specialization of `fn`, which sizes are symbols, under which conditions, and what is pinned.

    See docs/dynamic-shapes.md.

    Example:
        >>> import torch, thunder
        >>> f = thunder.jit(lambda x: torch.softmax(x, -1), dynamic=True)
        >>> y = f(torch.ones(4, 5))
        >>> thunder.explain_shapes(f)[0].symbols
        ('s0: x.shape[0]', 's1: x.shape[1]')
    """
    return ShapesOfAll(Shapes(*map(tuple, row)) for row in compiled_behind(fn).shapes())


def wait_until_compiled(fn: Any) -> None:
    """Block until everything that compiles in the background for `fn` is in place: kernels of GPUs.

    A call before that runs their operations by PyTorch's kernels. A benchmark begins after it.

    Raises:
        TypeError: `fn` was not made by `thunder.jit`.

    Example:
        >>> import torch, thunder
        >>> f = thunder.jit(torch.sin)
        >>> y = f(torch.ones(3))
        >>> thunder.wait_until_compiled(f)
    """
    compiled_behind(fn).wait()


def _options(fn: Any) -> Options:
    options: Options = fn.__options__ if isinstance(fn, ThunderModule) else compiled_behind(fn).options
    return options


def _traces(fn: Any, native: list[Any], missing: str) -> Traces:
    """Return the traces; `missing` says why there are none although a call was compiled."""
    if not native:
        counts = compile_stats(fn)
        if counts["calls"] == 0:
            missing = "it was not called yet, and traces are made by calls"
        elif counts["eager_calls"] == counts["calls"]:
            missing = "no call of it was compiled: thunder.explain_misses tells why"
    return Traces((Trace(trace) for trace in native), missing)
