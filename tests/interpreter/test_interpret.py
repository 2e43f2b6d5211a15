"""The result of `interpret`, and its side effects."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from thunder.interpreter import interpret


def native_calls_of(function: Any, *args: Any) -> list[str]:
    """Names of the functions of this file that CPython itself executes during a call."""
    names = []

    def trace(frame: Any, event: str, argument: object) -> None:
        if frame.f_code.co_filename == __file__:
            names.append(frame.f_code.co_name)

    sys.settrace(trace)
    try:
        function(*args)
    finally:
        sys.settrace(None)
    return names


def test_import_needs_no_torch() -> None:
    code = "import sys, thunder.interpreter; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_attributes_are_those_of_the_callable() -> None:
    def function(a: int) -> int:
        """Doc."""
        return a

    interpreted = interpret(function)
    assert interpreted.__name__ == "function"
    assert interpreted.__doc__ == "Doc."
    assert interpreted.__wrapped__ is function  # type: ignore[attr-defined]
    assert "function" in repr(interpreted)


def test_interpreted_function_binds_as_a_method() -> None:
    class Holder:
        value = 3

        @interpret
        def method(self, more: int) -> int:
            return self.value + more

    assert Holder().method(4) == 7


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a callable, got int"):
        interpret(3)  # type: ignore[arg-type]


def test_generator_is_interpreted_when_resumed_later() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        yield 2

    generator = interpret(numbers)()
    assert native_calls_of(lambda: list(generator)) == ["<lambda>"]


def test_coroutine_is_interpreted_when_awaited_later() -> None:
    async def inner() -> int:
        await asyncio.sleep(0)
        return 3

    async def main() -> int:
        return await inner()

    coroutine = interpret(main)()
    assert native_calls_of(asyncio.run, coroutine) == []


def test_hook_is_gone_after_the_last_interpretation() -> None:
    def plain() -> None:
        pass

    interpret(plain)()
    assert native_calls_of(plain) == ["plain"]


def test_re_entrant() -> None:
    assert interpret(lambda: interpret(lambda: 1)() + 1)() == 2


@pytest.mark.parametrize("depth", [2, 50])
def test_traceback_is_the_native_one(depth: int) -> None:
    def fail(n: int) -> int:
        if n == 0:
            return {}["missing"]  # type: ignore[return-value]
        return fail(n - 1) + max([1], key=lambda v: fail(n - 1))

    def format_failure(function: Any) -> str:
        try:
            function(depth)
        except KeyError:
            return traceback.format_exc()
        return ""

    native = format_failure(fail)
    assert "missing" in native
    assert format_failure(interpret(fail)) == native


def test_chained_exceptions_keep_their_tracebacks() -> None:
    def fail() -> None:
        try:
            raise ValueError(1)
        except ValueError as error:
            raise TypeError(2) from error

    with pytest.raises(TypeError) as caught:
        interpret(fail)()
    cause = caught.value.__cause__
    assert isinstance(cause, ValueError)
    assert [frame.name for frame in traceback.extract_tb(cause.__traceback__)] == ["fail"]


def test_recursion_limit_is_honoured() -> None:
    def recurse(n: int) -> int:
        return recurse(n + 1)

    with pytest.raises(RecursionError, match="maximum recursion depth exceeded"):
        interpret(recurse)(0)


RECURSION = """
import sys
from thunder.interpreter import interpret
sys.setrecursionlimit(1_000_000)
def plain(n): return 0 if n == 0 else 1 + plain(n - 1)
def keywords(*, n): return 0 if n == 0 else 1 + keywords(n=n - 1)
class Attributes:
    def __getattr__(self, name): return getattr(self, name + "x")
def through_c(n): return n if n == 0 else max([n], key=lambda v: through_c(v - 1))
deep = 100_000
for function in (lambda: plain(deep), lambda: keywords(n=deep), lambda: Attributes().a, lambda: through_c(deep)):
    try:
        interpret(function)()
    except RecursionError:
        pass
print("alive")
"""


def test_c_stack_is_never_exhausted_at_depth_100000() -> None:
    process = subprocess.run([sys.executable, "-c", RECURSION], capture_output=True, text=True, check=False)
    assert process.stdout == "alive\n", process.stderr[-500:]


def test_keyboard_interrupt_leaves_an_endless_loop() -> None:
    def loop() -> None:
        while True:
            pass

    # A shell starts background jobs with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            interpret(loop)()
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


def test_other_threads_run_during_an_interpreted_loop() -> None:
    ticks: list[float] = []

    def tick() -> None:
        for _ in range(5):
            ticks.append(time.monotonic())
            time.sleep(0.001)

    def loop() -> None:
        while thread.is_alive():
            pass

    thread = threading.Thread(target=tick)
    thread.start()
    interpret(loop)()
    assert len(ticks) == 5


def test_interpretations_in_eight_threads_at_once() -> None:
    results: list[int] = []

    def work(n: int) -> int:
        return sum(value * 2 for value in range(n))

    threads = [threading.Thread(target=lambda: results.append(interpret(work)(2000))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [sum(value * 2 for value in range(2000))] * 8


def test_nothing_is_kept_alive() -> None:
    class Thing:
        pass

    def work() -> weakref.ref[Thing]:
        thing = Thing()
        try:
            raise ValueError(thing)
        except ValueError as error:
            assert error.args[0] is thing  # noqa: PT017
        generator = (thing for _ in range(2))
        next(generator)
        return weakref.ref(thing)

    reference = interpret(work)()
    gc.collect()
    assert reference() is None


def test_object_count_stays_flat() -> None:
    def work() -> Any:
        def inner(*args: int, **kwargs: int) -> Any:
            return [x + 1 for x in args], {**kwargs}

        try:
            raise KeyError
        except KeyError as error:
            return inner(1, 2, a=3), repr(error)

    interpreted = interpret(work)
    for _ in range(50):
        interpreted()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(500):
        interpreted()
    gc.collect()
    assert len(gc.get_objects()) - before < 20
