"""`jacrev`, `jacfwd` and `hessian`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from thunder.transforms.functional.batching import vmap
from thunder.transforms.functional.forward_mode import jvp_of
from thunder.transforms.functional.reverse_mode import vjp_of
from thunder.transforms.functional.structures import Argnums, compiled, require_real, select

__all__ = ["hessian", "jacfwd", "jacrev"]


def jacrev(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return the function that computes the Jacobian of `func`, one row (element of the output) at a time.

    All rows are computed at once, or `chunk_size` of them. For an output of shape `[*m]` and an argument of shape
    `[*n]`, the Jacobian has the shape `[*m, *n]`. The structure is that of the output, with one Jacobian for each
    argument in the place of each tensor.
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"thunder.jacrev: chunk_size: expected a positive number or None, got {chunk_size}")

    def jacobian(*args: Any) -> Any:
        require_real("jacrev", args, "arguments")
        output, pull_back, *aux = vjp_of("jacrev", func, args, argnums, has_aux)
        outputs, output_spec = pytree.tree_flatten(output)
        require_real("jacrev", outputs, "results")
        sizes = [tensor.numel() for tensor in outputs]
        arguments, argument_spec = pytree.tree_flatten(select(args, argnums))

        def row(*cotangents: Any) -> list[Any]:
            leaves: list[Any] = pytree.tree_leaves(pull_back(pytree.tree_unflatten(list(cotangents), output_spec)))
            return leaves

        rows = vmap(row, chunk_size=chunk_size)(*_basis(outputs, sizes))
        jacobians = []
        for i, tensor in enumerate(outputs):
            begin = sum(sizes[:i])
            parts = [
                part[begin : begin + sizes[i]].reshape(tensor.shape + argument.shape)
                for part, argument in zip(rows, arguments, strict=True)
            ]
            jacobians.append(pytree.tree_unflatten(parts, argument_spec))
        result = pytree.tree_unflatten(jacobians, output_spec)
        return (result, *aux) if has_aux else result

    return compiled(jacobian, func)


def jacfwd(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """Return the function that computes the Jacobian of `func`, one column (element of an argument) at a time.

    All columns are computed at once. The result is that of `jacrev`; `randomness` is `vmap`'s.
    """

    def jacobian(*args: Any) -> Any:
        require_real("jacfwd", args, "arguments")
        selected = select(args, argnums)
        arguments, argument_spec = pytree.tree_flatten(selected)
        sizes = [tensor.numel() for tensor in arguments]
        kept: list[Any] = []

        def column(*tangents: Any) -> list[Any]:
            tangent = pytree.tree_unflatten(list(tangents), argument_spec)
            _, pushed, *aux = jvp_of("jacfwd", func, args, tangent, argnums, has_aux)
            leaves: list[Any] = pytree.tree_leaves(pushed)
            require_real("jacfwd", leaves, "results")
            aux_leaves, aux_spec = pytree.tree_flatten(aux)
            kept.append((pytree.tree_structure(pushed), len(leaves), aux_spec))
            return [*leaves, *aux_leaves]

        columns = vmap(column, randomness=randomness)(*_basis(arguments, sizes))
        spec, count, aux_spec = kept[-1]
        jacobians = []
        for stacked in columns[:count]:
            last = stacked.movedim(0, -1)
            parts = []
            for i, argument in enumerate(arguments):
                begin = sum(sizes[:i])
                parts.append(last[..., begin : begin + sizes[i]].reshape(stacked.shape[1:] + argument.shape))
            jacobians.append(pytree.tree_unflatten(parts, argument_spec))
        result = pytree.tree_unflatten(jacobians, spec)
        if not has_aux:
            return result
        return (result, *pytree.tree_unflatten([leaf[0] for leaf in columns[count:]], aux_spec))

    return compiled(jacobian, func)


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return the function that computes the Hessian of `func`: `jacfwd(jacrev(func))`."""
    return jacfwd(jacrev(func, argnums), argnums)


def _basis(tensors: list[Any], sizes: list[int]) -> list[Any]:
    """Return the standard basis of the space of all tensors together: entry i has the shape [sum(sizes), *shape i]."""
    total = sum(sizes)
    basis = []
    for i, tensor in enumerate(tensors):
        flat = torch.eye(total, sizes[i], dtype=tensor.dtype, device=tensor.device)
        begin = sum(sizes[:i])
        if begin != 0:
            zeros = torch.zeros(begin, sizes[i], dtype=tensor.dtype, device=tensor.device)
            flat = torch.cat([zeros, flat[: total - begin]])
        basis.append(flat.reshape(total, *tensor.shape))
    return basis
