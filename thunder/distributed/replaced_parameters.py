"""Optimizers that were made of parameters which shards have replaced since would change nothing."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.weak import WeakTensorKeyDictionary

__all__ = ["note_replaced"]

_replaced: Any = WeakTensorKeyDictionary()  # parameter -> the function that replaced it
_seen: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()


def note_replaced(parameter: torch.Tensor, function: str) -> None:
    """Note that `function` of `thunder.distributed` has put a shard in the place of a parameter.

    From then on, the first step of an optimizer looks for such parameters.
    """
    _register_hook()
    _replaced[parameter] = function


@functools.cache
def _register_hook() -> None:
    register_optimizer_step_pre_hook(_require_shards)


def _require_shards(optimizer: torch.optim.Optimizer, arguments: Any, options: Any) -> None:
    """Raise RuntimeError in the first step of an optimizer of replaced parameters that have no gradients."""
    if optimizer in _seen:
        return
    _seen.add(optimizer)
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    found = [each for each in parameters if each in _replaced]
    if found and all(each.grad is None for each in found):
        function = _replaced[found[0]]
        raise RuntimeError(
            f"thunder.distributed.{function}: the optimizer has parameters from before {function}, which get no "
            f"gradients: its step would train nothing. Make it of the result: model = {function}(model), then "
            f"{type(optimizer).__name__}(model.parameters(), …)"
        )
