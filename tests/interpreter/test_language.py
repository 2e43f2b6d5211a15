"""Every part of the language gives under the interpreter what CPython gives."""

import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from thunder.interpreter import _native, interpret


def load(name: str) -> ModuleType:
    """A file beside this one as a module. Syntax newer than the oldest Python that we support is kept in .txt files."""
    loader = SourceFileLoader(f"thunder_test_{Path(name).stem}", str(Path(__file__).with_name(name)))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


programs = load("programs.py")
PROGRAMS = list(programs.PROGRAMS)
if sys.version_info >= (3, 11):
    PROGRAMS += load("programs_3_11.txt").PROGRAMS
if sys.version_info >= (3, 12):
    PROGRAMS += load("programs_3_12.txt").PROGRAMS


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program_gives_the_native_result(program: Callable[[], Any]) -> None:
    assert interpret(program)() == program()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program_gives_the_native_result_under_an_observer(program: Callable[[], Any]) -> None:
    result, events = _native._record_events(program)
    assert result == program()
    assert events


def test_no_function_runs_natively() -> None:
    native = []

    def trace(frame: Any, event: str, argument: object) -> None:
        if frame.f_code.co_filename == programs.__file__:
            native.append(frame.f_code.co_name)

    interpreted = interpret(programs.callbacks_from_c)
    sys.settrace(trace)
    try:
        interpreted()
    finally:
        sys.settrace(None)
    assert native == []
