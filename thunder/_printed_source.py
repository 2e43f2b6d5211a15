"""Functions made from the text of programs: tracebacks show their lines, and `inspect.getsource` finds them."""

from __future__ import annotations

import hashlib
import inspect
import linecache
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

__all__ = ["define_function"]

_users: Counter[str] = Counter()


def define_function(text: str, name: str, description: str, namespace: dict[str, Any]) -> Callable[..., Any]:
    """Run `text`, which defines `name`, and return that function. Its lines are kept for as long as its code lives.

    Traces name the file of a function: equal texts are in one file, so that they have equal traces.
    """
    file = f"<{description} {hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}>"
    exec(compile(text, file, "exec"), namespace)
    function: Callable[..., Any] = namespace[name]
    _users[file] += 1  # first, so that another thread that forgets an equal text does not take these lines away
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    code = inspect.unwrap(function).__code__  # behind decorators of the text
    weakref.finalize(code, _forget, file).atexit = False
    return function


def _forget(file: str) -> None:
    _users[file] -= 1
    if _users[file] == 0:
        del _users[file]
        linecache.cache.pop(file, None)
