"""`thunder.explain_misses`: which guard failed, in words, old and new value, and the line that read it."""

from __future__ import annotations

import collections
import functools
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import thunder

X = torch.ones(3)
SCALE = 2.0


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale  # scale


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Attention() for _ in range(4))
        self.dropout = nn.Dropout(0.1)
        self.config = types.SimpleNamespace(table={"a": 1}, sizes=[1, 2], names={"b"}, queue=collections.deque([1]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        config = self.config
        x = x * config.table["a"] * config.table.get("c", 1)
        x = x + len(config.sizes) + sum(config.names_of(1) if hasattr(config, "names_of") else config.names and [1])
        return self.dropout(x) * config.queue[0] * SCALE


def last_guard(compiled: Any) -> thunder.FailedGuard:
    return thunder.explain_misses(compiled)[-1].guards[0]


CHANGES: list[tuple[Callable[[Any], Any], tuple[str, str, str]]] = [
    (lambda m: setattr(m.layers[3], "scale", 5.0), ("model.layers[3].scale", "2.0", "5.0")),
    (lambda m: m.config.table.update(a=2), ("model.config.table['a']", "1", "2")),
    (lambda m: m.config.table.update(c=4), ("model.config.table['c']", "nothing", "4")),
    (lambda m: m.config.sizes.append(1), ("len(model.config.sizes)", "2", "3")),
    (lambda m: m.config.names.clear(), ("bool(model.config.names)", "True", "False")),
    (lambda m: m.config.queue.__setitem__(0, 7), ("model.config.queue[0]", "1", "7")),
    (lambda m: m.eval(), ("model.training", "True", "False")),
    (lambda m: m.dropout.eval(), ("model.dropout.training", "True", "False")),
    (
        lambda m: m.layers.append(Attention()),
        ("list(model.layers._modules)", "('0', '1', '2', '3')", "('0', '1', '2', '3', '4')"),
    ),
    (
        lambda m: setattr(m.layers[1].linear, "bias", None),
        ("model.layers[1].linear.bias", "float32[3] requires_grad", "None"),
    ),
    (
        lambda m: m.layers[1].linear.weight.requires_grad_(False),
        ("model.layers[1].linear.weight", "float32[3, 3] requires_grad", "float32[3, 3]"),
    ),
    (
        lambda m: m.layers[0].linear.register_forward_hook(lambda *_: None),
        ("bool(model.layers[0].linear._forward_hooks)", "False", "True"),
    ),
]


@pytest.mark.parametrize(("change", "expected"), CHANGES, ids=[expected[0] for _, expected in CHANGES])
def test_failed_guard_is_told_as_a_person_would_write_it(
    change: Callable[[Any], Any], expected: tuple[str, str, str]
) -> None:
    model = Model()
    compiled = thunder.jit(lambda x: model(x))
    compiled(X)
    change(model)
    compiled(X)
    guards = thunder.explain_misses(compiled)[-1].guards
    told = [(guard.expression, guard.old, guard.new) for guard in guards]
    if expected[0] == "model.training":
        assert any(expression.endswith(".training") for expression, _, _ in told)
    else:
        assert expected in told


def test_line_that_read_it_is_told() -> None:
    model = Model()
    compiled = thunder.jit(lambda x: model(x))
    compiled(X)
    model.layers[3].scale = 5.0
    compiled(X)
    guard = last_guard(compiled)
    assert Path(guard.file) == Path(__file__)
    assert guard.source == "return self.linear(x) * self.scale  # scale"
    assert str(guard).splitlines()[0] == "model.layers[3].scale was 2.0 and is 5.0"
    assert f"{Path(__file__).name}:{guard.line}" in str(guard)


def test_paths_of_a_jitted_module_begin_with_self() -> None:
    compiled = thunder.jit(Model())
    compiled(X)
    compiled.layers[2].scale = 5.0
    compiled(X)
    assert last_guard(compiled).expression == "self.layers[2].scale"


def test_global_and_closure_variable_are_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    factor = 1

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * SCALE * factor

    compiled = thunder.jit(function)
    compiled(X)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    compiled(X)
    assert (last_guard(compiled).expression, last_guard(compiled).new) == ("SCALE", "3.0")
    factor = 2
    compiled(X)
    assert (last_guard(compiled).expression, last_guard(compiled).new) == ("factor", "2")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((torch.ones(4), 1), ("x", "float32[3]", "float32[4]")),
        ((torch.ones(3, dtype=torch.float64), 1), ("x", "float32[3]", "float64[3]")),
        ((torch.ones(6)[::2], 1), ("x", "float32[3]", "float32[3] strides [2]")),
        ((X, 2), ("n", "1", "2")),
        ((X, 1.0), ("n", "1", "1.0")),
        ((2.0, 1), ("x", "float32[3]", "2.0")),
        ((X,), ("the call", "2 positional arguments", "1 positional argument")),
    ],
)
def test_changed_argument_is_told_by_its_name(arguments: tuple[Any, ...], expected: tuple[str, str, str]) -> None:
    def function(x: torch.Tensor, n: float = 3) -> torch.Tensor:
        return x * n

    compiled = thunder.jit(function)
    compiled(X, 1)
    compiled(*arguments)
    guard = last_guard(compiled)
    assert (guard.expression, guard.old, guard.new) == expected


