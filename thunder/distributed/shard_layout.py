"""Which processes have shards of the same parameters, and which have copies of the same shard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from thunder.distributed.groups import Group, group_of

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["ShardLayout", "full_tensor", "is_shard", "layout_of"]


class ShardLayout:
    """Parameters are sharded by rows over some processes, and each shard is copied by others.

    Attributes:
        everyone: all processes that work together.
        shards: those that have shards of the same copy.
        replicas: those that have the same shard; None: nobody else has.
        parts: those that have other parts of the layers that `tensor_parallel` split, each of which is sharded; None:
            there are none.
    """

    def __init__(self, everyone: Group, shards: Group, replicas: Group | None, mesh: DeviceMesh | None) -> None:
        self.everyone = everyone
        self.shards = shards
        self.replicas = replicas
        self.parts: Group | None = None
        self._ranks: list[list[int]] = []  # of a mesh with parts along its first dimension, shards along its second
        self._mesh = mesh

    def enter_parts(self, parameters: Iterable[torch.Tensor]) -> None:
        """Let shards be those of the parts that DTensors are; all processes call it.

        Raises ValueError for hybrid sharding, and where the processes with shards are not those with the same part.
        """
        part = next((each for each in parameters if is_shard(each)), None)
        if part is None:
            return
        if self.replicas is not None:
            raise ValueError(
                "thunder.distributed.fsdp: device_mesh: expected one dimension around tensor_parallel, got two"
            )
        self.parts = Group(part.device_mesh.get_group())
        columns: list[list[int]] = [[]] * self.shards.size
        own = dist.get_process_group_ranks(self.parts.process_group)
        dist.all_gather_object(columns, own, group=self.shards.process_group)
        peers = dist.get_process_group_ranks(self.shards.process_group)
        if len({rank for column in columns for rank in column}) < len(own) * len(columns) or any(
            column[self.parts.rank] != rank for column, rank in zip(columns, peers, strict=True)
        ):
            raise ValueError(
                "thunder.distributed.fsdp: process_group: expected the processes that have the same part of the layers "
                f"which tensor_parallel split, along the other dimension of a mesh, got {peers}; those with the other "
                f"parts are {own}"
            )
        self._ranks = [list(row) for row in zip(*columns, strict=True)]

    def __getstate__(self) -> dict[str, Any]:
        # A mesh of a process group is made anew.
        return self.__dict__ if self.replicas else {**self.__dict__, "_mesh": None}

    def shard_of(self, full: torch.Tensor, is_offloaded: bool = False) -> torch.Tensor:
        """Return the rows of this process as a DTensor, of a part those of the part; of a scalar, the scalar.

        `is_offloaded`: in memory of the CPU, from which a GPU reads by itself.
        """
        from torch.distributed.tensor import DTensor, Replicate, Shard

        mesh = self._mesh_on("cpu" if is_offloaded else full.device.type)
        placements = [Replicate()] * mesh.ndim
        size = full.shape
        if is_shard(full):
            placements[0], full = full.placements[0], full.to_local()
        part = full
        if full.dim() > 0:
            rows = -(-full.shape[0] // self.shards.size)
            part = full[self.shards.rank * rows : (self.shards.rank + 1) * rows]
            placements = [*placements[:-1], Shard(0)]
        part = part.clone(memory_format=torch.contiguous_format)
        part = _offloaded(part) if is_offloaded else part
        stride = torch.empty(size, device="meta").stride()
        return DTensor.from_local(part, mesh, placements, run_check=False, shape=size, stride=stride)

    def size_within(self, stored: torch.Tensor) -> tuple[int, ...]:
        """Return the size of what a shard is one of: the full parameter, or the part that `tensor_parallel` left."""
        size = list(stored.shape)
        if self.parts is not None and stored.placements[0].is_shard():
            size[stored.placements[0].dim] //= self.parts.size
        return tuple(size)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is placed as `shard_of` places it."""
        if not is_shard(tensor):
            return False
        *others, last = tensor.placements
        if len(others) != (self.replicas is not None or self.parts is not None):
            return False
        return all(each.is_replicate() or self.parts is not None for each in others) and (
            last.is_shard(0) if tensor.dim() > 0 else last.is_replicate()
        )

    def _mesh_on(self, device_type: str) -> DeviceMesh:

        if self._mesh is None or (self.replicas is None and self._mesh.device_type != device_type):
            self._mesh = self._new_mesh(device_type)
        if self._mesh.device_type != device_type and device_type != "cpu":
            raise ValueError(
                f"thunder.distributed.fsdp: device_mesh: expected a mesh of {device_type}, where a parameter is, got "
                f"one of {self._mesh.device_type}"
            )
        return self._mesh

    def _new_mesh(self, device_type: str) -> DeviceMesh:
        from torch.distributed.device_mesh import DeviceMesh

        if self.parts is None:
            return DeviceMesh.from_group(self.shards.process_group, device_type)
        groups = [self.parts.process_group, self.shards.process_group]
        names = ("parts", "shards")
        return DeviceMesh.from_group(groups, device_type, mesh=torch.tensor(self._ranks), mesh_dim_names=names)


def layout_of(function: str, process_group: ProcessGroup | None, mesh: DeviceMesh | None) -> ShardLayout:
    """Return the layout over a process group, or over a mesh: over its last dimension, with copies over the first.

    Raises:
        RuntimeError: torch was built without torch.distributed, or there is no process group yet.
        TypeError: `process_group` is no process group, `mesh` no mesh.
        ValueError: there are both, or the mesh has more than two dimensions.
    """
    if mesh is None:
        group = group_of(function, process_group)
        return ShardLayout(group, group, None, None)
    group_of(function, None)
    from torch.distributed.device_mesh import DeviceMesh

    where = f"thunder.distributed.{function}: device_mesh"
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"{where}: expected a DeviceMesh, got {mesh!r}")
    if process_group is not None:
        raise ValueError(f"{where}: expected a mesh or a process_group, got both")
    if mesh.ndim > 2:
        raise ValueError(f"{where}: expected one dimension, or two (copies, shards), got {mesh.ndim}")
    shards = Group(mesh.get_group(mesh.ndim - 1))
    if mesh.ndim == 1 or mesh.size(0) == 1:
        return ShardLayout(shards, shards, None, None)
    is_all = mesh.size() == dist.get_world_size()
    everyone = Group(dist.group.WORLD if is_all else mesh._flatten().get_group())
    return ShardLayout(everyone, shards, Group(mesh.get_group(0)), mesh)


def _offloaded(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor on the CPU, in pinned memory where there is a GPU."""
    tensor = tensor.cpu()
    return tensor.pin_memory() if torch.cuda.is_available() else tensor


def is_shard(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a DTensor."""
    return hasattr(tensor, "full_tensor")


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the full tensor of a shard, which all processes have to ask for; any other tensor as it is."""
    return tensor.full_tensor() if is_shard(tensor) else tensor
