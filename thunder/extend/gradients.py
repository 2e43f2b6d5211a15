"""Derivatives written in Python: `get_grad` and `put_grad` inside of a grad_transform."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from thunder._check import load_extension

__all__ = ["derivatives", "differentiable", "driver", "get_grad", "put_grad", "put_grads", "undifferentiable"]

_extend = load_extension().extend

GradTransform = Callable[..., Any]


def get_grad(result: torch.Tensor, /) -> torch.Tensor:
    """Return the gradient of a result of the operation, of its shape, dtype and device.

    For use in a grad_transform, which computes the operation's results, and then from their gradients those of the
    arguments. What it computes before the first gradient that it needs runs in the forward.

    Raises:
        RuntimeError: called elsewhere.
        TypeError: `result` is no tensor.

    Example:
        >>> import torch, thunder
        >>> from thunder.extend import OperatorExecutor, get_grad, put_grad
        >>> mine = OperatorExecutor("example_of_get_grad")
        >>> def clipped_gradient(x):
        ...     result = torch.exp(x)
        ...     put_grad(x, (get_grad(result) * result).clamp(max=1))
        ...     return result
        >>> mine.register_implementation(torch.exp, grad_transform=clipped_gradient)
        >>> x = torch.tensor([0.0, 3.0], requires_grad=True)
        >>> thunder.jit(torch.exp, executors=[mine])(x).sum().backward()
        >>> x.grad
        tensor([1., 1.])
    """
    return _current().cotangent_of(result)


def put_grad(argument: torch.Tensor, gradient: torch.Tensor | None, /) -> None:
    """Say what the gradient of an argument of the operation is; several are added up, None is zero.

    Args:
        argument: a tensor that the grad_transform was given.
        gradient: of the argument's shape, dtype and device. `get_grad` has an example.

    Raises:
        RuntimeError: called elsewhere than in a grad_transform.
    """
    _current().gradients.append((argument, gradient))


def put_grads(arguments: Any, gradients: Any, /) -> None:
    """Say what the gradients of several arguments are: `put_grad` for each tensor of two containers of one structure.

    Raises:
        RuntimeError: called elsewhere than in a grad_transform.
        ValueError: the containers hold different numbers of leaves.
    """
    for argument, gradient in zip(pytree.tree_leaves(arguments), pytree.tree_leaves(gradients), strict=True):
        if isinstance(argument, torch.Tensor) and isinstance(gradient, torch.Tensor):
            put_grad(argument, gradient)


class _Rule:
    """One call of a grad_transform."""

    def __init__(self, make_cotangent: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.make_cotangent = make_cotangent
        self.cotangents: list[tuple[torch.Tensor, torch.Tensor]] = []  # (result, cotangent)
        self.gradients: list[tuple[torch.Tensor, torch.Tensor | None]] = []

    def cotangent_of(self, result: torch.Tensor) -> torch.Tensor:
        if not isinstance(result, torch.Tensor):
            raise TypeError(f"get_grad: expected a result of the operation, got {type(result).__name__}")
        for known, cotangent in self.cotangents:
            if known is result:
                return cotangent
        self.cotangents.append((result, self.make_cotangent(result)))
        return self.cotangents[-1][1]

    def run(self, transform: GradTransform, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        previous = getattr(_rules, "current", None)
        _rules.current = self
        try:
            returned = transform(*args, **kwargs)
        finally:
            _rules.current = previous
        return list(returned) if isinstance(returned, tuple | list) else [returned]

    def positions(self, results: list[Any]) -> list[int]:
        """Return which of the results each cotangent is of."""
        found = []
        for result, _ in self.cotangents:
            position = next((i for i, each in enumerate(results) if each is result), None)
            if position is None:
                raise ValueError("get_grad: expected a tensor that the grad_transform returns, got another one")
            found.append(position)
        return found


_rules = threading.local()


def _current() -> _Rule:
    rule: _Rule | None = getattr(_rules, "current", None)
    if rule is None:
        raise RuntimeError("get_grad and put_grad: expected to be called in a grad_transform")
    return rule


def driver(transform: GradTransform) -> Callable[..., Any]:
    """Return what the extension calls to record a grad_transform."""

    def record(args: Sequence[Any], kwargs: dict[str, Any], cotangent_like: Callable[..., torch.Tensor]) -> Any:
        rule = _Rule(cotangent_like)
        results = rule.run(transform, args, kwargs)
        return results, rule.positions(results), rule.gradients

    return record


def undifferentiable(op: Callable[..., Any], message: str) -> GradTransform:
    """Return the grad_transform of an operator that has none: its backward raises, as in eager."""

    def transform(*args: Any, **kwargs: Any) -> Any:
        returned = op(*args, **kwargs)
        first = returned[0] if isinstance(returned, tuple | list) else returned
        for argument in pytree.tree_leaves((args, kwargs)):
            if isinstance(argument, torch.Tensor) and argument.is_floating_point():
                put_grad(argument, torch.ops.thunder_extend.no_derivative(get_grad(first), argument, message))
        return returned

    return transform


# How operators are differentiated in eager: as another operator, or by a grad_transform.
derivatives: dict[Any, tuple[Any, GradTransform | None]] = {}


def differentiable(op: Any) -> Callable[..., Any]:
    """Return the autograd kernel of an operator, which does what `derivatives` says."""
    takes_tensor = ["Tensor" in str(parameter.type) for parameter in op._schema.arguments]

    def kernel(*given: Any, **kwargs: Any) -> Any:
        # PyTorch hands on a tensor that stands for a number (`x + 2`) as the number.
        args = [
            _extend.wrap_number(argument) if isinstance(argument, bool | int | float | complex) and tensor else argument
            for argument, tensor in zip(given, takes_tensor, strict=False)
        ]
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if any(map(_extend.has_tangent, tensors)):
            raise NotImplementedError(
                f"{op}: expected no forward-mode differentiation (jvp), which operators of executors do not have"
            )
        if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in tensors):
            with torch._C._AutoDispatchBelowAutograd():
                return op(*args, **kwargs)
        result = _Differentiated.apply(op, *derivatives[op], spec, *leaves)
        returns_list = len(op._schema.returns) == 1 and isinstance(result, tuple)
        return list(result) if returns_list else result

    return kernel


class _Differentiated(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, op: Any, like: Any, transform: Any, spec: Any, *leaves: Any) -> Any:
        args, kwargs = pytree.tree_unflatten(list(leaves), spec)
        with torch._C._AutoDispatchBelowAutograd():
            result = op(*args, **kwargs)
        ctx.tensor_positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        ctx.save_for_backward(*(leaves[i] for i in ctx.tensor_positions))
        ctx.constants = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        ctx.rest = (like, transform, spec)
        return tuple(result) if isinstance(result, list) else result

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *cotangents: Any) -> Any:
        like, transform, spec = ctx.rest
        leaves = list(ctx.constants)
        for position, tensor in zip(ctx.tensor_positions, ctx.saved_tensors, strict=True):
            leaves[position] = tensor.detach()
        if transform is not None:
            gradients = _gradients_by_transform(transform, leaves, spec, list(cotangents))
        else:
            gradients = _gradients_like(like, leaves, spec, list(cotangents), ctx.needs_input_grad[4:])
        return None, None, None, None, *gradients


def _gradients_by_transform(
    transform: GradTransform, leaves: list[Any], spec: Any, cotangents: list[torch.Tensor]
) -> list[Any]:
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    order = [0] * len(cotangents)
    if len(cotangents) > 1:
        # Which result a gradient is asked for of is known when all are there.
        probe = _Rule(torch.zeros_like)
        order = probe.positions(probe.run(transform, args, kwargs))
    asked = iter(order)
    rule = _Rule(lambda _result: cotangents[next(asked)])
    rule.run(transform, args, kwargs)
    gradients: list[Any] = [None] * len(leaves)
    for argument, gradient in rule.gradients:
        position = next(i for i, leaf in enumerate(leaves) if leaf is argument)
        if gradient is not None:
            known = gradients[position]
            gradients[position] = gradient if known is None else known + gradient
    return gradients


def _gradients_like(
    like: Any, leaves: list[Any], spec: Any, cotangents: list[torch.Tensor], needed: Sequence[bool]
) -> list[Any]:
    wanted = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and needed[i]]
    with torch.enable_grad():
        for i in wanted:
            leaves[i].requires_grad_()
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        results = pytree.tree_leaves(like(*args, **kwargs))
        pairs = [(r, c) for r, c in zip(results, cotangents, strict=True) if r.requires_grad]
        found = torch.autograd.grad(
            [result for result, _ in pairs],
            [leaves[i] for i in wanted],
            [cotangent for _, cotangent in pairs],
            allow_unused=True,
        )
    gradients: list[Any] = [None] * len(leaves)
    for i, gradient in zip(wanted, found, strict=True):
        gradients[i] = gradient
    return gradients


def _no_derivative(cotangent: torch.Tensor, argument: torch.Tensor, message: str) -> torch.Tensor:
    raise NotImplementedError(message)


_library = torch.library.Library("thunder_extend", "DEF")
_library.define("no_derivative(Tensor cotangent, Tensor argument, str message) -> Tensor")
_extend.note_declared("thunder_extend::no_derivative", "")
_library.impl("no_derivative", _no_derivative, "CompositeExplicitAutograd")
_library.impl("no_derivative", lambda cotangent, argument, message: torch.empty_like(argument), "Meta")
