"""The command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import thunder
from thunder.cli import cache, main
from thunder.cli.failures import told

ROOT = Path(thunder.__file__).parents[1]

PROGRAMS = """
import time
import torch

def good():
    layer = torch.nn.Linear(4, 2)
    return layer, (torch.ones(3, 4),)

def keywords():
    return torch.softmax, torch.ones(3), {"dim": 0}

def refused():
    return (lambda x: x * time.time()), (torch.ones(2),)

def wrong():
    return 3

def failing():
    def f(x):
        raise ValueError("the program's own")
    return f, (torch.ones(2),)

def of_wrong_shape():
    return torch.nn.Linear(4, 2), (torch.ones(3, 5),)

def parametrized(x):
    return x

constant = 3
"""


@pytest.fixture
def programs(tmp_path: Path) -> str:
    path = tmp_path / "programs_of_cli.py"
    path.write_text(PROGRAMS)
    return str(path)


def test_env_names_what_a_report_needs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_CACHE_SIZE", "7")
    assert main(["env"]) == 0
    printed = capsys.readouterr().out
    for text in (thunder.__version__, torch.__version__, sys.executable, "executors:    cpu", "THUNDER_CACHE_SIZE=7"):
        assert text in printed


def test_a_pipe_that_its_reader_closes_ends_a_command_without_a_word() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "thunder", "env"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()  # before anything is written: importing torch takes longer
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("name", "status", "words"), [("good", 0, "Linear: compiled"), ("refused", 1, "runs in eager")]
)
def test_examine(programs: str, name: str, status: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examine", f"{programs}:{name}"]) == status
    assert words in capsys.readouterr().out


@pytest.mark.parametrize("name", ["good", "keywords"])
def test_bench(programs: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", f"{programs}:{name}"]) == 0
    eager, compiled = capsys.readouterr().out.splitlines()
    assert eager.endswith("1.00 of eager")
    assert re.match(r"thunder +first call +[\d.]+ ms +call +[\d.]+ ms +[\d.]+ of eager", compiled)


def test_view(programs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main(["view", f"{programs}:good", "-o", str(page)]) == 0
    assert "<title>Linear" in page.read_text(encoding="utf8")


def test_repro_of_a_program_that_works(programs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["repro", f"{programs}:good", "-o", str(tmp_path / "repro.py")]) == 1
    assert "equal eager's" in capsys.readouterr().out


def test_repro_writes_a_script(
    programs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(thunder, "minify", lambda fn, *args, **options: asked.append(options) or "small")
    assert main(["repro", f"{programs}:keywords", "-o", "here.py", "--seconds", "3"]) == 0
    assert asked == [{"seconds": 3.0, "path": "here.py"}]
    assert capsys.readouterr().out == "small\n"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nothing", "expected FILE.py:NAME"),
        ("no_such_file.py:f", "there is no file"),
        ("no_such_module:f", "No module named"),
        ("math:no_such", "math has no function 'no_such'"),
        ("{}:wrong", "wrong returned 3"),
        ("{}:parametrized", "parametrized has the parameter 'x'"),
        ("{}:constant", "has no function 'constant'"),
    ],
)
def test_wrong_targets(programs: str, target: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examine", target.format(programs)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("command", ["examine", "bench", "view"])
def test_an_error_of_the_program_is_shown_from_its_line_on(
    programs: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([command, f"{programs}:failing"]) == 1
    first, line, *_, last = capsys.readouterr().err.splitlines()
    assert first == "Traceback (most recent call last):"
    assert programs in line
    assert last == f"thunder {command}: ValueError: the program's own"


def test_an_error_without_a_line_of_the_users_is_told_in_one(
    programs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["view", f"{programs}:of_wrong_shape"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("thunder view: RuntimeError: mat1 and mat2 shapes")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a file that cannot be written")
def test_a_page_that_cannot_be_written_is_told_in_one_line(programs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", f"{programs}:good", "-o", "/dev/full"]) == 1
    assert capsys.readouterr().err == "thunder view: OSError: [Errno 28] No space left on device\n"


def test_an_error_of_syntax_is_shown_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wrong_syntax.py"
    file.write_text("def f(:\n")
    assert main(["examine", f"{file}:f"]) == 1
    printed = capsys.readouterr().err
    assert f'File "{file}", line 1' in printed
    assert printed.splitlines()[-1].startswith("thunder examine: SyntaxError:")


def test_an_error_of_thunders_own_is_shown_with_all_lines() -> None:
    try:
        main(["no such command"])
    except SystemExit as error:
        own = thunder.InternalError("wrong").with_traceback(error.__traceback__)
    assert Path(main.__code__.co_filename).name in told(own)


def test_repro_of_a_program_that_fails_in_eager_too(
    programs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["repro", f"{programs}:failing", "-o", str(tmp_path / "repro.py")]) == 1
    assert "fails in eager too: ValueError: the program's own" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["view", "repro"])
def test_output_goes_to_a_folder_that_exists(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "a.py:f", "-o", "/no/such/folder/file"])
    assert "there is no folder /no/such/folder" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["view", "repro"])
def test_output_is_no_folder(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "a.py:f", "-o", str(tmp_path)])
    assert "Is a directory" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"thunder {thunder.__version__}\n"


def test_without_a_command_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    printed = capsys.readouterr().out
    for command in ("env", "examine", "bench", "cache", "repro", "view"):
        assert f"\n    {command} " in printed


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"THUNDER_CACHE_DIR": "/a/b"}, "/a/b"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/thunder"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/thunder"),
        ({"HOME": "/h"}, "/h/.cache/thunder"),
    ],
)
def test_folder_of_the_cache(environment: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("THUNDER_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert str(cache.folder()) == folder


def test_cache_is_listed_and_cleared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))
    assert main(["cache"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}: empty\n"
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda/kernel").write_bytes(b"0" * 2**20)
    (tmp_path / "mine").write_text("not thunder's")
    main(["cache"])
    assert "cuda: 1 files, 1 MiB" in capsys.readouterr().out
    main(["cache", "--clear"])
    assert "deleted cuda" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_all_parts_of_the_cache_are_known() -> None:
    sources = [path.read_text() for path in (ROOT / "csrc").rglob("*") if path.suffix in (".h", ".cpp")]
    names = {name for text in sources for name in re.findall(r"cache_folder\((k\w+)\)", text)}
    values = {
        value for text in sources for name, value in re.findall(r'char\* (k\w+) = "(\w+)"', text) if name in names
    }
    assert values == set(cache.PARTS)


def test_commands_are_installed() -> None:
    for command in ([sys.executable, "-m", "thunder"], [str(Path(sys.executable).parent / "thunder")]):
        done = subprocess.run([*command, "cache"], capture_output=True, text=True, check=True, cwd=ROOT)
        assert done.stdout
