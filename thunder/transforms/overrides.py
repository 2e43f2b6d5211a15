"""Parameters that transforms replace or add, in `Transform.transform_module`.

A compiled module holds the tensors that optimizers, `state_dict()` and `to()` work with, under their names as ever.
What programs see in the place of a replaced one is kept in the module's `__dict__`, so that it is copied and pickled
with the module.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from thunder.module import ThunderModule
    from thunder.transforms.transform import Transform

__all__ = ["Override", "add_parameter", "override_parameter", "overrides_of"]

_REGISTRY = "_thunder_overrides"  # csrc/dispatch/call/overrides.cpp knows it by this name
_WHOLE = ""  # in the registry: the module itself
_owner: contextvars.ContextVar[str | None] = contextvars.ContextVar("owner", default=None)


@dataclasses.dataclass
class Override:
    """A parameter or buffer that a transform replaced, or added others beside.

    Attributes:
        names: where it stands in the module: several names where it is shared (tied weights).
        owner: `repr` of the transform that replaced it; empty where none did.
        shape, stride, dtype: as programs see it; None where it was not replaced.
        device: where programs see it; None: where the replacement is.
        added: the parameters and buffers that were added beside it, with `repr` of the transform that did.
    """

    names: tuple[str, ...]
    owner: str = ""
    shape: torch.Size | None = None
    stride: tuple[int, ...] | None = None
    dtype: torch.dtype | None = None
    device: torch.device | None = None
    added: dict[str, str] = dataclasses.field(default_factory=dict)


def override_parameter(model: ThunderModule, name: str, replacement: torch.Tensor) -> None:
    """Put another tensor in the place of a parameter or buffer, which programs go on seeing as it was.

    Programs are traced with shape, strides and dtype of the original. `Transform.transform_traces_pre_prologue` of the
    same transform changes what they compute so that they take the replacement (`TraceEdit.take_stored`). To programs it
    requires grad where the replacement does, or what is added beside it.

    Args:
        model: the module that `Transform.transform_module` is given.
        name: as in `named_parameters()` or `named_buffers()`. Where other names hold the same tensor (tied weights),
            all of them get the replacement.
        replacement: a leaf of any shape and dtype, on the device where the program needs it. In the place of a
            parameter it becomes one, which requires grad only if it is given as a `torch.nn.Parameter` that does. Of a
            `DTensor`, programs take the part that this process has; its gradients are made DTensors.

    Raises:
        ValueError: the module has no such parameter or buffer, or it was replaced before; the replacement is no leaf.
        TypeError: the replacement is a tensor of another subclass, sparse, nested or quantized.
        RuntimeError: not called in `Transform.transform_module`.
    """
    owner = _current_owner("override_parameter")
    original = _find(model, name)
    entry = _entry(model, name, original)
    if entry.owner:
        raise ValueError(f"transform {owner}: {name} is replaced already, by {entry.owner}{_other_names(entry, name)}")
    _require_plain(name, _local_part(replacement))
    if not replacement.is_leaf:
        raise ValueError(f"transform {owner}: {name}: expected a leaf, got a tensor that was computed; detach it")
    if isinstance(original, torch.nn.Parameter) and not isinstance(replacement, torch.nn.Parameter):
        replacement = torch.nn.Parameter(replacement, requires_grad=False)
    entry.owner, entry.shape, entry.stride, entry.dtype = owner, original.shape, original.stride(), original.dtype
    for each in entry.names:
        _set(model, each, replacement)
    _changed(model, entry)


def see_on(model: ThunderModule, name: str, device: torch.device) -> None:
    """Let programs see a parameter that was replaced on another device than its replacement is on."""
    entry = overrides_of(_module(model))[name]
    entry.device = device
    _changed(model, entry)


def replace_stored(model: ThunderModule, name: str, replacement: torch.nn.Parameter) -> None:
    """Put another tensor in the place of one that a transform before put there, which knows how to take it.

    Raises RuntimeError where it is not called in `Transform.transform_module`.
    """
    _current_owner("replace_stored")
    entry = overrides_of(_module(model))[name]
    _require_plain(name, _local_part(replacement))
    for each in entry.names:
        _set(model, each, replacement)
    _changed(model, entry)


def add_parameter(model: ThunderModule, name: str, tensor: torch.Tensor, *, beside: str) -> None:
    """Add `tensor`, a parameter or (if it is no `torch.nn.Parameter`) a buffer, for programs that take another one.

    It becomes the attribute `name` ("layer.weight_scale") of `model`.

    Every program that reads the tensor called `beside` has the new one among its inputs (`Trace.parameters`), for
    `Transform.transform_traces_pre_prologue` of the same transform to use.

    Raises:
        ValueError: there is no submodule to hold it, it has an attribute of this name, or there is no tensor `beside`.
        RuntimeError: not called in `Transform.transform_module`.
    """
    owner = _current_owner("add_parameter")
    entry = _entry(model, beside, _find(model, beside))
    _require_plain(name, tensor)
    path, _, local = name.rpartition(".")
    modules: dict[str, torch.nn.Module] = dict(_module(model).named_modules(remove_duplicate=False))
    if path not in modules or hasattr(modules[path], local):
        found = "there is one already" if path in modules else "the module has no such submodule"
        raise ValueError(f"transform {owner}: {name}: expected the name of a new parameter, but {found}")
    if isinstance(tensor, torch.nn.Parameter):
        modules[path].register_parameter(local, tensor)
    else:
        modules[path].register_buffer(local, tensor)
    entry.added[name] = owner
    _changed(model, entry)


def require_programs(model: ThunderModule) -> None:
    """Let a module never run as the plain one, nor as a part of another program, though nothing is replaced.

    Raises RuntimeError where it is not called in `Transform.transform_module`.
    """
    owner = _current_owner("require_programs")
    _module(model).__dict__.setdefault(_REGISTRY, {})[_WHOLE] = Override((), owner)
    model.__compiled__.clear_cache()  # type: ignore[attr-defined]


def overrides_of(model: torch.nn.Module) -> dict[str, Override]:
    """Return what transforms replaced in `model`, a compiled module, or added beside, by each name that it has."""
    return {name: entry for entry in _entries(model).values() for name in entry.names}


@contextlib.contextmanager
def owned_by(transform: Transform) -> Iterator[None]:
    """Let parameters that are replaced or added belong to a transform."""
    token = _owner.set(repr(transform))
    try:
        yield
    finally:
        _owner.reset(token)


def owners_of(model: torch.nn.Module) -> set[str]:
    """Return `repr` of the transforms that replaced or added something."""
    entries = _entries(model).values()
    return {owner for entry in entries for owner in (entry.owner, *entry.added.values()) if owner}


def parts_of(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Return the module and those submodules that hold, or whose submodules hold, what was replaced or added."""
    names = {name for entry in _entries(model).values() for name in (*entry.names, *entry.added)}
    paths = {""}
    for name in names:
        places = name.split(".")[:-1]
        paths.update(".".join(places[: i + 1]) for i in range(len(places)))
    for path, module in model.named_modules():
        if path in paths:
            yield module


