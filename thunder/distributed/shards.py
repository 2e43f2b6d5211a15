"""Working with modules whose parameters are shards: whole state dicts, clipping of gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from thunder.distributed.groups import Group
from thunder.distributed.sharding import group_of_shards, sharded_names, whole_of_shard
from thunder.distributed.synchronization import synchronization_of

__all__ = ["clip_grad_norm_", "full_state_dict", "load_full_state_dict"]


def full_state_dict(model: Any, *, rank: int | None = None, to_cpu: bool = False) -> dict[str, torch.Tensor]:
    """Return the state dict of the module that `fsdp` was given, with whole parameters.

    All processes have to call it. A plain module of the same class loads the result.

    Args:
        model: what `fsdp` returned.
        rank: the rank in the group that gets it; the others get an empty dict. None: all.
        to_cpu: whether each tensor is moved to the CPU once it is whole.
    """
    group = _group("full_state_dict", model)
    sizes = sharded_names(model)
    result = {}
    for name, tensor in model.state_dict().items():
        whole = whole_of_shard(tensor, sizes[name], group) if name in sizes else tensor
        if rank is None or rank == group.rank:
            result[name] = whole.cpu() if to_cpu else whole
    return result


def load_full_state_dict(model: Any, state_dict: Mapping[str, torch.Tensor], *, strict: bool = True) -> Any:
    """Load a state dict of whole parameters, of which each process takes its shards; as `load_state_dict` otherwise."""
    _group("load_full_state_dict", model)
    return model.load_original_state_dict(state_dict, strict=strict)


def clip_grad_norm_(
    model: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> torch.Tensor:
    """Scale the gradients of a module that `ddp` or `fsdp` returned so that their norm is at most `max_norm`.

    The norm is that of the whole gradients: all processes have to call it. Returns the norm before.

    Raises TypeError for other modules, RuntimeError where the norm is not finite and `error_if_nonfinite`.
    """
    if synchronization_of(model) is None:
        raise TypeError(
            "thunder.distributed.clip_grad_norm_: expected a module that ddp or fsdp returned, got "
            f"{type(model).__name__}; torch.nn.utils.clip_grad_norm_ clips others"
        )
    group = group_of_shards(model)
    parameters = list(model.parameters())
    if group is None:
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite)
    gradients = [each.grad for each in parameters if each.grad is not None]
    norm = _norm_of_all(torch.nn.utils.get_total_norm(gradients, norm_type), norm_type, group)
    if error_if_nonfinite and not torch.isfinite(norm):
        raise RuntimeError(
            f"thunder.distributed.clip_grad_norm_: the norm of order {norm_type} of the gradients is {norm.item()}"
        )
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


def _norm_of_all(own: torch.Tensor, norm_type: float, group: Group) -> torch.Tensor:
    """Return the norm of the shards of all processes; zeros that fill shards up add nothing."""
    import torch.distributed as dist

    if math.isinf(norm_type):
        dist.all_reduce(own, op=dist.ReduceOp.MAX, group=group.process_group)
        return own
    power = own.pow(norm_type)
    dist.all_reduce(power, group=group.process_group)
    return power.pow(1.0 / norm_type)


def _group(function: str, model: Any) -> Group:
    group = group_of_shards(model)
    if group is None:
        raise TypeError(
            f"thunder.distributed.{function}: expected a module that fsdp returned, got {type(model).__name__}"
        )
    return group
