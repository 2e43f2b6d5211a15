"""Process groups, and what to do where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["Group", "broadcast", "collectives_begun", "group_of", "require_alike"]

_BROADCAST_BYTES = 250 << 20


class Group:
    """A process group, by the name that traces call it by: so it can be copied and pickled.

    Attributes:
        name: as `torch.ops._c10d_functional` takes it.
        size, rank: of the processes in the group, and which of them this one is.
    """

    def __init__(self, process_group: ProcessGroup) -> None:
        self.name: str = process_group.group_name
        self.size: int = process_group.size()
        self.rank: int = process_group.rank()

    @property
    def process_group(self) -> Any:
        """The group itself. RuntimeError where this process has none of this name."""
        from torch.distributed.distributed_c10d import _resolve_process_group

        return _resolve_process_group(self.name)


def group_of(function: str, process_group: ProcessGroup | None) -> Group:
    """Return a group of processes, the default one for None.

    Raises:
        RuntimeError: torch was built without torch.distributed, or there is no process group yet.
        TypeError: `process_group` is no process group.
    """
    if not dist.is_available():
        raise RuntimeError(
            f"thunder.distributed.{function}: this torch was built without torch.distributed; install one that has it "
            "(the wheels for Linux do)"
        )
    if process_group is None and not dist.is_initialized():
        raise RuntimeError(
            f"thunder.distributed.{function}: there is no process group; start the program by torchrun and call "
            'torch.distributed.init_process_group("nccl") ("gloo" on CPUs) first'
        )
    group = dist.group.WORLD if process_group is None else process_group
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"thunder.distributed.{function}: process_group: expected a ProcessGroup, got {group!r}")
    return Group(group)


def collectives_begun(groups: Sequence[Group]) -> int | None:
    """Return how many collectives of some groups this process has begun; None: a backend does not count them."""
    different = {group.name: group for group in groups}.values()
    try:
        begun: int = sum(group.process_group._get_sequence_number_for_group() for group in different)
    except RuntimeError:
        return None
    return begun


def require_alike(function: str, group: Group, model: torch.nn.Module) -> None:
    """Require that parameters and buffers are alike in all processes of a group.

    Raises RuntimeError in each of them, naming the first that is not.
    """
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    own = {name: f"{str(each.dtype).removeprefix('torch.')} {list(each.shape)}" for name, each in tensors.items()}
    everywhere: list[Any] = [None] * group.size
    dist.all_gather_object(everywhere, own, group=group.process_group)
    for rank, other in enumerate(everywhere):
        for name in {**everywhere[0], **other}:
            expected, got = everywhere[0].get(name, "nothing"), other.get(name, "nothing")
            if expected != got:
                raise RuntimeError(
                    f"thunder.distributed.{function}: {name}: expected the same in all processes, got {expected} in "
                    f"process 0 and {got} in process {rank}"
                )


def broadcast(group: Group, tensors: list[torch.Tensor], source: int) -> None:
    """Give all processes of a group the tensors of one of them."""
    detached = [getattr(tensor, "_local_tensor", tensor).detach() for tensor in tensors]  # of DTensors, the parts
    if detached:
        dist._broadcast_coalesced(group.process_group, detached, _BROADCAST_BYTES, source)
