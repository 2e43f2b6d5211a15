"""The base class of transforms that put collectives into traces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thunder.distributed.agreement import Agreement
from thunder.distributed.groups import Group
from thunder.transforms.transform import Transform

__all__ = ["ParallelTransform"]


class ParallelTransform(Transform):
    """A transform for the processes of a group, which compile the same collectives or raise all."""

    def __init__(self, group: Group, others: Sequence[Group] = ()) -> None:
        """Compare programs of the processes of `group`; `others` are groups whose collectives they run, too."""
        self.group = group
        self.agreement = Agreement(group, others)

    def note_parameters(self, names: Iterable[str]) -> None:
        """Note which parameters the next program sends to other processes, in their order."""
        self.agreement.parameters = list(names)

    def check_collectives(self, kind: str, collectives: str) -> None:
        """Compare the collectives with those of the other processes."""
        self.agreement.check(kind, collectives)

    def note_failure(self, error: BaseException) -> None:
        """Tell the other processes, which may wait for this one."""
        self.agreement.note_failure(error)
