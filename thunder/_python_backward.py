"""Backwards and hooks of a program that run as Python at each backward.

A compiled forward computes what a `torch.autograd.Function` returns and saves. Here its results get the history that
calling it would have given them: a context of the function's own class, which PyTorch's engine hands to its `backward`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["call", "complete", "make_history", "register", "run"]


class _Call(threading.local):
    values: Sequence[torch.Tensor] = ()
    saved: Sequence[torch.Tensor | None] = ()


_call = _Call()


def make_history(
    function: type[torch.autograd.Function],
    outputs: Sequence[int],
    constants: Sequence[int],
    is_tuple: bool,
    fills_in_zeros: bool,
) -> Callable[..., Sequence[torch.Tensor]]:
    """Return what gives values the history of results of `function`.

    Args:
        function: the class that the program applied.
        outputs: for each output of the call its number among the values; -1 where it is no tensor.
        constants: the numbers of values that the forward marked as not differentiable.
        is_tuple: whether the call returns a tuple.
        fills_in_zeros: what the forward gave to `set_materialize_grads`.
    """

    class History(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            values = _call.values
            ctx.save_for_backward(*_call.saved)
            ctx.set_materialize_grads(fills_in_zeros)
            if constants:
                ctx.mark_non_differentiable(*(values[i] for i in constants))
            results = tuple(values[i] if i >= 0 else None for i in outputs)
            return results if is_tuple else results[0]

    History._backward_cls = function._backward_cls

    def give(*inputs: Any) -> Sequence[torch.Tensor]:
        results = History.apply(*inputs)
        results = results if is_tuple else (results,)
        return [result for result, number in zip(results, outputs, strict=True) if number >= 0]

    return give


def run(
    history: Callable[..., Sequence[torch.Tensor]],
    inputs: Sequence[torch.Tensor | None],
    values: Sequence[torch.Tensor],
    saved: Sequence[torch.Tensor | None],
) -> tuple[torch.Tensor, ...]:
    """Return `values` with a history; `inputs` are the arguments of the call, None for those that are no tensors."""
    _call.values, _call.saved = values, saved
    try:
        with torch.enable_grad():
            return tuple(history(*inputs))
    finally:
        _call.values, _call.saved = (), ()


def call(callable: Callable[..., Any], positional: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Return `callable(*positional, **keywords)`."""
    return callable(*positional, **keywords)


def complete(
    result: torch.Tensor,
    attributes: dict[str, Any],
    before: Sequence[Callable[..., Any]],
    after: Sequence[Callable[..., Any]],
) -> None:
    """Give the context of a result's history the attributes and hooks that the forward left on it."""
    context: Any = result.grad_fn
    if context is None:  # none of the arguments requires grad after all
        return
    vars(context).update(attributes)
    for hook in before:
        context.register_prehook(hook)
    for hook in after:
        context.register_hook(hook)


def register(tensor: torch.Tensor, method: str, hooks: Sequence[Callable[..., Any]]) -> None:
    """Register hooks on a tensor by one of its methods."""
    for hook in hooks:
        getattr(tensor, method)(hook if tensor.is_leaf else _of_gradients(hook))


def _of_gradients(hook: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor | None], Any]:
    """Return a hook that skips backwards in which only other results of the compiled function have gradients."""
    return lambda gradient: None if gradient is None else hook(gradient)
