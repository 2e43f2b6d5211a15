"""Checks of what functions are given, and how messages show it."""

from __future__ import annotations

import errno
import inspect
import os
import reprlib
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["accepts", "missing_arguments", "require_callable", "require_writable", "shown", "shown_instance"]


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


def require_writable(path: str | os.PathLike[str]) -> None:
    """Raise the OSError that writing a file would, before the work whose result is to be written; make no file."""
    folder = os.path.dirname(os.fspath(path)) or "."
    for failed, number in (
        (os.path.isdir(path), errno.EISDIR),
        (not os.path.exists(folder), errno.ENOENT),
        (not os.path.isdir(folder), errno.ENOTDIR),
        (not os.access(path if os.path.exists(path) else folder, os.W_OK), errno.EACCES),
    ):
        if failed:
            raise OSError(number, os.strerror(number), os.fspath(path))


def shown(value: object) -> str:
    """Return `value` as a message shows it: a tensor by its type and shape, all else in one short line."""
    if isinstance(value, torch.Tensor):
        return f"a {type(value).__name__} of shape {tuple(value.shape)}"
    short = reprlib.Repr()
    short.maxother = short.maxstring = 100
    return " ".join(short.repr(value).split())


def shown_instance(value: object) -> str:
    """Return `value` as a message shows it that expects an object of some class; of a class, with what to write."""
    if isinstance(value, type):
        arguments = "" if missing_arguments(value) is None else "…"
        return f"the class {value.__qualname__}; give an instance: {value.__name__}({arguments})"
    return shown(value)


def missing_arguments(cls: type) -> str | None:
    """Return why a class cannot be called without arguments; None where it can."""
    try:
        inspect.signature(cls).bind()
    except (TypeError, ValueError) as error:
        return str(error)
    return None
