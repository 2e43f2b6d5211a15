"""Importing the package: what it costs, and what it says when it cannot work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import thunder
from thunder import _check

ROOT = Path(thunder.__file__).parents[1]


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, cwd=ROOT
    )


def test_import_of_the_package_loads_no_torch() -> None:
    result = run_python("import sys, thunder; assert 'torch' not in sys.modules")
    assert result.returncode == 0, result.stderr


def test_public_names_are_listed_and_found() -> None:
    assert set(thunder.__all__) == set(thunder._ORIGIN)
    for name in thunder.__all__:
        assert getattr(thunder, name) is not None
        assert name in dir(thunder)


def test_modules_are_found_without_importing_them() -> None:
    result = run_python("import thunder; thunder.extend.OperatorExecutor('mine'), thunder.transforms.Transform()")
    assert result.returncode == 0, result.stderr


def test_import_loads_nothing_but_its_own_modules() -> None:
    code = (
        "import sys, torch; before = set(sys.modules); import thunder; thunder.jit, thunder.last_traces; "
        "print(*sorted(set(sys.modules) - before))"
    )
    loaded = run_python(code).stdout.split()
    assert [name for name in loaded if name.split(".")[0] not in {"thunder", *sys.stdlib_module_names}] == []


def test_unknown_attribute_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        thunder.no_such_name  # noqa: B018


def test_other_torch_names_both_versions_and_the_command() -> None:
    with pytest.raises(ImportError) as caught:
        _check.require_torch(running="2.11.0+cu130", built_for="2.13.0+cpu")
    for part in ("2.11.0+cu130", "2.13.0+cpu", "pip install torch==2.13.0", "--no-build-isolation"):
        assert part in str(caught.value)


def test_other_torch_is_noticed_before_the_extension_is_loaded() -> None:
    result = run_python("import torch; torch.__version__ = '2.0.0'; from thunder import jit")
    assert result.returncode != 0
    assert "ImportError: import thunder: built against torch" in result.stderr


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, extension and all, to be spoiled."""
    copy = tmp_path / "thunder"
    shutil.copytree(ROOT / "thunder", copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def import_error(package: Path, code: str = "from thunder import jit") -> str:
    """Return the last lines of what importing a spoiled package says."""
    result = subprocess.run(
        # -S leaves out the editable install, which would come first.
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        cwd=package.parent,
        env={**os.environ, "PYTHONPATH": f"{package.parent}:{sysconfig.get_path('platlib')}"},
    )
    assert result.returncode != 0
    return result.stderr[result.stderr.rindex("\nImportError: ") :]


def test_copy_of_the_package_works_as_it_is(package: Path) -> None:
    with pytest.raises(AssertionError):
        import_error(package)


def test_mixed_installation_with_lightning_thunder_is_noticed(package: Path) -> None:
    for folder in _check.FOREIGN_FOLDERS:
        (package / folder).mkdir()
    assert "pip uninstall -y lightning-thunder thunder-compiler" in import_error(package, "import thunder")


def test_extension_built_for_another_torch_is_not_loaded(package: Path) -> None:
    (package / "_built_for.py").write_text('TORCH = "2.0.0"\n')
    message = import_error(package)
    assert "built against torch 2.0.0, but torch 2." in message
    assert "pip install torch==2.0.0" in message


def test_missing_tbb_names_the_command(package: Path) -> None:
    # The loader is made to look for a library that is nowhere.
    extension = next(package.glob("_C.*.so"))
    content = extension.read_bytes()
    assert b"libtbb.so.12\0" in content
    extension.write_bytes(content.replace(b"libtbb.so.12\0", b"libtbb.so.99\0"))
    message = import_error(package)
    assert "libtbb.so.99: cannot open shared object file" in message
    assert "pip install 'tbb>=2022.0'" in message


@pytest.mark.parametrize("missing", ["_built_for.py", "_C.*.so"])
def test_missing_extension_names_the_command(package: Path, missing: str) -> None:
    next(package.glob(missing)).unlink()
    assert "make build" in import_error(package)


def test_damaged_extension_names_the_command(package: Path) -> None:
    next(package.glob("_C.*.so")).write_bytes(b"not a library")
    assert "make clean build" in import_error(package)
