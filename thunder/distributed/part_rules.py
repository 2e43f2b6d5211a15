"""Operations on activations of which each process of a group has a part: the call that works on parts.

A rule gives the call; None where the operation needs full tensors.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from thunder.trace import BoundSymbol, Value

if TYPE_CHECKING:
    from thunder.distributed.activation_parts import ActivationParts

__all__ = ["Call", "Rule", "Taken", "find_rule"]


@dataclasses.dataclass(frozen=True)
class Taken:
    """The part of a full tensor, among the arguments of a call."""

    value: Value


@dataclasses.dataclass(frozen=True)
class Call:
    """A call that gives parts: arguments in which parts stand for full tensors, and the dimension of each result."""

    op: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dims: tuple[int, ...]


Rule = Callable[["ActivationParts", BoundSymbol, Any], Call | None]


def find_rule(name: str, op: Any) -> Rule | None:
    """Return the rule of an operator of PyTorch's; None: it has none."""
    return _RULES.get(name) or (_pointwise if _is_pointwise(op) else None)


def _is_pointwise(op: Any) -> bool:
    is_random = torch.Tag.nondeterministic_seeded in op.tags
    return torch.Tag.pointwise in op.tags and not op._schema.is_mutable and not is_random


def _pointwise(parts: ActivationParts, symbol: BoundSymbol, op: Any) -> Call | None:
    values = [each for each in pytree.tree_leaves((symbol.args, symbol.kwargs)) if isinstance(each, Value)]
    places = {part.dim - each.ndim for each in values if (part := parts.find(each)) is not None}
    if len(places) != 1 or len(symbol.results) != 1:
        return None
    place = places.pop()  # counted from the last dimension
    taken: dict[Value, Taken] = {}
    for each in values:
        is_full = each.is_tensor and parts.find(each) is None
        if is_full and each.ndim >= -place and each.shape[place] != 1:
            if not parts.has_parts_of_sequences:
                return None
            taken[each] = Taken(parts.take(symbol, each, each.ndim + place))
    args, kwargs = pytree.tree_map(
        lambda each: taken.get(each, each) if isinstance(each, Value) else each, (symbol.args, symbol.kwargs)
    )
    return Call(op, args, kwargs, (symbol.results[0].ndim + place,))


def _reduction(parts: ActivationParts, symbol: BoundSymbol, op: Any) -> Call | None:
    """Reduce along other dimensions than that of the parts."""
    part = parts.find(symbol.args[0])
    given = dict(zip((each.name for each in op._schema.arguments), symbol.args, strict=False)) | symbol.kwargs
    dims = given.get("dim")
    dims = [dims] if isinstance(dims, int) else dims
    if part is None or not dims or len(symbol.results) != 1:
        return None
    rank = symbol.args[0].ndim
    dims = {dim % rank for dim in dims}
    if part.dim in dims:
        return None
    dim = part.dim if given.get("keepdim", False) else part.dim - sum(each < part.dim for each in dims)
    return Call(op, symbol.args, symbol.kwargs, (dim,))


def _norm(parts: ActivationParts, symbol: BoundSymbol, op: Any) -> Call | None:
    """Normalize along the last dimensions, of which processes have all."""
    part = parts.find(symbol.args[0])
    others = [each for each in symbol.args[2:4] if isinstance(each, Value)]
    if part is None or part.dim >= symbol.args[0].ndim - len(symbol.args[1]):
        return None
    if any(parts.find(each) is not None for each in others):
        return None
    return Call(op, symbol.args, symbol.kwargs, (part.dim,))


