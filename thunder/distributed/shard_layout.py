"""Which processes have shards of the same parameters, and which have copies of the same shard."""

from __future__ import annotations

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
    """

    def __init__(self, everyone: Group, shards: Group, replicas: Group | None, mesh: DeviceMesh | None) -> None:
        self.everyone = everyone
        self.shards = shards
        self.replicas = replicas
        self._mesh = mesh

    def __getstate__(self) -> dict[str, Any]:
        # A mesh of a process group is made anew.
        return self.__dict__ if self.replicas else {**self.__dict__, "_mesh": None}

    def shard_of(self, full: torch.Tensor) -> torch.Tensor:
        """Return the rows of this process as a DTensor; of a scalar, the scalar."""
        from torch.distributed.tensor import DTensor, Replicate, Shard

        mesh = self._mesh_on(full.device.type)
        placements = [Replicate()] * mesh.ndim
        if full.dim() == 0:
            return DTensor.from_local(full.clone(), mesh, placements, run_check=False)
        rows = -(-full.shape[0] // self.shards.size)
        part = full[self.shards.rank * rows : (self.shards.rank + 1) * rows]
        part = part.clone(memory_format=torch.contiguous_format)
        stride = torch.empty(full.shape, device="meta").stride()
        placements = [*placements[:-1], Shard(0)]
        return DTensor.from_local(part, mesh, placements, run_check=False, shape=full.shape, stride=stride)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is placed as `shard_of` places it."""
        if not is_shard(tensor):
            return False
        *others, last = tensor.placements
        return all(each.is_replicate() for each in others) and (
            last.is_shard(0) if tensor.dim() > 0 else last.is_replicate()
        )

    def _mesh_on(self, device_type: str) -> DeviceMesh:
        from torch.distributed.device_mesh import DeviceMesh

        if self._mesh is None or (self.replicas is None and self._mesh.device_type != device_type):
            self._mesh = DeviceMesh.from_group(self.shards.process_group, device_type)
        if self._mesh.device_type != device_type:
            raise ValueError(
                f"thunder.distributed.fsdp: device_mesh: expected a mesh of {device_type}, where a parameter is, got "
                f"one of {self._mesh.device_type}"
            )
        return self._mesh


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


def is_shard(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a DTensor."""
    return hasattr(tensor, "full_tensor")


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the full tensor of a shard, which all processes have to ask for; any other tensor as it is."""
    return tensor.full_tensor() if is_shard(tensor) else tensor
