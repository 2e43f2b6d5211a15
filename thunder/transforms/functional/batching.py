"""`vmap`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from thunder._check import load_extension
from thunder.transforms.functional.structures import Kept, compiled, runs_as_torch

__all__ = ["vmap"]

_functional = load_extension().functional
_RANDOMNESS = ("error", "different", "same")


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return the function that applies `func` to each example of a batch.

    Args:
        func: takes tensors, and containers of them, of one example; returns tensors, or containers of them.
        in_dims: the dimension along which the examples of each argument lie; None for an argument that all examples
            share. An int for all arguments, or a tuple with one entry for each, which may be nested as the argument is.
            Keyword arguments are shared.
        out_dims: where the examples lie in each result; None for a result that is the same for all.
        randomness: random operations are an "error", draw "different" numbers for each example, or the "same".
        chunk_size: number of examples to be computed at once; None for all.

    Raises:
        ValueError: `in_dims` or `out_dims` do not fit, or the arguments have batches of different sizes.
        RuntimeError: `func` draws random numbers and `randomness` is "error", or reads the data of a tensor.
    """
    if randomness not in _RANDOMNESS:
        raise ValueError(f"thunder.vmap: randomness: expected one of {_RANDOMNESS}, got {randomness!r}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"thunder.vmap: chunk_size: expected a positive number or None, got {chunk_size}")
    _require_dims("vmap: out_dims", out_dims)

    def vmapped(*args: Any, **kwargs: Any) -> Any:
        if runs_as_torch():
            theirs = torch.func.vmap(func, in_dims, out_dims, randomness, chunk_size=chunk_size)
            return theirs(*args, **kwargs)
        leaves, spec = pytree.tree_flatten(args)
        dims = _dims_of_leaves(leaves, spec, args, in_dims)
        batch_size = _batch_size(leaves, dims)

        def call(examples: list[Any]) -> Any:
            return func(*pytree.tree_unflatten(examples, spec), **kwargs)

        if chunk_size is None or chunk_size >= batch_size:
            return _vmap_leaves(call, leaves, dims, batch_size, out_dims, randomness)
        return _vmap_in_chunks(call, leaves, dims, batch_size, out_dims, randomness, chunk_size)

    return compiled(vmapped, func)


def _vmap_leaves(
    call: Callable[[list[Any]], Any],
    leaves: list[Any],
    dims: list[int | None],
    batch_size: int,
    out_dims: Any,
    randomness: str,
) -> Any:
    batched = [i for i, dim in enumerate(dims) if dim is not None]
    recorded: list[Any] = []

    def example(stand_ins: list[Any]) -> list[Any]:
        replaced = list(leaves)
        for i, stand_in in zip(batched, stand_ins, strict=True):
            replaced[i] = stand_in
        results, spec = pytree.tree_flatten(call(replaced))
        wanted = _broadcast(out_dims, spec)
        if wanted is None:
            raise ValueError(
                f"thunder.vmap: out_dims: expected the structure of the result, {spec}, "
                f"got {pytree.tree_flatten(out_dims)[1]}"
            )
        kept = Kept(results)
        for result, dim in zip(results, wanted, strict=True):
            if dim is not None and not isinstance(result, torch.Tensor):
                raise ValueError(
                    f"thunder.vmap: expected a function that returns tensors, got {type(result)}; "
                    "None among the out_dims lets it through"
                )
        tensor_dims = [dim for result, dim in zip(results, wanted, strict=True) if isinstance(result, torch.Tensor)]
        recorded.append((spec, kept, tensor_dims))
        return kept.tensors

    inputs = [leaves[i] for i in batched]
    in_dims = [dims[i] for i in batched]
    trace, captures = _functional.record("vmap", example, inputs, in_dims, False)
    spec, kept, tensor_dims = recorded[-1]
    everything = [*inputs, *captures]
    in_dims += [None] * len(captures)
    program = _functional.vmap(trace, everything, in_dims, tensor_dims, batch_size, randomness)
    return pytree.tree_unflatten(kept.restored(_functional.replay(program, everything)), spec)


def _vmap_in_chunks(
    call: Callable[[list[Any]], Any],
    leaves: list[Any],
    dims: list[int | None],
    batch_size: int,
    out_dims: Any,
    randomness: str,
    chunk_size: int,
) -> Any:
    if randomness == "same":
        raise NotImplementedError("thunder.vmap: chunk_size: expected randomness 'different' or 'error', got 'same'")
    parts = []
    for begin in range(0, batch_size, chunk_size):
        size = min(chunk_size, batch_size - begin)
        chunk = [leaf if dim is None else leaf.narrow(dim, begin, size) for leaf, dim in zip(leaves, dims, strict=True)]
        parts.append(pytree.tree_flatten(_vmap_leaves(call, chunk, dims, size, out_dims, randomness)))
    spec = parts[0][1]
    joined = []
    for i, dim in enumerate(_broadcast(out_dims, spec) or []):
        pieces = [leaves_of_part[i] for leaves_of_part, _ in parts]
        joined.append(pieces[0] if dim is None else torch.cat(pieces, dim))
    return pytree.tree_unflatten(joined, spec)


def _dims_of_leaves(leaves: list[Any], spec: Any, args: tuple[Any, ...], in_dims: Any) -> list[int | None]:
    if not isinstance(in_dims, int | tuple | list):
        raise ValueError(f"thunder.vmap: in_dims: expected an int or a tuple, got {in_dims!r}")
    if not args:
        raise ValueError("thunder.vmap: expected at least one positional argument, got none")
    dims = _broadcast(tuple(in_dims) if isinstance(in_dims, list) else in_dims, spec)
    if dims is None:
        raise ValueError(
            f"thunder.vmap: in_dims: expected the structure of the arguments, {spec}, "
            f"got {pytree.tree_flatten(in_dims)[1]}"
        )
    result: list[int | None] = []
    for leaf, dim in zip(leaves, dims, strict=True):
        if dim is None:
            result.append(None)
            continue
        if not isinstance(dim, int):
            raise ValueError(f"thunder.vmap: in_dims: expected ints and None, got {dim!r}")
        if not isinstance(leaf, torch.Tensor):
            raise ValueError(
                f"thunder.vmap: in_dims: expected None for an argument of type {type(leaf)}, got {dim}; "
                "only tensors have examples"
            )
        rank = leaf.dim()
        if dim < -rank or dim >= rank:
            raise ValueError(
                f"thunder.vmap: in_dims: expected a dimension from {-rank} to {rank - 1} for an argument of shape "
                f"{tuple(leaf.shape)}, got {dim}"
            )
        result.append(dim % rank)
    return result


def _batch_size(leaves: list[Any], dims: list[int | None]) -> int:
    sizes = [leaf.shape[dim] for leaf, dim in zip(leaves, dims, strict=True) if dim is not None]
    if not sizes:
        raise ValueError("thunder.vmap: in_dims: expected a dimension for at least one argument, got None for all")
    if any(size != sizes[0] for size in sizes):
        raise ValueError(f"thunder.vmap: expected batches of one size, got {sizes}")
    return int(sizes[0])


def _broadcast(dims: Any, spec: Any) -> list[Any] | None:
    """Return one entry of `dims`, a prefix of the structure `spec`, for each leaf of it; None when it does not fit."""
    found: list[Any] | None = pytree._broadcast_to_and_flatten(dims, spec, is_leaf=_is_dim)
    return found


def _is_dim(value: object) -> bool:
    return value is None or isinstance(value, int)


def _require_dims(what: str, dims: Any) -> None:
    for dim in pytree.tree_leaves(dims, is_leaf=_is_dim):
        if not _is_dim(dim):
            raise ValueError(f"thunder.{what}: expected ints and None, got {dim!r}")