def _reshape(parts: ActivationParts, symbol: BoundSymbol, op: Any) -> Call | None:
    value = symbol.args[0]
    part, result = parts.find(value), symbol.results[0]
    if part is None:
        return None
    before = math.prod(value.shape[: part.dim])
    for dim, size in enumerate(result.shape):
        if math.prod(result.shape[:dim]) != before or size == 1:
            continue
        old = value.shape[part.dim]
        if size % parts.group.size or (old % size and size % old):
            return None
        shape = [*result.shape[:dim], size // parts.group.size, *result.shape[dim + 1 :]]
        return Call(torch.ops.aten.reshape.default, (value, shape), {}, (dim,))
    return None


def _expand(parts: ActivationParts, symbol: BoundSymbol, op: Any) -> Call | None:
    part, result = parts.find(symbol.args[0]), symbol.results[0]
    if part is None:
        return None
    dim = part.dim + result.ndim - symbol.args[0].ndim
    shape = [size // parts.group.size if i == dim else size for i, size in enumerate(result.shape)]
    return Call(op, (symbol.args[0], shape, *symbol.args[2:]), symbol.kwargs, (dim,))


def _transpose(parts: ActivationParts, symbol: BoundSymbol, op: Any) -> Call | None:
    part = parts.find(symbol.args[0])
    if part is None:
        return None
    rank = symbol.args[0].ndim
    order = list(range(rank))
    first, second = (each % rank for each in symbol.args[1:3])
    order[first], order[second] = order[second], order[first]
    return Call(op, symbol.args, symbol.kwargs, (order.index(part.dim),))


def _permute(parts: ActivationParts, symbol: BoundSymbol, op: Any) -> Call | None:
    part = parts.find(symbol.args[0])
    if part is None:
        return None
    order = [each % symbol.args[0].ndim for each in symbol.args[1]]
    return Call(op, symbol.args, symbol.kwargs, (order.index(part.dim),))


def _unsqueeze(parts: ActivationParts, symbol: BoundSymbol, op: Any) -> Call | None:
    part = parts.find(symbol.args[0])
    if part is None:
        return None
    new = symbol.args[1] % symbol.results[0].ndim
    return Call(op, symbol.args, symbol.kwargs, (part.dim + (new <= part.dim),))


def _same(parts: ActivationParts, symbol: BoundSymbol, op: Any) -> Call | None:
    part = parts.find(symbol.args[0])
    return None if part is None else Call(op, symbol.args, symbol.kwargs, (part.dim,))


def _along(place: int) -> Rule:
    """Return the rule of an operation along the dimension that is argument `place`: not that of the parts."""

    def rule(parts: ActivationParts, symbol: BoundSymbol, op: Any) -> Call | None:
        names = [each.name for each in op._schema.arguments]
        if names[place] != "dim":
            return None
        along = symbol.args[place] if place < len(symbol.args) else symbol.kwargs.get("dim", 0)
        operands = symbol.args[0] if isinstance(symbol.args[0], (list, tuple)) else [symbol.args[0]]
        found = [parts.find(each) for each in operands]
        own = {part.dim for part in found if part is not None}
        along %= operands[0].ndim
        if None in found or len(own) != 1 or along in own:
            return None
        results = pytree.tree_leaves(symbol.results)
        dim = own.pop()
        is_removed = results[0].ndim < operands[0].ndim and along < dim  # `select`, `unbind`
        return Call(op, symbol.args, symbol.kwargs, (dim - is_removed,) * len(results))

    return rule


def _attention(parts: ActivationParts, symbol: BoundSymbol, op: Any) -> Call | None:
    found = [parts.find(each) for each in symbol.args[:3]]
    dims = {None if each is None else each.dim - symbol.args[0].ndim for each in found}
    mask = symbol.args[3] if len(symbol.args) > 3 else symbol.kwargs.get("attn_mask")
    dropout = symbol.args[4] if len(symbol.args) > 4 else symbol.kwargs.get("dropout_p", 0.0)
    dim = dims.pop()
    if dims or dim is None or dim >= -2 or dropout != 0.0:
        return None
    if mask is not None and (parts.find(mask) is not None or (mask.ndim >= -dim and mask.shape[dim] != 1)):
        return None
    return Call(op, symbol.args, symbol.kwargs, (symbol.results[0].ndim + dim,))


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "flatten", "unflatten"), _reshape),
    **dict.fromkeys(("contiguous", "clone", "_to_copy", "to", "alias", "detach"), _same),
    **dict.fromkeys(("cat", "softmax", "slice", "select", "unbind"), _along(1)),
    **dict.fromkeys(("amax", "amin", "mean", "sum", "var"), _reduction),
    **dict.fromkeys(("layer_norm", "rms_norm"), _norm),
    **dict.fromkeys(("split", "split_with_sizes", "chunk"), _along(2)),
    "expand": _expand,
    "permute": _permute,
    "scaled_dot_product_attention": _attention,
    "transpose": _transpose,
    "unsqueeze": _unsqueeze,
}
