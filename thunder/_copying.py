"""How tensors of a trace are copied by `copy.copy` and `copy.deepcopy`, in place of PyTorch's code, which reads memory.

The functions are run by the interpreter, as if the program had called them.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

__all__ = ["alias_memory", "copy_memory", "copy_tensor", "deepcopy_tensor", "new_tensor"]


def copy_memory(tensor: torch.Tensor, copies: dict[Any, Any]) -> torch.Tensor:
    """Return `tensor` in a copy of its memory, which is made once for `copies`. While tracing, C++ does it."""
    raise NotImplementedError


def alias_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return another tensor over the memory of `tensor`, as one that was set to it. While tracing, C++ does it."""
    raise NotImplementedError


def deepcopy_tensor(tensor: torch.Tensor, memo: dict[Any, Any]) -> torch.Tensor:
    """Return what `torch.Tensor.__deepcopy__` does."""
    if not tensor.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  "
            "If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, "
            "see https://github.com/pytorch/pytorch/pull/103001"
        )
    if id(tensor) in memo:
        known: torch.Tensor = memo[id(tensor)]
        return known
    if type(tensor) is not torch.Tensor:
        raise NotImplementedError(f"thunder.jit: a deep copy of a {type(tensor).__name__} is not supported inside")
    with torch.no_grad():
        copied = tensor.clone() if tensor.is_meta else copy_memory(tensor, memo.setdefault("torch", {}))
    if tensor.requires_grad:
        copied.requires_grad_()
    if tensor.grad is not None:
        copied.grad = copy.deepcopy(tensor.grad, memo)
    for name, value in tensor.__dict__.items():
        setattr(copied, name, copy.deepcopy(value, memo))
    memo[id(tensor)] = copied
    return copied


def copy_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return what `copy.copy` does: another tensor, or parameter, over the same memory."""
    if torch.is_inference_mode_enabled() and not tensor.is_inference():
        raise NotImplementedError("thunder.jit: a copy that is made in inference mode is not supported inside")
    alias: torch.Tensor
    if type(tensor) is torch.nn.Parameter:
        alias = torch.nn.Parameter(tensor.data, tensor.requires_grad)
    elif type(tensor) is not torch.Tensor:
        raise NotImplementedError(f"thunder.jit: a copy of a {type(tensor).__name__} is not supported inside")
    elif tensor.is_meta:  # in eager, too, a copy that does not share its memory
        alias = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        alias.requires_grad_(tensor.requires_grad)
    else:
        alias = alias_memory(tensor).requires_grad_(tensor.requires_grad)
    for name, value in tensor.__dict__.items():
        setattr(alias, name, value)
    return alias


def new_tensor(
    tensor: torch.Tensor,
    data: Any,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    layout: torch.layout = torch.strided,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> torch.Tensor:
    """Return what `torch.Tensor.new_tensor` does."""
    if layout is not torch.strided:
        raise NotImplementedError(f"thunder.jit: new_tensor of layout {layout} is not supported inside")
    return torch.tensor(
        data,
        dtype=tensor.dtype if dtype is None else dtype,
        device=tensor.device if device is None else device,
        requires_grad=requires_grad,
        pin_memory=pin_memory,
    )
