"""Parts of modules whose parameters transforms replaced, called by themselves.

A submodule of such a module, and its `forward`, may be called alone: `model.layer(x)`, or the encoder in `generate`. It
computes with what the transforms put there, as it does inside of the module. So every submodule that holds such a
parameter, or whose submodules do, has a `forward` of its own, which is compiled; a program of the module takes it for
the function that it wraps.
"""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from thunder._check import load_extension
from thunder.transforms import overrides

if TYPE_CHECKING:
    from thunder.options import Options
    from thunder.transforms.transform import Transform

__all__ = ["attach_parts", "clear_parts", "compile_part", "inherit", "keep_transform", "kept_transforms", "whole_of"]

CompiledFunction = load_extension().CompiledFunction


_KEPT = "_thunder_kept_transforms"


def keep_transform(model: torch.nn.Module, transform: Transform) -> None:
    """Let a module that is compiled again keep a transform, whatever it did to parameters."""
    model.__dict__[_KEPT] = (*kept_transforms(model), transform)


def kept_transforms(model: torch.nn.Module) -> tuple[Transform, ...]:
    """Return what `keep_transform` was given."""
    transforms: tuple[Transform, ...] = model.__dict__.get(_KEPT, ())
    return transforms


def attach_parts(model: torch.nn.Module, options: Options) -> None:
    """Give the parts of a module whose parameters transforms replaced a `forward` that computes with them."""
    if not overrides.owners_of(model):
        return
    for part in overrides.parts_of(model):
        if isinstance(part, torch.jit.ScriptModule):
            continue
        given = part.__dict__.get("forward")
        if _is_part(given):
            given = given.given
        elif given is None and type(part).forward is torch.nn.Module.forward:
            continue
        part.__dict__["forward"] = _make_part(part, given, model, _options_of_part(model, part, options))


def clear_parts(model: torch.nn.Module) -> None:
    """Forget what was compiled for parts of a module."""
    for part in overrides.parts_of(model):
        forward = part.__dict__.get("forward")
        if _is_part(forward):
            forward.clear_cache()


def whole_of(fn: Any) -> torch.nn.Module | None:
    """Return the module whose transforms hold for a callable: a part of it, or a method; None for other callables."""
    module = fn.__self__ if isinstance(fn, types.MethodType) else fn
    if not isinstance(module, torch.nn.Module):
        return None
    if overrides.overrides_of(module) or _KEPT in module.__dict__:
        return getattr(module, "__wrapped__", module)
    forward = module.__dict__.get("forward")
    return forward.module if _is_part(forward) else None


def inherit(whole: torch.nn.Module, options: Options) -> Options:
    """Return options for compiling a module again, a part of it or a method: with the transforms of its parameters."""
    forward = whole.__dict__.get("forward")
    given = forward.options.transforms if _is_part(forward) else ()
    owners = overrides.owners_of(whole)
    # A module that was copied has copies of what it keeps; one transform may take what another before it made.
    keeps = {repr(each): each for each in kept_transforms(whole)}
    candidates = {repr(each): keeps.get(repr(each), each) for each in given if repr(each) in owners} | keeps
    in_order = iter(keeps.values())
    ordered = [next(in_order) if name in keeps else each for name, each in candidates.items()]
    named = {repr(each) for each in options.transforms}
    kept = tuple(each for each in ordered if repr(each) not in named)
    return dataclasses.replace(options, transforms=(*kept, *options.transforms))


def compile_part(fn: Callable[..., Any], whole: torch.nn.Module, options: Options) -> Any:
    """Return a function compiled that computes with the parameters of a module."""
    compiled = CompiledFunction(fn, options.as_dict(), whole)
    functools.update_wrapper(compiled, fn)
    compiled.options = options
    return compiled


def _is_part(forward: object) -> bool:
    return isinstance(forward, CompiledFunction) and "part" in vars(forward)


def _make_part(part: torch.nn.Module, given: Any, whole: torch.nn.Module, options: Options) -> Any:
    """Return the `forward` of a part; `given`: the one that it had in its `__dict__`, None for that of its class."""
    compiled = compile_part(types.MethodType(type(part).forward, part) if given is None else given, whole, options)
    compiled.part, compiled.given = part, given
    return compiled


def _options_of_part(whole: torch.nn.Module, part: torch.nn.Module, options: Options) -> Options:
    """Transforms without parameters are about the program as a whole; a part has those that it cannot do without."""
    if part is whole:
        return options
    owners = overrides.owners_of(whole)
    return dataclasses.replace(options, transforms=tuple(each for each in options.transforms if repr(each) in owners))


def _reduce(compiled: Any) -> tuple[Any, ...]:
    """Compiled code does not travel: the function is compiled anew on arrival."""
    from thunder._jit import rebuild

    if "part" in vars(compiled):
        return _make_part, (compiled.part, compiled.given, compiled.module, compiled.options)
    if compiled.module is not compiled.__wrapped__:
        return compile_part, (compiled.__wrapped__, compiled.module, compiled.options)
    return rebuild, (compiled.__wrapped__, compiled.options)


copyreg.pickle(CompiledFunction, _reduce)
