"""Settings of PyTorch and of Python's library: how guards compare them, and what a program leaves changed."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any


def text_of(getter: Callable[..., Any], *arguments: Any) -> str:
    """Return what a function gives, as a text that is the same for equal settings."""
    return repr(getter(*arguments))


class StateOfModules:
    """Settings that programs change by functions of Python's library that run unseen, as they were at creation."""

    _PARTS_OF_WARNINGS = ("filters", "showwarning", "_showwarnmsg_impl", "defaultaction")
    _PARTS_OF_CONTEXTS = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp", "flags", "traps")

    def __init__(self) -> None:
        self._warnings = {name: getattr(warnings, name, None) for name in self._PARTS_OF_WARNINGS}
        self._filters = list(warnings.filters)
        self._decimal = sys.modules.get("decimal")
        self.decimal_context: str | None = None
        if self._decimal is not None:
            self._context = self._decimal.getcontext()
            self._copy = self._context.copy()
            self.decimal_context = repr(self._context)

    def restore(self, sets_warnings: bool) -> str | None:
        """Put back what has changed, and return how it is read; None where all is as it was.

        Filters of warnings are the program's change if it has set some: modules set them, too, when they are imported.
        """
        if sets_warnings and self._restore_warnings():
            return "warnings.filters"
        return "decimal.getcontext()" if self._restore_decimal() else None

    def _restore_warnings(self) -> bool:
        changed = [name for name, value in self._warnings.items() if getattr(warnings, name, None) is not value]
        filters: Any = self._warnings["filters"]
        if not changed and filters == self._filters:
            return False
        for name in changed:
            setattr(warnings, name, self._warnings[name])
        filters[:] = self._filters
        if hasattr(warnings, "_filters_mutated"):
            warnings._filters_mutated()
        return True

    def _restore_decimal(self) -> bool:
        if self._decimal is None:
            return False
        current = self._decimal.getcontext()
        if current is self._context and repr(current) == self.decimal_context:
            return False
        for name in self._PARTS_OF_CONTEXTS:
            setattr(self._context, name, getattr(self._copy, name))
        self._decimal.setcontext(self._context)
        return True
