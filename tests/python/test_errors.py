"""Misuse gives a clear error: what was expected, what was found, and the user's file, line and source text."""

from __future__ import annotations

import inspect
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import thunder


def assert_names_line(error: BaseException, function: Callable[..., Any], source: str) -> None:
    """Check that the message names this file, the line of `source` in `function`, and its text."""
    lines, first = inspect.getsourcelines(function)
    number = first + next(index for index, line in enumerate(lines) if source in line)
    message = str(error)
    assert Path(__file__).name in message, message
    assert str(number) in message, message
    assert source in message, message


@pytest.mark.parametrize("value", [3, None.__class__, "f", torch.ones(2)], ids=["number", "class", "string", "tensor"])
def test_what_cannot_be_compiled_raises_type_error(value: object) -> None:
    with pytest.raises(TypeError, match=r"thunder\.jit: expected a function or a module, got"):
        thunder.jit(value)


def test_scripted_module_raises_type_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))
    with pytest.raises(TypeError, match="TorchScript"):
        thunder.jit(scripted)


def test_query_of_an_uncompiled_callable_raises_type_error() -> None:
    with pytest.raises(TypeError, match=r"expected a callable that thunder\.jit returned"):
        thunder.last_traces(test_query_of_an_uncompiled_callable_raises_type_error)


def test_input_with_data_of_a_module_on_the_meta_device_is_refused() -> None:
    compiled = thunder.jit(nn.Linear(2, 2, device="meta"), fullgraph=True)
    with pytest.raises(RuntimeError, match="meta") as caught:
        compiled(torch.ones(1, 2))
    assert "to_empty" in str(caught.value)


def test_input_on_another_device_than_the_module_is_refused() -> None:
    compiled = thunder.jit(nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match="device"):
        compiled(torch.ones(1, 2, device="meta"))


def test_data_of_a_meta_tensor_is_refused() -> None:
    with pytest.raises(RuntimeError, match="meta"):
        thunder.jit(lambda x: x.sum().item())(torch.ones(2, device="meta"))


@pytest.mark.gpu
def test_mixed_devices_name_the_line() -> None:
    def f(x, y):
        return x + y

    with pytest.raises(RuntimeError, match="device") as caught:
        thunder.jit(f)(torch.ones(2), torch.ones(2, device="cuda"))
    assert_names_line(caught.value, f, "return x + y")


def test_number_where_a_tensor_was_traced_retraces() -> None:
    f = thunder.jit(lambda x: x * 2)
    assert torch.equal(f(torch.ones(2)), torch.full((2,), 2.0))
    assert f(3) == 6


def test_object_where_a_tensor_was_traced_raises_as_in_eager() -> None:
    f = thunder.jit(lambda x: x * 2.5)
    f(torch.ones(2))
    with pytest.raises(TypeError, match="can't multiply sequence by non-int"):
        f("text")


def test_sparse_tensor_is_refused() -> None:
    f = thunder.jit(lambda x: x * 2, fullgraph=True)
    with pytest.raises((RuntimeError, NotImplementedError, TypeError), match=r"(?i)sparse"):
        f(torch.eye(3).to_sparse())


def test_changed_dtype_retraces() -> None:
    f = thunder.jit(lambda x: x * 2)
    assert f(torch.ones(2)).dtype == torch.float32
    assert f(torch.ones(2, dtype=torch.int64)).dtype == torch.int64
    assert thunder.cache_misses(f) == 2


def test_wrong_shape_names_the_line() -> None:
    def f(x, w):
        y = x.relu()
        return y + w

    with pytest.raises(RuntimeError) as caught:
        thunder.jit(f)(torch.ones(2, 3), torch.ones(4, 5))
    assert_names_line(caught.value, f, "return y + w")


def test_branch_on_tensor_data_names_the_line_with_fullgraph() -> None:
    def f(x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    with pytest.raises(RuntimeError) as caught:
        thunder.jit(f, fullgraph=True)(torch.ones(2))
    assert_names_line(caught.value, f, "if x.sum() > 0:")


def test_missing_argument_raises_as_in_eager() -> None:
    f = thunder.jit(lambda x, y: x + y)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'"):
        f(torch.ones(2))


def test_own_exception_comes_out_as_itself_with_its_line() -> None:
    def f(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        thunder.jit(f)(torch.ones(2))
    assert caught.traceback[-1].name == "f"


def test_exception_caught_by_the_program_is_not_seen() -> None:
    @thunder.jit
    def f(x):
        try:
            raise ValueError("inner")
        except ValueError:
            return x + 1

    assert torch.equal(f(torch.zeros(2)), torch.ones(2))


def test_failed_trace_leaves_module_and_arguments() -> None:
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3)
            self.calls = 0

        def forward(self, x: torch.Tensor, seen: list[int]) -> torch.Tensor:
            self.calls += 1
            seen.append(1)
            x = self.norm(x).add_(1)
            raise RuntimeError("after the writes")

    module = Failing()
    state = {name: value.clone() for name, value in module.state_dict().items()}
    x, seen = torch.randn(4, 3), []
    before = x.clone()
    with pytest.raises(RuntimeError, match="after the writes"):
        thunder.jit(module, fullgraph=True)(x, seen)
    assert module.calls == 0
    assert seen == []
    assert torch.equal(x, before)
    for name, value in module.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_failed_trace_leaves_the_random_state() -> None:
    def f(x):
        y = torch.rand_like(x)
        raise RuntimeError(f"after drawing {y.shape}")

    state = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="after drawing"):
        thunder.jit(f, fullgraph=True)(torch.ones(3))
    assert torch.equal(torch.get_rng_state(), state)


