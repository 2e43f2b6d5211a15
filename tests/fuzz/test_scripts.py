"""Random scripts around jitted functions: docs/maintainers/fuzzing.md. Longer runs: `python -m tests.fuzz.scripts`."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest
from torch import nn

from tests.fuzz.scripts import compare, known, runner
from tests.fuzz.scripts.execute import execute
from tests.fuzz.scripts.generator import Generator, generate, raising_lines, without_line
from tests.fuzz.scripts.shrink import shrink

_PARTS = 4  # which the workers of pytest share among them
_SEED = int(os.environ.get("THUNDER_FUZZ_SEED", "0"))
_SCRIPTS = int(os.environ.get("THUNDER_FUZZ_SCRIPTS", "1500"))
_SCRIPTS_THAT_TELL = 20  # how many are compiled, by whether most are
_SECONDS = float(os.environ.get("THUNDER_FUZZ_SCRIPTS_SECONDS", "200"))  # of one core, on all parts together

_CALL = """
f = jit(program)
with seen():
    r0 = f()
with seen():
    r1 = f()
"""


@pytest.mark.parametrize("sizes", [False, True])
def test_seed_gives_the_same_script(sizes: bool) -> None:
    first = generate(5, sizes)
    assert first is not None
    assert first == generate(5, sizes)
    assert sizes == ("rows(x, " in first)


def test_script_that_is_compiled_as_in_eager_passes() -> None:
    outcome = compare.check("x = torch.ones(3)\ndef program():\n    return x * 2" + _CALL)
    assert (outcome.kind, outcome.misses) == ("same", 1)


# Scripts that differ on purpose: `func` is torch.func in eager, and thunder otherwise.
@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ("return torch.ones(3) * (2 if func is torch.func else 3)", "number"),
        ("return torch.tensor(2 if func is torch.func else 3)", "value"),
        ("return x if func is torch.func else x.clone()", "is"),
        ("return x[:1] if func is torch.func else x[:1].clone()", "memory"),
        ("return x * 1 if func is torch.func else (x * 1).t().contiguous().t()", "stride"),
        ("return x * 1 if func is torch.func else (x * 1).requires_grad_()", "requires_grad"),
        ("return [1] if func is torch.func else (1,)", "type"),
        ("state.append(1) if func is torch.func else None", "length"),
        ("state.append(1)\n    if func is torch.func: raise ValueError", "raises nothing"),
        ("torch.rand(1) if func is torch.func else None", "state"),
        ("x.add_(0) if func is torch.func else None", "written"),
        ("return -0.0 if func is torch.func else 0.0", "number"),
    ],
)
def test_difference_is_found(lines: str, kind: str) -> None:
    text = f"x = torch.ones(2, 2)\nstate = []\ndef program():\n    {lines}" + _CALL.replace("jit(program)", "program")
    assert compare.check(text).kind == kind


@pytest.mark.parametrize(
    ("lines", "kind"),
    [("import os\nif func is not torch.func: os.abort()", "crash"), ("while func is not torch.func: pass", "hang")],
)
def test_end_of_the_process_is_a_failure(lines: str, kind: str) -> None:
    assert runner.isolated(lines, seconds=10).kind == kind


def test_failing_script_shrinks_to_what_fails() -> None:
    text = "x = torch.ones(3)\nfor i in range(3):\n    if i:\n        y = x + 1\n        z = x * (y - 2)\n"
    assert shrink(text, lambda candidate: "y = x + 1" in candidate, seconds=5) == "y = x + 1\n"


def test_line_that_raises_is_taken_out() -> None:
    assert without_line("x = 1\nif x:\n    x.absent\ny = 2\n", 3) == "x = 1\nif x:\n    pass\ny = 2\n"


def test_line_that_raises_below_the_program_is_taken_out_of_the_program() -> None:
    text = """def helper(t):
    raise ValueError

def program(x):
    v0 = helper(x)
    return x
f = jit(program)
with seen():
    r0 = f(torch.ones(3))
"""
    assert raising_lines(text) == [5]


def test_endless_loops_have_counters_of_their_own() -> None:
    generator = Generator(0)
    generator.make()
    generator.blocks = ["for turn in itertools.count(): | else:"]
    loops = [generator.block(2) for _ in range(2)]
    names = {found[1] for loop in loops if (found := re.match(r"for (turn[0-9]+) in", loop))}
    assert len(names) == 2


def test_tensors_of_classes_of_the_script_are_compared() -> None:
    lines = "class Tagged(torch.Tensor): pass\nx = torch.ones(3)\ndef program():\n    return x.as_subclass(Tagged)"
    assert compare.check(lines + _CALL).kind == "same"


def test_tensors_that_functionalize_leaves_are_not_read() -> None:
    lines = """x, kept = torch.ones(3), []
def program(x):
    kept.append(x)
    return x * 2
f = jit(program)
with seen():
    r0 = torch.func.functionalize(f)(x)
"""
    run = execute(lines, compiles=False)
    assert run.steps[0].facts["kept[0] functional"]
    assert compare.check(lines).kind == "same"


def test_special_methods_that_a_script_replaces_are_put_back() -> None:
    before = nn.Module.__call__
    execute("nn.Module.__call__ = lambda self, *args: 3\n", compiles=False)
    assert nn.Module.__call__ is before


def test_known_failure_does_not_hide_another() -> None:
    lines = "class Color(enum.Enum):\n    RED = 1\nwith contextlib.suppress(Exception):\n    Color.RED._value_ = 4\n"
    [why] = known.reasons("number", "step 0, line 3: r0: at (0,) expected 1.0, got 2.0", lines)
    assert why
    assert "_value_" not in known.without_cause(why, lines)
    assert not known.without_cause("nothing", lines)


def test_numbers_within_rounding_are_equal() -> None:
    text = "def program():\n    return torch.ones(3) * (1 + (0 if func is torch.func else 1e-7))"
    assert compare.check(text + _CALL).kind == "same"


@pytest.mark.slow
def test_random_scripts_whose_sizes_change(tmp_path: pathlib.Path) -> None:
    report = run_scripts(["--sizes", "--count", str(_SCRIPTS // 30), "--seed", str(_SEED)], tmp_path)
    assert report["misses"] > 2 * report["scripts"]


def run_scripts(options: list[str], folder: pathlib.Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.fuzz.scripts", *options]
    command += ["--jobs", "1", "--json", str(folder / "report.json")]
    # Forked processes must come from one that runs no threads, as a worker of pytest may.
    run = subprocess.run(command, cwd=pathlib.Path(__file__).parents[2], capture_output=True, text=True, check=False)
    print(run.stdout)
    assert run.returncode == 0, run.stdout
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


@pytest.mark.slow
@pytest.mark.parametrize("part", range(_PARTS))
def test_random_scripts(part: int, tmp_path: pathlib.Path) -> None:
    first, end = (_SCRIPTS * number // _PARTS for number in (part, part + 1))
    seconds = _SECONDS / _PARTS
    options = ["--count", str(end - first), "--seed", str(_SEED + first), "--seconds", str(seconds)]
    report = run_scripts(options, tmp_path)
    assert report["scripts"] == end - first or report["seconds"] >= seconds
    if report["scripts"] < _SCRIPTS_THAT_TELL:
        return  # a slow machine: most of its time may have gone into making one failure smaller
    # The first call that computes in a memoized function runs in eager, and so does a program that enters modes.
    assert report["compiled"] - report["memoized_compiled"] > 0.4 * (report["scripts"] - report["memoized"])
