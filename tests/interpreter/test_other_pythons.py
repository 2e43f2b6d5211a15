"""The tests of this folder, run by the other supported Pythons that are installed here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
SUPPORTED = ("3.10", "3.11", "3.12", "3.13")
HAS_HEADERS = (
    "import pathlib, sys, sysconfig; "
    "sys.exit('%d.%d' % sys.version_info[:2] != sys.argv[1] or not pathlib.Path(sysconfig.get_path('include'), "
    "'Python.h').exists())"
)


def find_python(version: str) -> str | None:
    """A Python of this version with its headers: from PATH, else from pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))]
    for candidate in candidates:
        # A shim of pyenv can be on PATH without the Python behind it.
        if candidate and subprocess.run([candidate, "-c", HAS_HEADERS, version], capture_output=True).returncode == 0:
            return str(candidate)
    return None


def run(*command: str | Path, **environment: str) -> None:
    process = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.returncode == 0, process.stdout[-5000:]


@pytest.mark.slow
@pytest.mark.parametrize("version", [v for v in SUPPORTED if v != "{}.{}".format(*sys.version_info)])
def test_interpreter_passes_its_tests_on(version: str) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} with Python.h on PATH or in pyenv")
    packages = ROOT / "build" / "interpreter" / f"packages-{version}"
    if not (packages / "pytest").exists():
        run(sys.executable, "-m", "pip", "--python", python, "install", "--target", packages, "pytest>=8")
    run(python, "csrc/interpreter/standalone/build.py", "--flags=-O0")
    others = [path for path in sorted(FOLDER.glob("test_*.py")) if path != Path(__file__)]
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *others, PYTHONPATH=str(packages))
