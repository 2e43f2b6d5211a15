"""Choices of options, where Lightning Thunder has them."""

from thunder._elsewhere import attribute_of
from thunder.choices import CACHE_OPTIONS, SHARP_EDGES_OPTIONS

__all__ = ["CACHE_OPTIONS", "SHARP_EDGES_OPTIONS"]

__getattr__ = attribute_of(__name__)
