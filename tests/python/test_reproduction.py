"""A failing test prints the command that runs it again."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys


def test_failing_test_prints_its_command(tmp_path: pathlib.Path) -> None:
    shutil.copy(pathlib.Path(__file__).parents[1] / "conftest.py", tmp_path)
    test = "import pytest\n@pytest.mark.parametrize('a', [1])\ndef test_f(a): assert a == 2\n"
    (tmp_path / "test_it.py").write_text(test)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path,
        env={**os.environ, "THUNDER_FUZZ_SEED": "7"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert "THUNDER_FUZZ_SEED=7 " in result.stdout
    assert "python -m pytest 'test_it.py::test_f[1]'" in result.stdout
