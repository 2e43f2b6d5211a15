"""Metadata of the package, and the checks of what it is built with."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml

import thunder

ROOT = Path(__file__).resolve().parents[2]


def module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"packaging_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def metadata() -> ModuleType:
    return module_of(ROOT / "cmake/metadata.py")


@pytest.fixture
def checks() -> ModuleType:
    return module_of(ROOT / ".ci/check_wheel.py")


def test_wheel_holds_the_package(checks: ModuleType, tmp_path: Path) -> None:
    """`make wheels` builds the extension too, which takes minutes, and runs the wheel in an empty environment."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    subprocess.run([*command, "-C", "wheel.cmake=false", "--wheel-dir", str(tmp_path), "."], check=True, cwd=ROOT)
    (path,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        assert checks.wrong_content(wheel) == []
        assert checks.wrong_metadata(wheel) == []


def test_wheel_that_lacks_something_is_noticed(checks: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "thunder_compiler-0.1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("thunder/tests/mine.py", "")
        wheel.writestr("a.dist-info/METADATA", "Name: thunder-compiler\nRequires-Dist: torch>=2.11\n")
        wheel.writestr("a.dist-info/entry_points.txt", "")
    with zipfile.ZipFile(path) as wheel:
        wrong = checks.wrong_content(wheel)
        assert "thunder/tests/mine.py should not be there" in wrong
        assert "thunder/viewing/page.html is missing" in wrong
        assert "metadata: torch in exactly one version" in checks.wrong_metadata(wheel)
        assert len(checks.wrong_extensions(wheel, "cp311")) == 1
    assert len(checks.wrong_name(path)) == 1


def test_extension_needs_what_the_check_of_wheels_expects(checks: ModuleType) -> None:
    for name, libraries in checks.LIBRARIES.items():
        module = importlib.util.find_spec(f"thunder.{name}")
        needed, folders = checks.dynamic_section(Path(module.origin))
        assert needed - checks.SYSTEM == libraries
        assert not libraries or folders[: len(checks.RUNPATH)] == checks.RUNPATH


def test_name_of_a_wheel(checks: ModuleType) -> None:
    assert checks.wrong_name(Path("thunder_compiler-0.1.0-cp311-cp311-manylinux_2_35_x86_64.whl")) == []
    assert checks.wrong_name(Path("thunder_compiler-0.1.0-py3-none-any.whl")) != []


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


def test_a_build_without_torch_says_what_to_install(metadata: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata.importlib.metadata, "version", version)
    with pytest.raises(ValueError, match=r"there is none: pip install torch==2\.13\.0"):
        metadata.dynamic_metadata("dependencies")


def test_a_build_without_a_compiler_says_what_to_install(tmp_path: Path) -> None:
    cmake, ninja = (shutil.which(name) for name in ("cmake", "ninja"))
    command = [cmake, "-S", str(ROOT), "-B", str(tmp_path), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    environment = {**os.environ, "CXX": str(tmp_path / "none")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "needs a compiler for C++20, g++ 11 or newer, and found none" in " ".join(done.stderr.split())


def test_installed_package_says_what_holds() -> None:
    found = importlib.metadata.metadata("thunder-compiler")
    assert found["Version"] == thunder.__version__
    assert found["Requires-Python"] == "<3.14,>=3.10"
    assert f"torch=={torch.__version__.split('+')[0]}" in found.get_all("Requires-Dist")
    assert sys.version_info[:2] in {(3, minor) for minor in range(10, 14)}


WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def steps(path: Path) -> list[dict[str, Any]]:
    workflow = yaml.safe_load(path.read_text(encoding="utf8"))
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_runs_commands_of_the_repository(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf8")
    for step in steps(path):
        assert ("run" in step) != ("uses" in step)
        assert re.fullmatch(r"actions/[\w-]+@v\d+", step.get("uses", "actions/none@v1"))
        command = step.get("run", "")
        for target in re.findall(r"make ([\w-]+)", command):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE)
        for script in re.findall(r"(?<!\S)\.ci/[\w.]+", command):
            assert os.access(ROOT / script, os.X_OK)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_is_allowed_little_and_ends(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf8"))
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow[True]  # "on", which YAML 1.1 reads as a bool
    for job in workflow["jobs"].values():
        assert job["runs-on"].startswith("ubuntu-")
        assert job["timeout-minutes"] <= 120


def test_files_that_workflows_cache_or_upload_are_those_of_the_build() -> None:
    texts = [path.read_text(encoding="utf8") for path in WORKFLOWS]
    assert any("run: .ci/run" in text for text in texts)
    (uploaded,) = {path for text in texts for path in re.findall(r"path: (build/\S+)", text)}
    assert uploaded == "build/wheels/*.whl"
    assert "out=$root/build/wheels" in (ROOT / ".ci/wheels").read_text(encoding="utf8")
    for text in texts:
        assert text.count("CCACHE_DIR: ${{ github.workspace }}/.ccache") == text.count("path: .ccache")


def test_wheels_are_built_for_each_supported_python() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/wheels.yml").read_text(encoding="utf8"))
    built = workflow["jobs"]["wheels"]["strategy"]["matrix"]["python"]
    classifiers = importlib.metadata.metadata("thunder-compiler").get_all("Classifier")
    assert built == re.findall(r"Programming Language :: Python :: (3\.\d+)", "\n".join(classifiers))


@pytest.mark.parametrize("path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem)
def test_issue_form_is_well_formed(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf8"))
    if path.stem == "config":
        assert form == {"blank_issues_enabled": False}
        return
    assert form["name"]
    assert form["description"]
    ids = [field["id"] for field in form["body"] if field["type"] != "markdown"]
    assert len(set(ids)) == len(ids)
    for field in form["body"]:
        assert field["type"] in ("markdown", "textarea", "input", "dropdown", "checkboxes")
        for name in re.findall(r"docs/[\w/-]+\.md", str(field)):
            assert (ROOT / name).exists()
