"""Things that happen while a function is traced and not at later calls: allowed, warned about, or refused."""

from __future__ import annotations

import atexit
import binascii
import bisect
import cmath
import csv
import ctypes
import datetime
import faulthandler
import functools
import gc
import hashlib
import heapq
import io
import json
import logging
import os
import pickle
import queue
import random
import re
import resource
import struct
import threading
import time
import tracemalloc
import unicodedata
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import thunder

X = torch.arange(3.0)
LOGGER = logging.getLogger(__name__)


def prints(x: torch.Tensor, path: Path) -> torch.Tensor:
    print("printed")
    return x + 1


def warns(x: torch.Tensor, path: Path) -> torch.Tensor:
    warnings.warn("warned", stacklevel=1)
    return x + 1


def logs(x: torch.Tensor, path: Path) -> torch.Tensor:
    LOGGER.warning("logged")
    return x + 1


def draws(x: torch.Tensor, path: Path) -> torch.Tensor:
    return x + random.random()


def draws_an_integer(x: torch.Tensor, path: Path) -> torch.Tensor:
    return x + random.randint(1, 1000)


def draws_by_numpy(x: torch.Tensor, path: Path) -> torch.Tensor:
    return x + float(numpy.random.rand())


def looks_at_the_clock(x: torch.Tensor, path: Path) -> torch.Tensor:
    return x + time.perf_counter()


def looks_at_the_date(x: torch.Tensor, path: Path) -> torch.Tensor:
    return x + datetime.datetime.now().microsecond


def reads_a_file(x: torch.Tensor, path: Path) -> torch.Tensor:
    with open(path) as file:
        return x + len(file.read())


