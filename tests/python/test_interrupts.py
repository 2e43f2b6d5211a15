"""Exceptions that handlers of signals raise while something compiles come out of the call."""

from __future__ import annotations

import collections
import contextlib
import copy
import io
import random
import signal
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thunder

KINDS = (KeyboardInterrupt, TimeoutError, SystemExit)
armed: str | None = None


def interrupt(place: str) -> None:
    """Send a signal to this process, where the test asks for it, once."""
    global armed
    if armed == place:
        armed = None
        signal.raise_signal(signal.SIGUSR1)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> Iterator[type[BaseException]]:
    global armed

    def handler(number: int, frame: Any) -> None:
        raise request.param("from a handler")

    before = signal.signal(signal.SIGUSR1, handler)
    yield request.param
    assert signal.getsignal(signal.SIGUSR1) is handler
    armed = None
    signal.signal(signal.SIGUSR1, before)


@torch.library.custom_op("interrupts::double", mutates_args=())
def double(x: Tensor) -> Tensor:
    return x * 2


@double.register_fake
def _(x: Tensor) -> Tensor:
    global armed
    interrupt("fake")
    if armed == "rollback":
        armed = "hash"  # all that hashes keys behind this is thunder's
    return torch.empty_like(x)


def _set_up(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    interrupt("setup")


def _derive(ctx: Any, gradient: Tensor) -> Tensor:
    interrupt("backward")
    return gradient * 2


double.register_autograd(_derive, setup_context=_set_up)


class Key:
    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        interrupt("hash")
        return 7

    def __eq__(self, other: object) -> bool:
        interrupt("eq")
        return isinstance(other, Key) and self.number == other.number


class Looked:
    def __getattr__(self, name: str) -> float:
        interrupt("getattr")
        if name != "scale":
            raise AttributeError(name)
        return 3.0

    def __bool__(self) -> bool:
        interrupt("bool")
        return True


class Transform(thunder.transforms.Transform):
    def transform_trace_post_optimization(self, computation: Any, **_: Any) -> Any:
        interrupt("transform")
        return computation


NATIVE = ("fake", "setup", "backward", "transform", "hash")
"""Where thunder runs Python; elsewhere the function does, which sends a signal itself then, and so runs in eager."""


@pytest.mark.parametrize("place", [*NATIVE, "eq", "getattr", "bool"])
def test_exception_of_a_handler_comes_out_and_the_next_call_compiles(place: str, kind: type[BaseException]) -> None:
    global armed

    def make() -> tuple[Any, dict[Any, Any], list[int]]:
        table: dict[Any, Any] = {Key(1): 1.0}
        log: list[int] = []
        looked = Looked()

        def program(x: Tensor) -> Tensor:
            log.append(len(log))
            table[Key(2)] = len(log)
            x.mul_(2)
            return double(x).sin().sum() * table[Key(1)] * looked.scale * (1 if looked else 2)

        return program, table, log

    x = torch.ones(3, requires_grad=True)
    reached = []
    for compiles in (False, True):
        program, table, log = make()
        if compiles:
            program = thunder.jit(program, transforms=[Transform()] if place == "transform" else [])
        inner = x * 1
        if compiles or place not in NATIVE:
            armed = place
            with pytest.raises(kind, match="from a handler"):
                program(inner)
            assert armed is None
        reached.append((len(table), log, inner.tolist()))
    assert reached[1] == reached[0]
    eager_calls = thunder.compile_stats(program)["eager_calls"]
    assert eager_calls <= (place not in ("fake", "setup", "backward", "transform"))
    for _ in range(2):
        inner = x * 1
        program(inner).backward()
        assert (len(table), inner.tolist()) == (2, [2.0] * 3)
    torch.testing.assert_close(x.grad, 2 * 3 * 4 * torch.full((3,), 4.0).cos())
    assert thunder.compile_stats(program)["eager_calls"] == eager_calls


def test_handler_that_raises_nothing_runs_once() -> None:
    global armed
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        for place in ("fake", "setup", "backward"):
            compiled = thunder.jit(lambda x: double(x).sin().sum())
            armed = place
            compiled(torch.ones(3, requires_grad=True))
            assert seen == [signal.SIGUSR1]
            assert thunder.compile_stats(compiled)["eager_calls"] == 0
            seen.clear()
    finally:
        signal.signal(signal.SIGUSR1, before)


state = torch.zeros(1)
weight = torch.ones(2, requires_grad=True)


def _write() -> Any:
    return state.add_(1).tolist()


def _read() -> Any:
    return (weight * 2).sum().item()


def _call_jitted() -> Any:
    return thunder.jit(lambda x: x.cos() + 1)(torch.zeros(2)).tolist()


def _derive_in_handler() -> Any:
    gradient = torch.autograd.grad((weight * weight).sum(), weight)[0]
    return gradient.tolist(), torch.is_grad_enabled(), torch.get_default_dtype()


def _use_transforms() -> Any:
    return torch.func.vmap(torch.func.grad(lambda x: x * x))(torch.ones(2)).tolist()


def _save() -> Any:
    file = io.BytesIO()
    torch.save({"weight": weight}, file)
    file.seek(0)
    return torch.load(file)["weight"].tolist()


def _plain(x: Tensor) -> Tensor:
    return double(x).sin()


def _without_gradients(x: Tensor) -> Tensor:
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        y = double(x)
    return y.sin() * x


def _under_transforms(x: Tensor) -> Tensor:
    return torch.func.vmap(lambda row: double(row).sin())(x.reshape(1, -1))


@pytest.mark.parametrize("program", [_plain, _without_gradients, _under_transforms])
@pytest.mark.parametrize("use", [_write, _read, _call_jitted, _derive_in_handler, _use_transforms, _save])
def test_handler_uses_tensors_as_outside_of_the_trace(use: Any, program: Any) -> None:
    global armed
    seen: list[Any] = []
    state.zero_()
    expected = use()
    state.zero_()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(use()))
    try:
        compiled = thunder.jit(program)
        for x in (torch.ones(3), torch.ones(3, requires_grad=True), torch.ones(0)):
            armed = "fake"
            torch.testing.assert_close(compiled(x), program(x))
            armed = None
            if use is _write:
                assert (state.item(), seen) == (len(seen), [[float(i + 1)] for i in range(len(seen))])
            else:
                assert seen == [expected] * len(seen)
        assert seen
    finally:
        armed = None
        signal.signal(signal.SIGUSR1, before)


