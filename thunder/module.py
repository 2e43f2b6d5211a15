"""Modules compiled by `thunder.jit`.

A compiled module is an object of a class made for it, a subclass of `ThunderModule` and of the module's own class, and
shares its `__dict__` with the original. Parameters, buffers, submodules, hooks, attributes and methods are therefore
those of the original, in both directions, with nothing to delegate. Only the class's `__call__` differs: the compiled
callable, written in C++ and kept from binding, so that Python's call slot reaches it without a Python frame. And its
`forward`, which some libraries call in the place of the module, is the original's, compiled by itself: without hooks.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from thunder.transforms import overrides
from thunder.transforms.transform import overrides as has_method

if TYPE_CHECKING:
    import torch

    from thunder.options import Options

__all__ = ["ThunderModule", "compile_inside", "compile_module"]


class ThunderModule:
    """Base class of compiled modules, for `isinstance`; made by `thunder.jit(module)` only.

    Attributes:
        __wrapped__: the module that runs: the original one, or, where a transform changes modules, one that began with
            the original's parameters and buffers.
        __compiled__: the compiled callable; calling the module calls it.
        __options__: the options given to `thunder.jit`.
    """

    __wrapped__: torch.nn.Module
    __compiled__: Callable[..., Any]
    __options__: Options

    def __init_subclass__(cls, **keywords: Any) -> None:
        # A compiled module is no new class to the original's registries, so its `__init_subclass__` is not called.
        pass

    def __repr__(self) -> str:
        return f"ThunderModule({self.__wrapped__!r})"

    # `torch.fx` and others look for the module that runs, the original, among submodules.
    def __eq__(self, other: object) -> bool:
        return bool(self.__wrapped__ == (other.__wrapped__ if isinstance(other, ThunderModule) else other))

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def original_state_dict(self) -> dict[str, Any]:
        """Return `state_dict()` as the module before all transforms would have it.

        `Transform.reverse_transform_state_dict_for_submodule` of each transform, last first, translates the entries.
        """
        module: Any = self
        result: dict[str, Any] = {}
        for name, submodule in module.named_modules(remove_duplicate=False):
            entries: dict[str, Any] = {}
            submodule._save_to_state_dict(entries, "", keep_vars=False)
            for transform in reversed(self.__options__.transforms):
                entries = transform.reverse_transform_state_dict_for_submodule(self, name, entries)
            result.update({f"{name}.{key}" if name else key: value for key, value in entries.items()})
        return result

    def load_original_state_dict(self, state_dict: Mapping[str, Any], *, strict: bool = True) -> Any:
        """Load what the module before all transforms would load, and return what `load_state_dict` does.

        `Transform.transform_state_dict_for_submodule` of each transform translates the entries.
        """
        module: Any = self
        entries: dict[str, dict[str, Any]] = {name: {} for name, _ in module.named_modules(remove_duplicate=False)}
        unknown: dict[str, Any] = {}
        for key, value in state_dict.items():
            name, _, own = key.rpartition(".")
            entries.get(name, unknown)[own if name in entries else key] = value
        loaded = dict(unknown)
        for name, part in entries.items():
            for transform in self.__options__.transforms:
                part = transform.transform_state_dict_for_submodule(self, name, part)
            loaded.update({f"{name}.{key}" if name else key: value for key, value in part.items()})
        return module.load_state_dict(loaded, strict=strict)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        result = super()._apply(fn, *args, **kwargs)  # type: ignore[misc]
        if overrides.overrides_of(result):
            overrides.convert(result, fn)
            self.__compiled__.clear_cache()  # type: ignore[attr-defined]
            _clear_parts(result)
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        result = _jit(copy.deepcopy(self.__wrapped__, memo), self.__options__)
        memo[id(self)] = result
        return result

    def __copy__(self) -> Any:
        return _jit(copy.copy(self.__wrapped__), self.__options__)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _jit, (self.__wrapped__, self.__options__)


def with_own_structure(original: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of a module and its submodules, with the very parameters and buffers of the original."""
    tensors = [*original.parameters(), *original.buffers()]
    return copy.deepcopy(original, {id(tensor): tensor for tensor in tensors})


def compile_module(original: torch.nn.Module, compiled: Callable[..., Any], options: Options) -> Any:
    """Return the module that shares `original`'s state and whose `__call__` is `compiled`."""
    cls = _compiled_class(original, compiled, options)
    module: Any = object.__new__(cls)
    object.__setattr__(module, "__dict__", original.__dict__)
    if _is_uninitialized(original):
        cls.__call__ = staticmethod(_initializing(original, compiled, module))
    return module


