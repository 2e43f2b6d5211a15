"""Reverse mode by a backward inside of the program that is traced, where its sizes are symbols.

There a trace of the function's own, or a level of `torch.func`, would need them as numbers, and each size a program of
its own. What stands for a function of PyTorch here raises what that raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from thunder._check import load_extension
from thunder.transforms.functional.structures import Argnums, replaced, selected

__all__ = ["grad_and_value_of_torch", "value_and_grad_in_program", "vjp_of_torch"]

_functional = load_extension().functional


class _Level:
    """The tensors that a function is differentiated by: others over the same memory, which only it gets."""

    def __init__(self, primals: Any) -> None:
        self.leaves, self.spec = pytree.tree_flatten(primals)
        for leaf in self.leaves:
            if not isinstance(leaf, torch.Tensor):
                raise ValueError(f"Thing passed to transform API must be Tensor, got {type(leaf)}")
        self.inputs = [
            leaf.view_as(leaf) if leaf.requires_grad else leaf.detach().requires_grad_() for leaf in self.leaves
        ]

    def primals(self) -> Any:
        """Return what the function gets."""
        return pytree.tree_unflatten(self.inputs, self.spec)

    def gradients(self, outputs: Sequence[Any], cotangents: Sequence[Any] | None = None) -> list[Any]:
        """Return one for each input; `cotangents`: one for each output, ones if left out."""
        taken = [i for i, output in enumerate(outputs) if output.requires_grad]
        if not taken:
            return [torch.zeros_like(given) for given in self.inputs]
        found = torch.autograd.grad(
            [outputs[i] for i in taken],
            self.inputs,
            None if cotangents is None else [cotangents[i] for i in taken],
            create_graph=True,
            allow_unused=True,
        )
        return [
            torch.zeros_like(given) if each is None else each for given, each in zip(self.inputs, found, strict=True)
        ]

    def outside(self, made: Any) -> Any:
        """Return a tensor as the program sees it: with a history if it has one but for the inputs of this level."""
        if not isinstance(made, torch.Tensor):
            return made
        for leaf, given in zip(self.leaves, self.inputs, strict=True):
            if made is given:
                return leaf
        has_history = torch.is_grad_enabled() and _functional.depends_on_others(made, self.inputs)
        return made if has_history else made.detach()


def value_and_grad_in_program(scalar: Callable[[Any], Any], primals: Any, has_aux: bool) -> tuple[Any, Any]:
    """Return `(scalar(primals), gradient)`; with `has_aux`, of the first part of what `scalar` returns."""
    with torch.enable_grad():
        level = _Level(primals)
        result = scalar(level.primals())
        gradients = level.gradients([result[0] if has_aux else result])
    result = pytree.tree_map(level.outside, result)
    return result, pytree.tree_unflatten([level.outside(each) for each in gradients], level.spec)


def grad_and_value_of_torch(
    func: Callable[..., Any], argnums: Argnums, has_aux: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, Any]:
    """Stand for `torch._functorch.eager_transforms.grad_and_value_impl`."""
    primals = selected(args, argnums)
    if primals is None:
        raise RuntimeError(f"Got argnum={argnums}, but only {len(args)} positional inputs")

    def scalar(given: Any) -> Any:
        result = func(*replaced(args, argnums, given), **kwargs)
        _require_pair("grad_and_value(f)(*args)", result, has_aux)
        value = result[0] if has_aux else result
        if not isinstance(value, torch.Tensor) or value.dim() != 0:
            raise RuntimeError("grad_and_value(f)(*args): Expected f(*args) to return a scalar Tensor")
        _require_tensors(result)
        return result

    value, gradients = value_and_grad_in_program(scalar, primals, has_aux)
    return gradients, value


def vjp_of_torch(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Stand for `torch.func.vjp`."""
    with torch.enable_grad():
        level = _Level(primals)
        result = func(*level.primals())
        _require_pair("vjp(f, *primals)", result, has_aux)
        output, aux = result if has_aux else (result, None)
        leaves, spec = pytree.tree_flatten(output)
        if not leaves:
            raise RuntimeError(
                "vjp(f, *primals): Expected f to be a function that has non-empty output (got output = ())"
            )
        _require_tensors(result)
        for leaf in leaves:
            if not leaf.is_floating_point() and not leaf.is_complex():
                raise RuntimeError(
                    "vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got Tensor with dtype "
                    f"{leaf.dtype}"
                )

    def pull_back(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given, given_spec = pytree.tree_flatten(cotangents)
        if given_spec != spec:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the "
                f"function. cotangents: {given_spec}, primal output: {spec}"
            )
        gradients = level.gradients(leaves, given)
        return pytree.tree_unflatten([level.outside(each) for each in gradients], level.spec)

    seen = pytree.tree_map(level.outside, output)
    return (seen, pull_back, pytree.tree_map(level.outside, aux)) if has_aux else (seen, pull_back)


def _require_pair(name: str, result: Any, has_aux: bool) -> None:
    if has_aux and not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True")


def _require_tensors(result: Any) -> None:
    for leaf in pytree.tree_leaves(result):
        if not isinstance(leaf, torch.Tensor):
            raise RuntimeError(f"Expected tensors, got unsupported type {type(leaf)}")