def test_handler_calls_the_function_that_is_traced() -> None:
    global armed
    seen: list[Any] = []
    compiled = thunder.jit(_plain)
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(compiled(torch.ones(2)).tolist()))
    try:
        armed = "fake"
        result = compiled(torch.ones(2))
        assert seen == [result.tolist()] == [compiled(torch.ones(2)).tolist()]
    finally:
        armed = None
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("kind_of_log", [list, dict, collections.deque, set])
def test_what_a_handler_writes_is_no_part_of_the_program(kind_of_log: Any, fails: bool) -> None:
    global armed
    log = kind_of_log()

    def note(what: str) -> None:
        if isinstance(log, dict):
            log[what] = log.get(what, 0) + 1
        elif isinstance(log, set):
            log.add(what)
        else:
            log.append(what)

    def program(x: Tensor) -> Tensor:
        note("before")
        y = double(x)
        note("after")
        if fails and y.sum() > 0:
            raise ValueError("as in eager")
        return y.sin()

    before = signal.signal(signal.SIGUSR1, lambda number, frame: note("handler"))
    try:
        compiled = thunder.jit(program)
        found = []
        for function in (program, compiled):
            log.clear()
            for is_armed in (True, False, False):
                armed = "fake" if is_armed and function is compiled else None
                if is_armed and function is program:
                    note("handler")
                with contextlib.suppress(ValueError), warnings.catch_warnings():
                    warnings.simplefilter("ignore", thunder.EagerFallbackWarning)
                    function(torch.ones(3))
            found.append(sorted(log.items() if isinstance(log, dict) else log))
        assert found[0] == found[1]
    finally:
        armed = None
        signal.signal(signal.SIGUSR1, before)


