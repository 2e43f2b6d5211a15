"""When gradients are exchanged: at each backward, or after several that accumulate."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from thunder.transforms.overrides import take

if TYPE_CHECKING:
    from thunder.trace import Trace

__all__ = ["Synchronization", "is_guarded", "no_sync", "synchronization_of"]

_STATE = "_thunder_synchronization"


class Synchronization:
    """State by which the program of a call is chosen. Programs read it, so that it is guarded, and write it.

    Attributes:
        syncs: gradients are exchanged; False inside of `no_sync`.
        has_kept: calls inside of `no_sync` have left gradients that were not exchanged.
        shares_buffers: the next call begins with the buffers of one process.
        places: where parameters stand in the module that all programs with gradients have among their inputs.
    """

    def __init__(self, places: tuple[tuple[str, ...], ...] = ()) -> None:
        self.syncs = True
        self.has_kept = False
        self.shares_buffers = True
        self.places = places
        self._owners: dict[str, torch.Tensor] = {}

    def attach(self, model: Any) -> None:
        """Let the programs of a module be chosen by this object."""
        model.__dict__[_STATE] = self
        model.__dict__["no_sync"] = self.no_sync
        model.register_forward_pre_hook(self.before_forward, prepend=True)

    def before_forward(self, module: torch.nn.Module, arguments: Any) -> None:
        """Run as a part of each program."""
        has_gradients = torch.is_grad_enabled()
        if has_gradients and self.places:
            take(module, self.places)
        keeps = has_gradients and not self.syncs
        if has_gradients and self.has_kept != keeps:
            self.has_kept = keeps
        if self.shares_buffers != (has_gradients and self.syncs):
            self.shares_buffers = has_gradients and self.syncs

    def owner_of(self, name: str, size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return the tensor whose `.grad` is the whole gradient of a sharded parameter, while it is kept back.

        It has one element in memory.
        """
        if name not in self._owners:
            self._owners[name] = torch.empty((), dtype=dtype, device=device).expand(size)
            self._owners[name].requires_grad_()
        return self._owners[name]

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let backwards of calls inside accumulate gradients; those of the next call outside are exchanged with them.

        As in PyTorch's DistributedDataParallel, the call of the module counts, not its backward.
        """
        before, self.syncs = self.syncs, False
        try:
            yield
        finally:
            self.syncs = before


def is_guarded(prologue: Trace) -> bool:
    """Whether a program has read the state, so that it is one for this state only."""
    return "has_kept" in str(prologue)


def synchronization_of(model: Any) -> Synchronization | None:
    """Return the state of a module that `ddp` or `fsdp` returned; None for others."""
    state: Synchronization | None = getattr(model, "__dict__", {}).get(_STATE)
    return state


def no_sync(model: Any) -> contextlib.AbstractContextManager[None]:
    """Return a context in which backwards of a module, `model`, accumulate gradients in each process.

    The gradients of the first call outside are exchanged together with what was accumulated.

    Raises TypeError for a module that neither `ddp` nor `fsdp` returned.
    """
    state = synchronization_of(model)
    if state is None:
        raise TypeError(
            f"thunder.distributed.no_sync: expected a module that ddp or fsdp returned, got {type(model).__name__}"
        )
    return state.no_sync()
