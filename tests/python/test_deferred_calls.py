"""Printing, warnings and logging of a function appear at each call, as in eager."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy
import pytest
import torch

import thunder

LOGGER = logging.getLogger(__name__)
X = torch.tensor([1.0, 2.0])


class Named:
    def __init__(self) -> None:
        self.count = 0

    def __str__(self) -> str:
        return f"named {self.count}"


def prints_text(x: torch.Tensor, items: list[int], named: Named) -> torch.Tensor:
    print("text", 3, items, named, sep=", ", end="!\n")
    items.append(1)
    named.count += 1
    print(items, named)
    return x + 1


def prints_tensors(x: torch.Tensor, items: list[int], named: Named) -> torch.Tensor:
    y = x * 2
    print("before", y, x.shape)
    y.add_(1)
    print("after", y, y.sum(), file=sys.stdout, flush=True)
    return y


def prints_numbers(x: torch.Tensor, items: list[int], named: Named) -> torch.Tensor:
    print(x.sum().item(), [x.shape[0], 1.5])
    return x * 3


def writes(x: torch.Tensor, items: list[int], named: Named) -> torch.Tensor:
    count = sys.stdout.write(f"raw {len(items)}\n")
    sys.stdout.flush()
    return x + count


def prints_elsewhere(x: torch.Tensor, items: list[int], named: Named) -> tuple[torch.Tensor, str]:
    buffer = io.StringIO()
    with contextlib.redirect_stdout(buffer):
        print("hidden", items)
    print("seen", buffer.getvalue())
    return x + 1, buffer.getvalue()


def prints_to_the_other_stream(x: torch.Tensor, items: list[int], named: Named) -> torch.Tensor:
    print("before")
    with contextlib.redirect_stdout(sys.stderr):
        print("redirected", x, items)
    with contextlib.redirect_stderr(sys.stdout):
        print("back", file=sys.stderr)
    kept, sys.stdout = sys.stdout, sys.stderr
    try:
        print("assigned", items)
    finally:
        sys.stdout = kept
    print("after")
    return x + 1


def logs(x: torch.Tensor, items: list[int], named: Named) -> torch.Tensor:
    LOGGER.info("%s has %d", x * 2, len(items))
    LOGGER.debug("not shown")
    if LOGGER.isEnabledFor(logging.INFO):
        logging.getLogger(__name__).warning(f"text {items}")
    LOGGER.log(logging.ERROR, "done")
    return x + 1


PROGRAMS = [prints_text, prints_tensors, prints_numbers, writes, prints_elsewhere, prints_to_the_other_stream, logs]


class Printing(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        sys.stdout.write(self.format(record) + "\n")


@pytest.fixture
def handler() -> Iterator[None]:
    shown = Printing()
    shown.setFormatter(logging.Formatter("%(levelname)s %(filename)s:%(lineno)d %(funcName)s %(message)s"))
    LOGGER.addHandler(shown)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    yield
    LOGGER.removeHandler(shown)
    LOGGER.propagate = True


@pytest.mark.parametrize("program", PROGRAMS)
def test_output_is_that_of_eager_at_each_call(
    program: Callable[..., Any], capsys: pytest.CaptureFixture[str], handler: None
) -> None:
    def run(function: Callable[..., Any]) -> tuple[str, list[int], int]:
        items, named, results = [0], Named(), []
        for scale in (1.0, 2.0, 1.0):
            results.append(function(X * scale, items, named))
        return repr(results), items, named.count

    expected, text = run(program), capsys.readouterr()
    compiled = thunder.jit(program)
    got = run(compiled)
    assert capsys.readouterr() == text
    assert got == expected
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


def test_print_of_a_tensor_does_not_depend_on_its_data(capsys: pytest.CaptureFixture[str]) -> None:
    f = thunder.jit(prints_tensors)
    for value in range(4):
        f(X + value, [], Named())
    assert thunder.cache_misses(f) == 1
    assert capsys.readouterr().out.count("after tensor") == 4


def prints_with_few_digits(x: torch.Tensor) -> torch.Tensor:
    torch.set_printoptions(precision=2)
    print(x)
    torch.set_printoptions(profile="default")
    return x + 1


def prints_with_few_digits_from_then_on(x: torch.Tensor) -> torch.Tensor:
    print(x)
    torch.set_printoptions(precision=2)
    return x + 1


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("program", [prints_with_few_digits, prints_with_few_digits_from_then_on])
def test_print_options_that_the_program_sets(program: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def run(function: Any) -> str:
        torch.set_printoptions(profile="default")
        for value in range(3):
            function(X + value / 3)
        return capsys.readouterr().out

    try:
        assert run(thunder.jit(program)) == run(program)
    finally:
        torch.set_printoptions(profile="default")


def warns(x: torch.Tensor) -> torch.Tensor:
    warnings.warn("careful", stacklevel=1)
    return x + 1


def hides_warnings(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("never seen", stacklevel=1)
    return x + 1, len(caught)


def test_warnings_that_the_function_catches_are_not_seen() -> None:
    f = thunder.jit(hides_warnings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [f(X)[1] for _ in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("action", ["always", "once", "default", "ignore"])
def test_warnings_are_those_of_eager(action: Any) -> None:
    def seen(function: Callable[..., Any]) -> list[tuple[str, str, int]]:
        globals().get("__warningregistry__", {}).clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(action)
            for _ in range(3):
                function(X)
        return [(str(w.message), w.filename, w.lineno) for w in caught]

    compiled = thunder.jit(warns)
    assert seen(compiled) == seen(warns)
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


def test_nothing_is_shown_twice_when_the_function_fails(capsys: pytest.CaptureFixture[str]) -> None:
    @thunder.jit
    def f(x: torch.Tensor) -> torch.Tensor:
        print("once")
        raise KeyError("fails")

    for _ in range(2):
        with pytest.raises(KeyError):
            f(X)
        assert capsys.readouterr().out == "once\n"


@pytest.mark.parametrize("reads_data", [False, True])
def test_warnings_of_kernels_are_those_of_eager(reads_data: bool) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        deviation = torch.std(x[:1])
        return deviation * 2 if reads_data and x.sum() > 0 else deviation

    def messages(program: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            program(torch.ones(2))
        return [str(warning.message) for warning in seen]

    compiled = thunder.jit(function)
    for _ in range(3):
        assert messages(compiled) == messages(function)


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_warning_of_a_kernel_may_be_an_error() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.std(x[:1])

    compiled = thunder.jit(function)
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            with pytest.raises(UserWarning, match="degrees of freedom"):
                compiled(torch.ones(2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            assert compiled(torch.ones(2)).isnan()


def by_python(x: torch.Tensor) -> torch.Tensor:
    warnings.warn("of Python", stacklevel=1)
    return x + 1


def by_torch(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(x) + 1  # to be copied with `clone`


def by_numpy(x: torch.Tensor) -> torch.Tensor:
    return x + float(numpy.float32(1) / numpy.float32(0))


@pytest.mark.parametrize("warn", [by_python, by_torch, by_numpy])
@pytest.mark.parametrize("actions", [("error", "ignore", "error"), ("ignore", "error", "ignore")])
def test_warning_is_an_error_where_the_filters_of_a_call_say_so(
    warn: Callable[[torch.Tensor], torch.Tensor], actions: Sequence[Any]
) -> None:
    def caught(x: torch.Tensor, log: list[str]) -> torch.Tensor:
        x.add_(10)
        try:
            return warn(x)
        except Warning as warning:
            log.append(type(warning).__name__)
            return x - 1

    def raised(x: torch.Tensor, log: list[str]) -> torch.Tensor:
        x.add_(10)
        result = warn(x)
        x.add_(100)
        log.append("done")
        return result

    for program in (caught, raised):
        compiled = thunder.jit(program)
        for action in actions:
            seen = []
            for function in (program, compiled):
                x, log = torch.zeros(2), list[str]()
                with warnings.catch_warnings():
                    warnings.simplefilter(action)
                    warnings.simplefilter("ignore", thunder.EagerFallbackWarning)
                    try:
                        result = function(x, log).tolist()
                    except Warning as warning:
                        result = [type(warning), str(warning)]
                seen.append((result, x.tolist(), log))
            assert seen[0] == seen[1]


def test_filters_of_other_warnings_leave_a_warning_to_be_given_after_the_call() -> None:
    compiled = thunder.jit(by_python, fullgraph=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("error", DeprecationWarning)
        warnings.filterwarnings("error", message="of something else")
        compiled(torch.ones(2))
        compiled(torch.ones(2))
    assert [str(each.message) for each in seen] == ["of Python"]


def test_print_before_the_program_sets_another_stream(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        print("text")
        sys.stdout = sys.stderr
        return x + 1

    def run(function: Any) -> tuple[str, str]:
        for _ in range(2):
            with monkeypatch.context() as patched:
                patched.setattr(sys, "stdout", sys.stdout)
                function(X)
        return capsys.readouterr()

    assert run(thunder.jit(f)) == run(f)


def test_writes_to_a_stream_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        sys.stdout.write("written")
        print(" printed")
        sys.stdout.flush()
        return x + 1

    def run(function: Any) -> list[bytes]:
        written = []
        for _ in range(3):
            memory = io.BytesIO()
            with monkeypatch.context() as patched:
                patched.setattr(sys, "stdout", io.TextIOWrapper(memory))
                function(X)
                written.append(memory.getvalue())
        return written

    assert run(thunder.jit(f)) == run(f)


class Shown:
    def __str__(self) -> str:
        raise ValueError("shown")


def test_a_logger_that_is_off_asks_for_no_text(handler: None, capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        LOGGER.debug("%s %s", x.shape, Shown())
        LOGGER.log(5, "%s", x.shape)
        return x * 2

    compiled = thunder.jit(program, fullgraph=True)
    for rows in (3, 5, 9, 17, 4):
        x = torch.randn(rows)
        torch.testing.assert_close(compiled(x), x * 2)
    assert thunder.cache_misses(compiled) == (2 if sys.version_info >= (3, 11) else 5)
    LOGGER.setLevel(logging.DEBUG)
    with pytest.raises(ValueError, match="shown"):
        thunder.jit(program)(x)
    with pytest.raises(ValueError, match="shown"):
        compiled(x)
    assert capsys.readouterr().out == ""


def test_the_logger_of_a_call_is_the_one_that_logs(handler: None, capsys: pytest.CaptureFixture[str]) -> None:
    def program(x: torch.Tensor, logger: logging.Logger) -> torch.Tensor:
        logger.info("at %s", logger.name)
        return x + 1

    quiet = logging.getLogger(__name__ + ".quiet")
    quiet.setLevel(logging.ERROR)
    other = logging.getLogger(__name__ + ".other")
    shown = []
    for function in (program, thunder.jit(program)):
        for logger in (LOGGER, other, quiet, LOGGER, other, quiet):
            function(X, logger)
        shown.append([line.split(" program ")[1] for line in capsys.readouterr().out.splitlines()])
    assert shown[1] == shown[0]
    assert len(shown[0]) == 4
