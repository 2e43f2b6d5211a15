"""Many traces, threads, re-entrancy, interrupts and deep recursion."""

from __future__ import annotations

import _thread
import functools
import gc
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import in_threads

import thunder

X = torch.arange(3.0)


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_thousand_traces_leave_object_count_and_memory_flat() -> None:
    holder = types.SimpleNamespace(scale=2.0, seen=[])
    module = torch.nn.Linear(3, 3)

    def program(x: torch.Tensor) -> torch.Tensor:
        holder.seen.append(1)
        return torch.relu(module(x)) * holder.scale

    compiled = thunder.jit(program, cache="no caching")

    def run(times: int) -> tuple[int, int]:
        for _ in range(times):
            compiled(X).sum().backward()
        module.zero_grad()
        holder.seen.clear()
        gc.collect()
        return len(gc.get_objects()), resident_bytes()

    run(50)
    objects, memory = run(50)
    objects_after, memory_after = run(1000)
    assert objects_after - objects < 100
    assert memory_after - memory < 10 << 20


def test_failing_traces_leave_object_count_flat() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        raise ValueError(x.shape)

    compiled = thunder.jit(program)

    def run(times: int) -> int:
        for _ in range(times):
            with pytest.raises(ValueError):
                compiled(X)
        gc.collect()
        return len(gc.get_objects())

    objects = run(20)
    assert run(200) - objects < 50


def test_specializations_are_freed_with_the_function() -> None:
    holder = types.SimpleNamespace(scale=0.0)

    def make_and_drop() -> None:
        compiled = thunder.jit(lambda x: x * holder.scale)
        for scale in range(10):
            holder.scale = float(scale)
            compiled(X)

    make_and_drop()
    gc.collect()
    objects = len(gc.get_objects())
    for _ in range(5):
        make_and_drop()
    gc.collect()
    assert len(gc.get_objects()) - objects < 50


def test_eight_threads_with_retraces_among_the_calls_equal_eager() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh())
    compiled = thunder.jit(lambda x, n: module(x) * n, dynamic=False)

    def work(number: int) -> None:
        for i in range(30):
            x = torch.full((1 + (i + number) % 3, 3), float(number))
            torch.testing.assert_close(compiled(x, i % 4), module(x) * (i % 4))

    in_threads(8, work)
    assert thunder.cache_misses(compiled) == 12


def test_eight_threads_that_change_a_guarded_value_see_one_of_its_values() -> None:
    holder = types.SimpleNamespace(scale=1.0)
    compiled = thunder.jit(lambda x: x * holder.scale)

    def work(number: int) -> None:
        for i in range(50):
            holder.scale = float((i + number) % 5)
            result = compiled(torch.ones(2))
            assert result[0] == result[1]
            assert result[0].item() in range(5)

    in_threads(8, work)


def test_eight_threads_with_gradients() -> None:
    compiled = thunder.jit(lambda x, n: (torch.sin(x) * n).sum())

    def work(number: int) -> None:
        for i in range(20):
            x = torch.full((2 + i % 2,), float(number), requires_grad=True)
            compiled(x, number % 3).backward()
            torch.testing.assert_close(x.grad, torch.cos(x.detach()) * (number % 3))

    in_threads(8, work)


def test_jitted_function_in_a_jitted_function_is_part_of_its_trace() -> None:
    inner = thunder.jit(lambda x: torch.sin(x))
    outer = thunder.jit(lambda x: inner(x) + inner(x + 1))
    torch.testing.assert_close(outer(X), torch.sin(X) + torch.sin(X + 1))
    assert (thunder.cache_misses(outer), thunder.cache_misses(inner)) == (1, 0)
    assert str(thunder.last_traces(outer)[0]).count("aten.sin") == 2


def test_change_inside_of_an_inner_jitted_function_retraces_the_outer_one() -> None:
    holder = types.SimpleNamespace(scale=2.0)
    inner = thunder.jit(lambda x: x * holder.scale)
    outer = thunder.jit(lambda x: inner(x) + 1)
    outer(X)
    holder.scale = 3.0
    torch.testing.assert_close(outer(X), X * 3 + 1)


