"""Suggestions for names that are misspelt."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable

__all__ = ["listed", "suggestion", "warn_of_misspelt_methods"]


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return the end of a message that suggests the name that is spelled like `name`; empty where there is none."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def listed(name: str, names: Iterable[str], subject: str) -> str:
    """Return the end of a message about an unknown name: the one that is spelled like it, and all, of `subject`."""
    there = list(names)
    close = suggestion(name, there)
    beginning = f"{close} {subject.capitalize()}" if close else f"; {subject}"
    return f"{beginning} are {', '.join(there)}"


def warn_of_misspelt_methods(cls: type, base: type, prefixes: tuple[str, ...]) -> None:
    """Warn of methods of a new subclass that are spelled nearly as those of `base` that are there to be overridden.

    They would never be called, without a word.
    """
    known = [name for name in vars(base) if name.startswith(prefixes)]
    for name in vars(cls):
        if not name.startswith(prefixes) or hasattr(base, name):
            continue
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
        if close:
            warnings.warn(
                f"{cls.__module__}.{cls.__qualname__}: thunder never calls a method {name!r}; did you mean "
                f"{close[0]!r}?",
                stacklevel=3,
            )
