"""Arguments and results of transformed functions: containers whose leaves are tensors, mostly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

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


def select(args: tuple[Any, ...], argnums: Argnums) -> Any:
    """Return the argument that `argnums` names, or a tuple of those that it names."""
    for number in (argnums,) if isinstance(argnums, int) else argnums:
        if not -len(args) <= number < len(args):
            raise RuntimeError(
                f"thunder: argnums: expected numbers of the {len(args)} positional arguments, got {number}"
            )
    return args[argnums] if isinstance(argnums, int) else tuple(args[number] for number in argnums)


def replaced(args: tuple[Any, ...], argnums: Argnums | None, selected: Any) -> tuple[Any, ...]:
    """Return `args` with `selected`, which has the form of `select(args, argnums)`, in their places."""
    if argnums is None:
        return tuple(selected)
    result = list(args)
    if isinstance(argnums, int):
        result[argnums] = selected
    else:
        for number, value in zip(argnums, selected, strict=True):
            result[number] = value
    return tuple(result)


def split_aux(name: str, output: Any, has_aux: bool) -> tuple[Any, Any]:
    """Return (what is differentiated, anything else) of a function's result."""
    if not has_aux:
        return output, None
    if not (isinstance(output, tuple) and len(output) == 2):
        raise RuntimeError(f"thunder.{name}: has_aux: expected a function that returns a pair, got {type(output)}")
    return output


def differentiated(name: str, output: Any, has_aux: bool) -> tuple[list[Any], Any, Kept]:
    """Return the tensors of a function's result that are differentiated, their structure, and anything else."""
    output, aux = split_aux(name, output, has_aux)
    leaves, spec = pytree.tree_flatten(output)
    require_tensors(name, leaves, "result")
    return leaves, spec, Kept(aux)


def require_tensors(name: str, leaves: list[Any], what: str) -> None:
    """Raise RuntimeError unless there are leaves, and all are tensors."""
    if not leaves:
        raise RuntimeError(f"thunder.{name}: expected at least one {what} that is a tensor, got none")
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            raise RuntimeError(f"thunder.{name}: expected tensors for each {what}, got {type(leaf)}")


def require_real(name: str, tree: Any, what: str) -> None:
    """Raise RuntimeError where a tensor is complex."""
    for leaf in pytree.tree_leaves(tree):
        if isinstance(leaf, torch.Tensor) and leaf.is_complex():
            raise RuntimeError(f"thunder.{name}: expected real {what}, got {leaf.dtype}")


def runs_as_torch() -> bool:
    """Whether `vmap`, `jvp` and `autocast` are PyTorch's here: below those, or for a `torch.autograd.Function`."""
    return bool(torch._C._are_functorch_transforms_active() or _functional.runs_live())


def compiled(transformed: Callable[..., Any], func: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `transformed`, which has `func`'s name. In a trace, it is called as it is."""
    transformed.__name__ = getattr(func, "__name__", type(func).__name__)
    transformed.__doc__ = getattr(func, "__doc__", None)
    return jit(transformed)