@pytest.mark.parametrize(
    ("first", "second", "old", "new"),
    [
        (torch.ones(1, 3), torch.ones(4, 5)[:1, :3], "float32[1, 3]", "float32[1, 3] strides [5, 1]"),
        (torch.ones(3), torch.ones(3, requires_grad=True), "float32[3]", "float32[3] requires_grad"),
        (torch.ones(2, 2), torch.ones(2, 2).t(), "float32[2, 2]", "float32[2, 2] strides [1, 2]"),
        (torch.ones(3), torch._efficientzerotensor(3), "float32[3]", "float32[3], dispatched in another way"),
    ],
)
def test_tensors_of_equal_sizes_are_told_apart(first: torch.Tensor, second: torch.Tensor, old: str, new: str) -> None:
    compiled = thunder.jit(lambda x: x + 1)
    compiled(first)
    compiled(second)
    assert (last_guard(compiled).old, last_guard(compiled).new) == (old, new)


class Named:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __repr__(self) -> str:
        return "named"


def make_activation(scale: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def act(x: torch.Tensor) -> torch.Tensor:
        return x * scale

    return act


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (make_activation(1.0), make_activation(2.0)),
        (lambda x: x * 1, lambda x: x * 2),
        (Named(1.0).__repr__, Named(2.0).__repr__),
        (object(), object()),
        ("a" * 300, "a" * 301),
        (0.0, -0.0),
        (type("Same", (), {}), type("Same", (), {})),
    ],
    ids=["closures", "lambdas", "methods", "objects", "long texts", "signed zeros", "types"],
)
def test_what_reads_alike_is_told_apart(first: Any, second: Any) -> None:
    holder = types.SimpleNamespace(act=first)

    def function(x: torch.Tensor) -> torch.Tensor:
        act = holder.act
        return x * (1 if act is first else 2) * (1 if act == first else 2)

    compiled = thunder.jit(function)
    compiled(X)
    holder.act = second
    compiled(X)
    guards = thunder.explain_misses(compiled)[-1].guards
    assert guards
    assert all(guard.old != guard.new for guard in guards)


def test_call_is_compared_with_what_shares_most_though_little_of_another_one_can_be_checked() -> None:
    """A specialization whose first argument is of another type fails at one guard, and all others hang on that."""
    compiled = thunder.jit(lambda config, x: x * (config.a if hasattr(config, "a") else config["a"]) * len(config.b))
    near = types.SimpleNamespace(a=1, b=[1, 2])
    compiled(near, X)
    compiled(types.SimpleNamespace(a=1, b=[1, 2], other=3), X)
    far = collections.namedtuple("Far", "a b")(1, [1, 2])
    compiled(far, X)
    compiled(types.SimpleNamespace(a=2, b=[1, 2, 3]), X)
    miss = thunder.explain_misses(compiled)[-1]
    assert miss.compared_with != 2
    assert {guard.expression for guard in miss.guards} == {"config.a", "len(config.b)"}


def test_state_of_the_thread_is_told() -> None:
    compiled = thunder.jit(lambda x: x + 1)
    compiled(X)
    with torch.no_grad():
        compiled(X)
    guard = last_guard(compiled)
    assert (guard.expression, guard.old, guard.new, guard.line) == ("torch.is_grad_enabled()", "True", "False", 0)


def test_call_is_compared_with_the_closest_specialization() -> None:
    compiled = thunder.jit(lambda x, a, b: x * a + b, dynamic=False)
    compiled(X, 1, 1)
    compiled(X, 2, 2)
    compiled(X, 2, 3)
    miss = thunder.explain_misses(compiled)[2]
    assert (miss.compared_with, miss.specialization, miss.call) == (1, 2, 3)
    assert [guard.expression for guard in miss.guards] == ["b"]


def test_first_call_and_data_are_reasons_without_guards() -> None:
    compiled = thunder.jit(lambda x: x + 1 if x.sum() > 0 else x - 1)
    compiled(X)
    compiled(-X)
    first, second = thunder.explain_misses(compiled)
    assert (first.reason, first.guards) == ("the first call", ())
    assert "data" in second.reason
    assert str(thunder.explain_misses(compiled)).startswith("call 1 was traced: the first call\ncall 2 was traced: ")


