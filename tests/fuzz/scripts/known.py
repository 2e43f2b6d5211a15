"""Failures that are known and not fixed: docs/fuzzing.md lists them."""

from __future__ import annotations

import re

# (kind, what the message and the smallest script match, why)
_KNOWN: tuple[tuple[str, str, str], ...] = ()


def reason(kind: str, message: str, text: str) -> str:
    """Return why a failure is known, or nothing."""
    everything = f"{message}\n{text}"
    for kinds, pattern, why in _KNOWN:
        if re.fullmatch(kinds, kind) and re.search(pattern, everything, re.DOTALL):
            return why
    return ""
