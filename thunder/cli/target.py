"""The targets of commands: a function of a file that makes a program and its arguments."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pathlib
import sys
from typing import Any

__all__ = ["HELP", "WrongTarget", "load"]

HELP = (
    "FILE.py:NAME or MODULE:NAME. NAME is a function without parameters that returns the program and its arguments: "
    "(fn, arguments), or (fn, arguments, keywords)"
)


class WrongTarget(ValueError):
    """A target that is not of the expected form."""


def load(target: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the program, its arguments and its keyword arguments.

    Raises:
        WrongTarget: the target is not of that form, or names nothing. What its own code raises comes through.
    """
    path, colon, name = target.rpartition(":")
    if not colon or not path or not name:
        raise WrongTarget(f"expected {HELP}; got {target!r}")
    module = _from_file(path) if path.endswith(".py") else _from_module(path)
    if not callable(getattr(module, name, None)):
        raise WrongTarget(f"expected {HELP}; {path} has no function {name!r}")
    made = _without_parameters(getattr(module, name), name)()
    if not isinstance(made, tuple) or not 2 <= len(made) <= 3 or not callable(made[0]):
        raise WrongTarget(f"expected {HELP}; {name} returned {made!r}")
    fn, arguments, *keywords = made
    arguments = tuple(arguments) if isinstance(arguments, list | tuple) else (arguments,)
    return fn, arguments, dict(keywords[0]) if keywords else {}


def _without_parameters(function: Any, name: str) -> Any:
    """Return `function`, where it can be called without arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a C function without a signature
        return function
    required = [each.name for each in parameters if each.default is each.empty and each.kind < each.VAR_POSITIONAL]
    if required:
        raise WrongTarget(f"expected {HELP}; {name} has the parameter {required[0]!r}")
    return function


def _from_module(name: str) -> Any:
    sys.path.insert(0, "")  # modules of the folder in which the command runs, as with `python -m`
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name):
            raise WrongTarget(f"expected {HELP}; {error}") from None
        raise


def _from_file(path: str) -> Any:
    file = pathlib.Path(path)
    if not file.is_file():
        raise WrongTarget(f"expected {HELP}; there is no file {path}")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise WrongTarget(f"expected {HELP}; {path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    sys.path.insert(0, str(file.parent))
    spec.loader.exec_module(module)
    return module
