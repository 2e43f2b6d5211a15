"""Checks of what public functions are given, and how messages show it."""

from __future__ import annotations

import reprlib

import torch

__all__ = ["require_callable", "shown"]


def require_callable(where: str, fn: object) -> None:
    """Raise TypeError, which begins with `where`, unless `fn` is a function or a module."""
    if isinstance(fn, type) and issubclass(fn, torch.nn.Module):
        raise TypeError(f"{where}: expected a function or a module, got the class {fn.__qualname__}; give an instance")
    if not callable(fn):
        raise TypeError(f"{where}: expected a function or a module, got {shown(fn)}")


def shown(value: object) -> str:
    """Return `value` as a message shows it: a tensor by its type and shape, all else in one short line."""
    if isinstance(value, torch.Tensor):
        return f"a {type(value).__name__} of shape {tuple(value.shape)}"
    short = reprlib.Repr()
    short.maxother = short.maxstring = 100
    return " ".join(short.repr(value).split())
