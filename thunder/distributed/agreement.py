"""Processes agree on the collectives of what they compile, by the store of their process group.

Each program that communicates in another way than those before is compared once, when it is compiled. Process 0 stores
its collectives; the others compare theirs. The verdict is stored once: by the last process that agrees, or by the first
one that does not, that could not compile its program, or that waited in vain. All processes wait for it.

A process that runs a program compiled before may wait in a collective meanwhile, for those that compile: the thread of
`watch.py` looks for that.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import warnings
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from thunder.distributed.groups import Group, collectives_begun
from thunder.distributed.watch import watch

__all__ = ["Agreement"]

_modules: defaultdict[str, int] = defaultdict(int)
_loaded: defaultdict[str, int] = defaultdict(int)
_AGREED = "agreed"
_ADVICE = "processes have to call the module with the same shapes, dtypes and Python values, and take the same branches"


@dataclasses.dataclass(frozen=True)
class Said:
    """A program as the processes compare it.

    Attributes:
        kind: "computation", "forward" or "backward".
        collectives: a line for each, with the user's line from `  # ` on.
        parameters: those that are sent, in their order.
    """

    kind: str
    collectives: list[str]
    parameters: list[str]

    def without_lines(self) -> str:
        """Return what has to be the same in all processes."""
        lines = [_without_line(line) for line in self.collectives]
        return json.dumps([self.kind, lines, self.parameters])

    def place(self) -> str:
        """Return the user's line of the first collective that has one."""
        return next(filter(None, (line.split("  # ")[1] for line in self.collectives)), "at a line that is not known")


