"""Executors that are written in Python and come with thunder."""

from thunder._elsewhere import attribute_of

__getattr__ = attribute_of(__name__)
