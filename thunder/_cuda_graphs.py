"""CUDA graphs, recorded by PyTorch. C++ decides what is recorded, and when a graph runs."""

from __future__ import annotations

import functools
from typing import Any

import torch

is_capturing = torch.cuda.is_current_stream_capturing


@functools.cache
def _stream(device: int) -> torch.cuda.Stream:
    """Return the stream on which the graphs of a device are recorded: PyTorch records none on its default one."""
    return torch.cuda.Stream(device)


@functools.cache
def _pool(device: int, stream: int) -> Any:
    """Return the memory that graphs share which run one after the other."""
    return torch.cuda.graph_pool_handle()


class Graph:
    """What is launched between `begin` and `end` on one device, ready to be launched again by `replay`."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._graph = torch.cuda.CUDAGraph()
        self.replay = self._graph.replay

    def begin(self) -> None:
        """Record, in place of running, what this thread launches."""
        self._outside = torch.cuda.current_stream(self._device)
        stream = _stream(self._device)
        stream.wait_stream(self._outside)
        torch.cuda.set_stream(stream)
        try:
            pool = _pool(self._device, self._outside.cuda_stream)
            self._graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        except BaseException:
            torch.cuda.set_stream(self._outside)
            raise

    def end(self) -> None:
        """Stop recording. Raises RuntimeError where something was launched that cannot be recorded."""
        try:
            self._graph.capture_end()
        finally:
            torch.cuda.set_stream(self._outside)
            self._outside.wait_stream(_stream(self._device))
