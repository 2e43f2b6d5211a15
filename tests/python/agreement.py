"""Processes that compile different programs, or fail: run by test_agreement.py."""

from __future__ import annotations

import logging
import os
import signal
import time
import warnings
from datetime import timedelta
from typing import Any

import distributed_wrappers as wrappers
import torch
import torch.distributed as dist
from data_parallel import error_of
from processes import device
from torch import nn
from torch.distributed.distributed_c10d import _get_process_group_store

import thunder


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, fails: bool) -> torch.Tensor:
        if fails:
            raise KeyError("not in this process")
        return self.one(x)


class Branches(nn.Module):
    """Reads more parameters in one branch than in the other."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, reads_more: bool) -> torch.Tensor:
        return self.one(x) + self.other(x) if reads_more else self.one(x)


class OneOf(nn.Module):
    """Reads one of two layers of the same size."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, reads_other: bool) -> torch.Tensor:
        return self.other(x) if reads_other else self.one(x)


WRAPS = {"ddp": thunder.distributed.ddp, "fsdp": thunder.distributed.fsdp}


def disagree(rank: int) -> dict[str, Any]:
    """Return what each process raises, and after how many seconds."""
    x = wrappers.batch(rank, 0, 4, 6)
    found: dict[str, Any] = {"device": device().type}

    def note(case: str, error: str, begin: float) -> None:
        found[case] = error, time.monotonic() - begin

    for name, wrap in WRAPS.items():
        model = wrap(Branches().to(device()))
        begin = time.monotonic()
        note(f"{name}: other collectives", error_of(lambda: model(x, rank == 1)), begin)  # noqa: B023
        model(x, False).sum().backward()
        found[f"{name}: goes on"] = True
        one_of = wrap(OneOf().to(device()))
        begin = time.monotonic()
        note(f"{name}: other parameters", error_of(lambda: one_of(x, rank == 1)), begin)  # noqa: B023
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            one_of(x, False)
            one_of(x, True)
        found[f"{name}: warnings"] = [str(each.message) for each in caught]
        fails = wrap(Fails().to(device()))
        begin = time.monotonic()
        note(f"{name}: one fails", error_of(lambda: fails(x, rank == 1)), begin)  # noqa: B023
        fails(x, False).sum().backward()
        begin = time.monotonic()
        note(f"{name}: all fail", error_of(lambda: fails(x, True)), begin)  # noqa: B023
        fails(x[:2], False).sum().backward()
    alone = thunder.distributed.ddp(Branches().to(device()))
    if rank == 0:
        with torch.no_grad():
            found["one process evaluates alone"] = alone(x, True).shape == (4, 3)
    else:
        found["one process evaluates alone"] = True
    found.update(retraces_alone(rank, x))
    return found


def one_is_killed(name: str, rank: int) -> None:
    """Kill process 1 in front of its second step; raise what process 0 raises, with the seconds that it took."""
    x = wrappers.batch(rank, 0, 4, 6)
    model = WRAPS[name](Branches().to(device()))
    model(x, True).sum().backward()
    dist.barrier()
    begin = time.monotonic()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    error = error_of(lambda: model(x, True).sum().backward())
    raise RuntimeError(f"{error or 'no error'}, after {time.monotonic() - begin:.0f} s")


def retraces_while_others_wait(name: str, rank: int) -> None:
    """Take a new branch in process 1, where process 0 runs what it has compiled.

    Raise what it raises, with the seconds that it took. Process 0, which goes on when the other one ends, raises what
    was logged, too.
    """
    x = wrappers.batch(rank, 0, 4, 6)
    model = WRAPS[name](OneOf().to(device()))
    for _ in range(2):
        model(x, False).sum().backward()
    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("thunder.distributed").addHandler(handler)
    begin = time.monotonic()
    error = error_of(lambda: model(x, rank == 1).sum().backward())
    seconds = time.monotonic() - begin
    if rank == 1:
        dist.destroy_process_group()
        raise RuntimeError(f"raised: {error}, after {seconds:.0f} s")
    raise RuntimeError(f"logged: {logged}, raised: {error}, after {seconds:.0f} s")


def retraces_alone(rank: int, x: torch.Tensor) -> dict[str, Any]:
    model = thunder.distributed.ddp(Branches().to(device()))
    model(x, True).sum().backward()
    dist.barrier()
    store = _get_process_group_store(dist.group.WORLD)
    store.set_timeout(timedelta(seconds=1))
    begin = time.monotonic()
    error = error_of(lambda: model(x, rank == 0))
    found = error, time.monotonic() - begin
    store.set_timeout(timedelta(seconds=60))
    time.sleep(2 * rank)
    return {"one retraces": found}
