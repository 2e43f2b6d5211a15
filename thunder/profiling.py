"""`thunder.profile`: the time of each operation of a compiled callable, by lines of the program."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import os
import pathlib
import re
import tempfile
from typing import Any

import torch
from torch.utils import _pytree as pytree

from thunder._arguments import require_callable, shown
from thunder._html import table

__all__ = ["Profile", "ProfileRow", "profile"]

# The ranges that compiled programs give to PyTorch's profilers: csrc/runtime/program.cpp.
_NOTHING = "no compiled operation ran: expected what thunder.jit returned, or a function that calls it"
_RANGE = re.compile(r"^(?P<operation>.+) of (?P<file>.+):(?P<line>\d+)$")

#: Rows that are printed.
_SHOWN = 40


@dataclasses.dataclass(frozen=True)
class ProfileRow:
    """The calls of one operation that come from one line.

    Attributes:
        operation: its name; of a fusion, what it consists of.
        file: of the line.
        line: its number.
        calls: how often it ran.
        seconds: how long it ran on the CPU, altogether; on a GPU that is the time to launch it.
        cuda_seconds: how long its kernels ran on a GPU, altogether.
    """

    operation: str
    file: str
    line: int
    calls: int
    seconds: float
    cuda_seconds: float

    def __str__(self) -> str:
        text = f"{1e6 * self.seconds:10.1f} us"
        if self.cuda_seconds:
            text += f" {1e6 * self.cuda_seconds:10.1f} us on the GPU"
        return f"{text}  {self.calls:4d} calls  {self.operation}  # {self.file}:{self.line}"


class Profile(tuple[ProfileRow, ...]):
    """The operations of some calls, the longest first."""

    _recorded: Any

    @classmethod
    def of(cls, recorded: Any) -> Profile:
        """Return what a `torch.profiler.profile` recorded of compiled programs."""
        sums: dict[tuple[str, str, int], list[float]] = {}
        for event in recorded.events():
            match = _RANGE.match(event.name)
            if match is None:
                continue
            key = match["operation"], match["file"], int(match["line"])
            entry = sums.setdefault(key, [0, 0.0, 0.0])
            entry[0] += 1
            entry[1] += 1e-6 * event.cpu_time_total
            entry[2] += 1e-6 * event.device_time_total
        rows = [ProfileRow(*key, int(calls), cpu, cuda) for key, (calls, cpu, cuda) in sums.items()]
        made = cls(sorted(rows, key=lambda row: -max(row.seconds, row.cuda_seconds)))
        made._recorded = recorded
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all events to a file that Perfetto (ui.perfetto.dev) and chrome://tracing show.

        Raises:
            OSError: the file cannot be written.
        """
        with open(os.fspath(path), "wb") as file:
            file.write(gzip.compress(self._events) if os.fspath(path).endswith(".gz") else self._events)

    @functools.cached_property
    def _events(self) -> bytes:
        """All events. PyTorch's profiler writes them once, and says nothing of a file that it cannot write."""
        with tempfile.TemporaryDirectory() as folder:
            made = pathlib.Path(folder, "events.json")
            self._recorded.export_chrome_trace(str(made))
            return made.read_bytes()

    def by_line(self) -> list[tuple[str, int, float]]:
        """Return file, line and seconds of each line, the longest first."""
        sums: dict[tuple[str, int], float] = {}
        for row in self:
            seconds = max(row.seconds, row.cuda_seconds)
            sums[row.file, row.line] = sums.get((row.file, row.line), 0.0) + seconds
        return sorted(((*place, seconds) for place, seconds in sums.items()), key=lambda item: -item[2])

    def __str__(self) -> str:
        if not self:
            return _NOTHING
        lines = [str(row) for row in self[:_SHOWN]]
        if len(self) > _SHOWN:
            rest = sum(max(row.seconds, row.cuda_seconds) for row in self[_SHOWN:])
            lines.append(f"{1e6 * rest:10.1f} us  {len(self) - _SHOWN} more rows, which a loop over the profile gives")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return table(
            ("µs", "µs on the GPU", "calls", "operation", "line"),
            (
                (
                    f"{1e6 * row.seconds:.1f}",
                    f"{1e6 * row.cuda_seconds:.1f}" if row.cuda_seconds else "",
                    row.calls,
                    row.operation,
                    f"{row.file}:{row.line}",
                )
                for row in self
            ),
        )


def profile(fn: Any, *args: Any, calls: int = 3, **kwargs: Any) -> Profile:
    """Call a compiled callable, with a backward where its results require grad, and return what took how long.

    Compiled programs give each operation, with the line that it comes from, to PyTorch's profilers as a range whenever
    one is active: `torch.profiler.profile()` and `torch.autograd.profiler.emit_nvtx()` around any calls show them too.

    Args:
        fn: what `thunder.jit` or `thunder.compile` returned, or a function that calls it, such as a training step.
        *args: its arguments.
        calls: how many calls are recorded, behind one that is not.
        **kwargs: its keyword arguments.

    Returns:
        Rows with seconds summed over the calls, the longest first; empty where nothing compiled ran.

    Raises:
        TypeError: `fn` is not callable, or `calls` is no number.
        ValueError: `calls` is less than 1.

    Example:
        >>> import torch, thunder
        >>> rows = thunder.profile(thunder.jit(lambda x: torch.softmax(x, -1)), torch.ones(2, 3))
        >>> [row.calls for row in rows]
        [3]
    """
    require_callable("thunder.profile", fn)
    if not isinstance(calls, int):
        raise TypeError(f"thunder.profile: calls: expected a number, got {shown(calls)}")
    if calls < 1:
        raise ValueError(f"thunder.profile: calls: expected a number from 1 on, got {calls}")
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    _call(fn, args, kwargs)
    with torch.profiler.profile(activities=activities) as recorded:
        for _ in range(calls):
            _call(fn, args, kwargs)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    return Profile.of(recorded)


def _call(fn: Any, args: Any, kwargs: Any) -> None:
    leaves = pytree.tree_leaves(fn(*args, **kwargs))
    outputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if outputs:
        inputs = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        owners = [fn] if isinstance(fn, torch.nn.Module) else []
        wanted = [tensor for tensor in inputs if tensor.requires_grad and tensor.is_leaf]
        wanted += [parameter for owner in owners for parameter in owner.parameters() if parameter.requires_grad]
        gradients = [torch.ones_like(output) for output in outputs]
        if wanted:
            torch.autograd.grad(outputs, wanted, gradients, allow_unused=True)
        else:
            torch.autograd.backward(outputs, gradients)
