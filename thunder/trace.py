"""A trace, seen from Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Trace"]


class Trace:
    """One stage of a compiled program. `str(trace)` is a Python program; `python_callable()` runs it.

    Attributes:
        name: the name of the function in the program, such as "computation".
    """

    def __init__(self, native: Any) -> None:
        self._native = native

    @property
    def name(self) -> str:
        """The name of the function in the program."""
        return str(self._native.name)

    def __str__(self) -> str:
        return str(self._native)

    def __repr__(self) -> str:
        return f"<thunder.Trace {self.name!r}>"

    def python_callable(self) -> Callable[..., Any]:
        """Return the function that the printed program defines.

        Objects that have no Python literal, such as a guarded module, come from the trace itself. The function takes
        and returns what the program's signature and comments say; it computes the same numbers as the compiled trace.
        """
        namespace: dict[str, Any] = dict(self._native.context())
        exec(compile(str(self), f"<thunder trace {self.name}>", "exec"), namespace)
        function: Callable[..., Any] = namespace[self.name]
        return function
