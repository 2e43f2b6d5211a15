"""Importing the package: what it costs, and what it says when it cannot work."""

from __future__ import annotations

import os
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


def test_import_costs_at_most_50_ms_beyond_torch() -> None:
    code = (
        "import time, torch; start = time.perf_counter(); import thunder; thunder.jit, thunder.last_traces; "
        "print(time.perf_counter() - start)"
    )
    seconds = min(float(run_python(code).stdout) for _ in range(3))
    assert seconds <= 0.05


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


def test_mixed_installation_with_lightning_thunder_is_noticed(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    _check.require_own_package()
    for folder in _check.FOREIGN_FOLDERS:
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(_check, "_PACKAGE", str(tmp_path))
    with pytest.raises(ImportError, match="pip uninstall -y lightning-thunder"):
        _check.require_own_package()


def test_missing_tbb_names_the_command() -> None:
    error = _check.explained(ImportError("libtbb.so.12: cannot open shared object file: No such file or directory"))
    assert "pip install 'tbb" in str(error)


def test_missing_extension_names_the_command(tmp_path) -> None:
    package = tmp_path / "thunder"
    package.mkdir()
    for source in (ROOT / "thunder").glob("*.py"):
        if source.name != "_built_for.py":
            (package / source.name).write_text(source.read_text())
    # -S leaves out the editable install, which would come first.
    result = subprocess.run(
        [sys.executable, "-S", "-c", "from thunder import jit"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{sysconfig.get_path('platlib')}"},
    )
    assert result.returncode != 0
    assert "make build" in result.stderr
