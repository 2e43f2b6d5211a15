"""Choices of options as enumerations, as Lightning Thunder has them; equal to their texts."""

from __future__ import annotations

import enum

__all__ = ["CACHE_OPTIONS", "SHARP_EDGES_OPTIONS"]


class CACHE_OPTIONS(str, enum.Enum):  # noqa: N801
    """Values of the option `cache`."""

    CONSTANT_VALUES = "constant values"
    SYMBOLIC_VALUES = "symbolic values"
    SAME_INPUT = "same input"
    NO_CACHING = "no caching"


class SHARP_EDGES_OPTIONS(str, enum.Enum):  # noqa: N801
    """Values of the option `sharp_edges`."""

    EXACT = "exact"
    ALLOW = "allow"
    WARN = "warn"
    ERROR = "error"
