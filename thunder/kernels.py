"""Sources of the kernels that a compiled callable runs."""

from __future__ import annotations

import dataclasses
import html
import linecache
from typing import Any

from thunder.inspect import last_backward_traces, last_traces

__all__ = ["Kernel", "KernelLaunch", "Kernels", "last_kernels"]


@dataclasses.dataclass(frozen=True)
class KernelLaunch:
    """One launch of a kernel's function.

    Attributes:
        function: its name, as profilers show it.
        thread_blocks: of the launch; in a batch, those of this member.
        threads: of each thread block.
        registers: of each thread; None where the kernel is not compiled yet.
    """

    function: str
    thread_blocks: int
    threads: int
    registers: int | None = None

    def __str__(self) -> str:
        text = f"{self.function}: {self.thread_blocks} x {self.threads} threads"
        return text if self.registers is None else f"{text}, {self.registers} registers"


@dataclasses.dataclass(frozen=True)
class KernelOperation:
    """An operation that a kernel computes.

    Attributes:
        name: as printed traces call it: "aten.mul.Tensor".
        file: file of the line that called it; None where it is not known.
        line: number of that line.
    """

    name: str
    file: str | None
    line: int


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel, which runs some operations as one.

    Attributes:
        trace: "computation", "forward" or "backward".
        executor: who made it.
        operations: what it computes, in order.
        launches: of its functions, one after the other, for the sizes that came last.
        text: its own source, in CUDA C++.
        beginning: what stands in front of that in all kernels: types and functions.
        is_compiled: whether it runs; until then PyTorch runs the operations one by one.
        count: how many blocks of the trace it runs, such as those of equal layers.
    """

    trace: str
    executor: str
    operations: tuple[KernelOperation, ...]
    launches: tuple[KernelLaunch, ...]
    text: str
    beginning: str
    is_compiled: bool
    count: int = 1

    @property
    def name(self) -> str:
        """That of its function, as profilers show it."""
        return self.launches[0].function if self.launches else "kernel"

    @property
    def source(self) -> str:
        """All that is compiled."""
        return self.beginning + self.text

    @property
    def title(self) -> str:
        """A line that says how often it runs, and where."""
        times = f", {self.count} times" if self.count > 1 else ""
        state = "" if self.is_compiled else ", not compiled yet"
        return f"{self.trace}: {self.name}{times}{state}"

    def comments(self) -> str:
        """Return what it computes, for which lines of the program, as comments of C++."""
        lines = [f"// {self.title}", *(f"// {launch}" for launch in self.launches)]
        place = None
        for operation in self.operations:
            if operation.file and (operation.file, operation.line) != place:
                place = (operation.file, operation.line)
                code = linecache.getline(*place).strip()
                lines.append(f"// {operation.file}:{operation.line}: {code}".rstrip(": "))
            lines.append(f"//   {operation.name}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"{self.comments()}\n{self.text.strip()}\n"

    def _repr_html_(self) -> str:
        return f"<details><summary>{html.escape(self.title)}</summary><pre>{html.escape(str(self))}</pre></details>"


class Kernels(list[Kernel]):
    """Kernels, with a text and a page for people."""

    def __str__(self) -> str:
        return "\n".join(map(str, self)) if self else "no kernels with a source: those are a GPU's (thunder.fusions)"

    def _repr_html_(self) -> str:
        return "".join(kernel._repr_html_() for kernel in self) if self else html.escape(str(self))


def last_kernels(fn: Any) -> Kernels:
    """Return the kernels with a source that `fn` runs, as last compiled, in order: the forward's before the backward's.

    Those are the CUDA kernels of fusions. A kernel that several blocks of a trace share, such as equal layers, comes
    once, with the operations and lines of the first of them. Launches are those of the sizes that came last.

    Args:
        fn: a function or module that `thunder.jit` gave.
    """
    found: dict[tuple[Any, ...], Kernel] = {}
    for traces in (last_traces(fn), last_backward_traces(fn)):
        for symbol in traces[-1].bound_symbols if traces else ():
            if symbol.name == "prims.fused":
                _add(found, traces[-1].name, symbol)
    return Kernels(found.values())


def _add(found: dict[tuple[Any, ...], Kernel], trace: str, symbol: Any) -> None:
    for beginning, text, launches, is_compiled, operations in symbol.kernels():
        if not text:
            continue
        kernel = Kernel(
            trace=trace,
            executor=symbol.args[0],
            operations=tuple(KernelOperation(*operation) for operation in operations),
            launches=tuple(KernelLaunch(*launch) for launch in launches),
            text=text,
            beginning=beginning,
            is_compiled=is_compiled,
        )
        key = (trace, text, kernel.launches, tuple(operation.name for operation in kernel.operations))
        known = found.get(key)
        found[key] = kernel if known is None else dataclasses.replace(known, count=known.count + 1)
