"""Functions run in several processes that talk through gloo, each on one thread, or through NCCL, each on its GPU."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import multiprocessing.connection
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

needs_gloo = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="needs torch.distributed with gloo"
)

needs_two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
GPU = [pytest.mark.gpu, needs_two_gpus]
BACKENDS = [pytest.param("gloo", marks=needs_gloo), pytest.param("nccl", marks=GPU)]
OFFLOADING = [pytest.param("gloo", marks=needs_gloo), pytest.param("cpu:gloo,cuda:nccl", marks=GPU)]
AFTER_FAILURE = 20.0  # seconds

_here = torch.device("cpu")


def device() -> torch.device:
    """Return where the tensors of this process belong."""
    return _here


def run_in_processes(
    function: Callable[[int], Any], processes: int = 2, seconds: float = 150, backend: str = "gloo"
) -> list[Any]:
    """Return what `function(rank)`, of a module that can be imported, returns in each process.

    RuntimeError with the traceback where one raises, TimeoutError past the limit; no process is left behind.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        started: dict[multiprocessing.connection.Connection, Any] = {}
        for rank in range(processes):
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(function, rank, processes, backend, f"{folder}/store", there))
            process.start()
            stack.callback(process.join)
            stack.callback(process.kill)
            there.close()
            started[here] = process
        results = _collect(started, time.monotonic() + seconds)
    failed = [text for text, _ in results if text]
    if failed:
        raise RuntimeError("\n".join(failed))
    return [value for _, value in results]


def _collect(started: dict[multiprocessing.connection.Connection, Any], end: float) -> list[tuple[str, Any]]:
    """Return what the processes send; those that wait for one that failed have a few seconds left.

    `started`: the processes, by the connection that each sends to.
    """
    results: dict[Any, tuple[str, Any]] = {}
    while len(results) < len(started):
        pending = [each for each in started if each not in results]
        ready = multiprocessing.connection.wait(pending, max(0.0, end - time.monotonic()))
        if not ready:
            unfinished = [rank for rank, each in enumerate(started) if each in pending]
            failed = "\n".join(text for text, _ in results.values() if text)
            raise TimeoutError(f"ranks {unfinished} have not finished in time; {failed or 'no other failed'}")
        for each in ready:
            results[each] = _receive(each, list(started).index(each), started[each])  # type: ignore[arg-type, index]
            if results[each][0]:
                end = min(end, time.monotonic() + AFTER_FAILURE)
    return [results[each] for each in started]


def _receive(results: multiprocessing.connection.Connection, rank: int, process: Any) -> tuple[str, Any]:
    try:
        received: tuple[str, Any] = results.recv()
    except EOFError:
        process.join(AFTER_FAILURE)
        return f"rank {rank} died (exit code {process.exitcode}; a negative one is a signal)", None
    return received


def _work(function: Callable[[int], Any], rank: int, processes: int, backend: str, store: str, results: Any) -> None:
    global _here
    faulthandler.enable()
    torch.set_num_threads(1)
    if "nccl" in backend:
        _here = torch.device("cuda", rank)
        torch.cuda.set_device(_here)
    dist.init_process_group(
        backend, init_method=f"file://{store}", rank=rank, world_size=processes, timeout=timedelta(seconds=60)
    )
    try:
        given = ("", function(rank))
    except BaseException:
        given = (f"rank {rank}:\n{traceback.format_exc()}", None)
    results.send(given)
    if not given[0]:
        dist.destroy_process_group()
