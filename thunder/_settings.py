"""How guards compare settings of PyTorch whose values are no constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def text_of(getter: Callable[..., Any], *arguments: Any) -> str:
    """Return what a function gives, as a text that is the same for equal settings."""
    return repr(getter(*arguments))
