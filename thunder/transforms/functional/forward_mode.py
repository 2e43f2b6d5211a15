"""`jvp`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from thunder._check import load_extension
from thunder._jit import jit
from thunder.transforms.functional.structures import (
    Argnums,
    differentiated,
    replaced,
    require_tensors,
    runs_as_torch,
    select,
)

__all__ = ["jvp", "jvp_of"]

_functional = load_extension().functional


def jvp(func: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...], *, has_aux: bool = False) -> Any:
    """Return `(func(*primals), tangents of the output)`; with `has_aux`, `(output, tangents, aux)`.

    Args:
        func: returns tensors, or containers of them.
        primals: a tuple of tensors, or of containers of them.
        tangents: of the structure and the shapes of `primals`.
        has_aux: `func` returns a pair: what is differentiated, and anything else.
    """
    if _functional.is_tracing() or torch._C._are_functorch_transforms_active():
        return jvp_of("jvp", func, primals, tangents, None, has_aux)
    return _compiled_jvp(func, has_aux)(primals, tangents)


def jvp_of(
    name: str,
    func: Callable[..., Any],
    primals: tuple[Any, ...],
    tangents: Any,
    argnums: Argnums | None,
    has_aux: bool,
) -> Any:
    """Return what `jvp` does; of the arguments `argnums` only, when that is not None. `name` is for messages."""
    if runs_as_torch():
        from torch._functorch.eager_transforms import _jvp_with_argnums

        directions = (tangents,) if isinstance(argnums, int) else tangents
        return _jvp_with_argnums(func, primals, directions, argnums, has_aux=has_aux)
    if not isinstance(primals, tuple):
        raise TypeError(f"thunder.{name}: expected the primals in a tuple, got {type(primals)}")
    selected = primals if argnums is None else select(primals, argnums)
    inputs, primal_spec = pytree.tree_flatten(selected)
    directions, tangent_spec = pytree.tree_flatten(tangents)
    if primal_spec != tangent_spec:
        raise RuntimeError(
            f"thunder.{name}: expected tangents of the structure of the primals, {primal_spec}, got {tangent_spec}"
        )
    require_tensors(name, inputs, "argument")
    require_tensors(name, directions, "tangent")
    for primal, tangent in zip(inputs, directions, strict=True):
        if primal.shape != tangent.shape:
            raise RuntimeError(
                f"thunder.{name}: expected tangents of the shapes of the primals, {tuple(primal.shape)}, "
                f"got {tuple(tangent.shape)}"
            )
    recorded: list[Any] = []

    def call(stand_ins: list[Any]) -> list[Any]:
        output = func(*replaced(primals, argnums, pytree.tree_unflatten(stand_ins, primal_spec)))
        leaves, spec, aux = differentiated(name, output, has_aux)
        recorded.append((spec, len(leaves), aux))
        return [*leaves, *aux.tensors]

    trace, captures = _functional.record(name, call, inputs, [None] * len(inputs), False)
    spec, count, aux = recorded[-1]
    everything = [*inputs, *captures]
    program = _functional.jvp(trace, everything, directions + [None] * len(captures))
    results = _functional.replay(program, everything + directions)
    total = len(results) // 2
    outputs = results[:count]
    pushed = [
        torch.zeros_like(output) if tangent is None else tangent
        for output, tangent in zip(outputs, results[total : total + count], strict=True)
    ]
    both = pytree.tree_unflatten(outputs, spec), pytree.tree_unflatten(pushed, spec)
    return (*both, aux.restored(results[count:total])) if has_aux else both


@functools.lru_cache(maxsize=256)
def _compiled_jvp(func: Callable[..., Any], has_aux: bool) -> Callable[..., Any]:
    return jit(lambda primals, tangents: jvp_of("jvp", func, primals, tangents, None, has_aux))
