"""Failures that are known and not mended yet: docs/status.md lists them."""

from __future__ import annotations

import re
from typing import Any

# (kind, what the message or the smallest program matches, why)
_KNOWN: tuple[tuple[str, str, str], ...] = ()


def reason(found: Any) -> str:
    """Return why a failure is known, or an empty text."""
    for kind, pattern, why in _KNOWN:
        if kind == found.kind and re.search(pattern, f"{found.message}\n{found.program}", re.DOTALL):
            return why
    return ""
