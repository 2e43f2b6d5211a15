"""Exceptions of thunder's own.

What the user's program did wrong is raised as a Python exception of the fitting type instead.
"""

from __future__ import annotations

__all__ = ["EagerFallbackWarning", "InternalError", "SharpEdgeError", "SharpEdgeWarning"]


class InternalError(RuntimeError):
    """A mistake in thunder. The message names the pass or layer, and the script that reproduces it.

    `reproduction` is the path of that script, or None when none could be written.
    """

    def __init__(self, message: str, reproduction: str | None = None) -> None:
        super().__init__(message)
        self.reproduction = reproduction


class EagerFallbackWarning(UserWarning):
    """A call could not be compiled and ran as the plain Python function: the message has the reason and the line.

    Results are those of eager PyTorch, at its speed. With `fullgraph=True` the reason is raised instead.
    """


class SharpEdgeWarning(UserWarning):
    """With `sharp_edges="warn"`: the program does something that happens while it is traced, and not at later calls."""


class SharpEdgeError(RuntimeError):
    """With `sharp_edges="error"`: the program was about to do something that happens only while it is traced.

    Nothing has been changed.
    """
