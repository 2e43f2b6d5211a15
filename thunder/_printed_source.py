"""Functions made from the text of programs: tracebacks show their lines, and `inspect.getsource` finds them."""

from __future__ import annotations

import inspect
import itertools
import linecache
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["define_function"]

_numbers = itertools.count()


def define_function(text: str, name: str, description: str, namespace: dict[str, Any]) -> Callable[..., Any]:
    """Run `text`, which defines `name`, and return that function. Its lines are kept for as long as its code lives."""
    file = f"<{description} {next(_numbers)}>"
    exec(compile(text, file, "exec"), namespace)
    function: Callable[..., Any] = namespace[name]
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    code = inspect.unwrap(function).__code__  # behind decorators of the text
    weakref.finalize(code, linecache.cache.pop, file, None).atexit = False
    return function