class Agreement:
    """Compares the programs that processes of a group compile for one module, in the same order in each of them.

    One that says the same as a program before is not compared: others may have compiled theirs for all shapes, or take
    a branch that they took before, and say the same.
    """

    def __init__(self, group: Group, others: Sequence[Group] = (), warns: bool = False) -> None:
        """Compare programs of the processes of `group`; `others` are groups whose collectives they run, too.

        `warns`: of a program that says the same as one before of other parameters.
        """
        self.group = group
        self.groups = (group, *others)
        self.warns = warns
        self.parameters: list[str] = []
        self._module = ""
        self._programs = 0
        self._agreed: set[str] = set()
        self._begun = 0
        self._ended = 0

    def begin(self) -> None:
        """Find a name for the module, the same in all processes, which all call this."""
        import torch.distributed as dist

        numbers: list[Any] = [None] * self.group.size
        dist.all_gather_object(numbers, _modules[self.group.name], group=self.group.process_group)
        _modules[self.group.name] = max(numbers) + 1
        self._module = str(max(numbers))
        self._begun = collectives_begun(self.groups) or 0

    def __getstate__(self) -> dict[str, Any]:
        return {"groups": self.groups, "warns": self.warns}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["groups"][0], state["groups"][1:], state["warns"])  # type: ignore[misc]
        _loaded[self.group.name] += 1  # of pickles, which all processes load in the same order
        self._module = f"loaded {_loaded[self.group.name]}"

    def check(self, kind: str, collectives: str) -> None:
        """Require that all processes compile these collectives. RuntimeError in all of them where they do not."""
        if self.group.size == 1:
            return
        own = Said(kind, _with_numbered_groups(collectives).splitlines(), self.parameters)
        if own.without_lines() in self._agreed:
            return
        store, rank = self._next_store(), self.group.rank
        store.set(f"here/{rank}", "")
        store.compare_set("waits", "", json.dumps([rank, self.collectives_begun(), own.kind, own.place()]))
        watch(self)
        try:
            if rank == 0:
                store.set("first", json.dumps(dataclasses.asdict(own)))
            else:
                self._compare(store, own)
            if store.add("count", 1) == self.group.size:
                _decide(store, _AGREED)
            verdict = store.get("verdict").decode()
        except RuntimeError as error:  # the store's time is up
            verdict = _decide(store, f"{self._missing(store)} ({type(error).__name__} in process {rank})")
        self._begun = collectives_begun(self.groups) or 0
        if verdict != _AGREED:
            raise RuntimeError(f"thunder.distributed: {verdict}")
        if self.warns:
            self._warn_of_others_alike(own)
        self._agreed.add(own.without_lines())

    def _warn_of_others_alike(self, own: Said) -> None:
        """Warn where a program before has the same collectives for other parameters: processes may confuse the two."""
        others = [Said(*json.loads(each)) for each in self._agreed]
        for other in others:
            if own.without_lines() == dataclasses.replace(other, parameters=own.parameters).without_lines():
                names = set(own.parameters).symmetric_difference(other.parameters) or own.parameters
                warnings.warn(
                    f"thunder.distributed: two programs have the same collectives for other parameters ({own.place()}; "
                    f"{', '.join(sorted(names)[:4])}): processes that run different ones in one step would mix them, "
                    "which is not noticed; ddp(…, find_unused_parameters=True) where that can happen",
                    stacklevel=2,
                )
                return

    def collectives_begun(self) -> int | None:
        """Return how many collectives this process has begun since the last program was compared; None: unknown."""
        begun = collectives_begun(self.groups)
        return None if begun is None else begun - self._begun

    def waiting(self) -> tuple[int, int | None, str, str] | None:
        """Return who waits for the next program of this process.

        That is the rank, how many collectives it had begun, the kind of its program and the user's line; None: nobody.
        """
        number = self._programs + 1
        store = self._store_of(number)
        if number == self._ended or not store.check(["waits"]):
            return None
        found: tuple[int, int | None, str, str] = tuple(json.loads(store.get("waits")))
        return found

    def end_waiting(self, waiting: tuple[int, int | None, str, str]) -> str | None:
        """End those that compile a program while this process is in a collective; return what they raise.

        None: this process compiles the program after all.
        """
        self._ended = self._programs + 1
        store, rank = self._store_of(self._ended), self.group.rank
        alone, _, kind, place = waiting
        if store.check([f"here/{rank}"]):
            return None
        verdict = _decide(
            store,
            f"process {alone} compiles a {kind} ({place}), while process {rank} waits in a collective of a program "
            f"that was compiled before: all {_ADVICE}",
        )
        if rank == 0:
            store.set("first", "")
        return verdict

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
        self._programs += 1
        return self._store_of(self._programs)

    def _store_of(self, program: int) -> Any:
        import torch.distributed as dist
        from torch.distributed.distributed_c10d import _get_process_group_store

        store = _get_process_group_store(self.group.process_group)
        return dist.PrefixStore(f"thunder/{self._module}/{program}", store)

    def _compare(self, store: Any, own: Said) -> None:
        first = store.get("first").decode()
        difference = _difference(Said(**json.loads(first)), own, self.group.rank) if first else None
        if difference is not None:
            _decide(store, difference)

    def _missing(self, store: Any) -> str:
        missing = [str(rank) for rank in range(self.group.size) if not store.check([f"here/{rank}"])]
        if not missing:
            return "a process did not finish comparing its program in time"
        noun = "process" if len(missing) == 1 else "processes"
        return (
            f"{noun} {', '.join(missing)} compiled no program while others did, within the time-out of the process "
            f"group: all {_ADVICE}"
        )


def _decide(store: Any, verdict: str) -> str:
    """Store the verdict unless there is one; return the one that holds."""
    held: bytes = store.compare_set("verdict", "", verdict)
    return held.decode()


def _difference(first: Said, own: Said, rank: int) -> str | None:
    """Return where the collectives of process 0 and those of another one part; None: nowhere."""
    if first.kind != own.kind:
        return f"process 0 compiled a {first.kind}, process {rank} a {own.kind}: they call the module in different ways"
    for number, (left, right) in enumerate(itertools.zip_longest(first.collectives, own.collectives), start=1):
        if _without_line(left) != _without_line(right):
            return (
                f"processes compiled different collectives, which part at number {number} of the {own.kind}:\n"
                f"  process 0: {left or 'none'}\n  process {rank}: {right or 'none'}\nAll {_ADVICE}"
            )
    for left, right in itertools.zip_longest(first.parameters, own.parameters):
        if left != right:
            return (
                f"processes compiled programs that read other parameters ({own.place()}):\n"
                f"  process 0: {left or 'none'}\n  process {rank}: {right or 'none'}\nAll {_ADVICE}; "
                "ddp(…, find_unused_parameters=True) lets them take others"
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
