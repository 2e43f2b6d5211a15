"""The arguments of a program at other sizes."""

from __future__ import annotations

import random
from typing import Any

import torch

_OTHER_SIZES = (2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 33, 1, 0)
_BUFFER = 50
_WEIGHTS = (3, 3, 3, 3, 3, 2, 3, 2, 2, 1, 1, 1, 1)


def at_other_sizes(arguments: tuple[Any, ...], source: random.Random) -> tuple[Any, ...]:
    """Return arguments in which sizes are others: equal ones stay equal, mostly, as programs need them to be."""
    sizes = sorted({size for a in arguments if isinstance(a, torch.Tensor) for size in a.shape if size > 1})
    if not sizes:
        return arguments
    chosen = source.sample(sizes, 1 if source.random() < 0.6 else len(sizes))
    by_size = {size: source.choices(_OTHER_SIZES, _WEIGHTS)[0] for size in chosen}
    is_loose = source.random() < 0.1
    return tuple(_resized(a, by_size, source, is_loose) if isinstance(a, torch.Tensor) else a for a in arguments)


def choose_rows(source: random.Random) -> int | None:
    """Return by how many elements rows lie further apart than they are long; -1: in one buffer; None: 0."""
    return source.choice((None, None, None, 1, 3, -1))


def with_rows_apart(arguments: tuple[Any, ...], apart: int | None) -> tuple[Any, ...]:
    """Return arguments that are slices of larger tensors, as `choose_rows` says."""
    if apart is None:
        return arguments
    return tuple(_slice_of_larger(a, apart) if isinstance(a, torch.Tensor) and a.dim() else a for a in arguments)


def _slice_of_larger(tensor: torch.Tensor, apart: int) -> torch.Tensor:
    order = sorted(range(tensor.dim()), key=lambda dim: -tensor.stride(dim))
    rows = tensor.detach().permute(order)
    length = rows.shape[-1]
    larger = rows.new_zeros((*rows.shape[:-1], max(_BUFFER, length) if apart == -1 else length + apart))
    larger[..., :length] = rows
    made = larger[..., :length].permute(torch.tensor(order).argsort().tolist())
    return made.requires_grad_(tensor.requires_grad)


def _resized(tensor: torch.Tensor, by_size: dict[int, int], source: random.Random, is_loose: bool) -> torch.Tensor:
    """Return a tensor of the same order in memory; `is_loose`: each of its sizes may stay."""
    shape = [by_size.get(size, size) if not is_loose or source.random() < 0.5 else size for size in tensor.shape]
    if shape == list(tensor.shape):
        return tensor
    order = sorted(range(tensor.dim()), key=lambda dim: -tensor.stride(dim))
    made = tensor.detach().permute(order)
    for place, dim in enumerate(order):
        if shape[dim] == tensor.shape[dim]:
            continue
        if tensor.shape[dim] == 0:
            return tensor
        made = made.index_select(place, torch.arange(shape[dim], device=made.device) % tensor.shape[dim])
    return made.permute(torch.tensor(order).argsort().tolist()).requires_grad_(tensor.requires_grad)
