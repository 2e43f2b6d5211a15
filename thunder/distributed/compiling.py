"""Modules compiled with one more transform."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from thunder._jit import compile_callable
from thunder._parts import keep_transform, kept_transforms
from thunder.module import ThunderModule
from thunder.options import Options
from thunder.transforms.transform import Transform, overrides

__all__ = ["compile_with", "transforms_of"]


def transforms_of(model: Any) -> tuple[Any, ...]:
    """Return the transforms of a compiled module, those that it keeps when it is compiled again among them."""
    options = getattr(model, "__options__", None)
    return () if options is None else (*options.transforms, *kept_transforms(model))


def compile_with(transform: Transform, model: Any, function: str) -> Any:
    """Return a module compiled with a transform, which `thunder.jit` of the result keeps.

    A compiled module keeps its options. TypeError for what is no module, or one of PyTorch's wrappers.
    """
    options = Options()
    if isinstance(model, ThunderModule):
        # Transforms that changed the module have done so.
        options = model.__options__
        others = tuple(each for each in options.transforms if not overrides(each, "transform_module"))
        options = dataclasses.replace(options, transforms=others)
        model = model.__wrapped__
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise TypeError(f"thunder.distributed.{function}: expected a module, got a DistributedDataParallel around one")
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"thunder.distributed.{function}: expected a module, got {model!r}")
    result = compile_callable(model, dataclasses.replace(options, transforms=(*options.transforms, transform)))
    keep_transform(result, transform)
    # Accelerate, and so Trainer, puts a DistributedDataParallel around what has no mark of its own.
    result.__dict__["_is_accelerate_prepared"] = True
    return result
