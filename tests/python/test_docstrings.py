"""Docstrings of public names: their examples run, and they name what the functions take."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
import types
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from thunder import plugins, recipes

ROOT = Path(__file__).resolve().parents[2]
MODULES = [
    "thunder",
    *(found.name for found in pkgutil.walk_packages(thunder.__path__, "thunder.") if "_C" not in found.name),
]


def examples() -> dict[str, doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = {}
    for name in MODULES:
        if name.endswith(("__main__", "_interpreter")):
            continue
        module = importlib.import_module(name)
        for test in finder.find(module, name, module):
            if test.examples:
                found[test.name] = test
    return found


EXAMPLES = examples()


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the recipes and plugins that examples register."""
    for owner, name in ((recipes.registry, "_recipes"), (plugins.registry, "_plugins")):
        monkeypatch.setattr(owner, name, dict(getattr(owner, name)))


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs(name: str) -> None:
    test = EXAMPLES[name]
    test.globs = {"torch": torch, "thunder": thunder}
    torch.manual_seed(0)
    printed: list[str] = []
    # TorchDynamo cleans up in the names of the example, later.
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=printed.append, clear_globs=False)
    assert printed == []


def test_the_main_functions_have_examples() -> None:
    named = " ".join(EXAMPLES)
    for function in ("_jit.jit", "_compile.compile", "examination.examine", "inspect.fusions", "profiling.profile"):
        assert function in named


def public() -> dict[str, Any]:
    """Return what `docs/api.md` lists, and the functions of the modules that it lists."""
    found: dict[str, Any] = {name: getattr(thunder, name) for name in thunder.__all__}
    for path in re.findall(r"^::: ([\w.]+)$", (ROOT / "docs/api.md").read_text(encoding="utf8"), re.MULTILINE):
        owner, _, name = path.rpartition(".")
        value = getattr(importlib.import_module(owner), name)
        if isinstance(value, types.ModuleType):
            found |= {f"{path}.{each}": getattr(value, each) for each in value.__all__}
        else:
            found[path] = value
    return found


PUBLIC = public()


@pytest.mark.parametrize("name", PUBLIC)
def test_docstring_names_the_parameters(name: str) -> None:
    value = PUBLIC[name]
    text = inspect.getdoc(value)
    assert text
    if not inspect.isfunction(value):
        return
    for parameter in inspect.signature(value).parameters.values():
        if parameter.name.startswith("_"):
            continue
        assert re.search(rf"\b{parameter.name}\b", text), parameter.name


@pytest.mark.parametrize("name", thunder.__all__)
def test_every_public_name_is_in_the_api(name: str) -> None:
    listed = [value for path, value in PUBLIC.items() if "." in path]
    assert any(value is getattr(thunder, name) for value in listed)
