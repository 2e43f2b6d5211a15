"""`grad`, `value_and_grad` and `vjp`."""

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
    compiled,
    differentiated,
    replaced,
    require_tensors,
    select,
    split_aux,
)

__all__ = ["Pullback", "grad", "value_and_grad", "vjp", "vjp_of"]

_functional = load_extension().functional


def grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return the function that computes the gradient of `func`.

    Args:
        func: returns a floating-point tensor without dimensions, or, with `has_aux`, a pair of it and anything else.
        argnums: which positional arguments to differentiate with respect to; each a tensor or a container of tensors.
            An int gives the gradient of that argument, a tuple gives a tuple.
        has_aux: also return the second part of what `func` returns: `(gradient, aux)`.

    Raises:
        RuntimeError: `func` returns something else.
    """
    both = _value_and_grad("grad", func, argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return compiled(gradient, func)


def value_and_grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return the function that computes `(func(…), gradient)`; see `grad`.

    With `has_aux`, `((value, aux), gradient)`.
    """
    return compiled(_value_and_grad("value_and_grad", func, argnums, has_aux), func)


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return `(func(*primals), vjp_function)`; with `has_aux`, `(output, vjp_function, aux)`.

    Args:
        func: returns floating-point tensors, or containers of them.
        primals: tensors, or containers of them.
        has_aux: `func` returns a pair: what is differentiated, and anything else.

    `vjp_function(cotangents)` takes the structure of the output and returns a tuple with one gradient for each primal.
    """
    if _functional.is_tracing() or torch._C._are_functorch_transforms_active():
        return vjp_of("vjp", func, primals, None, has_aux)
    return _compiled_vjp(func, has_aux)(*primals)


class Pullback:
    """What `vjp` returns beside the output: pulls cotangents back to the primals.

    It keeps what the forward saved, so it may be called later and more than once.
    """

    def __init__(self, saved: list[Any], program: Any, taken: list[int], specs: tuple[Any, Any], inputs: list[Any]):
        self.saved = saved
        self.program = program  # the backward trace
        self.taken = taken  # positions of the outputs whose cotangents the program takes
        self.output_spec, self.primal_spec = specs
        self.inputs = inputs  # the differentiated leaves: for the gradients that are zero

    def __call__(self, cotangents: Any) -> Any:
        """Return a tuple with one gradient for each primal. `cotangents` has the structure of the output."""
        if _functional.is_tracing() or torch._C._are_functorch_transforms_active():
            return self.pull_back(cotangents)
        return _compiled_pull_back()(self, cotangents)

    def pull_back(self, cotangents: Any) -> Any:
        """Do so where a trace is being recorded."""
        leaves, spec = pytree.tree_flatten(cotangents)
        if spec != self.output_spec:
            raise RuntimeError(
                f"thunder.vjp: expected cotangents of the structure of the output, {self.output_spec}, got {spec}"
            )
        gradients = _functional.pull_back(self.program, self.saved, [leaves[i] for i in self.taken])
        filled = [
            torch.zeros_like(primal) if gradient is None else gradient
            for gradient, primal in zip(gradients, self.inputs, strict=False)
        ]
        return pytree.tree_unflatten(filled, self.primal_spec)


def vjp_of(
    name: str, func: Callable[..., Any], primals: tuple[Any, ...], argnums: Argnums | None, has_aux: bool
) -> Any:
    """Return what `vjp` does; of the arguments `argnums` only, when that is not None. `name` is for messages."""
    if torch._C._are_functorch_transforms_active():
        from torch._functorch.eager_transforms import _vjp_with_argnums

        return _vjp_with_argnums(func, *primals, argnums=argnums, has_aux=has_aux)
    selected = primals if argnums is None else select(primals, argnums)
    inputs, primal_spec = pytree.tree_flatten(selected)
    require_tensors(name, inputs, "argument")
    recorded: list[Any] = []

    def call(stand_ins: list[Any]) -> list[Any]:
        output = func(*replaced(primals, argnums, pytree.tree_unflatten(stand_ins, primal_spec)))
        leaves, spec, aux = differentiated(name, output, has_aux)
        for leaf in leaves:
            if not (leaf.is_floating_point() or leaf.is_complex()):
                raise RuntimeError(f"thunder.{name}: expected floating-point or complex results, got {leaf.dtype}")
        recorded.append((spec, len(leaves), aux))
        return [*leaves, *aux.tensors]

    trace, captures = _functional.record(name, call, inputs, [None] * len(inputs), True)
    output_spec, count, aux = recorded[-1]
    forward, backward, output_count, taken = _functional.vjp(trace, count)
    results = _functional.replay(forward, [*inputs, *captures])
    saved = results[output_count:]
    pull_back = Pullback(saved, backward, taken, (output_spec, primal_spec), inputs)
    output = pytree.tree_unflatten(results[:count], output_spec)
    return (output, pull_back, aux.restored(results[count:output_count])) if has_aux else (output, pull_back)


def _value_and_grad(name: str, func: Callable[..., Any], argnums: Argnums, has_aux: bool) -> Callable[..., Any]:
    def both(*args: Any, **kwargs: Any) -> Any:
        def scalar(*arguments: Any) -> Any:
            result = func(*arguments, **kwargs)
            value, _ = split_aux(name, result, has_aux)
            if not isinstance(value, torch.Tensor):
                raise RuntimeError(f"thunder.{name}: expected a function that returns a tensor, got {type(value)}")
            if value.dim() != 0:
                raise RuntimeError(
                    f"thunder.{name}: expected a function that returns a tensor without dimensions, got one of shape "
                    f"{tuple(value.shape)}; use vjp or jacrev"
                )
            return result

        value, pull_back, *aux = vjp_of(name, scalar, args, argnums, has_aux)
        gradients = pull_back(torch.ones_like(value))
        return ((value, *aux), gradients) if has_aux else (value, gradients)

    return both


@functools.lru_cache(maxsize=256)
def _compiled_vjp(func: Callable[..., Any], has_aux: bool) -> Callable[..., Any]:
    return jit(lambda *primals: vjp_of("vjp", func, primals, None, has_aux))


@functools.cache
def _compiled_pull_back() -> Callable[..., Any]:
    return jit(Pullback.pull_back)
