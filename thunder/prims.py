"""The primitives of printed prologues and epilogues, and constants of computations.

Prologues take a call's arguments apart and check what the trace depends on; the compiled program does the same in C++.
"""

from __future__ import annotations

import contextlib
import copy
import math
import operator
import threading
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

__all__ = [
    "GuardFailed",
    "add_member",
    "call",
    "check_absent",
    "check_call",
    "check_contains",
    "check_contents",
    "check_distinct",
    "check_empty_cell",
    "check_identity",
    "check_keys",
    "check_length",
    "check_members",
    "check_no_descriptor",
    "check_no_type_attribute",
    "check_not_same",
    "check_number",
    "check_present",
    "check_same",
    "check_shape",
    "check_state",
    "check_tensor",
    "check_truth",
    "check_type",
    "check_type_attribute",
    "check_value",
    "clear_cell",
    "convert",
    "custom_gradient",
    "delete_item",
    "delete_slot",
    "discard_member",
    "extend",
    "fused",
    "fusion",
    "get_argument",
    "get_cell",
    "get_descriptor",
    "get_function_part",
    "get_instance_dict",
    "get_item",
    "get_keyword",
    "get_local_part",
    "get_referent",
    "get_result",
    "get_type_attribute",
    "item",
    "keep",
    "make_call",
    "make_cell",
    "make_copy",
    "make_dict",
    "make_frozenset",
    "make_function",
    "make_instance",
    "make_list",
    "make_method",
    "make_ordered_dict",
    "make_set",
    "make_slice",
    "make_tuple",
    "number",
    "python_function",
    "replace_contents",
    "set_apart",
    "set_cell",
    "set_item",
    "set_slot",
    "tensor_constant",
    "tensor_for_float",
    "tensor_for_int",
    "tensor_for_stride",
    "tensor_holding_int",
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
    """Return what lies in a slot or behind a getter written in C; an attribute of a `threading.local`."""
    return getattr(owner, name) if type(owner) is threading.local else object.__getattribute__(owner, name)


def get_type_attribute(owner: type, name: str) -> Any:
    """Return what lies under `name` in the classes of `owner.__mro__`."""
    return _lookup(owner, name)


def get_function_part(function: types.FunctionType, part: int) -> Any:
    """Return the code, defaults, keyword defaults or closure of a function."""
    names = ("__code__", "__defaults__", "__kwdefaults__", "__closure__", "__globals__", "__builtins__")
    return getattr(function, names[part])


def get_referent(reference: Any) -> Any:
    """Return what a weak reference or proxy points to, or a context variable holds; None when there is nothing."""
    if isinstance(reference, weakref.ref):
        return reference()
    try:
        is_proxy = type(reference) in weakref.ProxyTypes
        return reference.__str__.__self__ if is_proxy else reference.get()
    except (ReferenceError, LookupError):
        return None


# --- prologue: checks


def get_result(function: Callable[[], Any]) -> Any:
    """Return what a function written in C gives without arguments."""
    return function()


def convert(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return what a function written in C makes of an object: a tensor of an array."""
    return function(value)


def get_local_part(tensor: Any) -> torch.Tensor:
    """Return the part of a `DTensor` that this process has; gradients of it become gradients of the DTensor."""
    part: torch.Tensor = tensor.to_local()
    return part


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


def check_not_same(left: Any, right: Any) -> None:
    """Check that two ways lead to different objects."""
    _require(left is not right, "another object", left, right)


def check_distinct(written: list[Any], read: list[Any]) -> None:
    """Check that no object that is written to is another one of them, or one that is only read."""
    addresses = [id(value) for value in written]
    distinct = len(set(addresses)) == len(addresses) and not set(addresses) & {id(value) for value in read}
    _require(distinct, "different objects", None, None)


def _told_by(value: Any, name: str) -> Any:
    """Return what a getter in C gives, or None; `memoryview` has other strides for dimensions of size one."""
    for cls in type(value).__mro__:
        if isinstance(found := vars(cls).get(name), types.GetSetDescriptorType):
            return found.__get__(value)
    return None


def _memory_of(value: Any) -> memoryview:
    """Return the memory of an object; arrays of dates have none of their own."""
    try:
        return memoryview(value)
    except (TypeError, ValueError):
        return memoryview(value.view(f"V{value.itemsize}"))


def check_state(value: Any, kind: int, expected: Any) -> None:
    """Check what C code sees in an object.

    Which it is (1), its value (2), layout and bytes of its memory (3), or the names of its class that its own
    attributes hide (6).
    """
    if kind == 3:
        memory = _memory_of(value)
        strides, dtype = _told_by(value, "strides"), _told_by(value, "dtype")
        found = ((memory.format, memory.shape, strides, dtype, memory.readonly), memory.tobytes())
        _require(found == expected, "memory", expected, found)
        return
    if kind == 6:
        of_class = set().union(*(vars(cls) for cls in type(value).__mro__))
        hidden = tuple(name for name in getattr(value, "__dict__", ()) if name in of_class)
        _require(hidden == expected, "attributes that hide the class's", expected, hidden)
        return
    if kind == 1 and isinstance(expected, weakref.ref):
        expected = expected()
    same = value is expected or (kind == 2 and type(value) is type(expected) and repr(value) == repr(expected))
    _require(same, "state", expected, value)


def check_absent(owner: dict[Any, Any], key: Any) -> None:
    """Check that a dict lacks a key."""
    _require(key not in owner, "absent key", key, owner.get(key))


def check_present(owner: dict[Any, Any], key: Any) -> None:
    """Check that a dict has a key."""
    _require(key in owner, "key", key, "nothing")


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


def check_contains(owner: Any, member: Any, expected: bool) -> None:
    """Check whether a set has a member."""
    _require((member in owner) == expected, f"{member!r} in a set", expected, not expected)


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


def tensor_for_int(number: int) -> torch.Tensor:
    """Return what stands for an int among inputs of a computation: a tensor without elements, of that first size."""
    _require(number >= 2, "number", "2 or more", number)
    return torch.empty(number, 0, dtype=torch.uint8)


def tensor_for_stride(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """Return what stands for a stride that is no number of the program: a tensor without elements, of that size."""
    return tensor_for_int(tensor.stride(dim))


def tensor_for_float(number: float) -> torch.Tensor:
    """Return what stands for a float among the inputs of a computation: a tensor that holds it."""
    return torch.tensor(number, dtype=torch.float64)


def tensor_holding_int(number: int) -> torch.Tensor:
    """Return what stands among the inputs of a computation for an int that is no size: a tensor that holds it."""
    return torch.tensor(number, dtype=torch.int64)


# --- computation

_NUMBER_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "neg": lambda left, right: -left,
    "abs": lambda left, right: abs(left),
    "int": lambda left, right: int(left),
    "float": lambda left, right: float(left),
    "round": lambda left, right: round(left),
    "round_to": lambda left, right: round(left, right),
    "cos": lambda left, right: math.cos(left),
    "exp": lambda left, right: math.exp(left),
    "log": lambda left, right: math.log(left),
    "sin": lambda left, right: math.sin(left),
    "sqrt": lambda left, right: math.sqrt(left),
    "tanh": lambda left, right: math.tanh(left),
}


def item(value: torch.Tensor) -> complex:
    """Return the one element of `value` as a Python number."""
    result: complex = value.item()
    return result


def number(operation: str, left: complex, right: complex) -> complex:
    """Return `left operation right`; `neg`, `abs`, `int`, `float` and functions of `math` take `left` alone."""
    result: complex = _NUMBER_OPERATIONS[operation](left, right)
    return result


def check_number(value: complex, expected: complex) -> None:
    """Raise unless `value` is the number that the trace was specialized on."""
    if value != expected and not (value != value and expected != expected):
        raise AssertionError(f"expected {expected}, got {value}: this trace is for another value")


def check_contents(value: torch.Tensor, expected: torch.Tensor) -> None:
    """Raise unless `value` holds what the trace was specialized on."""
    if not torch.equal(value, expected):
        raise AssertionError("expected a tensor with other contents: this trace is for other data")


def check_shape(value: torch.Tensor, expected: list[int]) -> None:
    """Raise unless `value` has the shape, found from data, that the trace was specialized on."""
    if list(value.shape) != list(expected):
        raise AssertionError(f"expected shape {list(expected)}, got {list(value.shape)}: this trace is for other data")


def custom_gradient(
    values: Sequence[torch.Tensor], reads: Sequence[torch.Tensor], gradient: object
) -> Sequence[torch.Tensor]:
    """Return `values`. Transforms take `gradient`, recorded from the program, for their derivative."""
    return values


def python_function(
    values: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor | None],
    saved: Sequence[torch.Tensor | None],
    function: object,
) -> Sequence[torch.Tensor]:
    """Return `values`. A call gives them the history of an autograd function whose backward runs as Python."""
    return values


def set_apart(values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Return `values`, which a call puts hooks on."""
    return values


def keep(tensors: Sequence[torch.Tensor]) -> None:
    """Stand behind the wait for an operation that used these tensors until then."""


def fused(
    executor: str, tensors: Sequence[torch.Tensor], *, kind: str = "kernel"
) -> contextlib.AbstractContextManager[None]:
    """Stand above operations that `executor` runs as one, reading `tensors` from outside.

    `kind` says how: one kernel made for them, or something that the executor has for just these.
    """
    return contextlib.nullcontext()


def fusion(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Call the function that a fusion executor put in the place of several operations."""
    result = function(*tensors)
    return [result] if isinstance(result, torch.Tensor) else list(result)


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


def make_cell(contents: Sequence[Any]) -> types.CellType:
    """Return the cell of a closure, with its contents if it has any."""
    return types.CellType(*contents)


def make_function(like: types.FunctionType, parts: Sequence[Any]) -> types.FunctionType:
    """Return a function with the code of `like`; `parts` are its defaults, attributes and closure."""
    defaults, keyword_defaults, attributes, *cells = parts
    made = types.FunctionType(like.__code__, like.__globals__, like.__name__, defaults, tuple(cells))
    made.__kwdefaults__ = keyword_defaults
    made.__dict__.update(attributes or {})
    for name in ("__qualname__", "__doc__", "__module__"):
        setattr(made, name, getattr(like, name))
    made.__annotations__ = dict(like.__annotations__)
    return made


def make_call(parts: Sequence[Any]) -> Any:
    """Return what a callable gives for a tuple and a dict of arguments."""
    function, arguments, keywords = parts
    return function(*arguments, **keywords)


def make_copy(like: Any) -> Any:
    """Return a copy of a buffer such as a bytearray or a NumPy array, or another NaN."""
    return float("nan") if isinstance(like, float) else copy.copy(like)


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
    """Perform `del owner[key]`, if the key is there."""
    owner.pop(key, None)


def replace_contents(owner: Any, contents: Any) -> None:
    """Make a list, dict, set or deque hold what `contents` holds."""
    owner.clear()
    if isinstance(owner, list | deque):
        owner.extend(contents)
    else:
        owner.update(contents)


def extend(owner: Any, items: Sequence[Any]) -> None:
    """Append `items` to a list or deque."""
    owner.extend(items)


def add_member(owner: set[Any], key: Any) -> None:
    """Add a member to a set."""
    owner.add(key)


def discard_member(owner: set[Any], key: Any) -> None:
    """Remove a member from a set, if it is there."""
    owner.discard(key)


def call(callable: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Make a call for its effect."""
    callable(*args, **kwargs)


def set_cell(cell: types.CellType, value: Any) -> None:
    """Bind a closure variable."""
    cell.cell_contents = value


def clear_cell(cell: types.CellType) -> None:
    """Unbind a closure variable."""
    del cell.cell_contents


def set_slot(owner: Any, name: str, value: Any) -> None:
    """Set a slot of an object, or an attribute of a class."""
    type.__setattr__(owner, name, value) if isinstance(owner, type) else object.__setattr__(owner, name, value)


def delete_slot(owner: Any, name: str) -> None:
    """Empty a slot of an object, or delete an attribute of a class."""
    type.__delattr__(owner, name) if isinstance(owner, type) else object.__delattr__(owner, name)
