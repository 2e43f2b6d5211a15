"""Runs a script in eager or through thunder, and leaves the process as it was."""

from __future__ import annotations

import contextlib
import dataclasses
import linecache
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.fuzz.scripts.observe import Observer, Seen

PREAMBLE = """\
import collections, contextlib, copy, dataclasses, enum, functools, io, itertools, math, operator, types
import warnings, weakref
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def tensors_of(value):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def first(value):
    return tensors_of(value)[0]


def backward(value, **options):
    tensors = [t for t in tensors_of(value) if t.requires_grad]
    weights = [torch.arange(t.numel(), dtype=torch.float64).cos().reshape(t.shape).to(t.dtype) for t in tensors]
    if tensors:
        torch.autograd.backward(tensors, weights, **options)


"""


_ALONE = """\
import linecache, sys
{preamble}
import thunder

SCRIPT = r'''
{text}'''

linecache.cache["script.py"] = (len(SCRIPT), None, SCRIPT.splitlines(keepends=True), "script.py")
own = {{*globals(), "own", "module", "seen", "title", "jit", "func", "f"}}
for title, jit, func in (("eager", lambda function: function, torch.func), ("thunder", thunder.jit, thunder)):
    print(title)
    module = types.ModuleType("script")
    sys.modules["script"] = module

    @contextlib.contextmanager
    def seen():
        try:
            yield
        except Exception as error:
            print("  raised", type(error).__name__, str(error)[:300])
        for name in sorted(vars(module).keys() - own):
            if not isinstance(getattr(module, name), type | types.FunctionType) and not name.startswith("__"):
                print("  ", name, getattr(module, name))
        print("  --")

    vars(module).update({{name: value for name, value in globals().items() if not name.startswith("__")}})
    torch.manual_seed(0)
    exec(compile(SCRIPT, "script.py", "exec"), vars(module))
"""


def alone(text: str) -> str:
    """Return a file that runs by itself and prints what the script shows in eager, and then through thunder."""
    return _ALONE.format(preamble=PREAMBLE, text=text)


@dataclasses.dataclass
class Run:
    """One run of a script: its observed steps, and how many of its calls thunder compiled and ran in eager."""

    steps: list[Seen]
    error: BaseException | None = None  # of the script itself, outside of its steps
    calls: int = 0
    fallbacks: tuple[str, ...] = ()
    misses: int = 0


def execute(text: str, compiles: bool, dtype: torch.dtype = torch.float32) -> Run:
    """Run a script; `compiles`: with thunder.jit and thunder's transforms in the place of eager and torch.func."""
    import thunder

    module = types.ModuleType("script")
    namespace = module.__dict__
    exec(PREAMBLE, namespace)
    jitted: list[Any] = []
    counts = {"calls": 0}

    def jit(function: Any, **options: Any) -> Any:
        if not callable(function) or (isinstance(function, torch.nn.Module) and "_parameters" not in vars(function)):
            raise TypeError("the script has lost what it compiles")
        compiled = thunder.jit(function, **options) if compiles else function
        jitted.append(compiled)
        return compiled

    @contextlib.contextmanager
    def seen() -> Iterator[None]:
        counts["calls"] += 1
        error: BaseException | None = None
        line = sys._getframe(2).f_lineno
        try:
            yield
        except Exception as caught:
            error = caught
        observer.look(error, line)

    namespace |= {"jit": jit, "seen": seen, "func": thunder if compiles else torch.func}
    observer = Observer(namespace, {*namespace, "f", "__warningregistry__", "__annotations__"})
    run = Run(observer.steps)
    linecache.cache["script.py"] = (len(text), None, text.splitlines(keepends=True), "script.py")
    sys.modules["script"] = module
    with _as_it_was(dtype), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(compile(text, "script.py", "exec"), namespace)
        except Exception as error:
            run.error = error
    run.calls = counts["calls"]
    run.fallbacks = tuple(str(each.message) for each in caught if each.category.__name__ == "EagerFallbackWarning")
    if compiles:
        run.misses = sum(map(_misses, jitted))
    return run


def _misses(compiled: Any) -> int:
    import thunder

    try:
        return thunder.cache_misses(compiled)
    except Exception:
        return 0


@contextlib.contextmanager
def _as_it_was(dtype: torch.dtype) -> Iterator[None]:
    """Set and reset what a script may change in the process."""
    patched = [(owner, dict(vars(owner))) for owner in (torch, torch.Tensor, torch.nn.functional, torch.nn.Module)]
    resets: tuple[Callable[[], Any], ...] = (
        lambda: torch.set_default_dtype(torch.float32),
        lambda: torch.set_default_device(None),
        lambda: torch.set_grad_enabled(True),
        lambda: torch.set_autocast_enabled("cpu", False),
        lambda: torch.set_autocast_dtype("cpu", torch.bfloat16),
        lambda: torch.use_deterministic_algorithms(False),
    )
    torch.manual_seed(0)
    random.seed(0)
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        for reset in resets:
            reset()
        for owner, before in patched:
            for name in vars(owner).keys() - before.keys():
                with contextlib.suppress(AttributeError):
                    delattr(owner, name)
            for name, value in before.items():
                if vars(owner).get(name) is not value:
                    setattr(owner, name, value)
