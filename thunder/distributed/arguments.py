"""Checks of the arguments of `ddp`, `fsdp` and `tensor_parallel`. Messages name the function and the argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from thunder._arguments import shown

__all__ = [
    "require_device",
    "require_flags",
    "require_floating_point",
    "require_names",
    "require_rank",
    "require_size",
    "require_state_dict",
]


def require_rank(where: str, rank: object, size: int) -> None:
    """Require None, or the rank of one of `size` processes. `where` names the function and the argument.

    Raises:
        TypeError: it is no int.
        ValueError: there is no such process.
    """
    if rank is None:
        return
    if not isinstance(rank, int) or isinstance(rank, bool):
        raise TypeError(f"{where}: expected a rank, which is an int, or None, got {shown(rank)}")
    if not 0 <= rank < size:
        raise ValueError(f"{where}: expected a rank below {size}, got {rank}")


def require_floating_point(where: str, dtype: object) -> None:
    """Require None, or a floating-point dtype. TypeError for what is no dtype, ValueError for other ones."""
    if dtype is None:
        return
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{where}: expected a dtype, such as torch.bfloat16, or None, got {shown(dtype)}")
    if not dtype.is_floating_point:
        raise ValueError(f"{where}: expected a floating-point dtype, got {dtype}")


def require_size(where: str, size: object) -> None:
    """Require a number that is not negative. TypeError for what is no number, ValueError for others."""
    if not isinstance(size, int | float) or isinstance(size, bool):
        raise TypeError(f"{where}: expected a size, which is a number, got {shown(size)}")
    if not size >= 0:
        raise ValueError(f"{where}: expected a size, got {size}")


def require_flags(function: str, **flags: object) -> None:
    """Require that arguments are True or False. TypeError with the name of one that is not."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"thunder.distributed.{function}: {name}: expected True or False, got {shown(flag)}")


def require_names(where: str, names: object) -> None:
    """Require a sequence of names of modules. TypeError for others, a single name among them."""
    if isinstance(names, str):
        raise TypeError(f"{where}: expected a list of names, got a single one; write [{names!r}]")
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{where}: expected a list of names of modules, or of patterns of them, got {shown(names)}")


def require_device(where: str, device: object) -> torch.device | None:
    """Return a device, or None for None. TypeError or ValueError for what names none."""
    if device is None or isinstance(device, torch.device):
        return device
    if not isinstance(device, str | int) or isinstance(device, bool):
        raise TypeError(f'{where}: expected a device, such as "cuda:0", or None, got {shown(device)}')
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise ValueError(f'{where}: expected a device, such as "cuda:0" or "cpu", got {device!r}') from error


def require_state_dict(where: str, state_dict: Any) -> None:
    """Require a mapping. TypeError for others, such as the name of a file."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(
            f"{where}: state_dict: expected a dict of tensors, as torch.load gives it, got {shown(state_dict)}"
        )
