"""Arguments and results of transformed functions: containers whose leaves are tensors, mostly."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from thunder._arguments import require_callable
from thunder._check import load_extension
from thunder._jit import jit

_functional = load_extension().functional

Argnums = int | tuple[int, ...]


class Kept:
    """A structure whose tensors go through a trace, while everything else stays."""

    def __init__(self, value: Any) -> None:
        self.leaves, self.spec = pytree.tree_flatten(value)
        self.tensors = [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def restored(self, tensors: Sequence[Any]) -> Any:
        """Return the structure with these tensors in the place of its own."""
        remaining = iter(tensors)
        leaves = [next(remaining) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        return pytree.tree_unflatten(leaves, self.spec)


class Identity:
    """A key for any object, hashable or not, that equals the key of the same object only."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value


def by_identity(build: Callable[..., Any]) -> Callable[..., Any]:
    """Remember what `build(func, *options)` gave for the last functions."""

    @functools.lru_cache(maxsize=256)
    def remembered(func: Identity, *options: Any) -> Any:
        return build(func.value, *options)

    @functools.wraps(build)
    def found(func: Any, *options: Any) -> Any:
        return remembered(Identity(func), *options)

    return found


def selected(args: tuple[Any, ...], argnums: Any) -> Any:
    """Return the argument that `argnums` names, or a tuple of those that it names; None when it names no argument."""
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    if not numbers or any(type(number) is not int or not -len(args) <= number < len(args) for number in numbers):
        return None
    if len({number % len(args) for number in numbers}) < len(numbers):
        return None
    return tuple(args[number] for number in argnums) if isinstance(argnums, tuple) else args[argnums]


def replaced(args: tuple[Any, ...], argnums: Argnums, values: Any) -> tuple[Any, ...]:
    """Return `args` with `values`, which has the form of `selected(args, argnums)`, in their places."""
    result = list(args)
    if isinstance(argnums, int):
        result[argnums] = values
    else:
        for number, value in zip(argnums, values, strict=True):
            result[number] = value
    return tuple(result)


def are_tensors(leaves: list[Any]) -> bool:
    """Whether there are leaves, and all are tensors."""
    return bool(leaves) and all(isinstance(leaf, torch.Tensor) for leaf in leaves)


def is_called_in_a_trace() -> bool:
    """Whether a transform is called by a program that is traced, or below a transform of PyTorch's."""
    return bool(_functional.is_tracing() or torch._C._are_functorch_transforms_active())


def runs_as_torch() -> bool:
    """Whether transforms are PyTorch's here: outside of a trace, below theirs, or where ours cannot do the same."""
    return bool(
        not _functional.is_tracing()
        or torch._C._are_functorch_transforms_active()
        or _functional.runs_live()
        or torch.is_inference_mode_enabled()  # PyTorch's grad leaves it while the function runs
    )


def compiled(
    name: str, transformed: Callable[..., Any], func: Callable[..., Any], dynamic: bool | None = False
) -> Callable[..., Any]:
    """Compile `transformed`, which has `func`'s name. In a trace, it is called as it is.

    `dynamic`: as of `thunder.jit`.

    Raises TypeError, which names the transform, when `func` is not callable.
    """
    require_callable(f"thunder.{name}", func)

    def transform(*args: Any, **kwargs: Any) -> Any:
        return transformed(*args, **kwargs)

    transform.__name__ = getattr(func, "__name__", type(func).__name__)
    transform.__doc__ = getattr(func, "__doc__", None)
    return jit(transform, dynamic=dynamic)
