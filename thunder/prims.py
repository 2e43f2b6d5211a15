"""The primitives of printed prologues and epilogues, and constants of computations.

Prologues take a call's arguments apart and check what the trace depends on; the compiled program does the same in C++.
"""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import torch

__all__ = [
    "GuardFailed",
    "check_absent",
    "check_call",
    "check_empty_cell",
    "check_identity",
    "check_keys",
    "check_length",
    "check_members",
    "check_no_descriptor",
    "check_no_type_attribute",
    "check_number",
    "check_same",
    "check_shape",
    "check_tensor",
    "check_truth",
    "check_type",
    "check_type_attribute",
    "check_value",
    "custom_gradient",
    "delete_item",
    "delete_slot",
    "extend_list",
    "get_argument",
    "get_cell",
    "get_descriptor",
    "get_instance_dict",
    "get_item",
    "get_keyword",
    "make_dict",
    "make_frozenset",
    "make_instance",
    "make_list",
    "make_method",
    "make_ordered_dict",
    "make_set",
    "make_slice",
    "make_tuple",
    "replace_contents",
    "set_cell",
    "set_item",
    "set_slot",
    "tensor_constant",
]


class GuardFailed(Exception):
    """The program was traced for something else than what it was given."""


def _require(holds: bool, what: str, expected: object, found: object) -> None:
    if not holds:
        raise GuardFailed(f"{what}: expected {expected!r}, got {found!r}")


# --- prologue: loads


def get_argument(args: Sequence[Any], index: int) -> Any:
    """Return positional argument `index` of the call."""
    return args[index]


def get_keyword(kwargs: dict[str, Any], name: str) -> Any:
    """Return keyword argument `name` of the call."""
    return kwargs[name]


def get_instance_dict(owner: Any) -> Any:
    """Return the `__dict__` of an instance or module."""
    return object.__getattribute__(owner, "__dict__")


def get_item(owner: Any, key: Any) -> Any:
    """Return `owner[key]`; GuardFailed when there is none."""
    try:
        return owner[key]
    except LookupError:
        raise GuardFailed(f"get_item: expected the key {key!r}") from None


def get_cell(cell: types.CellType) -> Any:
    """Return what a closure variable holds."""
    return cell.cell_contents


def get_descriptor(owner: Any, name: str) -> Any:
    """Return what lies in a slot or behind a getter written in C."""
    return object.__getattribute__(owner, name)


# --- prologue: checks


def check_call(args: Sequence[Any], kwargs: dict[str, Any], positional: int, names: Iterable[str]) -> None:
    """Check the number of positional arguments and the names of the others."""
    _require(len(args) == positional, "positional arguments", positional, len(args))
    _require(list(kwargs) == list(names), "keyword arguments", list(names), list(kwargs))


def check_type(value: Any, expected: type) -> None:
    """Check that the type is this very one."""
    _require(type(value) is expected, "type", expected, type(value))


def check_identity(value: Any, expected: Any) -> None:
    """Check that it is the same object."""
    _require(value is expected, "identity", expected, value)


def check_value(value: Any, expected: Any) -> None:
    """Check for an equal value of the same type; NaN equals itself."""
    same = type(value) is type(expected) and (value == expected or (value != value and expected != expected))
    _require(same, "value", expected, value)


def check_same(left: Any, right: Any) -> None:
    """Check that two ways lead to one object."""
    _require(left is right, "the same object", left, right)


def check_absent(owner: dict[Any, Any], key: Any) -> None:
    """Check that a dict lacks a key."""
    _require(key not in owner, "absent key", key, owner.get(key))


def check_empty_cell(cell: types.CellType) -> None:
    """Check that a closure variable is not bound."""
    _require(cell == types.CellType(), "closure variable", "nothing", cell)


def check_no_descriptor(owner: Any, name: str) -> None:
    """Check that a slot is empty."""
    _require(not hasattr(owner, name), name, "nothing", name)


def _lookup(owner: type, name: str) -> Any:
    for base in owner.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    raise GuardFailed(f"{owner.__name__}.{name}: expected the attribute")


def check_type_attribute(owner: type, name: str, expected: Any) -> None:
    """Check what lies under `name` in the classes of `owner.__mro__`."""
    found = _lookup(owner, name)
    _require(found is expected, f"{owner.__name__}.{name}", expected, found)


def check_no_type_attribute(owner: type, name: str) -> None:
    """Check that no class of `owner.__mro__` has `name`."""
    _require(all(name not in base.__dict__ for base in owner.__mro__), f"{owner.__name__}.{name}", "nothing", name)


def check_length(owner: Any, expected: int) -> None:
    """Check `len(owner)`."""
    _require(len(owner) == expected, "length", expected, len(owner))


def check_truth(owner: Any, expected: bool) -> None:
    """Check whether a container holds anything."""
    _require(bool(owner) == expected, "truth", expected, bool(owner))


def check_keys(owner: dict[Any, Any], expected: tuple[Any, ...]) -> None:
    """Check the keys of a dict, in order."""
    _require(tuple(owner) == expected, "keys", expected, tuple(owner))


