"""Chooses the extension module whose executor runs CUDA kernels on the processor, in this process and its workers.

`make build` makes it of thunder's own and of tests/cpp/kernels_on_host.cpp.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pathlib
import sys

DEVICE = "cuda-on-host"  # what it is called beside "cpu" and "cuda"
EXECUTOR = "cuda_on_host"
CHOICE = "THUNDER_FUZZ_KERNELS_ON_HOST"
EXTENSION = pathlib.Path(__file__).parents[2] / "build" / "dev" / "tests" / "cpp" / "_C.so"


def choose() -> None:
    """Load the module here, and in the processes that start after this; thunder must not have been imported."""
    if not EXTENSION.exists():
        raise FileNotFoundError(f"{EXTENSION}: build it by `make build`")
    os.environ[CHOICE] = "1"
    load_if_chosen()


def load_if_chosen() -> None:
    """Load the module in place of `thunder._C`, if this process or one that started it has chosen it."""
    if CHOICE not in os.environ or "thunder._C" in sys.modules:
        return
    import torch  # noqa: F401  # the extension needs its libraries

    spec = importlib.util.spec_from_file_location("thunder._C", EXTENSION)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["thunder._C"] = module
    spec.loader.exec_module(module)
    ctypes.CDLL(str(EXTENSION)).thunder_register_kernels_on_host()
