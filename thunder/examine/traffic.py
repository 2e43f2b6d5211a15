"""The bytes that a trace moves between memory and operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from thunder.extend.operations import may_share_memory, operator_named
from thunder.trace import BoundSymbol, Trace, Value

__all__ = ["FUSIONS", "bytes_moved", "bytes_unfused", "is_view"]

#: What several operations that run as one are called.
FUSIONS = ("prims.fused", "prims.fusion")


def bytes_moved(trace: Trace) -> int:
    """Return the bytes that the operations of a trace read and write.

    Each operation reads its arguments and writes its results once; a fusion is one operation, and a view moves nothing.
    """
    return sum(map(_bytes_of, trace.bound_symbols))


def bytes_unfused(stages: Sequence[Trace]) -> int:
    """Return the bytes that the last stage would move without fusions: those of the latest stage that has none."""
    unfused = [trace for trace in stages if not any(symbol.name in FUSIONS for symbol in trace.bound_symbols)]
    return bytes_moved(unfused[-1] if unfused else stages[-1])


def is_view(symbol: BoundSymbol) -> bool:
    """Return whether the result of an operation is memory of its argument, which it only describes otherwise."""
    operator = operator_named(symbol.name)
    if operator is None or operator._schema.is_mutable or not may_share_memory(operator):
        return False
    returns = operator._schema.returns
    is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CompositeImplicitAutograd")
    if any(result.alias_info is not None for result in returns) or not is_composite:
        return True
    # The schema of a composite operator (`reshape`, `softmax`) does not say it.
    try:
        arguments = pytree.tree_map(_without_data, (list(symbol.args), dict(symbol.kwargs)))
        with torch.no_grad():
            results = pytree.tree_leaves(operator(*arguments[0], **arguments[1]))
    except (RuntimeError, NotImplementedError, TypeError):
        return False
    given = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    return bool(results) and all(any(each is of or each._base is of for of in given) for each in results)


def _without_data(value: Any) -> Any:
    if not isinstance(value, Value) or not value.is_tensor:
        return value
    return torch.empty(tuple(value.shape), dtype=value.dtype, device="meta")


def _bytes_of(symbol: BoundSymbol) -> int:
    if is_view(symbol) or (symbol.name.startswith("prims.") and symbol.name not in FUSIONS):
        return 0  # primitives other than fusions are checks and guards
    values: list[Any] = pytree.tree_leaves((list(symbol.args), dict(symbol.kwargs), list(symbol.results)))
    return sum(value.numel() * value.dtype.itemsize for value in values if isinstance(value, Value) and value.is_tensor)
