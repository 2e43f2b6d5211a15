"""The targets of commands: a function of a file that makes a program and its arguments."""

from __future__ import annotations

import importlib
import importlib.util
import pathlib
import sys
from typing import Any

__all__ = ["HELP", "load"]

HELP = (
    "FILE.py:NAME or MODULE:NAME. NAME is a function without parameters that returns the program and its arguments: "
    "(fn, arguments), or (fn, arguments, keywords)"
)


def load(target: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the program, its arguments and its keyword arguments.

    Raises:
        ValueError: the target is not of that form, or names nothing.
    """
    path, colon, name = target.rpartition(":")
    if not colon or not path or not name:
        raise ValueError(f"expected {HELP}; got {target!r}")
    module = _from_file(path) if path.endswith(".py") else importlib.import_module(path)
    if not hasattr(module, name):
        raise ValueError(f"expected {HELP}; {path} has no {name!r}")
    made = getattr(module, name)()
    if not isinstance(made, tuple) or not 2 <= len(made) <= 3 or not callable(made[0]):
        raise ValueError(f"expected {HELP}; {name} returned {made!r}")
    fn, arguments, *keywords = made
    arguments = tuple(arguments) if isinstance(arguments, list | tuple) else (arguments,)
    return fn, arguments, dict(keywords[0]) if keywords else {}


def _from_file(path: str) -> Any:
    file = pathlib.Path(path)
    if not file.is_file():
        raise ValueError(f"expected {HELP}; there is no file {path}")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"expected {HELP}; {path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    sys.path.insert(0, str(file.parent))
    spec.loader.exec_module(module)
    return module
