"""Choices of options, where Lightning Thunder has them."""

from thunder.choices import CACHE_OPTIONS, SHARP_EDGES_OPTIONS

__all__ = ["CACHE_OPTIONS", "SHARP_EDGES_OPTIONS"]
