"""Activations of which each process of a group has a part, along one dimension: what operations make of them.

Operations that work on parts as they do on full tensors (pointwise ones, views, attention by heads) are called on the
parts. All others get full tensors. A tensor that all processes have, and that is used together with a part, gives each
of them another gradient: these are summed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from thunder.distributed.groups import Group
from thunder.distributed.parallel_loss import cross_entropy
from thunder.distributed.part_rules import Call, Taken, find_rule
from thunder.trace import BoundSymbol, Trace, TraceEdit, Value

__all__ = ["ActivationParts", "Part", "operator_of"]


@dataclasses.dataclass(frozen=True)
class Part:
    """The value that a process has, and the dimension along which the parts of all are the full tensor."""

    value: Value
    dim: int


class ActivationParts:
    """The values of a trace of which processes have parts, while the trace is edited.

    `has_parts_of_sequences`: sums over processes are left in parts along the sequence, where there is one.
    """

    def __init__(self, trace: Trace, edit: TraceEdit, group: Group, has_parts_of_sequences: bool) -> None:
        self.edit = edit
        self.group = group
        self.has_parts_of_sequences = has_parts_of_sequences
        self._trace = trace
        self._parts: dict[Value, Part] = {}
        self._replaced: dict[Value, Value] = {}
        self._summing: dict[Value, Value] = {}

    def find(self, value: Any) -> Part | None:
        """Return the part that stands for a value of the trace."""
        return self._parts.get(value) if isinstance(value, Value) else None

    def set_part(self, symbol: BoundSymbol, value: Value, dim: int) -> None:
        """Let a part stand for the only result of a symbol."""
        self._parts[symbol.results[0]] = Part(value, dim)
        self.edit.remove(symbol)

    def set_full(self, symbol: BoundSymbol, value: Value) -> None:
        """Put a full tensor in the place of the only result of a symbol."""
        self._replaced[symbol.results[0]] = value
        self.edit.substitute(symbol.results[0], value)
        self.edit.remove(symbol)

    def full(self, symbol: BoundSymbol | None, value: Value) -> Value:
        """Return the full tensor in front of a symbol (None: at the end), gathered where only parts are there."""
        part = self._parts.get(value)
        if part is not None and value not in self._replaced:
            ops, group = torch.ops.thunder, self.group
            arguments = (ops.gather_parts, part.value, part.dim, group.name, group.size, group.rank)
            insert = self.edit.insert_last if symbol is None else self._before(symbol)
            self._replaced[value] = insert(*arguments)
            self.edit.substitute(value, self._replaced[value])
        return self._replaced.get(value, value)

    def summing(self, symbol: BoundSymbol, value: Value) -> Value:
        """Return a full tensor that is used with parts: gradients of all processes are summed."""
        if value not in self._summing:
            part, ops, group = self._parts.get(value), torch.ops.thunder, self.group
            if part is not None and value not in self._replaced:
                arguments: tuple[Any, ...] = (ops.gather_summing, part.value, part.dim)
                arguments += (group.name, group.size, group.rank)
            else:
                arguments = (ops.sums_gradient, self.full(symbol, value), group.name)
            self._summing[value] = self._before(symbol)(*arguments)
        return self._summing[value]

    def set_sum(self, symbol: BoundSymbol, function: Callable[..., Any], *args: Any, bias: Value | None = None) -> None:
        """Put the sum over processes of what a function returns in the place of the only result of a symbol.

        Each has a part of it along the sequence, if that is wanted, and the sequence has a length that they share. A
        bias is added to the sum.
        """
        result, group = symbol.results[0], self.group
        dim = result.ndim - 2
        insert = self.edit.insert_before
        if self.has_parts_of_sequences and dim >= 0 and result.shape[dim] and result.shape[dim] % group.size == 0:
            arguments = (dim, group.name, group.size, group.rank)
            bias = None if bias is None else self.summing(symbol, bias)
            self.set_part(symbol, insert(symbol, _scattered_sum, function, args, arguments, bias), dim)
        else:
            bias = None if bias is None else self.full(symbol, bias)
            self.set_full(symbol, insert(symbol, _sum, function, args, group.name, bias))

    def take(self, symbol: BoundSymbol, value: Value, dim: int) -> Value:
        """Return the part of a tensor along a dimension."""
        part = self._parts.get(value)
        if part is not None and part.dim == dim % value.ndim:
            return part.value
        ops, group = torch.ops.thunder, self.group
        full = self.full(symbol, value)
        taken: Value = self._before(symbol)(ops.take_part, full, dim, group.name, group.size, group.rank)
        return taken

    def follow(self, symbol: BoundSymbol) -> None:
        """Call an operation on parts, where there are any and it works on parts; else give it full tensors."""
        values = [each for each in pytree.tree_leaves((symbol.args, symbol.kwargs)) if isinstance(each, Value)]
        if not any(each in self._parts for each in values):
            return
        reduction = _REDUCTIONS.get(symbol.name)
        reduced = reduction(self, symbol) if reduction is not None else None
        if reduced is not None:
            self.set_full(symbol, reduced)
            return
        call = self._call(symbol)
        if call is None:
            for value in values:
                self.full(symbol, value)
            return
        args, kwargs = pytree.tree_map(lambda each: self._operand(symbol, each), (call.args, call.kwargs))
        made = pytree.tree_leaves(self._before(symbol)(call.op, *args, **kwargs))
        for result, value, dim in zip(pytree.tree_leaves(symbol.results), made, call.dims, strict=True):
            self._parts[result] = Part(value, dim)
        self.edit.remove(symbol)

    def finish(self) -> Trace:
        """Return the trace, whose outputs are full tensors."""
        for value in self._trace.outputs:
            if self.find(value) is not None:
                self.full(None, value)
        return self.edit.finish()

    def _before(self, symbol: BoundSymbol) -> Callable[..., Any]:
        return lambda function, *args, **kwargs: self.edit.insert_before(symbol, function, *args, **kwargs)

    def _operand(self, symbol: BoundSymbol, operand: Any) -> Any:
        if isinstance(operand, Taken):
            return operand.value
        if not isinstance(operand, Value):
            return operand
        part = self._parts.get(operand)
        if part is not None:
            return part.value
        is_float = operand.is_tensor and operand.dtype.is_floating_point
        return self.summing(symbol, operand) if is_float else self.full(symbol, operand)

    def _call(self, symbol: BoundSymbol) -> Call | None:
        if not symbol.name.startswith("aten."):
            return None
        op = operator_of(symbol)
        if op._schema.is_mutable and self.find(symbol.args[0]) is not None:
            raise NotImplementedError(
                f"thunder.distributed.tensor_parallel: {symbol.name} writes to a tensor of which processes have parts, "
                f"in {symbol.file}, line {symbol.line}; use the operation that returns a new one"
            )
        rule = find_rule(symbol.name.split(".")[1], op)
        return None if rule is None else rule(self, symbol, op)


def operator_of(symbol: BoundSymbol) -> Any:
    """Return the overload of PyTorch's that a symbol calls."""
    namespace, packet, overload = symbol.name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def _sum(
    function: Callable[..., torch.Tensor], args: tuple[Any, ...], group: str, bias: torch.Tensor | None
) -> torch.Tensor:
    result: torch.Tensor = torch.ops.thunder.sum_over_processes(function(*args), group)
    return result if bias is None else result + bias


def _scattered_sum(
    function: Callable[..., torch.Tensor],
    args: tuple[Any, ...],
    scattering: tuple[Any, ...],
    bias: torch.Tensor | None,
) -> torch.Tensor:
    result: torch.Tensor = torch.ops.thunder.scatter_sum(function(*args), *scattering)
    return result if bias is None else result + bias


# Operations whose full result follows from parts.
_REDUCTIONS: dict[str, Callable[[ActivationParts, BoundSymbol], Value | None]] = {
    "aten.cross_entropy_loss.default": cross_entropy,
}
