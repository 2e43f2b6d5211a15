"""Backwards of custom operators that run as a whole.

A backward that is registered with `register_autograd` is recorded, as everything is. One that reads the data of tensors
(`.tolist()`) cannot be, while gradients are derived: there is none. It becomes an operator of the dispatcher that takes
what the operator took and gave, and the cotangents, and runs the backward when the trace runs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._library.autograd import make_autograd_impl
from torch._library.custom_ops import OPDEFS
from torch._ops import OpOverload

from thunder.extend.library import define, kernel_of, key_of, library

__all__ = ["opaque_backward"]

_NAMESPACE = "thunder_backward"


def opaque_backward(name: str, overload: str) -> tuple[str, str] | None:
    """Return the (name, overload) of the operator for `namespace::operator`; None where no backward is registered."""
    definition = OPDEFS.get(name)
    if overload or definition is None or definition._backward_fn is None:
        return None
    namespace, short = name.split("::")
    op = getattr(torch.ops, namespace)
    return _define(name, str(getattr(op, short).default._schema))


@functools.cache
def _define(name: str, schema: str) -> tuple[str, str] | None:
    namespace, short = name.split("::")
    op = getattr(getattr(torch.ops, namespace), short).default
    if any(str(result.type) != "Tensor" for result in op._schema.returns):
        return None
    parameters = schema[schema.index("(") + 1 : schema.rindex(") ->")]
    separator = "" if "*, " in parameters else "*, "
    added = f"{separator}Tensor?[] outputs, Tensor?[] cotangents, bool[] needs"
    made = define(_NAMESPACE, f"{namespace}_{short}", f"({parameters}, {added}) -> Tensor[]", ())

    def backward(*arguments: Any, outputs: Any, cotangents: Any, needs: Any, **keywords: Any) -> list[torch.Tensor]:
        return _run(op, arguments, keywords, outputs, cotangents, needs)

    def metadata(*arguments: Any, outputs: Any, cotangents: Any, needs: Any, **keywords: Any) -> list[torch.Tensor]:
        tensors = zip(_tensors((*arguments, *keywords.values())), needs, strict=True)
        return [torch.empty_like(tensor) for tensor, needed in tensors if needed]

    library(_NAMESPACE).impl(key_of(made), kernel_of(backward), "CompositeExplicitAutograd")
    library(_NAMESPACE).impl(key_of(made), metadata, "Meta")
    return made._schema.name, made._schema.overload_name


class _Computed:
    """The operator, with results that are known: its autograd kernel is set up without running it again."""

    def __init__(self, op: OpOverload, outputs: Sequence[torch.Tensor]) -> None:
        self._op = op
        self._outputs = tuple(output.detach() for output in outputs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)

    def redispatch(self, *_args: Any, **_keywords: Any) -> Any:
        return self._outputs if len(self._outputs) != 1 else self._outputs[0]


def _run(
    op: OpOverload, arguments: tuple[Any, ...], keywords: dict[str, Any], outputs: Any, cotangents: Any, needs: Any
) -> list[torch.Tensor]:
    flags = iter(needs)
    leaves: list[torch.Tensor] = []

    def leaf(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [leaf(item) for item in value]
        if not isinstance(value, torch.Tensor):
            return value
        needed = next(flags)
        value = value.detach().requires_grad_(needed)
        if needed:
            leaves.append(value)
        return value

    inputs = [leaf(value) for value in arguments]
    named = {name: leaf(value) for name, value in keywords.items()}
    call = make_autograd_impl(_Computed(op, outputs), OPDEFS[op._schema.name])
    with torch.enable_grad():
        results = call(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), *inputs, **named)
    results = results if isinstance(results, tuple | list) else (results,)
    reached = [
        (result, cotangent)
        for result, cotangent in zip(results, cotangents, strict=True)
        if cotangent is not None and result.requires_grad
    ]
    gradients = torch.autograd.grad(
        [result for result, _ in reached], leaves, [cotangent for _, cotangent in reached], allow_unused=True
    )
    taken = {tensor.untyped_storage()._cdata for tensor in _tensors((arguments, keywords, outputs, cotangents))}
    return [_owned(gradient, like, taken) for gradient, like in zip(gradients, leaves, strict=True)]


def _owned(gradient: torch.Tensor | None, like: torch.Tensor, taken: set[int]) -> torch.Tensor:
    """Return a gradient in memory of its own, laid out as `metadata` says."""
    result = torch.empty_like(like)
    if gradient is None:
        return result.zero_()
    storage = gradient.untyped_storage()._cdata
    if gradient.stride() != result.stride() or storage in taken:
        return result.copy_(gradient)
    taken.add(storage)
    return gradient


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
