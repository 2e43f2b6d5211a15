"""`grad`, `value_and_grad` and `vjp`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from thunder._arguments import require_callable
from thunder._check import load_extension
from thunder._jit import jit
from thunder.transforms.functional.in_program import value_and_grad_in_program
from thunder.transforms.functional.structures import (
    Argnums,
    Kept,
    are_tensors,
    by_identity,
    compiled,
    is_called_in_a_trace,
    replaced,
    runs_as_torch,
    selected,
)

__all__ = ["Pullback", "grad", "value_and_grad", "vjp"]

_functional = load_extension().functional


def grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return the function that computes the gradient of `func`.

    Args:
        func: returns a floating-point tensor without dimensions, or, with `has_aux`, a pair of it and anything else.
        argnums: which positional arguments to differentiate with respect to; each a tensor or a container of tensors.
            An int gives the gradient of that argument, a tuple gives a tuple.
        has_aux: also return the second part of what `func` returns: `(gradient, aux)`.

    Raises:
        TypeError: `func` is not callable.
        RuntimeError: `func` returns something else.

    Example:
        >>> import torch, thunder
        >>> thunder.grad(lambda x: (x**2).sum())(torch.tensor([1.0, 2.0]))
        tensor([2., 4.])
    """
    both = _value_and_grad(func, argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return compiled("grad", gradient, func, dynamic=None)


def value_and_grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return the function that computes `(func(…), gradient)`; `func`, `argnums` and `has_aux` are those of `grad`.

    With `has_aux`, `((value, aux), gradient)`.

    Raises:
        TypeError: `func` is not callable.
        RuntimeError: `func` returns something else than one number.

    Example:
        >>> import torch, thunder
        >>> thunder.value_and_grad(lambda x: (x**2).sum())(torch.tensor([1.0, 2.0]))
        (tensor(5.), tensor([2., 4.]))
    """
    return compiled("value_and_grad", _value_and_grad(func, argnums, has_aux), func, dynamic=None)


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return `(func(*primals), vjp_function)`; with `has_aux`, `(output, vjp_function, aux)`.

    Args:
        func: returns floating-point tensors, or containers of them.
        primals: tensors, or containers of them.
        has_aux: `func` returns a pair: what is differentiated, and anything else.

    `vjp_function(cotangents)` takes the structure of the output and returns a tuple with one gradient for each primal.

    Raises:
        RuntimeError: `func` returns something else, or the cotangents have another structure.

    Example:
        >>> import torch, thunder
        >>> output, vjp_function = thunder.vjp(torch.sin, torch.zeros(2))
        >>> vjp_function(torch.ones(2))
        (tensor([1., 1.]),)
    """
    require_callable("thunder.vjp", func)
    if is_called_in_a_trace():
        return _vjp(func, primals, has_aux)
    return _compiled_vjp(func, has_aux)(*primals)


class Pullback:
    """The function that `vjp` returns beside the output: pulls cotangents back to the primals.

    It keeps what the forward saved, so it may be called later and more than once.
    """

    def __init__(self, saved: list[Any], program: Any, taken: list[int], specs: tuple[Any, Any], inputs: list[Any]):
        self.saved = saved
        self.program = program  # the backward trace
        self.taken = taken  # positions of the outputs whose cotangents the program takes
        self.output_spec, self.primal_spec = specs
        self.inputs = inputs  # the differentiated leaves: for the gradients that are zero

    def __call__(self, cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        """Return a tuple with one gradient for each primal. `cotangents` has the structure of the output.

        What the forward saved is kept, and the gradients take part in autograd where gradients are on; the last two
        arguments are those of `torch.func.vjp`'s function, and change nothing.
        """
        if is_called_in_a_trace():
            return self.pull_back(cotangents)
        return _compiled_pull_back()(self, cotangents)

    def pull_back(self, cotangents: Any) -> Any:
        """Do so where a trace is being recorded."""
        leaves, spec = pytree.tree_flatten(cotangents)
        if spec != self.output_spec:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the "
                f"function. cotangents: {spec}, primal output: {self.output_spec}"
            )
        gradients = _functional.pull_back(self.program, self.saved, [leaves[i] for i in self.taken])
        filled = [
            torch.zeros_like(primal) if gradient is None else gradient
            for gradient, primal in zip(gradients, self.inputs, strict=False)
        ]
        return pytree.tree_unflatten(filled, self.primal_spec)


def _vjp(func: Callable[..., Any], primals: tuple[Any, ...], has_aux: bool) -> Any:
    if runs_as_torch() or not are_tensors(pytree.tree_leaves(primals)):
        return torch.func.vjp(func, *primals, has_aux=has_aux)
    return _traced_vjp("vjp", lambda given: func(*given), primals, has_aux)


def _traced_vjp(name: str, call: Callable[[Any], Any], primals: Any, has_aux: bool) -> Any:
    """Return what `vjp` does, of `call(primals)`; the function is recorded as a trace of its own and transformed."""
    inputs, primal_spec = pytree.tree_flatten(primals)
    recorded: list[Any] = []

    def program(tensors: list[Any]) -> list[Any]:
        result = call(pytree.tree_unflatten(tensors, primal_spec))
        output, aux = _split(name, result, has_aux)
        leaves, spec = pytree.tree_flatten(output)
        if not are_tensors(leaves) or not all(leaf.is_floating_point() or leaf.is_complex() for leaf in leaves):
            raise RuntimeError(f"{name}: expected floating-point or complex tensors as results")
        recorded.append((spec, len(leaves), Kept(aux)))
        return [*leaves, *recorded[-1][2].tensors]

    trace, captures = _functional.record(name, program, inputs, True)
    output_spec, count, aux = recorded[-1]
    forward, backward, output_count, taken = _functional.vjp(trace, count)
    results = _functional.replay(forward, [*inputs, *captures])
    saved = results[output_count:]
    pull_back = Pullback(saved, backward, taken, (output_spec, primal_spec), inputs)
    output = pytree.tree_unflatten(results[:count], output_spec)
    return (output, pull_back, aux.restored(results[count:output_count])) if has_aux else (output, pull_back)


def _split(name: str, result: Any, has_aux: bool) -> tuple[Any, Any]:
    """Return (what is differentiated, anything else) of a function's result."""
    if not has_aux:
        return result, None
    if not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(f"{name}: has_aux: expected a function that returns a pair, got {type(result)}")
    return result


def _value_and_grad(func: Callable[..., Any], argnums: Argnums, has_aux: bool) -> Callable[..., Any]:
    theirs = torch.func.grad_and_value(func, argnums, has_aux)

    def both(*args: Any, **kwargs: Any) -> Any:
        primals = selected(args, argnums)
        if runs_as_torch() or not are_tensors(pytree.tree_leaves(primals)):
            return theirs(*args, **kwargs)[::-1]

        def scalar(given: Any) -> Any:
            result = func(*replaced(args, argnums, given), **kwargs)
            value, _ = _split("grad", result, has_aux)
            if not isinstance(value, torch.Tensor) or value.dim() != 0:
                raise RuntimeError("grad: expected a function that returns a tensor without dimensions")
            if value.is_complex():
                raise RuntimeError(f"grad: expected a function that returns a real tensor, got {value.dtype}")
            return result

        if _functional.has_symbols():
            return value_and_grad_in_program(scalar, primals, has_aux)
        value, pull_back, *aux = _traced_vjp("grad", scalar, primals, has_aux)
        gradients = pull_back(torch.ones_like(value))
        return ((value, *aux), gradients) if has_aux else (value, gradients)

    return both


@by_identity
def _compiled_vjp(func: Callable[..., Any], has_aux: bool) -> Callable[..., Any]:
    return jit(lambda *primals: _vjp(func, primals, has_aux), dynamic=False)


@functools.cache
def _compiled_pull_back() -> Callable[..., Any]:
    return jit(Pullback.pull_back, dynamic=False)
