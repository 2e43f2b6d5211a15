"""Errors of `load_state_dict` of a module with shards, which is given full parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from thunder.distributed.shard_layout import is_shard

__all__ = ["require_shards_when_loading"]


def require_shards_when_loading(model: torch.nn.Module) -> None:
    """Let `load_state_dict` of a module say what to call for full parameters, before it copies anything."""
    names = [name for name, each in model.named_parameters(remove_duplicate=False) if is_shard(each)]
    # The public function's hook has the module, and with it a copy of the module begins anew.
    model._register_load_state_dict_pre_hook(_ShardsRequired(tuple(names)))


@dataclasses.dataclass(frozen=True)
class _ShardsRequired:
    names: tuple[str, ...]

    def __call__(self, state_dict: Mapping[str, Any], prefix: str, *_: Any) -> None:
        for name in self.names:
            given = state_dict.get(prefix + name)
            if isinstance(given, torch.Tensor) and not is_shard(given):
                raise ValueError(
                    f"load_state_dict: {name}: expected a shard, which is a DTensor, got a full parameter; "
                    "thunder.distributed.load_full_state_dict(model, state_dict) loads full parameters"
                )
