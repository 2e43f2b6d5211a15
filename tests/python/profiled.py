"""Which of PyTorch's operators a call runs."""

from __future__ import annotations

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def operators_of(call: Callable[[], object]) -> set[str]:
    with profile(activities=[ProfilerActivity.CPU]) as run:
        call()
    return {event.key for event in run.key_averages()}
