"""Exceptions that end a command."""

from __future__ import annotations

import os
import sysconfig
import traceback
import types

from thunder.errors import InternalError

__all__ = ["told"]

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LIBRARY = sysconfig.get_path("stdlib")


def told(error: BaseException) -> str:
    """Return the traceback of an exception from the user's first line on; empty where no line is the user's.

    Of an error of thunder's own it is all of the traceback, for a report.
    """
    if isinstance(error, InternalError):
        return "".join(traceback.format_exception(error))
    rest = error.__traceback__
    while rest is not None and not _is_users(rest.tb_frame.f_code):
        rest = rest.tb_next
    if rest is None and not isinstance(error, SyntaxError):
        return ""
    return "".join(traceback.format_exception(type(error), error, rest))


def _is_users(code: types.CodeType) -> bool:
    file = os.path.abspath(code.co_filename)
    is_library = _is_below(file, _LIBRARY) and "site-packages" not in file
    return not (code.co_filename.startswith("<") or _is_below(file, _OWN) or is_library or _is_torchs(file))


def _is_below(file: str, folder: str) -> bool:
    return file.startswith(folder + os.sep)


def _is_torchs(file: str) -> bool:
    import torch

    return _is_below(file, os.path.dirname(os.path.abspath(torch.__file__)))
