"""`jacrev`, `jacfwd` and `hessian`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder.transforms.functional.structures import Argnums, compiled

__all__ = ["hessian", "jacfwd", "jacrev"]


def jacrev(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """Return the function that computes the Jacobian of `func`, one row (element of the output) at a time.

    All rows are computed at once, or `chunk_size` of them. For an output of shape `[*m]` and an argument of shape
    `[*n]`, the Jacobian has the shape `[*m, *n]`. The structure is that of the output, with one Jacobian for each
    argument in the place of each tensor.

    Args:
        func: takes and returns tensors, or containers of them.
        argnums: which positional arguments, as for `thunder.grad`.
        has_aux: `func` returns a pair: what is differentiated, and anything else, which is returned beside the result.
        chunk_size: how many rows are computed at once; None for all.

    Example:
        >>> import torch, thunder
        >>> thunder.jacrev(lambda x: x**2)(torch.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    jacobian = torch.func.jacrev(
        func, argnums, has_aux=has_aux, chunk_size=chunk_size, _preallocate_and_copy=_preallocate_and_copy
    )
    return compiled("jacrev", jacobian, func)


def jacfwd(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """Return the function that computes the Jacobian of `func`, one column (element of an argument) at a time.

    All columns are computed at once. The result and `func`, `argnums`, `has_aux` are those of `jacrev`; `randomness` is
    `vmap`'s.

    Raises:
        TypeError: `func` is not callable.

    Example:
        >>> import torch, thunder
        >>> thunder.jacfwd(lambda x: x**2)(torch.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    return compiled("jacfwd", torch.func.jacfwd(func, argnums, has_aux, randomness=randomness), func)


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return the function that computes the Hessian of `func`: `jacfwd(jacrev(func, argnums), argnums)`.

    For an output without dimensions and an argument of shape `[*n]` it has the shape `[*n, *n]`.

    Raises:
        TypeError: `func` is not callable.

    Example:
        >>> import torch, thunder
        >>> thunder.hessian(lambda x: (x**3).sum())(torch.tensor([1.0, 2.0]))
        tensor([[ 6.,  0.],
                [ 0., 12.]])
    """
    return compiled("hessian", torch.func.hessian(func, argnums), func)
