"""Compares the results of a program in eager and compiled."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from thunder._minify.shrink import cloned, fresh
from thunder.errors import EagerFallbackWarning

__all__ = ["difference", "eager_error"]


def difference(function: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any]) -> str | None:
    """Return how `function` compiled differs from eager: in results, written arguments, gradients, by an exception.

    None when it does not, or when eager fails too.
    """
    from thunder._jit import jit

    try:
        expected = _outcome(fresh(function), cloned(arguments))
    except Exception:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", EagerFallbackWarning)
            got = _outcome(jit(fresh(function), **options), cloned(arguments))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for (name, value), (_, other) in zip(expected, got, strict=False):
        if isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor):
            try:
                torch.testing.assert_close(other, value, equal_nan=True)
            except AssertionError as error:
                return f"{name}: {error}"
        elif isinstance(value, torch.Tensor) or isinstance(other, torch.Tensor) or not _equal(value, other):
            return f"{name}: expected {value}, got {other}"
    return None if len(expected) == len(got) else f"expected {len(expected)} results, got {len(got)}"


def eager_error(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str | None:
    """Return the exception of `function` in eager, as a text; None where there is none."""
    try:
        _outcome(fresh(function), cloned(arguments))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[tuple[str, Any]]:
    torch.manual_seed(0)
    results = pytree.tree_leaves(function(*arguments))
    seen = [(f"result {i}", result) for i, result in enumerate(results)]
    outputs = [result for result in results if isinstance(result, torch.Tensor) and result.grad_fn is not None]
    if outputs:
        torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
    for i, argument in enumerate(pytree.tree_leaves(arguments)):
        if isinstance(argument, torch.Tensor):
            seen.append((f"argument {i} after the call", argument))
            seen.append((f"gradient of argument {i}", argument.grad if argument.is_leaf else None))
    return seen


def _equal(value: Any, other: Any) -> bool:
    try:
        return bool(value == other) or value is other or (value != value and other != other)
    except Exception:
        return True  # objects without an equality of their own
