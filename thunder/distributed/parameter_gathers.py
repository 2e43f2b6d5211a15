"""Programs gather the parameters of which their process holds a shard."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import torch

from thunder.distributed.shard_layout import ShardLayout
from thunder.distributed.synchronization import Synchronization
from thunder.trace import TraceEdit, Value

__all__ = ["GatheredParameter", "ParameterGathers"]

_REPLICAS_BUCKET_BYTES = 25 << 20  # of shards of gradients that are averaged together


@dataclasses.dataclass(frozen=True)
class GatheredParameter:
    """A parameter as programs see it once it is gathered, and the bucket that it is gathered in."""

    name: str
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool
    bucket: str
    device: torch.device


@dataclasses.dataclass(frozen=True)
class ParameterGathers:
    """Inserts gathers of shards in front of a program; passes move them to where the parameters are used.

    Attributes:
        layout: who has which shard.
        is_kept: gathered parameters are kept from the forward to the backward.
        param_dtype, reduce_dtype: that parameters are gathered in, and gradients summed in; None: their own.
    """

    layout: ShardLayout
    is_kept: bool
    param_dtype: torch.dtype | None
    reduce_dtype: torch.dtype | None

    def insert(
        self,
        prologue: TraceEdit,
        edit: TraceEdit,
        state: Synchronization,
        accumulates: bool,
        parameters: Sequence[tuple[Value, GatheredParameter]],
    ) -> list[Value]:
        """Return the gathered parameters, each for the input of the program that stands for it."""
        shards, owners = [], []
        for value, parameter in parameters:
            shards.append(edit.take_stored(value))
            owner = None
            if accumulates and parameter.requires_grad:
                owner = state.owner_of(parameter.name, parameter.size, parameter.dtype, parameter.device)
                prologue.add_tensor(owner)
            owners.append(None if owner is None else edit.add_input(owner))
        gather = functools.partial(self._gather, [each for _, each in parameters], not state.syncs)
        gathered: list[Value] = edit.insert_first(gather, shards, owners)
        return gathered

    def _gather(
        self,
        parameters: Sequence[GatheredParameter],
        keeps: bool,
        shards: Sequence[torch.Tensor],
        owners: Sequence[torch.Tensor | None],
    ) -> list[torch.Tensor]:
        ops = torch.ops.thunder
        result = []
        for parameter, shard, owner in zip(parameters, shards, owners, strict=True):
            full = self._full(parameter, shard).to(parameter.dtype)
            if full.stride() != parameter.stride:
                full = ops.restride(full, parameter.stride)
            if owner is not None:
                full = (ops.with_gradient_for if keeps else ops.adds_gradient_of)(full, owner)
            result.append(full)
        return result

    def _full(self, parameter: GatheredParameter, shard: torch.Tensor) -> torch.Tensor:
        ops, everyone = torch.ops.thunder, self.layout.everyone
        full: torch.Tensor
        if shard.device != parameter.device:
            shard = torch.ops.aten._to_copy(shard, device=parameter.device, non_blocking=True)
        if not parameter.size:
            full = ops.replicated(shard, everyone.name, everyone.size, 0)
            return full
        shards, replicas = self.layout.shards, self.layout.replicas
        if replicas is not None:
            shard = ops.replicated(shard, replicas.name, replicas.size, _REPLICAS_BUCKET_BYTES)
        gather = ops.gather_shards.kept if self.is_kept else ops.gather_shards.default
        dtypes = self._communication_dtypes(parameter.dtype)
        full = gather(shard, list(parameter.size), shards.name, shards.size, parameter.bucket, *dtypes)
        return full

    def _communication_dtypes(self, dtype: torch.dtype) -> tuple[torch.dtype | None, torch.dtype | None]:
        """Return the dtypes that a parameter is gathered in, and its gradient summed in; None: their own."""
        if not dtype.is_floating_point:
            return None, None
        return (None if self.param_dtype == dtype else self.param_dtype), self.reduce_dtype
