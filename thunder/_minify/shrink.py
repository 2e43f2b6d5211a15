"""Makes a failing straight-line program smaller, one accepted attempt after the other."""

from __future__ import annotations

import copy
import dataclasses
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from thunder._minify.straight_line import Line, StraightLine

__all__ = ["Case", "cloned", "fresh", "shrink"]


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A program with its arguments, one for each parameter."""

    program: StraightLine
    arguments: tuple[Any, ...]


def cloned(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return copies that keep strides, `requires_grad`, and which arguments share memory."""
    return copy.deepcopy(arguments)


def fresh(fn: Any) -> Any:
    """Return a function that may be called without a trace: of a module, a copy."""
    return copy.deepcopy(fn) if isinstance(fn, torch.nn.Module) else fn


def shrink(case: Case, fails: Callable[[Case], bool], seconds: float = 60.0) -> Case:
    """Return the smallest case found that still fails.

    Statements are dropped, or give way to an input with the value that they had; results and inputs that are not needed
    go; inputs become contiguous, smaller and simpler. Ends when nothing more can be taken away, or after `seconds`.
    """
    deadline = time.monotonic() + seconds

    def accepted(candidate: Case) -> bool:
        return time.monotonic() < deadline and fails(candidate)

    while True:
        smaller = case
        for reduce in _REDUCTIONS:
            for attempt in _attempts(reduce, smaller, accepted):
                smaller = attempt
        if smaller is case or time.monotonic() >= deadline:
            return smaller
        case = smaller


def _attempts(reduce: Callable[[Case], Iterator[Case]], case: Case, accepted: Callable[[Case], bool]) -> Iterator[Case]:
    """Yield cases that fail, each made from the one before it."""
    position = 0
    while True:
        # After a success the candidates are made anew, and those that were refused are not tried again.
        for number, candidate in enumerate(reduce(case)):
            if number >= position and accepted(candidate):
                position, case = number, candidate
                break
        else:
            return
        yield case


def _fewer_results(case: Case) -> Iterator[Case]:
    results = case.program.results
    if len(results) > 1:
        for result in results:
            yield _with(case, results=(result,))
    for i in range(len(results)):
        yield _with(case, results=results[:i] + results[i + 1 :])


def _fewer_lines(case: Case) -> Iterator[Case]:
    lines = case.program.lines
    size = len(lines) // 2
    while size >= 1:
        for begin in range(len(lines) - size, -1, -size):
            rest = lines[:begin] + lines[begin + size :]
            defined = set(case.program.parameters).union(*(line.targets for line in rest))
            dropped = {name for line in lines[begin : begin + size] for name in line.targets} - defined
            results = tuple(name for name in case.program.results if name not in dropped)
            if not any(dropped.intersection(line.reads) for line in rest):
                yield _with(case, lines=rest, results=results)
        size //= 2


def _values_become_inputs(case: Case) -> Iterator[Case]:
    for i in range(len(case.program.lines) - 1, -1, -1):
        line = case.program.lines[i]
        later = case.program.with_lines(case.program.lines[i + 1 :])
        if not line.targets or not later.used().intersection(line.targets):
            continue
        values = _values_after(case, i + 1, line.targets)
        if values is None:
            continue
        program = dataclasses.replace(
            case.program,
            parameters=case.program.parameters + line.targets,
            lines=case.program.lines[:i] + case.program.lines[i + 1 :],
        )
        yield Case(program, case.arguments + values)


def _values_become_others(case: Case) -> Iterator[Case]:
    """Let readers of a statement's value read what the statement read."""
    for i, line in enumerate(case.program.lines):
        if len(line.targets) != 1:
            continue
        for read in line.reads:
            if read in ("torch", "prims") or read in case.program.constants:
                continue
            later = tuple(after.renamed({line.targets[0]: read}) for after in case.program.lines[i + 1 :])
            results = tuple(read if name == line.targets[0] else name for name in case.program.results)
            yield _with(case, lines=case.program.lines[:i] + later, results=tuple(dict.fromkeys(results)))


def _fewer_inputs(case: Case) -> Iterator[Case]:
    used = case.program.used()
    for i, parameter in enumerate(case.program.parameters):
        if parameter not in used:
            parameters = case.program.parameters
            program = dataclasses.replace(case.program, parameters=parameters[:i] + parameters[i + 1 :])
            yield Case(program, case.arguments[:i] + case.arguments[i + 1 :])


def _simpler_inputs(case: Case) -> Iterator[Case]:
    for i, argument in enumerate(case.arguments):
        if isinstance(argument, torch.Tensor):
            for simpler in _simpler(argument):
                yield Case(case.program, (*case.arguments[:i], simpler, *case.arguments[i + 1 :]))


def _simpler(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    plain = tensor.detach().clone()
    if tensor.requires_grad:
        yield plain
    if not tensor.is_contiguous():
        yield plain.contiguous().requires_grad_(tensor.requires_grad)
    if tensor.numel() and bool((plain != 1).any()):
        yield torch.ones_like(plain).requires_grad_(tensor.requires_grad)


def _smaller_sizes(case: Case) -> Iterator[Case]:
    tensors = [argument for argument in case.arguments if isinstance(argument, torch.Tensor)]
    for size in sorted({size for tensor in tensors for size in tensor.shape}, reverse=True):
        for smaller in (1, 2, size // 2):
            if not 0 < smaller < size:
                continue
            arguments = tuple(_cut(argument, size, smaller) for argument in case.arguments)
            yield Case(case.program, arguments)
            literal = re.compile(rf"(?<![\w.]){size}(?![\w.])")
            lines = [Line.of(literal.sub(str(smaller), line.text)) for line in case.program.lines]
            if tuple(lines) != case.program.lines:
                yield Case(case.program.with_lines(lines), arguments)


def _cut(argument: Any, size: int, smaller: int) -> Any:
    if not isinstance(argument, torch.Tensor) or size not in argument.shape:
        return argument
    index = tuple(slice(smaller) if each == size else slice(None) for each in argument.shape)
    return argument.detach()[index].clone().requires_grad_(argument.requires_grad)


_REDUCTIONS = (
    _fewer_results,
    _fewer_lines,
    _values_become_inputs,
    _fewer_lines,
    _values_become_others,
    _fewer_inputs,
    _smaller_sizes,
    _simpler_inputs,
)


def _with(case: Case, **changes: Any) -> Case:
    return Case(dataclasses.replace(case.program, **changes), case.arguments)


def _values_after(case: Case, count: int, names: tuple[str, ...]) -> tuple[Any, ...] | None:
    """Return what `names` are bound to after the first statements, in eager; None when these fail."""
    program = dataclasses.replace(case.program, lines=case.program.lines[:count], results=names)
    try:
        values = program.function()(*cloned(case.arguments))
    except Exception:
        return None
    return tuple(
        value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value
        for value in values
    )