def test_recursive_jitted_function() -> None:
    @thunder.jit
    def power(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 1 else x * power(x, n - 1)

    torch.testing.assert_close(power(X, 4), X**4)
    assert thunder.cache_misses(power) == 1


def test_jitted_function_called_by_a_hook_of_a_jitted_module() -> None:
    module = torch.nn.Linear(3, 3)
    shift = thunder.jit(lambda x: x + 1)
    module.register_forward_hook(lambda module, arguments, output: shift(output))
    compiled = thunder.jit(module)
    torch.testing.assert_close(compiled(X), module(X))
    torch.testing.assert_close(compiled(X), torch.nn.functional.linear(X, module.weight, module.bias) + 1)


def test_jitted_function_called_by_a_backward_hook() -> None:
    double = thunder.jit(lambda g: g * 2)
    compiled = thunder.jit(lambda x: torch.sin(x))
    for _ in range(2):
        x = X.clone().requires_grad_()
        y = compiled(x)
        y.register_hook(lambda gradient: double(gradient))
        y.sum().backward()
        torch.testing.assert_close(x.grad, 2 * torch.cos(X))


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")  # what it computes while tracing is kept
def test_jitted_function_called_by_a_finalizer_while_tracing() -> None:
    results: list[torch.Tensor] = []
    other = thunder.jit(lambda x: x + 5)

    class Dying:
        def __del__(self) -> None:
            results.append(other(torch.zeros(1)))

    def program(x: torch.Tensor) -> torch.Tensor:
        garbage: Any = Dying()
        garbage.itself = garbage
        del garbage
        gc.collect()
        return x + 1

    compiled = thunder.jit(program)
    for _ in range(2):
        torch.testing.assert_close(compiled(X), X + 1)


references: dict[int, Any] = {}
tally = {"deaths": 0, "collections": 0}


def forget(reference: Any) -> None:
    references.pop(id(reference))
    tally["deaths"] += 1


class Cyclic:
    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        tally["deaths"] += 1


def count_collection(phase: str, info: dict[str, int]) -> None:
    tally["collections"] += 1


@pytest.mark.parametrize("collect", [gc.collect, gc.enable], ids=["explicit", "automatic"])
def test_what_a_collection_runs_is_no_part_of_the_program_that_it_interrupts(collect: Callable[[], Any]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        collect()
        return x + len([[i] for i in range(2000)])

    compiled = thunder.jit(program, sharp_edges="allow")
    callbacks = list(gc.callbacks)
    gc.callbacks.append(count_collection)
    thresholds = gc.get_threshold()
    gc.collect()
    gc.disable()
    tally.update(deaths=0, collections=0)
    try:
        reference = weakref.ref(Cyclic(), forget)
        references[id(reference)] = reference
        gc.set_threshold(5, 1, 1)
        torch.testing.assert_close(compiled(X), X + 2000)
        assert tally["deaths"] == 2
        assert tally["collections"] > 0
        torch.testing.assert_close(compiled(X), X + 2000)
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(count_collection)
        gc.enable()
    assert tally["deaths"] == 2
    assert not references
    assert thunder.cache_misses(compiled) == 1, str(thunder.explain_misses(compiled))
    assert gc.callbacks == callbacks


def test_function_called_again_by_a_finalizer_between_calls() -> None:
    compiled = thunder.jit(lambda x, holder: x * holder.scale)

    class Holder:
        scale = 2.0

        def __del__(self) -> None:
            if self.scale == 2.0:
                seen.append(compiled(X, types.SimpleNamespace(scale=7.0)))

    seen: list[torch.Tensor] = []
    for _ in range(3):
        torch.testing.assert_close(compiled(X, Holder()), X * 2)
    assert len(seen) == 3
    torch.testing.assert_close(seen[-1], X * 7)


def test_guard_that_runs_a_finalizer_is_safe() -> None:
    variable = threading.local()
    variable.scale = 2.0
    compiled = thunder.jit(lambda x: x * variable.scale)
    for scale in (2.0, 3.0, 2.0):
        variable.scale = scale
        torch.testing.assert_close(compiled(X), X * scale)


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_recursion_without_end_raises_recursion_error(depth: int) -> None:
    def descend(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 0 else descend(x, n - 1)

    compiled = thunder.jit(descend)
    with pytest.raises(RecursionError):
        compiled(X, depth)
    torch.testing.assert_close(compiled(X, 3), X)


def test_recursion_through_code_in_c_raises_recursion_error() -> None:
    def descend(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 0 else next(map(functools.partial(descend, n=n - 1), [x]))

    compiled = thunder.jit(descend)
    with pytest.raises(RecursionError):
        compiled(X, 100_000)
    torch.testing.assert_close(compiled(X, 3), X)


def test_recursion_below_the_limit_runs() -> None:
    def descend(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 0 else descend(x, n - 1) + 1

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(3000)
    try:
        torch.testing.assert_close(thunder.jit(descend)(X, 1500), X + 1500)
    finally:
        sys.setrecursionlimit(limit)


class Linked:
    def __init__(self, value: Any, rest: Any) -> None:
        self.value, self.rest = value, rest


def nested(make: Callable[[Any], Any], inner: Any, depth: int = 15_000) -> Any:
    for _ in range(depth):
        inner = make(inner)
    return inner


def innermost(value: Any) -> Any:
    while isinstance(value, list | tuple | Linked):
        value = value.rest if isinstance(value, Linked) else value[0]
    return value


def run_on_stack(call: Callable[[], None], size: int) -> None:
    """Run `call` in a thread whose stack has so many bytes."""
    before = threading.stack_size(size)
    try:
        thread = threading.Thread(target=call)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()


STORED = types.SimpleNamespace()
DEEP: dict[str, tuple[Callable[[torch.Tensor, Any], Any], Any]] = {
    "list returned": (lambda x, _: nested(lambda inner: [inner], x + 1), None),
    "tuple returned": (lambda x, _: nested(lambda inner: (inner,), x + 1), None),
    "objects returned": (lambda x, _: nested(lambda inner: Linked(1, inner), x + 1), None),
    "list stored": (lambda x, _: setattr(STORED, "deep", nested(lambda inner: [inner], x + 1)) or x - 1, None),
    "list given": (lambda x, deep: x + innermost(deep), nested(lambda inner: [inner], X)),
    "tuple given": (lambda x, deep: x + innermost(deep), nested(lambda inner: (inner,), X)),
    "tuple of numbers given": (lambda x, deep: x + innermost(deep), nested(lambda inner: (inner,), 2)),
    "tuple in a list of numbers given": (lambda x, deep: x.view(*deep[:1]), [3, nested(lambda inner: (inner,), 2)]),
    "objects given": (lambda x, deep: x + innermost(deep), nested(lambda inner: Linked(1, inner), X)),
    "tuple given and returned": (lambda x, deep: (x + 1, deep), nested(lambda inner: (inner,), 2)),
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("what", DEEP)
def test_objects_nested_more_deeply_than_a_stack_are_handled(what: str) -> None:
    program, deep = DEEP[what]
    compiled = thunder.jit(program)
    found: list[tuple[Any, Any]] = []

    def call() -> None:
        for x in (X, X + 1):
            expected, got = program(x, deep), compiled(x, deep)
            found.append((innermost(got), innermost(expected)))

    run_on_stack(call, 2 << 20)
    assert [torch.equal(*pair) for pair in found] == [True, True]


def test_depth_of_a_result_that_runs_in_eager_is_named() -> None:
    compiled = thunder.jit(DEEP["list returned"][0], fullgraph=True)
    with pytest.raises(NotImplementedError, match=r"more than 1000 levels deep .*\n.*test_robustness.py"):
        compiled(X, None)


def test_chain_of_operations_longer_than_a_stack_has_its_gradient() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2500):
            x = x.sin() + x * 0.5
        return x

    gradients = []

    def call() -> None:
        for function in (program, thunder.jit(program)):
            x = torch.full((3,), 0.1, requires_grad=True)
            function(x).sum().backward()
            gradients.append(x.grad)

    run_on_stack(call, 512 << 10)
    torch.testing.assert_close(gradients[1], gradients[0])


def test_way_to_an_object_in_a_long_list_is_cut() -> None:
    def program(x: torch.Tensor, linked: Linked | None) -> torch.Tensor:
        total = 0
        while linked is not None:
            total += linked.value
            linked = linked.rest
        return x + total

    linked = None
    for value in range(600):
        linked = Linked(value % 3, linked)
    compiled = thunder.jit(program)
    compiled(X, linked)
    last = linked
    while last.rest is not None:
        last = last.rest
    last.value = 7
    torch.testing.assert_close(compiled(X, linked), program(X, linked))
    told = str(thunder.explain_misses(compiled))
    assert ".rest.rest.value was 0 and is 7" in told
    assert max(map(len, told.splitlines())) < 2000


def test_keyboard_interrupt_while_tracing_changes_nothing() -> None:
    holder = types.SimpleNamespace(items=[1], table={})
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def program(x: torch.Tensor) -> torch.Tensor:
        holder.items.append(2)
        holder.table["a"] = x
        if holder.table and interrupts:
            for _ in range(10**9):
                pass
        return x + 1

    interrupts = True
    compiled = thunder.jit(program)
    threading.Timer(0.5, _thread.interrupt_main).start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        compiled(X)
    assert time.monotonic() - begin < 10
    assert (holder.items, holder.table) == ([1], {})
    assert thunder.cache_misses(compiled) == 0
    interrupts = False
    torch.testing.assert_close(compiled(X), X + 1)
    assert holder.items == [1, 2]


# --- tracebacks


def failing_helper(value: dict[str, int]) -> int:
    return value["present"] + value["absent"]


def test_traceback_is_that_of_eager_with_carets() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x + sum(failing_helper(value) for value in [{"present": 1}])

    def text(function: Callable[..., Any]) -> list[str]:
        try:
            function(X)
        except KeyError as error:
            lines = traceback.format_exception(error)
            return "".join(lines).split("function(X)", 1)[1].splitlines()[1:]
        raise AssertionError("expected a KeyError")

    def shown(lines: list[str]) -> list[str]:
        return [line for line in lines if set(line) != {" ", "^"} or "~" in line]

    eager, compiled = shown(text(program)), shown(text(thunder.jit(program)))
    assert compiled == eager
    assert any("~~~~~^^^^^^^^^^" in line for line in compiled)
    assert not any("thunder/" in line for line in compiled)


def test_exceptions_chain_as_in_eager() -> None:
    order: list[str] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            try:
                raise KeyError("first")
            except KeyError as error:
                raise ValueError("second") from error
            finally:
                order.append("finally")
        except ValueError:
            raise TypeError("third")  # noqa: B904

    with pytest.raises(TypeError) as raised:
        thunder.jit(program, fullgraph=True)(X)
    second = raised.value.__context__
    assert isinstance(second, ValueError)
    assert isinstance(second.__cause__, KeyError)
    assert raised.value.__cause__ is None
    assert order == []


def test_breakpoint_stops_in_the_users_frame_while_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[tuple[str, dict[str, Any]]] = []

    def hook() -> None:
        frame = sys._getframe(1)
        stopped.append((frame.f_code.co_name, {name: type(value) for name, value in frame.f_locals.items()}))

    monkeypatch.setattr(sys, "breakpointhook", hook)

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        breakpoint()
        return y

    compiled = thunder.jit(program)
    for _ in range(2):
        torch.testing.assert_close(compiled(X), X + 1)
    assert stopped[0][0] == "program"
    assert set(stopped[0][1]) == {"x", "y"}


# --- signals


class Alarm(Exception):
    pass


@pytest.mark.parametrize("catches", [False, True], ids=["raises", "catches"])
def test_exception_of_a_signal_handler_while_tracing_leaves_the_call(catches: bool) -> None:
    seen: list[int] = []
    handled: list[int] = []

    def handle(number: int, frame: Any) -> None:
        handled.append(number)
        raise Alarm

    def program(x: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        try:
            for _ in range(rounds):
                pass
        except Alarm:
            if not catches:
                raise
            return x - 1
        return x + 1

    rounds = 10**9
    compiled = thunder.jit(program, fullgraph=True)
    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Alarm):
            compiled(X)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert seen == []
    assert handled == [signal.SIGALRM]
    rounds = 3
    torch.testing.assert_close(compiled(X), X + 1)
    assert seen == [1]


def test_what_a_signal_handler_does_while_tracing_happens_once() -> None:
    flags: list[int] = []

    def handle(number: int, frame: Any) -> None:
        flags.append(number)

    compiled = thunder.jit(lambda x: waits(x) + 1)

    def waits(x: torch.Tensor) -> torch.Tensor:
        for _ in range(rounds):
            pass
        return x

    rounds = 300_000
    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        for _ in range(3):
            compiled(X)
        while not flags:
            time.sleep(0.01)
        for _ in range(3):
            torch.testing.assert_close(compiled(X), X + 1)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert flags == [signal.SIGALRM]


# --- the first call of a process


def test_first_function_of_a_process_may_have_builtins_of_its_own() -> None:
    code = """
import functools, torch, thunder

first = eval("lambda x, f: f(x)", {"__builtins__": {}})
thunder.jit(first)(torch.ones(2), torch.sin)

def count(x):
    count.calls = getattr(count, "calls", 0) + 1
    return x * count.calls + next(numbers)

numbers = iter([5, 6, 7])
f = thunder.jit(count)
assert [int(f(torch.ones(()))) for _ in range(3)] == [6, 8, 10], count.calls
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_first_batched_gradient_of_a_process_is_compiled() -> None:
    code = """
import torch, thunder

def jacobian(x):
    return torch.autograd.functional.jacobian(lambda a: a ** 2, x, vectorize=True)

x = torch.arange(3.0)
torch.testing.assert_close(thunder.jit(jacobian, fullgraph=True)(x), jacobian(x))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_node_of_a_leaf_that_is_kept_beyond_its_trace_is_collected() -> None:
    def leave_a_cycle() -> None:
        x = torch.ones(2, requires_grad=True)
        kept: list[Any] = []

        def program() -> None:
            kept.append((kept, x.view_as(x).grad_fn.next_functions[0][0]))
            torch.autograd.graph.register_multi_grad_hook([x], lambda grads: None)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", thunder.EagerFallbackWarning)
            thunder.jit(program)()

    leave_a_cycle()
    gc.collect()  # which asks the leaf behind such a node for its hooks
