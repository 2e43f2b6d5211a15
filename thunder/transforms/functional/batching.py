"""`vmap`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder.transforms.functional.structures import compiled

__all__ = ["vmap", "vmap_or_none"]


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
        RuntimeError: `func` draws random numbers and `randomness` is "error", or reads what differs between examples.

    Example:
        >>> import torch, thunder
        >>> thunder.vmap(torch.dot)(torch.ones(2, 3), torch.ones(2, 3))
        tensor([3., 3.])
    """
    batched = torch.func.vmap(func, in_dims, out_dims, randomness, chunk_size=chunk_size)
    return compiled("vmap", batched, func, dynamic=None)


def vmap_or_none(
    func: Callable[..., Any], in_dims: Any = 0, out_dims: int = 0, allow_none_pass_through: bool = False
) -> Callable[..., Any]:
    """Do what `torch._vmap_internals._vmap` does, by which `torch.autograd` batches gradients; some may be None."""
    if not allow_none_pass_through:
        plain: Callable[..., Any] = torch.func.vmap(func, in_dims, out_dims)
        return plain

    def batched(*args: Any) -> Any:
        places: list[int] = []
        recorded: list[Any] = []

        def without_none(*examples: Any) -> tuple[Any, ...]:
            result = func(*examples)
            recorded.append(result)
            results = result if isinstance(result, tuple) else (result,)
            places.extend(i for i, each in enumerate(results) if each is not None)
            return tuple(results[i] for i in places)

        found = torch.func.vmap(without_none, in_dims, out_dims)(*args)
        result = recorded[0]
        if not isinstance(result, tuple):
            return found[0] if found else None
        filled: list[Any] = [None] * len(result)
        for i, each in zip(places, found, strict=True):
            filled[i] = each
        return tuple(filled)

    return batched
