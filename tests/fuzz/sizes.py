"""The arguments of a program at other sizes."""

from __future__ import annotations

import random
from typing import Any

import torch

_OTHER_SIZES = (2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 33, 1, 0)
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