def test_program_is_told_the_handler_of_the_user() -> None:
    def handler(number: int, frame: Any) -> None: ...

    def program(x: Tensor) -> Tensor:
        return x * (2 if signal.getsignal(signal.SIGUSR1) is handler else 3)

    def replaces(x: Tensor) -> Tensor:
        old = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        return x * (2 if old is handler else 3)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        for function in (program, replaces):
            assert thunder.jit(function, sharp_edges="allow")(torch.ones(1)).item() == 2
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
        signal.signal(signal.SIGUSR1, handler)
        with pytest.warns(match="signal.getsignal"):
            assert thunder.jit(program, sharp_edges="warn")(torch.ones(1)).item() == 2
        with pytest.raises(thunder.errors.SharpEdgeError):
            thunder.jit(program, sharp_edges="error", fullgraph=True)(torch.ones(1))
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_handlers_are_those_of_the_user_behind_a_call() -> None:
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    thunder.jit(lambda x: x.sin().sum())(torch.ones(3, requires_grad=True)).backward()
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.1)) for _ in range(2)]
        )
        self.log: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = x + layer(x)
            self.log.append(number)
        return x.sum()


def _step(model: Network, optimizer: torch.optim.Optimizer, x: Tensor) -> Tensor:
    loss = model(x)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def _make(seed: int) -> tuple[Network, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = Network()
    return model, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)


def _state(model: Network, optimizer: torch.optim.Optimizer) -> Any:
    buffers = [optimizer.state.get(p, {}).get("momentum_buffer") for p in model.parameters()]
    gradients = [p.grad for p in model.parameters()]
    return copy.deepcopy((list(model.state_dict().values()), buffers, gradients, model.log, torch.get_rng_state()))


@pytest.mark.parametrize("seed", range(3))
def test_interrupt_at_any_moment_of_a_training_step(seed: int) -> None:
    def handler(number: int, frame: Any) -> None:
        raise TimeoutError("late")

    x = torch.randn(3, 4)
    rng = random.Random(seed)
    for _ in range(2):
        begin = time.perf_counter()
        thunder.jit(_step)(*_make(0), x)
        duration = time.perf_counter() - begin
    before = signal.signal(signal.SIGALRM, handler)
    try:
        for trial in range(12):
            ours, theirs, compiled = _make(trial), _make(trial), thunder.jit(_step)
            untouched = _state(*ours)
            ended = False
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.02, 0.95) * duration)
                compiled(*ours, x)
                ended = True
                signal.setitimer(signal.ITIMER_REAL, 0)
            except TimeoutError:
                pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            ended = ended or bool(ours[0].log)  # it arrived behind the trace: the call ended first
            torch.set_rng_state(untouched[-1])
            if ended:
                _step(*theirs, x)
            # a call that has ended has drawn its numbers
            reached = _state(*ours)
            torch.testing.assert_close(reached[:-1], _state(*theirs)[:-1], rtol=1e-4, atol=1e-5)
            if not ended:
                assert torch.equal(reached[-1], untouched[-1])
            for _ in range(2):
                torch.manual_seed(trial)
                got = compiled(*ours, x)
                torch.manual_seed(trial)
                torch.testing.assert_close(got, _step(*theirs, x), rtol=1e-4, atol=1e-4)
            assert thunder.compile_stats(compiled)["eager_calls"] == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_rollback_completes_though_handlers_raise_meanwhile(kind: type[BaseException]) -> None:
    """Keys of a dict are asked for their hash when it is put back, which runs handlers."""
    global armed
    keys = [Key(number) for number in range(3)]
    table = {keys[0]: torch.zeros(3)}

    def program(x: Tensor) -> Tensor:
        for key in keys:
            table[key] = x * 2
        return double(x)

    compiled = thunder.jit(program)
    armed = "rollback"
    with pytest.raises(kind, match="from a handler"):
        compiled(torch.ones(3))
    assert armed is None
    assert [value.tolist() for value in table.values()] == [[0.0] * 3]
    for _ in range(2):
        compiled(torch.ones(3))
        assert [value.tolist() for value in table.values()] == [[2.0] * 3] * 3
    assert thunder.compile_stats(compiled)["eager_calls"] == 0