def check_members(owner: Any, expected: frozenset[Any]) -> None:
    """Check the members of a set."""
    _require(frozenset(owner) == expected, "members", expected, owner)


def check_tensor(
    value: torch.Tensor,
    sizes: Sequence[int],
    strides: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
    requires_grad: bool,
) -> None:
    """Check the metadata of a dense tensor."""
    _require(isinstance(value, torch.Tensor), "type", torch.Tensor, type(value))
    _require(list(value.shape) == list(sizes), "sizes", list(sizes), list(value.shape))
    _require(list(value.stride()) == list(strides), "strides", list(strides), list(value.stride()))
    _require(value.dtype == dtype, "dtype", dtype, value.dtype)
    _require(value.device == torch.device(device), "device", device, value.device)
    _require(value.requires_grad == requires_grad, "requires_grad", requires_grad, value.requires_grad)


# --- computation


def check_number(value: torch.Tensor, expected: complex) -> None:
    """Raise unless the one element of `value` is the number that the trace was specialized on."""
    number = value.item()
    if number != expected and not (number != number and expected != expected):
        raise AssertionError(f"expected {expected}, got {number}: this trace is for another value")


def check_shape(value: torch.Tensor, expected: list[int]) -> None:
    """Raise unless `value` has the shape, found from data, that the trace was specialized on."""
    if list(value.shape) != list(expected):
        raise AssertionError(f"expected shape {list(expected)}, got {list(value.shape)}: this trace is for other data")


def custom_gradient(value: torch.Tensor, reads: list[torch.Tensor], gradient: object) -> torch.Tensor:
    """Return `value`. Transforms take `gradient`, recorded from the program, for its derivative."""
    return value


def tensor_constant(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor that the trace carries with it."""
    return value


# --- epilogue


def make_tuple(items: Sequence[Any]) -> tuple[Any, ...]:
    """Return a tuple of `items`."""
    return tuple(items)


def make_list(items: Sequence[Any]) -> list[Any]:
    """Return a list of `items`."""
    return list(items)


def _pairs(keys_and_values: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(keys_and_values[::2], keys_and_values[1::2], strict=True)


def make_dict(keys_and_values: Sequence[Any]) -> dict[Any, Any]:
    """Return a dict of keys and values given in turn."""
    return dict(_pairs(keys_and_values))


def make_ordered_dict(keys_and_values: Sequence[Any]) -> OrderedDict[Any, Any]:
    """Return an OrderedDict of keys and values given in turn."""
    return OrderedDict(_pairs(keys_and_values))


def make_set(items: Sequence[Any]) -> set[Any]:
    """Return a set of `items`."""
    return set(items)


def make_frozenset(items: Sequence[Any]) -> frozenset[Any]:
    """Return a frozenset of `items`."""
    return frozenset(items)


def make_slice(items: Sequence[Any]) -> slice:
    """Return the slice of start, stop and step."""
    start, stop, step = items
    return slice(start, stop, step)


def make_method(items: Sequence[Any]) -> types.MethodType:
    """Return a function bound to an object."""
    function, owner = items
    return types.MethodType(function, owner)


def make_instance(cls: type, items: Sequence[Any], attributes: Sequence[str], values: Sequence[Any]) -> Any:
    """Return an instance of `cls` with the given contents and attributes, without calling code of `cls`."""
    native: Any = next(base for base in cls.__mro__ if base.__module__ in ("builtins", "collections"))
    if hasattr(cls, "n_sequence_fields"):
        native = cls
    instance: Any = native.__new__(cls, items) if issubclass(cls, tuple | frozenset) else native.__new__(cls)
    if issubclass(cls, dict):
        for key, value in _pairs(items):
            native.__setitem__(instance, key, value)
    elif issubclass(cls, list):
        list.extend(instance, items)
    elif issubclass(cls, set):
        set.update(instance, items)
    for name, value in zip(attributes, values, strict=True):
        object.__setattr__(instance, name, value)
    return instance


def set_item(owner: Any, key: Any, value: Any) -> None:
    """Perform `owner[key] = value`; attributes are items of their instance's dict."""
    owner[key] = value


def delete_item(owner: Any, key: Any) -> None:
    """Perform `del owner[key]`."""
    del owner[key]


def replace_contents(owner: Any, contents: Any) -> None:
    """Make a list, dict or set hold what `contents` holds."""
    owner.clear()
    if isinstance(owner, list):
        owner.extend(contents)
    else:
        owner.update(contents)


def extend_list(owner: list[Any], items: Sequence[Any]) -> None:
    """Append `items` to a list."""
    owner.extend(items)


def set_cell(cell: types.CellType, value: Any) -> None:
    """Bind a closure variable."""
    cell.cell_contents = value


def set_slot(owner: Any, name: str, value: Any) -> None:
    """Set a slot of an object, or an attribute of a class."""
    type.__setattr__(owner, name, value) if isinstance(owner, type) else object.__setattr__(owner, name, value)


def delete_slot(owner: Any, name: str) -> None:
    """Empty a slot of an object, or delete an attribute of a class."""
    type.__delattr__(owner, name) if isinstance(owner, type) else object.__delattr__(owner, name)
