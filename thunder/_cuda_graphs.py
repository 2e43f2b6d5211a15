"""CUDA graphs, recorded by PyTorch. C++ decides what is recorded, and when a graph runs."""

from __future__ import annotations

import contextlib
import functools

import torch

is_capturing = torch.cuda.is_current_stream_capturing


@functools.cache
def _stream(device: int) -> torch.cuda.Stream:
    """Return the stream on which the graphs of a device are recorded: PyTorch records none on its default one."""
    return torch.cuda.Stream(device)


def new_pool(device: int) -> torch.cuda.CUDAGraph:
    """Return a graph whose memory others share, for as long as it lives.

    It is never run. PyTorch gives up such memory with its last graph, and raises where another one asks for it then.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(_stream(device)):
        graph.capture_begin(capture_error_mode="thread_local")
        torch.zeros(1, device=f"cuda:{device}")
        graph.capture_end()
    return graph


@functools.cache
def _pool_of_stream(device: int, stream: int) -> torch.cuda.CUDAGraph:
    """Return the pool of graphs that run one after the other, and leave nothing in it that is read later."""
    return new_pool(device)


_abandoned: list[torch.cuda.CUDAGraph] = []  # what was allocated for them may be in use


def _clean_up(device: int, pool: torch.cuda.CUDAGraph) -> None:
    """Undo what PyTorch leaves behind after a recording that failed: it goes on as if one were under way."""
    generator = torch.cuda.default_generators[device]
    other = torch.Generator(f"cuda:{device}")
    other.set_state(generator.get_state())
    generator.graphsafe_set_state(other.graphsafe_get_state())
    stop = getattr(torch._C, "_cuda_endAllocateToPool", None)
    if stop is not None:
        with contextlib.suppress(RuntimeError):  # it has stopped by itself
            stop(device, pool.pool())
    _abandoned.append(pool)
    _pool_of_stream.cache_clear()


class Graph:
    """The kernels that are launched between `begin` and `end` on one device, ready to be launched again by `replay`.

    Its memory is that of a pool; without one, that of all such graphs of the stream.
    """

    def __init__(self, device: int, pool: torch.cuda.CUDAGraph | None) -> None:
        self._device = device
        self._given_pool = pool
        self._graph = torch.cuda.CUDAGraph()
        self.replay = self._graph.replay

    def begin(self) -> None:
        """Record, in place of running, what this thread launches."""
        self._outside = torch.cuda.current_stream(self._device)
        stream = _stream(self._device)
        self._pool = self._given_pool or _pool_of_stream(self._device, self._outside.cuda_stream)
        stream.wait_stream(self._outside)
        torch.cuda.set_stream(stream)
        try:
            self._graph.capture_begin(pool=self._pool.pool(), capture_error_mode="thread_local")
        except BaseException:
            self._leave(has_failed=True)
            raise

    def end(self) -> None:
        """Stop recording. Raises RuntimeError where something was launched that cannot be recorded."""
        has_failed = True
        try:
            self._graph.capture_end()
            has_failed = False
        finally:
            self._leave(has_failed)

    def _leave(self, has_failed: bool) -> None:
        torch.cuda.set_stream(self._outside)
        self._outside.wait_stream(_stream(self._device))
        if has_failed:
            _clean_up(self._device, self._pool)
