"""A call that cannot be compiled runs in eager, exactly once, with a warning; `fullgraph=True` raises instead."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import copy
import ctypes
import datetime
import functools
import inspect
import io
import operator
import random
import sqlite3
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import thunder

X = torch.tensor([0.5, -1.0, 2.0])
FALLBACK = pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")


def eager_calls(compiled: Any) -> int:
    return int(thunder.compile_stats(compiled)["eager_calls"])


def test_effects_before_an_exception_of_the_user_stay_at_every_call() -> None:
    log: list[int] = []

    @thunder.jit
    def f(x: torch.Tensor, fails: bool) -> torch.Tensor:
        log.append(len(log))
        x.add_(1)
        if fails:
            raise ValueError("asked for")
        return x * 2

    x = X.clone()
    for count, fails in enumerate((True, False, True, True, False), start=1):
        if fails:
            with pytest.raises(ValueError, match="asked for"):
                f(x, fails)
        else:
            assert torch.equal(f(x, fails), (X + count) * 2)
        assert log == list(range(count))
        assert torch.equal(x, X + count)
    assert eager_calls(f) == 3


def test_exception_of_the_user_is_not_traced_again() -> None:
    @thunder.jit
    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        if n > 3:
            raise ValueError(n)
        return x + n

    for _ in range(3):
        with pytest.raises(ValueError, match="5"):
            f(X, 5)
    assert thunder.compile_stats(f)["specializations"] == 1
    assert torch.equal(f(X, 1), X + 1)


def refused(x: torch.Tensor) -> torch.Tensor:
    x.cached = x + 1  # type: ignore[attr-defined]
    return x * random.random()


def test_refusal_warns_once_with_its_line_and_runs_in_eager() -> None:
    f = thunder.jit(refused)
    x = X.clone()
    with pytest.warns(thunder.EagerFallbackWarning, match="refused runs in eager") as caught:
        f(x)
    assert "test_eager_fallback.py, line" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f(x)
    assert eager_calls(f) == 2
    assert "it ran in eager" in str(thunder.explain_misses(f))


def refused_behind_data(x: torch.Tensor, gate: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    x = x * 2 if x.sum() > 0 else x
    return x * (time.time() > 0) if gate.sum() > 0 else x + scale


def traces_of(f: Any, calls: list[tuple[Any, ...]]) -> list[bool]:
    """Say of each call whether it is traced; the result is that of the plain function."""
    traced = []
    for arguments in calls:
        before = len(thunder.explain_misses(f))
        assert torch.equal(f(*arguments), refused_behind_data(*arguments))
        traced.append(len(thunder.explain_misses(f)) > before)
    return traced


ONES = torch.ones(3)


def test_equal_refusals_behind_data_are_not_tried_at_each_call() -> None:
    f = thunder.jit(refused_behind_data)
    with pytest.warns(thunder.EagerFallbackWarning, match="time.time") as caught:
        assert traces_of(f, [(ONES, ONES)] * 8) == [True] * 3 + [False] * 5
    assert ["this time" in str(warning.message) for warning in caught] == [True, False]
    assert eager_calls(f) == 8


@FALLBACK
def test_many_failed_traces_make_the_next_ones_rare() -> None:
    """Each call has another reason to run in eager, on a line of its own, until one has none."""
    lines = [f"    if i == {i}: x = x * (time.time() > 0)\n" for i in range(16)]
    namespace: dict[str, Any] = {"time": time}
    source = "def f(x, i):\n    if i > 1000: return x * (time.time() > 0)\n    if x.sum() < 0: return x\n"
    source += "".join(lines) + "    return x * 2\n"
    exec(compile(source, "many_reasons.py", "exec"), namespace)
    compiled = thunder.jit(namespace["f"], dynamic=False)

    def fail_often() -> None:
        for i in range(16):
            compiled(ONES, i)

    with pytest.warns(thunder.EagerFallbackWarning) as caught:
        fail_often()
    assert sum("16 traces" in str(warning.message) for warning in caught) == 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(64):  # the last one is traced, and told of before it looks at data
            compiled(ONES, 1001)
    assert sum("16 traces" in str(warning.message) for warning in caught) == 0
    before = len(thunder.explain_misses(compiled))
    for i in range(63):
        assert torch.equal(compiled(ONES, 100 + i), ONES * 2)
    assert len(thunder.explain_misses(compiled)) == before
    for _ in range(3):  # tried again, and then as before
        assert torch.equal(compiled(ONES, 200), ONES * 2)
    assert thunder.compile_stats(compiled)["eager_calls"] == 16 + 64 + 63
    assert thunder.compile_stats(compiled)["cache_hits"] == 2


@FALLBACK
def test_call_in_another_situation_is_tried_after_equal_refusals() -> None:
    f = thunder.jit(refused_behind_data, dynamic=False)
    assert traces_of(f, [(ONES, ONES)] * 5) == [True] * 3 + [False] * 2
    longer = torch.ones(5)
    assert traces_of(f, [(longer, -ONES), (longer, ONES), (longer, -ONES)]) == [True, True, False]
    assert traces_of(f, [(ONES, ONES), (ONES, ONES, 2.0), (ONES, -ONES, 3.0)])[0] is False
    assert eager_calls(f) == 8


@FALLBACK
def test_what_was_compiled_goes_before_a_refusal_behind_data() -> None:
    f = thunder.jit(refused_behind_data)
    assert traces_of(f, [(ONES, -ONES)] + [(ONES, ONES)] * 4) == [True] * 4 + [False]
    hits = thunder.cache_hits(f)
    assert traces_of(f, [(ONES, -ONES), (ONES, ONES)] * 5) == [False] * 10
    assert thunder.cache_hits(f) == hits + 5


@FALLBACK
def test_refusals_behind_data_between_programs_that_compile_are_tried_again() -> None:
    f = thunder.jit(refused_behind_data)
    with torch.no_grad():
        calls = [(ONES * sign, ONES * gate) for sign in (1, -1) for gate in (1, 1, -1)]
    assert traces_of(f, calls) == [True] * 6


@FALLBACK
def test_refusals_behind_data_that_differ_at_each_call_end() -> None:
    f = thunder.jit(refused_behind_data, dynamic=False)
    calls = [(ONES, torch.ones(size)) for size in range(1, 31)]
    traced = traces_of(f, calls)
    assert traced == [True] * 16 + [False] * 14


def gives_a_lock(x: torch.Tensor) -> Any:
    y = x * 2
    return y, threading.Lock()


def saves(x: torch.Tensor) -> Any:
    buffer = io.BytesIO()
    torch.save(x * 2, buffer)
    return buffer.getvalue()[:0]


def gives_a_generator(x: torch.Tensor) -> Any:
    return (t for t in [x * 2])


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (gives_a_lock, "def gives_a_lock"),
        (gives_a_generator, "def gives_a_generator"),
        (saves, "torch.save(x * 2, buffer)"),
    ],
)
def test_reason_ends_with_a_line_of_the_user(program: Callable[..., Any], line: str) -> None:
    with pytest.warns(thunder.EagerFallbackWarning) as caught:
        thunder.jit(program)(X.clone())
    lines = str(caught[0].message).split("\n")
    place = next(i for i, text in enumerate(lines) if ", line " in text)
    assert "test_eager_fallback.py, line" in lines[place]
    assert line in lines[place + 1]


class GivesALock(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x * 2, threading.Lock()

    def give(self, x: torch.Tensor) -> Any:
        return self(x)


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (gives_a_lock, "def gives_a_lock"),
        (GivesALock(), "def forward"),
        (GivesALock().give, "def give"),
    ],
)
def test_refusal_of_what_is_returned_names_the_definition_with_fullgraph(program: Any, line: str) -> None:
    with pytest.raises(NotImplementedError, match=rf"(?s)test_eager_fallback\.py, line .*{line}"):
        thunder.jit(program, fullgraph=True)(X.clone())


def test_derivative_that_raises_in_eager_is_no_mistake_of_thunder() -> None:
    x = X.clone().requires_grad_()
    with pytest.warns(thunder.EagerFallbackWarning, match="writes over what its own derivative reads") as caught:
        result = thunder.jit(lambda x: torch.vander(x).sum())(x)
    assert "bug in thunder" not in str(caught[0].message)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_refusal_raises_with_fullgraph() -> None:
    with pytest.raises(NotImplementedError):
        thunder.jit(refused, fullgraph=True)(X.clone())


def factorize(x: torch.Tensor, log: list[str]) -> torch.Tensor:
    log.append("tried")
    noise = torch.rand(3)
    try:
        root = torch.linalg.cholesky(x)
    except RuntimeError:
        log.append("caught")
        root = x * 2
    return root + noise


@FALLBACK
def test_error_of_a_kernel_reaches_the_except_clause() -> None:
    f = thunder.jit(factorize)
    for sign in (1, -1, 1, -1, -1):
        logs: tuple[list[str], list[str]] = ([], [])
        torch.manual_seed(3)
        expected = factorize(sign * torch.eye(3), logs[0])
        state = torch.get_rng_state()
        torch.manual_seed(3)
        assert torch.equal(f(sign * torch.eye(3), logs[1]), expected)
        assert logs[0] == logs[1]
        assert torch.equal(torch.get_rng_state(), state)


def test_error_of_a_kernel_leaves_the_effects_before_it() -> None:
    log: list[int] = []

    @thunder.jit
    def f(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        log.append(1)
        return x[index]

    f(X, torch.tensor([0]))
    with pytest.raises(IndexError, match="out of bounds"):
        f(X, torch.tensor([7]))
    assert log == [1, 1]


def test_program_that_fails_after_it_wrote_is_not_run_again() -> None:
    def program(x: torch.Tensor, y: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        y.index_add_(0, index, x[:1])
        return x.mul_(3).sum()

    f = thunder.jit(program)
    f(torch.ones(3), X.clone(), torch.tensor([0]))
    x, y = torch.ones(3), X.clone()
    with pytest.raises(IndexError):
        f(x, y, torch.tensor([9]))
    assert x.max() <= 6  # once, not again by eager code on top of it
    assert torch.equal(y, X)


def test_calls_are_compiled_after_any_number_of_errors_of_the_user() -> None:
    @thunder.jit
    def f(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 10:
            raise ValueError("too large")
        return x + 1

    for _ in range(20):
        with pytest.raises(ValueError, match="too large"):
            f(torch.full((3,), 9.0))
    for _ in range(2):
        assert torch.equal(f(torch.zeros(5)), torch.ones(5))
    assert (thunder.cache_misses(f), thunder.cache_hits(f)) == (1, 1)


@FALLBACK
def test_refusal_of_a_backward_that_the_program_catches_is_no_error_of_eager() -> None:
    def program(x: torch.Tensor) -> str:
        try:
            x.sum().backward()
        except RuntimeError:
            return "raised"
        return "did not raise"

    leaf = torch.ones(3, requires_grad=True)
    assert thunder.jit(program)(leaf * 2) == "did not raise"
    assert torch.equal(leaf.grad, torch.full((3,), 2.0))


class CountingMode(TorchFunctionMode):
    def __init__(self) -> None:
        self.names: list[str] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.names.append(getattr(function, "__name__", ""))
        return function(*args, **(kwargs or {}))


class DoublingMode(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = function(*args, **(kwargs or {}))
        return result * 2 if function is torch.ops.aten.sin.default else result


def sines(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 3 + x


AROUND: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "vmap": lambda f: torch.func.vmap(f)(X),
    "grad": lambda f: torch.func.grad(lambda x: f(x).sum())(X),
    "jvp": lambda f: torch.func.jvp(f, (X,), (torch.ones(3),)),
    "vjp": lambda f: torch.func.vjp(f, X)[1](torch.ones(3)),
    "jacrev": lambda f: torch.func.jacrev(f)(X),
    "jacfwd": lambda f: torch.func.jacfwd(f)(X),
    "hessian": lambda f: torch.func.hessian(lambda x: f(x).sum())(X),
    "functionalize": lambda f: torch.func.functionalize(f)(X),
    "make_fx": lambda f: make_fx(f)(X)(X + 1),
    "trace": lambda f: torch.jit.trace(f, X)(X + 1),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("first", [False, True], ids=["compiled before", "first call"])
@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_transform_around_a_compiled_function_sees_the_plain_one(around: Callable[..., Any], first: bool) -> None:
    f = thunder.jit(sines)
    if not first:
        f(X)
    torch.testing.assert_close(around(f), around(sines))


def test_modes_around_a_call_see_its_operations() -> None:
    f = thunder.jit(sines)
    plain = f(X)
    with CountingMode() as expected:
        sines(X)
    with CountingMode() as mode:
        f(X)
    assert mode.names == expected.names
    with DoublingMode():
        doubled = f(X)
    assert torch.equal(doubled, X.sin() * 6 + X)
    with FlopCounterMode(display=False) as counter:
        thunder.jit(torch.matmul)(torch.eye(4), torch.eye(4))
    assert counter.get_total_flops() == 128
    assert torch.equal(f(X), plain)


def reads_of_gradients(x: torch.Tensor) -> Any:
    leaf = x.detach().requires_grad_()
    x.grad = None
    leaf.grad = leaf * 2
    return leaf.grad, x.grad


def checkpointed(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(torch.sin, x, use_reentrant=True)


UNDER_MODES: dict[str, Callable[[torch.Tensor], Any]] = {
    "gradients": reads_of_gradients,
    "item": lambda x: x * x.sum().item(),
    "float": lambda x: x * float(x.sum()),
    "int": lambda x: x * int(x.sum()),
    "branch": lambda x: x * 2 if x.sum() > 0 else x,
    "tolist": lambda x: x * len(x.tolist()),
    "numpy": lambda x: x * x.numpy().sum(),
    "new_tensor": lambda x: x + x.new_tensor([1, 2, 3]),
    "is_conj": lambda x: x * x.is_conj(),
    "storage_offset": lambda x: x * x.storage_offset(),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "isinstance": lambda x: x * isinstance(x, torch.FloatTensor),
    "checkpoint": checkpointed,
    "no_grad": torch.no_grad()(lambda x: x * 2),
    "vmap": torch.func.vmap(lambda row: row * 2),
}


@FALLBACK
@pytest.mark.parametrize("modes", [1, 2])
@pytest.mark.parametrize("part", UNDER_MODES.values(), ids=UNDER_MODES)
def test_mode_inside_of_a_function_is_told_of_what_it_is_told_of_in_eager(part: Callable[..., Any], modes: int) -> None:
    def program(x: torch.Tensor) -> Any:
        inner = [CountingMode() for _ in range(modes)]
        with contextlib.ExitStack() as stack:
            for mode in inner:
                stack.enter_context(mode)
            result = part(x)
        return result, [mode.names for mode in inner]

    expected = program(X.clone())
    f = thunder.jit(program)
    for _ in range(2):
        torch.testing.assert_close(f(X.clone())[0], expected[0])
        assert f(X.clone())[1] == expected[1]


def test_device_context_around_a_call_is_guarded() -> None:
    f = thunder.jit(lambda n: torch.ones(n) + 1)
    assert f(2).device.type == "cpu"
    with torch.device("meta"):
        assert f(2).device.type == "meta"
    try:
        torch.set_default_device("meta")
        assert f(2).device.type == "meta"
    finally:
        torch.set_default_device(None)
    assert f(2).device.type == "cpu"
    assert eager_calls(f) == 0
    assert thunder.cache_misses(f) == 2


@FALLBACK
@pytest.mark.parametrize(
    ("change", "read", "undo"),
    [
        (lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype, torch.set_default_dtype),
        (
            lambda: torch.use_deterministic_algorithms(True),
            torch.are_deterministic_algorithms_enabled,
            torch.use_deterministic_algorithms,
        ),
        (
            lambda: torch.set_default_device("meta"),
            lambda: torch.ones(1).device,
            lambda _: torch.set_default_device(None),
        ),
        (
            lambda: torch.set_autocast_enabled("cpu", True),
            lambda: torch.is_autocast_enabled("cpu"),
            lambda value: torch.set_autocast_enabled("cpu", value),
        ),
    ],
    ids=["default dtype", "deterministic", "default device", "autocast"],
)
def test_state_that_is_left_changed_is_changed_at_every_call(change: Any, read: Any, undo: Any) -> None:
    @thunder.jit
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        change()
        return y

    before = read()
    try:
        for _ in range(2):
            f(X)
            assert read() != before
            undo(before)
            assert read() == before
    finally:
        undo(before)


def in_a_thread(x: torch.Tensor) -> torch.Tensor:
    results = []
    thread = threading.Thread(target=lambda: results.append(x * 2))
    thread.start()
    thread.join()
    return results[0] + 1


def in_an_event_loop(x: torch.Tensor) -> torch.Tensor:
    async def double() -> torch.Tensor:
        await asyncio.sleep(0)
        return x * 2

    return asyncio.run(double()) + 1


@FALLBACK
@pytest.mark.parametrize("function", [in_a_thread, in_an_event_loop])
def test_concurrency_inside_works_as_in_eager(function: Callable[..., Any]) -> None:
    f = thunder.jit(function)
    for x in (X, X + 1):
        assert torch.equal(f(x), function(x))


UNREPEATABLE: dict[str, Callable[[], float]] = {
    "random": random.random,
    "randint": lambda: random.randint(0, 10**6),
    "numpy": lambda: float(numpy.random.rand()),
    "clock": time.perf_counter,
    "date": lambda: datetime.datetime.now().microsecond,
}


@FALLBACK
@pytest.mark.parametrize("draw", UNREPEATABLE.values(), ids=UNREPEATABLE)
def test_value_from_outside_is_new_at_every_call(draw: Callable[[], float]) -> None:
    f = thunder.jit(lambda x: x.double() + draw())
    assert len({f(X)[0].item() for _ in range(4)}) > 1


@FALLBACK
def test_numbers_drawn_by_python_are_those_of_eager() -> None:
    f = thunder.jit(lambda x: x * random.random())
    random.seed(7)
    expected = [X * random.random() for _ in range(3)]
    random.seed(7)
    assert all(torch.equal(f(X), value) for value in expected)


def test_function_that_waits_for_threads_that_call_it_too_does_not_hang() -> None:
    @thunder.jit
    def f(x: torch.Tensor, depth: int) -> torch.Tensor:
        if depth == 0:
            return x + 1
        results: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: results.append(f(x, depth - 1)))
        thread.start()
        thread.join(timeout=20)
        return results[0] * 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", thunder.EagerFallbackWarning)
        assert torch.equal(f(X, 2), (X + 1) * 4)


@FALLBACK
@pytest.mark.parametrize(
    "enter", [torch._C._DisableFuncTorch, torch._C._AutoDispatchBelowAutograd], ids=["functorch", "autograd"]
)
def test_trace_that_fails_below_a_guard_of_dispatch_keys_leaves_them(enter: Callable[[], Any]) -> None:
    is_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
    keys = ("Batched", "AutogradCPU", "FuncTorchDynamicLayerFrontMode", "TESTING_ONLY_GenericMode")
    before = [is_excluded(key) for key in keys]

    def f(x: torch.Tensor) -> torch.Tensor:
        guard = enter()  # noqa: F841
        raise ValueError

    with contextlib.suppress(ValueError):
        thunder.jit(f)(X)
    assert [is_excluded(key) for key in keys] == before


FAILING_CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "len": lambda x: len(),  # type: ignore[call-arg]
    "list_of_a_tensor": lambda x: list.sort(x),  # type: ignore[call-overload]
    "set_of_a_tensor": lambda x: set.add(x, 1),  # type: ignore[arg-type]
    "deque_of_a_tensor": lambda x: collections.deque.append(x, 1),  # type: ignore[arg-type]
    "dict_of_a_tensor": lambda x: dict.__getitem__(x, 1),  # type: ignore[call-overload]
    "getattribute_of_a_string": lambda x: list.__getattribute__("a", "b"),  # type: ignore[arg-type]
    "delitem": lambda x: operator.delitem(x, 0),
    "numpy": lambda x: torch.Tensor.numpy(x),
    "seed": lambda x: torch.manual_seed(),
    "rng_state": lambda x: torch.get_rng_state(x),
    "endless_composite": lambda x: torch.smm(x, x),
    "default_device": lambda x: torch.set_default_device(None),
}


@FALLBACK
@pytest.mark.parametrize("call", FAILING_CALLS.values(), ids=FAILING_CALLS)
def test_program_catches_what_eager_raises(call: Callable[[torch.Tensor], Any]) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, str]:
        try:
            call(x)
        except Exception as error:
            return x + 1, type(error).__name__
        return x + 2, "none"

    compiled = thunder.jit(f)
    for _ in range(2):
        (result, name), (expected, expected_name) = compiled(X), f(X)
        assert name == expected_name
        assert torch.equal(result, expected)


@FALLBACK
def test_exceptions_that_follow_each_other_in_a_circle_are_raised() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        first, second = ValueError("first"), KeyError("second")
        first.__context__, second.__context__ = second, first
        raise first

    with pytest.raises(ValueError, match="first"):
        thunder.jit(f)(X)


@FALLBACK
def test_data_that_is_set_where_the_program_catches_all_errors() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        with contextlib.suppress(Exception):
            x.data = x * 0.5
        return x * 1

    compiled, x, y = thunder.jit(f), X.clone(), X.clone()
    for _ in range(2):
        assert torch.equal(compiled(x), f(y))
        assert torch.equal(x, y)


@FALLBACK
def test_backward_that_eager_finds_wrong_when_it_runs() -> None:
    def f(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.ones(3, device="meta") * (x * weight).sum()

    weight = torch.ones(3, requires_grad=True)
    result = thunder.jit(f)(X, weight)
    assert (result.device, result.shape) == (torch.device("meta"), (3,))


@FALLBACK
def test_transform_that_cannot_be_traced_where_the_program_catches_all_errors() -> None:
    def program(a: torch.Tensor) -> str:
        try:
            torch.func.functionalize(lambda t: t)(a)
            return "none"
        except Exception as error:
            return type(error).__name__

    assert thunder.jit(program)(X) == program(X) == "none"


class Text(io.StringIO):
    """A class of the user that is derived from one in C."""

    def add(self, text: str) -> None:
        self.count = getattr(self, "count", 0) + self.write(text)


class Fields(ctypes.Structure):
    """Memory of C behind attributes."""

    _fields_ = (("first", ctypes.c_int), ("second", ctypes.c_int))


def add_to_fields(fields: Fields) -> None:
    fields.first += 1
    fields.second = fields.first * 2


HIDDEN_STATE = {
    "bytes": (io.BytesIO, lambda file: file.write(b"ab"), lambda file: (file.getvalue(), file.tell())),
    "text": (io.StringIO, lambda file: file.write("ab"), lambda file: (file.getvalue(), file.tell())),
    "derived": (Text, lambda file: file.add("ab"), lambda file: (file.getvalue(), file.count)),
    "note": (ValueError, lambda error: error.add_note("note"), lambda error: error.__notes__),
    "cursor": (
        lambda: sqlite3.connect(":memory:").cursor(),
        lambda cursor: cursor.execute("create table if not exists t (a)").execute("insert into t values (1)"),
        lambda cursor: cursor.execute("select count(*) from t").fetchall(),
    ),
    "fields": (Fields, add_to_fields, lambda fields: (fields.first, fields.second)),
    "number": (ctypes.c_int, lambda number: setattr(number, "value", number.value + 1), lambda number: number.value),
}


@FALLBACK
@pytest.mark.parametrize("name", HIDDEN_STATE)
def test_what_an_object_in_c_keeps_is_changed_at_every_call(name: str) -> None:
    make, change, read = HIDDEN_STATE[name]
    objects = make(), make()
    for changed in (thunder.jit(lambda x: (x + 1, change(objects[0]))[0]), lambda x: change(objects[1])):
        for _ in range(3):
            changed(X)
    assert read(objects[0]) == read(objects[1])


def name_of_the_caller(x: torch.Tensor) -> Any:
    return x + 1, sys._getframe(1).f_code.co_name


def names_of_the_callers(x: torch.Tensor) -> Any:
    return x + 1, [frame.function for frame in inspect.stack()[1:2]]


def variable_of_the_caller(x: torch.Tensor) -> Any:
    frame = sys._getframe()
    return x + 1, frame.f_back.f_locals["own"]


def lines_of_the_stack(x: torch.Tensor) -> Any:
    return x + 1, [entry.name for entry in traceback.extract_stack()[-2:-1]]


@FALLBACK
@pytest.mark.parametrize(
    "function", [name_of_the_caller, names_of_the_callers, variable_of_the_caller, lines_of_the_stack]
)
def test_frame_of_the_caller_is_that_of_each_call(function: Callable[..., Any]) -> None:
    compiled = thunder.jit(function)

    def first(called: Any) -> Any:
        own = 1
        return called(X)[own]

    def second(called: Any) -> Any:
        own = 2
        return called(X)[own - 1]

    for caller in (first, second, first):
        assert caller(compiled) == caller(function)


def test_frames_of_the_function_stay_compiled() -> None:
    def name() -> str:
        return sys._getframe(1).f_code.co_name

    def outer(x: torch.Tensor) -> Any:
        return x + 1, name()

    assert thunder.jit(outer, fullgraph=True)(X)[1] == "outer"


@FALLBACK
def test_effects_of_memoized_functions_are_not_lost_in_a_refused_trace() -> None:
    calls: list[int] = []

    @functools.lru_cache
    def double(n: int) -> int:
        calls.append(n)
        return n * 2

    compiled = thunder.jit(lambda x, n: x + double(n) + 0 * time.time())
    for n in (1, 1, 2, 1):
        compiled(X, n)
    assert calls == [1, 2]


class Counted:
    """Something that counts its deaths."""

    def __init__(self, deaths: list[int], number: int) -> None:
        self.deaths, self.number = deaths, number

    def __del__(self) -> None:
        self.deaths.append(self.number)


@FALLBACK
@pytest.mark.parametrize("refused", [False, True])
def test_objects_with_a_finalizer_die_once(refused: bool) -> None:
    deaths: list[int] = []
    held: dict[str, Any] = {}

    def function(x: torch.Tensor, number: int) -> Any:
        Counted(deaths, number)
        local = Counted(deaths, number + 1)
        held["kept"] = Counted(deaths, number + 2)
        if refused:
            time.time()
        return x * local.number, Counted(deaths, number + 3)

    expected: list[int] = []
    compiled = thunder.jit(function)
    for number in (10, 10, 20):
        result = compiled(X, number)
        expected += [number, *([held["before"]] if "before" in held else []), number + 1]
        held["before"] = number + 2
        assert sorted(deaths) == sorted(expected)
        del result
        expected.append(number + 3)
        assert sorted(deaths) == sorted(expected)


@pytest.mark.filterwarnings("error::RuntimeWarning", "ignore::thunder.EagerFallbackWarning")
def test_coroutine_function_makes_one_coroutine() -> None:
    async def inner(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    async def program(x: torch.Tensor) -> torch.Tensor:
        return await inner(x) + 1

    compiled = thunder.jit(program)
    for _ in range(2):
        assert torch.equal(asyncio.run(compiled(torch.ones(2))), torch.full((2,), 3.0))


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_dispatch_mode_inside_sees_operations_at_each_call() -> None:
    seen: list[str] = []

    class Noting(DoublingMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(str(function))
            return super().__torch_dispatch__(function, types, args, kwargs)

    def program(x: torch.Tensor) -> torch.Tensor:
        with Noting():
            return x.sin()

    f = thunder.jit(program)
    for _ in range(3):
        assert torch.equal(f(X), X.sin() * 2)
    assert seen == ["aten.sin.default"] * 3
    with pytest.raises(NotImplementedError, match="dispatch mode"):
        thunder.jit(program, fullgraph=True)(X)


@FALLBACK
def test_statistics_that_get_their_sizes_from_a_call_are_left_to_eager() -> None:
    def step(x: torch.Tensor, count: torch.Tensor, *statistics: torch.Tensor) -> torch.Tensor:
        count.add_(1)
        on = torch.ones(1, dtype=torch.long)
        return torch.fused_moving_avg_obs_fake_quant(x, on, on, *statistics, 0.1, -128, 127, 0, True, True)

    x = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
    seen = []
    for f in (step, thunder.jit(step)):
        count, scale, zero = torch.zeros(()), torch.ones(1), torch.zeros(1, dtype=torch.int)
        extremes = [torch.tensor([]), torch.tensor([])]
        results = [f(each, count, *extremes, scale, zero) for each in (x, x * 2)]
        seen.append([*results, count, *extremes, scale, zero])
    torch.testing.assert_close(seen[1], seen[0])


class Clocked:
    def method(self, x: torch.Tensor) -> torch.Tensor:
        return x * time.time()

    __call__ = method


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (Clocked().method, "Clocked.method runs in eager"),
        (Clocked(), "Clocked.__call__ runs in eager"),
        (functools.partial(Clocked().method), "functools.partial of Clocked.method runs in eager"),
        (functools.partial(functools.partial(Clocked())), "functools.partial of Clocked.__call__ runs in eager"),
    ],
)
def test_refusal_names_the_callable(function: Any, name: str) -> None:
    with pytest.warns(thunder.EagerFallbackWarning, match=name):
        thunder.jit(function)(X)


@pytest.mark.parametrize("mode", ["r", "complete"])
def test_formula_that_has_no_derivative_for_its_arguments_raises_in_the_backward(mode: str) -> None:
    def f(a: torch.Tensor) -> torch.Tensor:
        return torch.linalg.qr(a * 1, mode=mode)[1] * 2

    g = thunder.jit(f, fullgraph=True)
    for a in (torch.randn(5, 3), torch.randn(5, 3).requires_grad_()):
        torch.testing.assert_close(g(a), f(a))
    for function in (f, g):
        with pytest.raises(RuntimeError, match=r"linalg.qr|differentiable"):
            function(a).sum().backward()