def convert(model: torch.nn.Module, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Let programs see what `model.to(dtype)` and the like make of the originals, which nobody has any longer."""
    for entry in _entries(model).values():
        if entry.dtype is not None and entry.dtype.is_floating_point:
            entry.dtype = function(torch.empty(0, dtype=entry.dtype)).dtype


# --- for csrc/dispatch


def describe(module: torch.nn.Module) -> list[tuple[Any, ...]]:
    """Return the overrides as `dispatch/call/overrides.cpp` reads them."""
    described = []
    for name, entry in _entries(module).items():
        tensors = [tensor for each in entry.names if (tensor := _get(module, each)) is not None]
        added = [
            (each, owner, _place(each), tensor)
            for each, owner in entry.added.items()
            if (tensor := _get(module, each)) is not None
        ]
        seen = entry.shape, entry.stride, entry.dtype, entry.device
        described.append((name, entry.owner, tensors, *seen, added))
    return described


def summary(module: torch.nn.Module) -> str:
    """Return why a module does not run as it is, in words: the first override, and how many there are besides."""
    entries = {name: entry for name, entry in _entries(module).items() if entry.names}
    if not entries:
        return f"{_entries(module)[_WHOLE].owner} changes its programs"
    name, entry = next(iter(entries.items()))
    owners = [entry.owner] if entry.owner else list(entry.added.values())
    more = f" and {len(entries) - 1} more" if len(entries) > 1 else ""
    return f"transforms replaced parameters: {name} ({', '.join(dict.fromkeys(owners))}){more}"


def names_of(callable: object, tensors: list[torch.Tensor]) -> list[list[str]]:
    """Return for each tensor the names that it has among a module's parameters and buffers."""
    names: dict[int, list[str]] = {}
    if isinstance(callable, torch.nn.Module):
        for name, tensor in _named_tensors(callable):
            names.setdefault(id(tensor), []).append(name)
    return [names.get(id(tensor), []) for tensor in tensors]


def take(module: Any, places: Sequence[tuple[str, ...]]) -> list[torch.Tensor]:
    """Return the tensors at places in a module. Run by the interpreter, so that they are guarded and become inputs."""
    tensors = []
    for place in places:
        owner = module
        for name in place[:-1]:
            owner = owner._modules[name]
        parameters = owner._parameters
        tensors.append(parameters[place[-1]] if place[-1] in parameters else owner._buffers[place[-1]])
    return tensors


# --- the module's tensors by name


def _module(model: Any) -> torch.nn.Module:
    module: torch.nn.Module = model
    return module


def _entries(module: torch.nn.Module) -> dict[str, Override]:
    entries: dict[str, Override] = module.__dict__.get(_REGISTRY, {})
    return entries


def _place(name: str) -> tuple[str, ...]:
    return tuple(name.split("."))


def _named_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _holder(module: torch.nn.Module, name: str) -> tuple[dict[str, torch.Tensor | None], str]:
    path, _, local = name.rpartition(".")
    owner = module.get_submodule(path)
    return (owner._parameters if local in owner._parameters else owner._buffers), local


def _get(module: torch.nn.Module, name: str) -> torch.Tensor | None:
    try:
        tensors, local = _holder(module, name)
    except AttributeError:  # the submodule was deleted later
        return None
    return tensors.get(local)


def _set(model: ThunderModule, name: str, tensor: torch.Tensor) -> None:
    tensors, local = _holder(_module(model), name)
    tensors[local] = tensor


def _local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return what programs take of a tensor."""
    part: torch.Tensor = getattr(tensor, "_local_tensor", tensor)
    return part


def _require_plain(name: str, tensor: torch.Tensor) -> None:
    """Require a tensor that programs can take, in the place of a parameter or beside one."""
    owner = _owner.get()
    if isinstance(tensor, torch.Tensor) and type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        advice = "; take its local part (to_local()), and gather what programs see"
        kind = type(tensor).__name__ + (advice if hasattr(tensor, "to_local") else "")
        raise TypeError(f"transform {owner}: {name}: expected a torch.Tensor, got a {kind}")
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        kind = "a quantized tensor" if tensor.is_quantized else f"a tensor of layout {tensor.layout}"
        raise TypeError(f"transform {owner}: {name}: expected a dense tensor, got {kind}")


def _find(model: ThunderModule, name: str) -> torch.Tensor:
    for known, tensor in _named_tensors(_module(model)):
        if known == name:
            return tensor
    owner = _owner.get()
    raise ValueError(f"transform {owner}: {name!r}: expected the name of a parameter or buffer of the module")


def _entry(model: ThunderModule, name: str, tensor: torch.Tensor) -> Override:
    """Return the entry of a tensor, a new one if there is none; `_changed` enters it."""
    known = overrides_of(_module(model)).get(name)
    if known is not None:
        return known
    return Override(tuple(each for each, other in _named_tensors(_module(model)) if other is tensor))


def _changed(model: ThunderModule, entry: Override) -> None:
    _module(model).__dict__.setdefault(_REGISTRY, {})[entry.names[0]] = entry
    model.__compiled__.clear_cache()  # type: ignore[attr-defined]


def _other_names(entry: Override, name: str) -> str:
    others = [each for each in entry.names if each != name]
    return f" (it is the same tensor as {', '.join(others)})" if others else ""


def _current_owner(function: str) -> str:
    owner = _owner.get()
    if owner is None:
        raise RuntimeError(f"thunder.transforms.{function}: expected to be called in Transform.transform_module")
    return owner
