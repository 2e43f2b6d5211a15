"""Calls that a compiled function makes at each run, after its computation: warnings and log records.

Each function here is called while a program is traced, in place of the call that the program makes, and returns what is
to be called later; None says that the call is to be made at once, as nobody outside of the program could see it.
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch import _tensor_str

__all__ = ["Deferred", "deferred_record", "deferred_warning", "error_filters", "print_options", "warnings_state"]


class Deferred:
    """A call with the arguments that it keeps; what it is called with comes behind them."""

    __slots__ = ("arguments", "function")

    def __init__(self, function: Callable[..., None], *arguments: object) -> None:
        self.function = function
        self.arguments = arguments

    def __call__(self, *rest: object) -> None:
        self.function(*self.arguments, *rest)


def warnings_state() -> tuple[int, int]:
    """Return what differs while a program has `warnings.catch_warnings` or its own `warnings.showwarning` active."""
    return id(warnings.filters), id(warnings.showwarning)


def print_options() -> str:
    """Return what `torch.set_printoptions` has set."""
    return str(_tensor_str.PRINT_OPTS)


def error_filters() -> str:
    """Return which warnings are errors now: the filters up to the last one that makes errors, "none" without any."""
    if all(action != "error" for action, *_ in warnings.filters):  # each call of a guarded program asks
        return "none"
    told: list[str] = []
    count = 0
    for action, text, category, place, line in warnings.filters:
        parts = [getattr(each, "pattern", each) for each in (text, place, line) if each]
        told.append(":".join(map(str, (action, category, *parts))))
        if action == "error":
            count = len(told)
        if category is Warning and not parts:  # what comes behind is never asked
            break
    return ", ".join(told[:count]) or "none"


def deferred_warning(
    state: tuple[int, int],
    message: str | Warning,
    category: type[Warning] | None = None,
    stacklevel: int = 1,
    source: object = None,
    *,
    skip_file_prefixes: tuple[str, ...] = (),
) -> Deferred | None:
    """Return a call that gives the warning of `warnings.warn(message, …)` at the line that runs now.

    `state` is what `warnings_state` gave before the program began.
    """
    if state != warnings_state():
        return None
    if isinstance(message, Warning):
        category, message = type(message), str(message)
    frame = _frame(stacklevel, skip_file_prefixes)
    namespace = sys.__dict__ if frame is None else frame.f_globals
    line = 0 if frame is None else frame.f_lineno
    kind = category or UserWarning
    if _is_error(message, kind, namespace, line):
        return None
    return Deferred(_warn, message, kind, "sys" if frame is None else frame.f_code.co_filename, line, namespace)


def _is_error(message: str, category: type[Warning], namespace: dict[str, Any], line: int) -> bool:
    """Whether the filters make an error of this warning; a program is traced again where other filters do so."""
    module = namespace.get("__name__") or "<string>"
    for action, text, kind, place, number in warnings.filters:
        if _fits(text, message) and issubclass(category, kind) and _fits(place, module) and number in (0, line):
            return action == "error"
    return False


def _fits(pattern: re.Pattern[str] | str | None, text: str) -> bool:
    """Whether a part of a filter fits; those that CPython itself begins with are strings."""
    if isinstance(pattern, str):
        return pattern == text
    return pattern is None or pattern.match(text) is not None


def _frame(level: int, skipped: tuple[str, ...]) -> FrameType | None:
    frame: FrameType | None = sys._getframe(2)  # of the program: below are this function and its caller
    if skipped:
        level = max(2, level)
    while frame is not None and level > 1:
        frame = frame.f_back
        if frame is not None and not frame.f_code.co_filename.startswith(skipped or ("<frozen importlib",)):
            level -= 1
    return frame


def _warn(message: str, category: type[Warning], filename: str, line: int, namespace: dict[str, Any]) -> None:
    module = namespace.get("__name__") or "<string>"
    registry = namespace.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, filename, line, module, registry)


LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "exception": logging.ERROR,
    "critical": logging.CRITICAL,
    "fatal": logging.CRITICAL,
}


def deferred_record(
    logger: logging.Logger, method: str, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[Deferred, int]:
    """Return what logs as `getattr(logger, method)(*arguments, **keywords)` does, and how many arguments it keeps.

    What is returned is called with the others, which are the arguments of the message.

    Raises:
        NotImplementedError: for keywords that look at the state of the program (`exc_info`, `stack_info`, `extra`).
    """
    if set(keywords) - {"stacklevel"} or method == "exception":
        raise NotImplementedError(f"logging with {', '.join(sorted(set(keywords) - {'stacklevel'})) or 'an exception'}")
    kept = 2 if method == "log" else 1
    level = arguments[0] if method == "log" else LEVELS[method]
    message = str(arguments[kept - 1])
    frame = sys._getframe(1)
    for _ in range(keywords.get("stacklevel", 1) - 1):
        frame = frame.f_back or frame
    code = frame.f_code
    return Deferred(_log, logger, level, code.co_filename, frame.f_lineno, code.co_name, message), kept


def _log(
    logger: logging.Logger, level: int, filename: str, line: int, function: str, message: str, *arguments: object
) -> None:
    if logger.isEnabledFor(level):
        logger.handle(logger.makeRecord(logger.name, level, filename, line, message, arguments, None, function))
