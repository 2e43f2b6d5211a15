"""Finds the compiled object behind a callable that a report is asked of, and says what to do where there is none."""

from __future__ import annotations

import sys
import types
from typing import Any

import torch

from thunder._arguments import shown
from thunder._check import load_extension
from thunder.module import ThunderModule

__all__ = ["compiled_behind"]


def compiled_behind(fn: Any) -> Any:
    """Return the extension's object behind `fn`.

    Raises:
        TypeError: `fn` was not made by `thunder.jit`; the message names the function of thunder's that was called.
    """
    if isinstance(fn, ThunderModule):
        return fn.__compiled__
    extension = load_extension()
    if isinstance(fn, extension.CompiledFunction):
        return fn
    # A method: the compiled function lies below it.
    function = getattr(fn, "__func__", None)
    if isinstance(function, extension.CompiledFunction):
        return function
    raise TypeError(f"thunder.{_name_of_report()}: expected a callable that thunder.jit returned, got {_described(fn)}")


def _name_of_report() -> str:
    """Return the name of the outermost function of thunder's on the stack: the one that the user called."""
    name, frame = "", sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("thunder."):
        name, frame = frame.f_code.co_name, frame.f_back  # type: ignore[assignment]
    return name


def _described(fn: Any) -> str:
    """Return what something is that `thunder.jit` did not return, and what to ask instead."""
    optimized = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", ())
    if type(fn).__name__ == "ThunderFXCompiledObject":
        return "what thunderfx returned, which has last_traces, last_backward_traces and report() itself"
    if isinstance(fn, optimized) or hasattr(fn, "_torchdynamo_orig_callable"):
        return (
            "what torch.compile returned; give it backend=thunder.dynamo.ThunderCompiler(), whose report() and "
            "subgraph_infos tell of its graphs"
        )
    if isinstance(fn, torch.nn.Module):
        return _described_module(fn)
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, ThunderModule):
        return f"the method {fn.__name__} of a compiled module; ask the module itself"
    if isinstance(fn, types.FunctionType | types.MethodType):
        name = fn.__qualname__
        return f"the function {name}; thunder.jit leaves it as it is, and returns a compiled one: ask that one"
    return shown(fn)


def _described_module(module: torch.nn.Module) -> str:
    name = f"the module {type(module).__qualname__}"
    parts = [name for name, part in module.named_modules() if isinstance(part, ThunderModule)]
    if parts:
        return f"{name}, which is not compiled itself; compiled inside of it: {', '.join(parts)}"
    return f"{name}; thunder.jit leaves it as it is, and returns a compiled one: ask that one"