EDGES: dict[Callable[..., Any], str] = {
    prints: "print",
    warns: "warnings.warn",
    logs: "logging.Logger.warning",
    draws: "random.Random.random",
    draws_an_integer: "random.Random.getrandbits",
    draws_by_numpy: "numpy.random.RandomState.rand",
    looks_at_the_clock: "time.perf_counter",
    looks_at_the_date: "datetime.datetime.now",
    reads_a_file: "open",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "numbers.txt"
    file.write_text("12")
    return file


@pytest.mark.parametrize(("function", "name"), EDGES.items(), ids=[f.__name__ for f in EDGES])
def test_sharp_edge_is_refused_with_its_name_and_line(function: Callable[..., Any], name: str, path: Path) -> None:
    compiled = thunder.jit(function, sharp_edges="error")
    with pytest.raises(thunder.SharpEdgeError, match=name) as raised:
        compiled(X, path)
    first = function.__code__.co_firstlineno
    lines = [f"{Path(__file__).name}, line {line}" for line in range(first, first + 4)]
    is_own = any(line in str(raised.value) for line in lines)
    assert is_own or function is draws_an_integer
    assert thunder.cache_misses(compiled) == 0


@pytest.mark.parametrize(("function", "name"), EDGES.items(), ids=[f.__name__ for f in EDGES])
def test_sharp_edge_is_warned_about_once_per_trace(function: Callable[..., Any], name: str, path: Path) -> None:
    compiled = thunder.jit(function, sharp_edges="warn")
    with pytest.warns(thunder.SharpEdgeWarning, match=name):
        compiled(X, path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", thunder.SharpEdgeWarning)
        compiled(X, path)
    assert thunder.cache_hits(compiled) == 1


@pytest.mark.filterwarnings("error::thunder.SharpEdgeWarning")
@pytest.mark.filterwarnings("ignore:warned")
@pytest.mark.parametrize("function", EDGES, ids=[f.__name__ for f in EDGES])
def test_sharp_edge_is_allowed_where_asked_for(function: Callable[..., Any], path: Path) -> None:
    compiled = thunder.jit(function, sharp_edges="allow")
    compiled(X, path)
    compiled(X, path)
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (1, 1)


def test_print_happens_at_the_trace_only(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    compiled = thunder.jit(prints, sharp_edges="allow")
    for _ in range(3):
        compiled(X, path)
    assert capsys.readouterr().out == "printed\n"


def test_number_that_was_drawn_is_kept(path: Path) -> None:
    compiled = thunder.jit(draws, sharp_edges="allow")
    torch.testing.assert_close(compiled(X, path), compiled(X, path))


def test_disabled_logger_is_no_sharp_edge(path: Path) -> None:
    compiled = thunder.jit(lambda x: (LOGGER.debug("never seen"), x + 1)[1], sharp_edges="error")
    LOGGER.setLevel(logging.INFO)
    torch.testing.assert_close(compiled(X), X + 1)


def test_file_in_memory_is_no_sharp_edge() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        text = io.StringIO()
        text.write("abc")
        return x * len(text.getvalue())

    torch.testing.assert_close(thunder.jit(f, sharp_edges="error")(X), X * 3)


def test_random_numbers_of_torch_are_no_sharp_edge() -> None:
    compiled = thunder.jit(lambda x: x + torch.rand(3), sharp_edges="error")
    torch.manual_seed(1)
    got = [compiled(X), compiled(X)]
    torch.manual_seed(1)
    expected = [X + torch.rand(3), X + torch.rand(3)]
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_method_of_an_object_in_c_is_a_sharp_edge() -> None:
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * waiting.qsize()

    with pytest.raises(thunder.SharpEdgeError, match="SimpleQueue"):
        thunder.jit(f, sharp_edges="error")(X)


def test_pattern_and_lock_are_no_sharp_edges() -> None:
    pattern, lock = re.compile("a+"), threading.Lock()

    def f(x: torch.Tensor) -> torch.Tensor:
        with lock:
            return x * len(pattern.findall("aabaa"))

    torch.testing.assert_close(thunder.jit(f, sharp_edges="error")(X), X * 2)


def test_refused_trace_changes_nothing() -> None:
    seen: list[int] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        print("no")
        return x

    with pytest.raises(thunder.SharpEdgeError):
        thunder.jit(f, sharp_edges="error")(X)
    assert seen == []


def test_garbage_collection_inside_happens_at_every_call() -> None:
    class Ring:
        def __init__(self) -> None:
            self.own = self

        def __del__(self) -> None:
            deleted.append(1)

    deleted: list[int] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        gc.collect()
        return x + len(deleted)

    compiled = thunder.jit(f)
    for calls in range(1, 4):
        Ring()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", thunder.EagerFallbackWarning)
            assert torch.equal(compiled(X), X + calls)


PLAIN_IN_C = {
    "base64": lambda: binascii.b2a_base64(b"ab"),
    "bisect": lambda: bisect.bisect([1, 2, 3], 2),
    "cmath": lambda: cmath.phase(1j),
    "crc32": lambda: zlib.crc32(b"ab"),
    "heapq": lambda: heapq.nsmallest(2, [3, 1, 2]),
    "json": lambda: json.dumps({"a": [1, 2.5, None]}),
    "md5": lambda: hashlib.md5(b"ab").hexdigest(),
    "pickle": lambda: pickle.loads(pickle.dumps([1, 2])),
    "struct": lambda: struct.unpack("i", struct.pack("i", 3)),
    "unicode": lambda: unicodedata.name("a"),
}


@pytest.mark.parametrize("name", PLAIN_IN_C)
def test_functions_in_c_that_only_compute_are_no_sharp_edges(name: str) -> None:
    compiled = thunder.jit(lambda x: (x + 1, PLAIN_IN_C[name]()), fullgraph=True)
    for _ in range(2):
        assert compiled(X)[1] == PLAIN_IN_C[name]()


PROCESS = ctypes.CDLL(None)
KEPT = functools.cache(len)

UNKNOWN_IN_C = {
    "atexit": lambda: atexit.register(len, ()),
    "cache_info": lambda: KEPT.cache_info(),
    "chmod": lambda: os.chmod(__file__, 0o644),
    "clock_gettime": lambda: time.clock_gettime(time.CLOCK_MONOTONIC),
    "ctypes": lambda: PROCESS.getpid(),
    "FileIO": lambda: io.FileIO(__file__),
    "fromfile": lambda: numpy.fromfile(__file__, dtype=numpy.uint8),
    "getppid": os.getppid,
    "link": lambda: os.link("/absent", "/absent"),
    "objects": lambda: len(gc.get_objects()),
    "tofile": lambda: numpy.zeros(1).tofile(os.devnull),
    "csv": lambda: csv.field_size_limit(1000),
    "faulthandler": faulthandler.is_enabled,
    "resource": lambda: resource.getrusage(resource.RUSAGE_SELF),
    "tracemalloc": tracemalloc.is_tracing,
}


def test_the_number_of_gpus_is_no_sharp_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    # PyTorch 2.11 asks NVML, through ctypes, at the first time in a process.
    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: PROCESS.getpid() > 0)
    monkeypatch.setattr(torch.cuda, "_cached_device_count", 2)
    with pytest.raises(NotImplementedError, match="cannot be repeated"):
        thunder.jit(lambda x: x * torch.cuda.device_count(), fullgraph=True)(X)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert torch.equal(thunder.jit(lambda x: x * torch.cuda.device_count(), fullgraph=True)(X), X * 2)


@pytest.mark.parametrize("name", UNKNOWN_IN_C)
def test_functions_in_c_of_unknown_modules_are_not_traced(name: str) -> None:
    with pytest.raises(NotImplementedError, match="cannot be repeated"):
        thunder.jit(lambda x: (x + 1, UNKNOWN_IN_C[name]()), fullgraph=True)(X)