def _compiled_class(original: torch.nn.Module, compiled: Callable[..., Any], options: Options) -> Any:
    original_type = type(original)

    def new(cls: type, *arguments: Any, **keywords: Any) -> Any:
        # `self.__class__(…)`, as in `nn.Sequential.__getitem__`, makes another module: a plain one.
        return original_type(*arguments, **keywords)

    def populate(namespace: dict[str, Any]) -> None:
        namespace.update(
            __module__=original_type.__module__,
            __qualname__=original_type.__qualname__,
            __doc__=original_type.__doc__,
            __new__=new,
            __call__=staticmethod(compiled),
            __wrapped__=original,
            __compiled__=compiled,
            __options__=options,
            __class__=_CLASS,
        )
        # Where transforms replaced parameters, each part has a compiled `forward` in its `__dict__`.
        changes = any(has_method(transform, "transform_module") for transform in options.transforms)
        if not changes and callable(getattr(original_type, "forward", None)):
            namespace["forward"] = _compiled_forward(original, options)
        # Slots are not in the shared `__dict__`.
        for cls in original_type.__mro__:
            for name, slot in vars(cls).items():
                if isinstance(slot, types.MemberDescriptorType):
                    namespace.setdefault(name, _slot_of(original, slot))

    return types.new_class(original_type.__name__, (ThunderModule, original_type), exec_body=populate)


def _compiled_forward(original: torch.nn.Module, options: Options) -> Callable[..., Any]:
    """Return the method that runs the `forward` of `original`'s class compiled; one that it has since, as it is."""
    plain = type(original).forward
    compiled = _jit(types.MethodType(plain, original), options)

    @functools.wraps(plain)
    def forward(self: Any, *arguments: Any, **keywords: Any) -> Any:
        now = type(original).forward
        return compiled(*arguments, **keywords) if now is plain else now(original, *arguments, **keywords)

    return forward


def _slot_of(original: torch.nn.Module, slot: types.MemberDescriptorType) -> property:
    return property(
        lambda self: slot.__get__(original),
        lambda self, value: slot.__set__(original, value),
        lambda self: slot.__delete__(original),
    )


def _class_of_original(module: ThunderModule) -> Any:
    return type(module.__wrapped__)


def _change_class(module: ThunderModule, cls: type) -> None:
    """Give the original another class, as the program runs the original, and the compiled module one made for that.

    `torch.nn.utils.parametrize` and FSDP change the class of a module and add properties to it.
    """
    module.__wrapped__.__class__ = cls
    compiled = type(module).__compiled__  # looked up in the object, it would be bound
    _set_class(module, _compiled_class(module.__wrapped__, compiled, module.__options__))


_CLASS = property(_class_of_original, _change_class)
_set_class = vars(object)["__class__"].__set__


def compile_inside(wrapper: torch.nn.Module, name: str, inner: Any, options: Options) -> Any:
    """Return the module that shares `wrapper`'s state and runs as it does, with `inner` as its submodule `name`."""
    wrapper_type = type(wrapper)

    def populate(namespace: dict[str, Any]) -> None:
        namespace.update(
            __module__=wrapper_type.__module__,
            __qualname__=wrapper_type.__qualname__,
            __doc__=wrapper_type.__doc__,
            __wrapped__=wrapper,
            __compiled__=inner.__compiled__,
            __options__=options,
        )
        # In front of `nn.Module.__getattr__`, and of what the wrapper itself, whose state this is, goes on calling.
        namespace[name] = property(lambda self: inner)

    cls: Any = types.new_class(wrapper_type.__name__, (ThunderModule, wrapper_type), exec_body=populate)
    module: Any = object.__new__(cls)
    object.__setattr__(module, "__dict__", wrapper.__dict__)
    return module


def _initializing(original: torch.nn.Module, compiled: Callable[..., Any], module: Any) -> Callable[..., Any]:
    """Return the `__call__` of a lazy module: eager until all parameters are there."""

    def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            return original(*arguments, **keywords)
        finally:
            if not _is_uninitialized(original):
                # A `LazyLinear` has become a `Linear`.
                _set_class(module, _compiled_class(original, compiled, module.__options__))

    return call


def _is_uninitialized(module: torch.nn.Module) -> bool:
    from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]

    return any(isinstance(tensor, UninitializedTensorMixin) for tensor in (*module.parameters(), *module.buffers()))


def _clear_parts(module: torch.nn.Module) -> None:
    from thunder._parts import clear_parts

    clear_parts(module)


def _jit(what: Any, options: Options) -> Any:
    from thunder._jit import rebuild

    return rebuild(what, options)
