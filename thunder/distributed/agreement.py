"""Processes agree on the collectives of what they compile, by the store of their process group.

Each program that communicates in another way than those before is compared once, when it is compiled. Process 0 stores
its collectives; the others compare theirs. The verdict is stored once: by the last process that agrees, or by the first
one that does not, that could not compile its program, or that waited in vain. All processes wait for it.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from typing import Any

from thunder.distributed.groups import Group

__all__ = ["Agreement"]

_modules: defaultdict[str, int] = defaultdict(int)
_loaded: defaultdict[str, int] = defaultdict(int)
_AGREED = "agreed"


class Agreement:
    """Compares the programs that processes of a group compile for one module, in the same order in each of them.

    One that says the same as a program before is not compared: others may have compiled theirs for all shapes, or take
    a branch that they took before, and say the same.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self._module = ""
        self._programs = 0
        self._agreed: set[str] = set()

    def begin(self) -> None:
        """Find a name for the module, the same in all processes, which all call this."""
        import torch.distributed as dist

        numbers: list[Any] = [None] * self.group.size
        dist.all_gather_object(numbers, _modules[self.group.name], group=self.group.process_group)
        _modules[self.group.name] = max(numbers) + 1
        self._module = str(max(numbers))

    def __getstate__(self) -> dict[str, Any]:
        return {"group": self.group}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["group"])  # type: ignore[misc]
        _loaded[self.group.name] += 1  # of pickles, which all processes load in the same order
        self._module = f"loaded {_loaded[self.group.name]}"

    def check(self, kind: str, collectives: str) -> None:
        """Require that all processes compile these collectives. RuntimeError in all of them where they do not."""
        if self.group.size == 1:
            return
        collectives = _with_numbered_groups(collectives)
        said = "\n".join([kind, *(str(_without_line(line)) for line in collectives.splitlines())])
        if said in self._agreed:
            return
        store, rank = self._next_store(), self.group.rank
        store.set(f"here/{rank}", "")
        try:
            if rank == 0:
                store.set("first", f"{kind}\n{collectives}")
            else:
                self._compare(store, f"{kind}\n{collectives}")
            if store.add("count", 1) == self.group.size:
                _decide(store, _AGREED)
            verdict = store.get("verdict").decode()
        except RuntimeError as error:  # the store's time is up
            verdict = _decide(store, f"{self._missing(store)} ({type(error).__name__} in process {rank})")
        if verdict != _AGREED:
            raise RuntimeError(f"thunder.distributed: {verdict}")
        self._agreed.add(said)

    def note_failure(self, error: BaseException) -> None:
        """Let the others know that this process could not compile its next program."""
        if self.group.size == 1 or str(error).startswith("thunder.distributed: "):
            return
        store, rank = self._next_store(), self.group.rank
        verdict = f"process {rank} could not compile its program: {type(error).__name__}: {error}"
        _decide(store, verdict)
        if rank == 0:
            store.set("first", "")

    def _next_store(self) -> Any:
        import torch.distributed as dist
        from torch.distributed.distributed_c10d import _get_process_group_store

        store = _get_process_group_store(self.group.process_group)
        self._programs += 1
        return dist.PrefixStore(f"thunder/{self._module}/{self._programs}", store)

    def _compare(self, store: Any, own: str) -> None:
        first = store.get("first").decode()
        difference = _difference(first, own, self.group.rank) if first else None
        if difference is not None:
            _decide(store, difference)

    def _missing(self, store: Any) -> str:
        missing = [str(rank) for rank in range(self.group.size) if not store.check([f"here/{rank}"])]
        if not missing:
            return "a process did not finish comparing its program in time"
        noun = "process" if len(missing) == 1 else "processes"
        return (
            f"{noun} {', '.join(missing)} compiled no program while others did, within the time-out of the process "
            "group: all processes have to call the module with the same shapes, dtypes and Python values, and take the "
            "same branches"
        )


def _decide(store: Any, verdict: str) -> str:
    """Store the verdict unless there is one; return the one that holds."""
    held: bytes = store.compare_set("verdict", "", verdict)
    return held.decode()


def _difference(first: str, own: str, rank: int) -> str | None:
    """Return where the collectives of process 0 and those of another one part; None: nowhere."""
    kind, *theirs = first.splitlines()
    own_kind, *ours = own.splitlines()
    if kind != own_kind:
        return f"process 0 compiled a {kind}, process {rank} a {own_kind}: they call the module in different ways"
    for number, (left, right) in enumerate(itertools.zip_longest(theirs, ours), start=1):
        if _without_line(left) != _without_line(right):
            return (
                f"processes compiled different collectives, which part at number {number} of the {kind}:\n"
                f"  process 0: {left or 'none'}\n  process {rank}: {right or 'none'}\n"
                "All processes have to call the module with the same shapes, dtypes and Python values, and take the "
                "same branches"
            )
    return None


def _with_numbered_groups(collectives: str) -> str:
    """Return the text with process groups numbered in their order: processes name parts of a mesh otherwise."""
    numbers: dict[str, int] = {}
    return re.sub(
        r'"([^"\n]*)"(?=[^"\n]*  # )', lambda name: f'"{numbers.setdefault(name[1], len(numbers))}"', collectives
    )


def _without_line(collective: str | None) -> str | None:
    return None if collective is None else collective.split("  # ")[0]
