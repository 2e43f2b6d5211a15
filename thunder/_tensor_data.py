"""How `torch.tensor` and its like make a tensor of numbers among which are tensors of a trace: their data is not known.

The functions are run by the interpreter, as if the program had called them.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

__all__ = ["tensor"]


def tensor(
    data: Any,
    dtype: torch.dtype | None = None,
    device: Any = None,
    *,
    requires_grad: bool = False,
    pin_memory: bool = False,
    copy: bool | None = None,
) -> torch.Tensor:
    """Return what `torch.tensor` does for lists and tuples of numbers and of tensors without dimensions."""
    if pin_memory or copy is False:
        raise NotImplementedError("thunder.jit: a pinned or shared tensor made of tensors is not supported inside")
    elements: list[Any] = []
    shape = _shape(data, elements)
    if dtype is None:
        dtype = functools.reduce(torch.promote_types, [_dtype(element) for element in elements])
    with torch.no_grad():
        made = torch.stack([_cast(element, dtype) for element in elements])
        if made.shape != shape:
            made = made.reshape(shape).clone()  # no view, as what `torch.tensor` gives is none
        made = made if device is None else made.to(device)
    return made.requires_grad_() if requires_grad else made


def _shape(data: Any, elements: list[Any]) -> tuple[int, ...]:
    """Return the shape of nested sequences, whose elements are added to `elements`."""
    if type(data) not in (list, tuple, torch.Size):
        elements.append(data)
        return ()
    shapes = [_shape(part, elements) for part in data]
    if any(shape != shapes[0] for shape in shapes):
        raise NotImplementedError("thunder.jit: a tensor made of sequences of several lengths")
    return (len(data), *(shapes[0] if shapes else ()))


def _dtype(element: Any) -> torch.dtype:
    if isinstance(element, torch.Tensor):
        return element.dtype
    if isinstance(element, bool | int):
        return torch.bool if isinstance(element, bool) else torch.int64
    if not isinstance(element, float | complex):
        raise NotImplementedError(f"thunder.jit: a tensor made of a {type(element).__name__} and tensors")
    default = torch.get_default_dtype()
    return default if isinstance(element, float) else default.to_complex()


def _cast(element: Any, dtype: torch.dtype) -> torch.Tensor:
    """Return an element as PyTorch stores its number; refuse what it may raise an error for."""
    if not isinstance(element, torch.Tensor):
        return torch.tensor(element, dtype=dtype)
    if element.dim() != 0 or not element.device.type == "cpu":
        raise NotImplementedError("thunder.jit: a tensor made of tensors with dimensions, or on other devices")
    is_number = element.is_floating_point() or element.is_complex()
    is_same = element.dtype == dtype
    if dtype.is_floating_point or dtype.is_complex:
        if element.is_complex() and not dtype.is_complex:
            raise NotImplementedError("thunder.jit: real numbers made of complex tensors")
        if is_number and torch.finfo(dtype).max < torch.finfo(element.dtype).max:
            return torch.tensor(element.item(), dtype=dtype)  # an error where it is too large
        # A number of Python is a double on its way.
        return element.to(dtype) if is_number else element.to(torch.float64).to(dtype)
    if is_same or element.dtype == torch.bool or (dtype == torch.int64 and not is_number):
        return element.to(dtype)
    raise NotImplementedError(f"thunder.jit: numbers of {dtype} made of a tensor of {element.dtype}")
