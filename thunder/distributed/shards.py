"""Working with modules whose parameters are shards: full state dicts, clipping of gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from thunder.distributed.arguments import require_rank, require_state_dict
from thunder.distributed.compiling import transforms_of
from thunder.distributed.groups import Group
from thunder.distributed.parallel_transform import ParallelTransform
from thunder.distributed.shard_layout import full_tensor, is_shard

__all__ = ["clip_grad_norm_", "full_state_dict", "load_full_state_dict"]


def full_state_dict(model: Any, *, rank: int | None = None, to_cpu: bool = False) -> dict[str, torch.Tensor]:
    """Return the state dict of the module that `fsdp` or `tensor_parallel` was given, with full parameters.

    All processes have to call it. A plain module of the same class loads the result.

    Args:
        model: what one of the two returned.
        rank: the rank in the group that gets it; the others get an empty dict. None: all.
        to_cpu: whether each tensor is moved to the CPU once it is gathered.
    """
    group = _group("full_state_dict", model)
    require_rank("thunder.distributed.full_state_dict: rank", rank, group.size)
    result = {}
    for name, tensor in model.state_dict().items():
        full = full_tensor(tensor)
        if rank is None or rank == group.rank:
            result[name] = full.cpu() if to_cpu else full
    return result


def load_full_state_dict(model: Any, state_dict: Mapping[str, torch.Tensor], *, strict: bool = True) -> Any:
    """Load `state_dict`, of full parameters, into `model`, of which each process takes its shards.

    `strict` is that of `torch.nn.Module.load_state_dict`.
    """
    _group("load_full_state_dict", model)
    require_state_dict("thunder.distributed.load_full_state_dict", state_dict)
    return model.load_original_state_dict(state_dict, strict=strict)


def clip_grad_norm_(
    model: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> torch.Tensor:
    """Scale the gradients of `model`, which is parallel, so that their `norm_type`-norm is at most `max_norm`.

    The norm is that of the full gradients: all processes have to call it. Returns the norm before, as a plain tensor.

    Raises TypeError for other modules, RuntimeError where the norm is not finite and `error_if_nonfinite`.
    """
    if _group_of(model) is None:
        raise TypeError(
            "thunder.distributed.clip_grad_norm_: expected a module that ddp, fsdp or tensor_parallel returned, got "
            f"{type(model).__name__}; torch.nn.utils.clip_grad_norm_ clips others"
        )
    # PyTorch's function does not take DTensors and other tensors together.
    parameters = [each for each in model.parameters() if each.grad is not None]
    kinds = [[each for each in parameters if is_shard(each) == sharded] for sharded in (False, True)]
    norms = [
        full_tensor(torch.nn.utils.get_total_norm([each.grad for each in kind], norm_type)) for kind in kinds if kind
    ]
    norm = torch.linalg.vector_norm(torch.stack(norms), norm_type) if len(norms) > 1 else [*norms, torch.zeros(())][0]
    if error_if_nonfinite and not torch.isfinite(norm):
        raise RuntimeError(
            f"thunder.distributed.clip_grad_norm_: the norm of order {norm_type} of the gradients is {norm.item()}"
        )
    for kind in kinds:
        torch.nn.utils.clip_grads_with_norm_(kind, max_norm, norm)
    return norm


def _group(function: str, model: Any) -> Group:
    group = _group_of(model)
    if group is None:
        raise TypeError(
            f"thunder.distributed.{function}: expected a module that fsdp or tensor_parallel returned, got "
            f"{type(model).__name__}"
        )
    return group


def _group_of(model: Any) -> Group | None:
    groups = (each.group for each in transforms_of(model) if isinstance(each, ParallelTransform))
    return next(groups, None)
