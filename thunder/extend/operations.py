"""Which operators of PyTorch's dispatcher a person means, and schemas of new ones."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

__all__ = ["may_share_memory", "name_of", "operator_named", "overload_of", "overloads_of", "schema_of"]

# Functions of PyTorch whose operator has another name.
_OTHER_NAMES = {
    torch.nn.functional.cross_entropy: "cross_entropy_loss",
    torch.nn.functional.nll_loss: "nll_loss_nd",
}


def name_of(overload: OpOverload) -> tuple[str, str]:
    """Return `("aten::add", "Tensor")`; the overload is "" for the default one."""
    return overload._schema.name, overload._schema.overload_name


def overloads_of(operation: Any, what: str) -> list[OpOverload]:
    """Return the operators that traces hold where a program calls `operation`.

    Args:
        operation: a torch function or method (`torch.nn.functional.linear`, `torch.Tensor.matmul`), an operator or one
            of its overloads (`torch.ops.aten.add`, `torch.ops.aten.add.Tensor`), or a name ("aten::add",
            "aten.add.Tensor"). Variants that write (`add_`, `out=`) are left out: traces do not hold them.
        what: who asks, for messages.

    Raises:
        ValueError: there is no such operator.
        TypeError: `operation` is none of these.
    """
    if isinstance(operation, OpOverload):
        return [operation]
    packet = operation if isinstance(operation, OpOverloadPacket) else _packet(operation, what)
    if isinstance(packet, OpOverload):
        return [packet]
    overloads = [getattr(packet, name) for name in packet.overloads()]
    functional = [each for each in overloads if not each._schema.is_mutable and _is_dispatched(each)]
    if not functional:
        raise ValueError(f"{what}: expected an operation that writes to no argument, got {packet}")
    return functional


@functools.cache
def operator_named(name: str) -> OpOverload | None:
    """Return the operator that printed traces call `name` ("aten.add.Tensor"); None where there is none."""
    namespace, _, rest = name.partition(".")
    packet, _, overload = rest.partition(".")
    found = getattr(getattr(getattr(torch.ops, namespace, None), packet, None), overload or "default", None)
    return found if isinstance(found, OpOverload) else None


@functools.cache
def may_share_memory(op: OpOverload) -> bool:
    """Return whether results of an operator may share memory with its arguments: views, and what may be one."""
    if any(result.alias_info is not None for result in op._schema.returns):
        return True
    # `reshape` and `contiguous` are views or not, which their schemas do not say.
    is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")
    return is_composite or op._schema.name in ("aten::_unsafe_view", "aten::_reshape_copy")


def overload_of(operation: Any, what: str) -> OpOverload:
    """Return the one operator that `operation` stands for: where it has several, the default or the `Tensor` one."""
    overloads = {overload._overloadname: overload for overload in overloads_of(operation, what)}
    if len(overloads) == 1:
        return next(iter(overloads.values()))
    for name in ("default", "Tensor"):
        if name in overloads:
            return overloads[name]
    packet = next(iter(overloads.values()))._overloadpacket
    choices = ", ".join(f"torch.ops.{packet}.{name}" for name in overloads)
    raise ValueError(f"{what}: expected one operator, got {packet}, which is several: one of {choices}")


def _is_dispatched(overload: OpOverload) -> bool:
    """TorchScript has overloads of its own, for Python numbers."""
    return bool(torch._C._dispatch_has_kernel(overload.name()))


def _packet(operation: Any, what: str) -> OpOverloadPacket | OpOverload:
    if isinstance(operation, str):
        return _by_name(operation, what)
    if not callable(operation):
        raise TypeError(f"{what}: expected an operation of PyTorch or its name, got {operation!r}")
    other = _OTHER_NAMES.get(operation) if inspect.isfunction(operation) else None
    name = str(other or getattr(operation, "__name__", ""))
    module = getattr(operation, "__module__", None) or ""
    # Built-in functions of PyTorch have a module of torch or none.
    if module.split(".")[0] in ("torch", "") and hasattr(torch.ops.aten, name):
        return getattr(torch.ops.aten, name)
    raise ValueError(
        f"{what}: expected an operation of PyTorch, got {operation!r}, which is no single operator; give the "
        "operator that printed traces show (thunder.last_traces(f)[0]), such as torch.ops.aten.linear.default"
    )


def _by_name(name: str, what: str) -> OpOverloadPacket | OpOverload:
    found: Any = torch.ops
    parts = name.replace("::", ".").split(".")
    for i, part in enumerate(parts):
        if not part.isidentifier() or not hasattr(found, part) or (i == 0 and len(parts) == 1):
            close = difflib.get_close_matches(part, dir(found), n=3)
            hint = f"; did you mean {', '.join(close)}?" if close and i > 0 else ""
            raise ValueError(f"{what}: expected a name such as 'aten::linear', got {name!r}{hint}")
        found = getattr(found, part)
    if not isinstance(found, OpOverload | OpOverloadPacket):
        raise ValueError(f"{what}: expected a name such as 'aten::linear', got {name!r}")
    return found


def schema_of(function: Callable[..., Any], what: str) -> str:
    """Return the schema of a function without its name: `(Tensor a, float scale=1.0) -> Tensor`.

    It follows from annotations. A parameter without one has its default's type, or is a tensor; without an annotation
    the function returns one tensor. `what` is for messages.
    """
    annotated = inspect.signature(function, eval_str=True)
    parameters = []
    for parameter in annotated.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ValueError(f"{what}: expected a function with named parameters, got {parameter}")
        if parameter.annotation is parameter.empty:
            annotation: Any = torch.Tensor
            if parameter.default is None:
                annotation = torch.Tensor | None
            elif parameter.default is not parameter.empty:
                annotation = type(parameter.default)
            parameter = parameter.replace(annotation=annotation)
        parameters.append(parameter)
    returned = annotated.return_annotation
    if returned is annotated.empty:
        returned = torch.Tensor

    def prototype() -> None: ...

    prototype.__signature__ = annotated.replace(parameters=parameters, return_annotation=returned)  # type: ignore[attr-defined]
    prototype.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {
        "return": returned
    }
    try:
        return str(torch.library.infer_schema(prototype, mutates_args=()))
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error
