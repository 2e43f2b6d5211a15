"""Pages about compiled callables."""

from thunder.viewing.page import View, view

__all__ = ["View", "view"]
