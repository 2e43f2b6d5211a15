"""`thunder.minify`: a large failing program becomes a small one."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Any

import pytest
import torch
from programs import x
from torch import nn

import thunder
from thunder._minify.shrink import Case
from thunder._minify.straight_line import StraightLine


def records(name: str) -> Any:
    """Return what says that a program's trace holds an operation."""

    def fails(program: Any, *args: Any) -> bool:
        compiled = thunder.jit(program)
        compiled(*args)
        return name in str(thunder.last_traces(compiled)[-1])

    return fails


def long_program(a: torch.Tensor, b: torch.Tensor) -> Any:
    c = a.sin() @ b.t()
    d = c.softmax(-1) * 2
    e = (d + c).tanh()
    return e.sum(), d, c[0]


def test_program_is_cut_to_the_operation_that_matters() -> None:
    small = thunder.minify(long_program, x(), x(), fails=records("tanh"))
    assert small.program.count("torch.") == 1
    assert "tanh" in small.program
    assert [argument.numel() for argument in small.arguments] == [1]
    torch.testing.assert_close(small.function(*small.arguments), small.function(*small.arguments))


def test_two_operations_that_matter_stay() -> None:
    def fails(program: Any, *args: Any) -> bool:
        return records("softmax")(program, *args) and records("tanh")(program, *args)

    small = thunder.minify(long_program, x(), x(), fails=fails)
    assert "softmax" in small.program
    assert "tanh" in small.program
    assert small.program.count("torch.") <= 3


def test_module_is_cut_and_left_as_it_was() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.GELU(), nn.Linear(4, 2))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    small = thunder.minify(module, torch.randn(5, 3), fails=records("gelu"))
    assert small.program.count("torch.") == 1
    torch.testing.assert_close(dict(module.state_dict()), before)


def wrong_cosine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a compiler that takes cosines for sines."""
    jit = thunder._jit.jit

    def compile_wrongly(function: Any, **options: Any) -> Any:
        compiled = jit(function, **options)

        def wrong(*args: Any) -> Any:
            right = torch.Tensor.cos, torch.cos
            torch.Tensor.cos, torch.cos = torch.Tensor.sin, torch.sin
            try:
                return compiled(*args)
            finally:
                torch.Tensor.cos, torch.cos = right

        return wrong

    monkeypatch.setattr("thunder._jit.jit", compile_wrongly)


def test_difference_from_eager_that_the_trace_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded trace has the mistake in it; the calls that eager makes have not."""
    wrong_cosine(monkeypatch)

    def program(a: torch.Tensor) -> Any:
        b = a.exp() + 1
        b[0].mul_(2)
        c = torch.nn.functional.relu(b.cos()) * 3
        return c.sum(0), b

    small = thunder.minify(program, x())
    assert "cos" in small.program
    assert len(small.program.splitlines()) == 3
    assert "expected" in small.reason.lower() or "not close" in small.reason


def test_exception_of_the_compiler_is_kept(tmp_path: pathlib.Path) -> None:
    def program(a: torch.Tensor) -> Any:
        b = a.exp() + 1
        return b * 2 if b.is_pinned() else b.sin()

    path = str(tmp_path / "small.py")
    small = thunder.minify(program, x(grad=False), path=path)
    assert "NotImplementedError: thunder.jit: aten::is_pinned" in small.reason
    assert "is_pinned" in small.program
    assert len(small.program.splitlines()) == 3
    shown = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert "eager\nresults" in shown.stdout
    assert "NotImplementedError: thunder.jit: aten::is_pinned" in shown.stderr


def test_script_runs_without_a_failure_in_thunder(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "small.py")
    has_long_result = lambda program, *args: program(*args)[-1].numel() > 50  # noqa: E731
    thunder.minify(long_program, x(), x(100, 4), fails=has_long_result, path=path)
    shown = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    assert "compiled" in shown.stdout


def test_function_that_does_not_fail_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected a function that fails"):
        thunder.minify(long_program, x(), x())


def test_failure_that_operations_do_not_show_is_an_error() -> None:
    with pytest.raises(ValueError, match="operations alone do not show"):
        thunder.minify(long_program, x(), x(), fails=lambda program, *args: False)


def test_function_that_fails_in_eager_too_is_an_error() -> None:
    with pytest.raises(ValueError, match="got Linear, which fails in eager too: RuntimeError: mat1 and mat2"):
        thunder.minify(nn.Linear(3, 2), x(2, 4))


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"fails": 3}, TypeError, "fails: expected a function"),
        ({"seconds": "a"}, TypeError, "seconds: expected a number"),
        ({"seconds": 0}, ValueError, "seconds: expected a positive number"),
        ({"path": 3}, TypeError, "path: expected the path of a file"),
        ({"path": "/no/such/folder/a.py"}, FileNotFoundError, "/no/such/folder/a.py"),
        ({"path": "/"}, IsADirectoryError, "/"),
        ({"secnds": 3}, TypeError, r"thunder\.minify: unknown option 'secnds'; did you mean 'seconds'"),
    ],
)
def test_wrong_settings_are_told_before_anything_runs(
    settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    def never(*args: Any) -> None:
        raise AssertionError

    with pytest.raises(error, match=words):
        thunder.minify(never, x(), **settings)


def test_script_goes_to_a_path(tmp_path: pathlib.Path) -> None:
    small = thunder.minify(long_program, x(), x(), fails=records("tanh"), path=tmp_path / "script.py")
    assert small.script == str(tmp_path / "script.py")
    assert small.program in (tmp_path / "script.py").read_text(encoding="utf8")


def test_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError, match="unknown option"):
        thunder.minify(long_program, x(), x(), pases=[])


def test_straight_line_text_is_read_and_written() -> None:
    text = "def program(a, b):\n    c = a + b\n    c.add_(1)\n    d, e = torch.max(c, 0)\n    return (d, e, )\n"
    program = StraightLine.parse(text)
    assert program.text() == text
    assert [line.reads for line in program.lines] == [("a", "b"), ("c",), ("c", "torch")]
    torch.testing.assert_close(program.function()(torch.ones(2), torch.ones(2))[0], torch.tensor(3.0))
    with pytest.raises(ValueError, match="straight-line"):
        StraightLine.parse("def f(a):\n    if a: pass\n    return a")
    assert Case(program, ()).program is program
