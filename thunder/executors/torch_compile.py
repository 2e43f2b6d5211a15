"""The executor "torchcompile": regions of a trace are compiled by torch.compile."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from thunder._elsewhere import attribute_of
from thunder.extend.executors import FusionExecutor
from thunder.extend.operations import may_share_memory, operator_named
from thunder.trace import BoundSymbol, Trace, TraceEdit, Value

__all__ = ["TorchCompileExecutor", "make_default"]

_UNSUPPORTED_TAGS = (
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
    torch.Tag.nondeterministic_seeded,
)


class TorchCompileExecutor(FusionExecutor):
    """Hands regions of traces to torch.compile, by default to TorchInductor.

    A region is as many operations as possible that stand next to each other. Left out, and run by the next executors,
    are operations that write, draw random numbers or follow data, those on complex numbers or symbolic sizes, and views
    that something behind the region reads.

    Args:
        name: of the executor.
        mode: as `torch.compile` has it: "max-autotune", …
        backend: as `torch.compile` has it.
        **options: others of `torch.compile`.

    A region is compiled when it runs first. That raises where TorchInductor lacks its compiler (g++ for CPUs).
    """

    def __init__(
        self, name: str = "torchcompile", *, mode: str | None = None, backend: str = "inductor", **options: Any
    ) -> None:
        super().__init__(name)
        self.keywords = {"mode": mode, "backend": backend, "fullgraph": True, "dynamic": False, **options}

    def can_fuse(self, symbol: BoundSymbol) -> bool:
        """Return whether a symbol may be in a region."""
        return _is_functional(symbol.name) and all(_is_plain(leaf) for leaf in _leaves(symbol))

    def fuse(self, region: Trace) -> Callable[..., Any]:
        """Return the region, compiled."""
        # TorchDynamo limits how often it compiles the code of a function: each region is one of its own.
        compiled = torch.compile(inspect.unwrap(region.python_callable()), **self.keywords)

        def call(*tensors: torch.Tensor) -> Any:
            with torch.no_grad():
                return compiled(*tensors)

        return call

    def fusion_pass(self, trace: Trace) -> Trace:
        """Return `trace` with its regions compiled."""
        edit = trace.edit(f"fusion by {self.name}")
        count = 0
        for group in self._groups(trace):
            region = _without_escaping_views(trace, group)
            if sum(not may_alias(symbol) for symbol in region) > 1:
                edit.fuse(region, f"{self.name}.region{count}", self.fuse)
                _move_behind(edit, region[-1], _others(group, region))
                count += 1
        return edit.finish() if count else trace

    def _groups(self, trace: Trace) -> list[list[BoundSymbol]]:
        groups: list[list[BoundSymbol]] = [[]]
        for symbol in trace.bound_symbols:
            if self.can_fuse(symbol):
                groups[-1].append(symbol)
            elif groups[-1]:
                groups.append([])
        return groups


def make_default() -> TorchCompileExecutor:
    """Return the executor that is registered as "torchcompile" when it is first asked for."""
    return TorchCompileExecutor()


@functools.cache
def _is_functional(name: str) -> bool:
    op = operator_named(name)
    if op is None or not name.startswith("aten.") or op._schema.is_mutable:
        return False
    return not any(tag in op.tags for tag in _UNSUPPORTED_TAGS)


def may_alias(symbol: BoundSymbol) -> bool:
    """Return whether results of a symbol may share memory with its arguments."""
    op = operator_named(symbol.name)
    return op is not None and may_share_memory(op)


def _leaves(symbol: BoundSymbol) -> list[Any]:
    leaves: list[Any] = pytree.tree_leaves((symbol.args, symbol.kwargs, symbol.results))
    return leaves


def _is_plain(leaf: Any) -> bool:
    if isinstance(leaf, Value):
        return leaf.is_tensor and not leaf.dtype.is_complex
    return not isinstance(leaf, torch.Tensor | torch.Generator)


def _tensors(values: Any) -> list[Value]:
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Value)]


def _others(group: Sequence[BoundSymbol], region: Sequence[BoundSymbol]) -> list[BoundSymbol]:
    inside = {symbol.index for symbol in region}
    return [symbol for symbol in group if symbol.index not in inside]


def _move_behind(edit: TraceEdit, last: BoundSymbol, symbols: Sequence[BoundSymbol]) -> None:
    """Let symbols that stand between those of a region run behind it."""
    moved: dict[Value, Value] = {}
    for symbol in symbols:
        if symbol.index > last.index:
            break
        args, kwargs = pytree.tree_map(
            lambda leaf: moved.get(leaf, leaf) if isinstance(leaf, Value) else leaf, (symbol.args, symbol.kwargs)
        )
        results = edit.insert_after(last, operator_named(symbol.name), *args, **kwargs)  # type: ignore[arg-type]
        for old, new in zip(pytree.tree_leaves(symbol.results), pytree.tree_leaves(results), strict=True):
            if isinstance(old, Value):
                edit.substitute(old, new)
                moved[old] = new
        edit.remove(symbol)


def _without_escaping_views(trace: Trace, group: Sequence[BoundSymbol]) -> list[BoundSymbol]:
    """Leave out the views that something behind reads, and what reads them: a region returns memory of its own."""
    inside = {symbol.index for symbol in group}
    read_behind = set(_tensors(trace.outputs))
    for symbol in trace.bound_symbols[group[-1].index + 1 :] if group else ():
        read_behind.update(_tensors((symbol.args, symbol.kwargs)))
    outside = {
        value for symbol in group if may_alias(symbol) for value in _tensors(symbol.results) if value in read_behind
    }
    for symbol in group:
        results = _tensors(symbol.results)
        if outside & {*results, *_tensors((symbol.args, symbol.kwargs))}:
            outside.update(results)
            inside.discard(symbol.index)
    return [symbol for symbol in group if symbol.index in inside]


__getattr__ = attribute_of(__name__)
