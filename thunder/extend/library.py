"""New operators in PyTorch's dispatcher."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from thunder._check import load_extension
from thunder.extend.operations import name_of

__all__ = [
    "define",
    "kernel_of",
    "key_of",
    "library",
    "named",
    "require_call",
    "require_free",
    "require_tensor_results",
    "schema_like",
    "tags_like",
]


_extend = load_extension().extend


@functools.cache
def library(namespace: str) -> torch.library.Library:
    """Return the library through which a namespace is filled."""
    return torch.library.Library(namespace, "FRAGMENT")


#: Namespaces and names of the operators that `define` made.
_defined: set[tuple[str, str]] = set()


def define(namespace: str, name: str, schema: str, tags: Sequence[torch.Tag]) -> OpOverload:
    """Define an operator and return it; under a name that was defined here, another overload of it.

    Its tags say all that it does besides giving its results.
    """
    packet = getattr(torch.ops, namespace)
    overload = "default"
    if hasattr(packet, name):
        overload = f"v{len(getattr(packet, name).overloads()) + 1}"
    full_name = name if overload == "default" else f"{name}.{overload}"
    library(namespace).define(full_name + schema, tags=tuple(tags))
    if hasattr(packet, name):
        # The packet lists the overloads that there were when it was made.
        delattr(packet, name)
    op = getattr(getattr(packet, name), overload)
    _defined.add((namespace, name))
    _extend.note_declared(*name_of(op))
    return op


def require_free(namespace: str, name: str, what: str) -> None:
    """Raise ValueError for the name of an operator that `define` did not make."""
    if hasattr(getattr(torch.ops, namespace), name) and (namespace, name) not in _defined:
        raise ValueError(f"{what}: torch.ops.{namespace}.{name} exists, and is not an executor's; choose another name")


def key_of(op: OpOverload) -> str:
    """Return the name by which a library knows an operator: `linear`, `linear.v2`."""
    _, overload = name_of(op)
    name = name_of(op)[0].split("::")[1]
    return f"{name}.{overload}" if overload else name


_AUTOCAST = functools.reduce(
    lambda keys, name: keys | torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name)),
    ("AutocastCPU", "AutocastCUDA"),
    torch._C.DispatchKeySet(torch._C.DispatchKey.Undefined),
)


def kernel_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what the dispatcher calls: as in compiled programs, without gradients and autocast."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad(), torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return function(*args, **kwargs)

    return call


def tags_like(prototype: OpOverload | None) -> Sequence[torch.Tag]:
    """Return the tags that matter here."""
    random = torch.Tag.nondeterministic_seeded
    return [random] if prototype is not None and random in prototype.tags else []


def schema_like(prototype: OpOverload, what: str) -> str:
    """Return an operator's schema without its name; ValueError when it gives views or writes."""
    schema = prototype._schema
    if schema.is_mutable or any(result.alias_info is not None for result in schema.returns):
        raise ValueError(f"{what}: expected an operation that gives new tensors, got {prototype}")
    text = str(schema)
    return text[text.index("(") :]


def require_tensor_results(schema: str, what: str) -> None:
    """Raise ValueError unless an operator of this schema gives tensors alone."""
    returns = torch._C.parse_schema(f"thunder_extend::check{schema}").returns
    kinds = [str(result.type) for result in returns]
    if not kinds or not all(kind in ("Tensor", "List[Tensor]") for kind in kinds):
        raise ValueError(f"{what}: expected results that are tensors, got {schema.split('->')[-1].strip()}")


def require_call(function: Callable[..., Any], schema: str, what: str, *, complete: bool) -> None:
    """Raise TypeError unless a function takes the arguments of an operator, as the dispatcher gives them.

    Those that have their defaults are left out; `complete`: they are given, too. Functions whose signature is not known
    are taken as they are.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    arguments = torch._C.parse_schema(f"thunder_extend::check{schema}").arguments
    names = [each.name for each in arguments if not each.kwarg_only]
    required = [each for each in arguments if not each.has_default_value()]
    for given in (arguments, required) if complete else (required,):
        try:
            signature.bind(
                *(each.name for each in given if not each.kwarg_only),
                **{each.name: each.name for each in given if each.kwarg_only},
            )
        except TypeError as error:
            raise TypeError(
                f"{what}: expected a function that takes ({', '.join(each.name for each in given)}), as the operator "
                f"does, got {signature}: {error}"
            ) from None
    own = list(signature.parameters)[: len(names)]
    if own != names and sorted(own) == sorted(names):
        raise TypeError(f"{what}: expected the parameters ({', '.join(names)}) in this order, got {signature}")


def named(function: Callable[..., Any], what: str) -> Callable[..., Any]:
    """Return `function`; what it raises says who called it."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise RuntimeError(f"{what}: {type(error).__name__}: {error}") from error

    return call
