"""Metadata of the package, and the checks of what it is built with."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
import yaml

import thunder

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def metadata() -> ModuleType:
    spec = importlib.util.spec_from_file_location("metadata_of_the_build", ROOT / "cmake/metadata.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("version", ["2.11.0+cu130", "2.13.0+cpu", "2.20.1", "3.0.0a0+git1"])
def test_supported_torch_builds(metadata: ModuleType, version: str) -> None:
    metadata.require_supported(version)


@pytest.mark.parametrize("version", ["2.10.1", "2.2.0+cpu", "1.13.1"])
def test_older_torch_is_refused_with_the_command(metadata: ModuleType, version: str) -> None:
    with pytest.raises(
        ValueError, match=rf"needs torch 2\.11 or newer, got {re.escape(version)}: pip install 'torch>=2\.11'"
    ):
        metadata.require_supported(version)


def test_package_depends_on_the_torch_of_its_build(metadata: ModuleType) -> None:
    assert metadata.dynamic_metadata("dependencies")[0] == f"torch=={torch.__version__.split('+')[0]}"
    with pytest.raises(ValueError, match="expected the field 'dependencies'"):
        metadata.dynamic_metadata("version")


def test_installed_package_says_what_holds() -> None:
    found = importlib.metadata.metadata("thunder-compiler")
    assert found["Version"] == thunder.__version__
    assert found["Requires-Python"] == "<3.14,>=3.10"
    assert f"torch=={torch.__version__.split('+')[0]}" in found.get_all("Requires-Dist")
    assert sys.version_info[:2] in {(3, minor) for minor in range(10, 14)}


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: str(path.relative_to(ROOT / ".github"))
)
def test_files_for_github_are_well_formed(path: Path) -> None:
    content = yaml.safe_load(path.read_text(encoding="utf8"))
    assert content["name"]
    for job in content.get("jobs", {}).values():
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)


def test_workflows_run_commands_of_the_repository() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf8"))
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert ".ci/run" in commands
    makefile = (ROOT / "Makefile").read_text(encoding="utf8")
    for target in re.findall(r"make (\w+)", " ".join(commands)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