def test_line_that_needs_a_size_as_a_number_is_told() -> None:
    compiled = thunder.jit(lambda x: torch.cat([x] * x.shape[0]))
    for size in (5, 8, 9):
        compiled(torch.ones(size))
    first, second, third = thunder.explain_misses(compiled)
    assert "number" not in first.reason + second.reason
    assert third.reason.startswith("it was needed as a number: 8 by ")
    assert "test_explain_misses.py, line" in third.reason
    assert str(third).splitlines()[-1] == "  " + third.reason


def test_numbers_that_are_not_told_of_other_guards() -> None:
    compiled = thunder.jit(lambda x, flag: torch.cat([x] * x.shape[0]) if flag else x)
    for size, flag in ((5, True), (8, True), (8, False)):
        compiled(torch.ones(size), flag)
    assert [guard.expression for guard in thunder.explain_misses(compiled)[-1].guards] == ["flag"]
    assert not thunder.explain_misses(compiled)[-1].reason


def test_trace_that_fails_is_no_miss() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        raise ValueError

    compiled = thunder.jit(function)
    with pytest.raises(ValueError):
        compiled(X)
    assert thunder.explain_misses(compiled) == ()
    assert str(thunder.explain_misses(compiled)) == "no call was traced"


def test_limit_of_specializations_warns_once_and_names_the_cause() -> None:
    compiled = thunder.jit(lambda x, number: x * number, dynamic=False)
    for number in range(64):
        compiled(X, number)
    with pytest.warns(RuntimeWarning, match="What changed last: number was 63 and is 64"):
        torch.testing.assert_close(compiled(X, 64), X * 64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(compiled(X, 65), X * 65)
    assert thunder.cache_misses(compiled) == 64


# --- cache modes


def test_same_input_traces_once_and_keeps_everything_else() -> None:
    holder = types.SimpleNamespace(scale=2.0)
    compiled = thunder.jit(lambda x: x * holder.scale, cache="same input")
    torch.testing.assert_close(compiled(X), X * 2)
    holder.scale = 3.0
    torch.testing.assert_close(compiled(X + 1), (X + 1) * 2)
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (1, 1)


def test_same_input_refuses_other_arguments_with_the_cause() -> None:
    compiled = thunder.jit(lambda x, n: x * n, cache="same input")
    compiled(X, 2)
    with pytest.raises(ValueError, match=r"x was float32.3. and is float32.4."):
        compiled(torch.ones(4), 2)
    with pytest.raises(ValueError, match="n was 2 and is 3"):
        compiled(X, 3)
    torch.testing.assert_close(compiled(X, 2), X * 2)


def test_same_input_trains() -> None:
    module = nn.Linear(3, 3)
    expected = nn.Linear(3, 3)
    expected.load_state_dict(module.state_dict())
    compiled = thunder.jit(module, cache="same input")
    for step in range(3):
        for model, call in ((module, compiled), (expected, expected)):
            call(X * step).sum().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None
    torch.testing.assert_close(module.weight, expected.weight)
    assert thunder.cache_misses(compiled) == 1


def test_no_caching_traces_each_call_and_explains_none() -> None:
    holder = types.SimpleNamespace(scale=2.0)
    compiled = thunder.jit(lambda x: x * holder.scale, cache="no caching")
    for scale in (2.0, 3.0, 3.0):
        holder.scale = scale
        torch.testing.assert_close(compiled(X), X * scale)
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (3, 0)
    assert thunder.explain_misses(compiled) == ()


@pytest.mark.parametrize(
    "hold",
    [
        lambda kept: [kept],
        lambda kept: (1, kept),
        lambda kept: {"key": kept},
        lambda kept: functools.partial(min, kept),
        lambda kept: collections.deque([kept]),
        lambda kept: types.MappingProxyType({"key": kept}),
        lambda kept: [kept].index,
    ],
)
def test_no_code_of_the_program_runs_to_describe_its_objects(hold: Callable[[Any], Any]) -> None:
    class Kept:
        def __repr__(self) -> str:
            raise AssertionError("the repr of an object of the program")

    holder = hold(Kept())

    def program(x: torch.Tensor, held: Any = holder) -> torch.Tensor:
        return x * 2 if held is holder else x * 3

    compiled = thunder.jit(program)
    for held in (holder, hold(Kept())):
        compiled(torch.ones(2), held)
        assert "computation" not in str(thunder.last_prologue_traces(compiled)[-1])
    assert len(thunder.explain_misses(compiled)) == 2


def test_condition_on_an_int_that_changes_is_not_told_as_data_alone() -> None:
    state = {"step": 0}

    def f(x: torch.Tensor) -> torch.Tensor:
        state["step"] += 1
        rate = 1 - 0.9 ** state["step"]
        return x * (rate if rate > 0.5 else 1.0)

    g = thunder.jit(f)
    for _ in range(10):
        g(X)
    assert "the outcome of a condition on a number that changes" in str(thunder.explain_misses(g))