def test_callable_works_after_a_failed_trace() -> None:
    f = thunder.jit(lambda x, w: x @ w)
    with pytest.raises(RuntimeError):
        f(torch.ones(2, 3), torch.ones(4, 5))
    assert torch.equal(f(torch.ones(2, 3), torch.ones(3, 5)), torch.full((2, 5), 3.0))


def test_keyboard_interrupt_during_tracing_is_raised() -> None:
    import _thread

    @thunder.jit
    def f(x):
        _thread.interrupt_main()
        total = 0
        for i in range(1_000_000):
            total += i
        return x + total

    # A shell ignores SIGINT in what it starts in the background; `interrupt_main` does nothing then.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            f(torch.ones(1))
    finally:
        signal.signal(signal.SIGINT, before)


class OwnInterrupt(KeyboardInterrupt):
    """An interrupt of the program's own."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, OwnInterrupt, SystemExit, GeneratorExit, BaseException])
def test_effects_before_an_interrupt_that_the_function_raises_stay(kind: type[BaseException]) -> None:
    log: list[int] = []
    buffer = torch.zeros(2)

    def program(x: torch.Tensor) -> torch.Tensor:
        log.append(len(log))
        buffer.add_(1)
        try:
            raise kind("own")
        finally:
            x.mul_(2)

    compiled = thunder.jit(program)
    for call in range(3):
        x = torch.ones(2)
        with pytest.raises(kind, match="own"):
            compiled(x)
        assert (len(log), buffer.tolist(), x.tolist()) == (call + 1, [call + 1.0] * 2, [2.0] * 2)


@pytest.mark.parametrize(
    "use",
    [repr, lambda y: y + 1, lambda y: y.sum().item(), lambda y: torch.ones(3) * y, lambda y: thunder.jit(torch.sin)(y)],
    ids=["repr", "add", "item", "operand", "jit"],
)
def test_tensor_that_outlives_its_trace_says_so(use) -> None:
    def f(x):
        y = x * 2
        raise KeyError(y)

    with pytest.raises(KeyError) as caught:
        thunder.jit(f, fullgraph=True)(torch.ones(3))
    left = caught.value.args[0]
    assert left.shape == (3,)
    with pytest.raises(RuntimeError, match=r"trace that has ended"):
        use(left)


LARGE = 2**45  # elements, for which no machine has memory
ALLOCATIONS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "ones": lambda x, n: x.sum() * torch.ones(n),
    "empty": lambda x, n: torch.empty(n).fill_(0) + x.sum(),
    "full": lambda x, n: torch.full((n,), 2.0) + x.sum(),
    "arange": lambda x, n: torch.arange(n) * x.sum(),
    "new_zeros": lambda x, n: x.new_zeros(n) + x.sum(),
    "rand": lambda x, n: torch.rand(n) * 0 + x.sum(),
    "repeat": lambda x, n: x.repeat(n),
    "matmul": lambda x, n: x.new_zeros(1).expand(n // 2**20, 1) @ x.new_zeros(1).expand(1, n // 2**10 + 1) + x.sum(),
}


@pytest.mark.parametrize("first", [3, LARGE])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ALLOCATIONS)
def test_effects_before_memory_runs_out_stay(name: str, dynamic: bool, first: int) -> None:
    reached = []
    for compiles in (False, True):
        log: list[int] = []

        def program(x: torch.Tensor, n: int, log: list[int] = log) -> torch.Tensor:
            log.append(n)
            x.add_(1)
            return ALLOCATIONS[name](x, n).sum()

        call = thunder.jit(program, dynamic=dynamic) if compiles else program
        x, raised = torch.zeros(3), []
        for n in (first, 4, 5, LARGE, 6):
            try:
                call(x, n)
            except RuntimeError:
                raised.append(n)
        reached.append((raised, log, x.tolist()))
    assert reached[1] == reached[0]
