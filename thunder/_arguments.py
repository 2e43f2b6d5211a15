"""Checks of what functions are given, and how messages show it."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["accepts", "require_callable", "shown"]


class _Parsing(TorchFunctionMode):  # type: ignore[misc]
    """PyTorch parses the arguments of a function before it tells a mode of the call, which goes no further here."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> None:
        """Do nothing."""


def accepts(function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> bool:
    """Return whether a function of PyTorch takes arguments of these types. It is not called."""
    try:
        with _Parsing():
            function(*arguments, **keywords)
    except TypeError:
        return False
    return True


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
