"""Learning rates, momenta and weight decays that change from step to step, inside of a step: a few programs for all."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

import thunder

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="symbols need Python 3.11")

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.5, foreach=False),
    "sgd foreach": lambda p: torch.optim.SGD(p, 0.1, momentum=0.5, nesterov=True, weight_decay=0.1, foreach=True),
    "sgd fused": lambda p: torch.optim.SGD(p, 0.1, momentum=0.5, weight_decay=0.1, fused=True),
    "adam foreach": lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.1, amsgrad=True, foreach=True),
    "adamw foreach": lambda p: torch.optim.AdamW(p, 0.1, foreach=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, 0.1, fused=True),
    "adam fused": lambda p: torch.optim.Adam(p, 0.1, weight_decay=0.1, amsgrad=True, fused=True),
    "adagrad fused": lambda p: torch.optim.Adagrad(p, 0.1, fused=True),
    "rmsprop foreach": lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.5, foreach=True),
    "nadam foreach": lambda p: torch.optim.NAdam(p, 0.01, foreach=True),
}


def set_rate(groups: Any, step: int) -> None:
    for group in groups:
        group["lr"] = 0.1 / (step + 1)


def set_all(groups: Any, step: int) -> None:
    set_rate(groups, step)
    for group in groups:
        for name in ("weight_decay", "momentum"):
            if group.get(name):
                group[name] = 0.25 / (step + 2)
        if "betas" in group:
            group["betas"] = (0.9 - 0.01 * step, 0.999)


def run(jit: Callable[[Any], Any], make: Callable[[Any], Any], change: Any, steps: int, dtype: Any) -> Any:
    torch.manual_seed(0)
    model = nn.Linear(4, 3).to(dtype)
    optimizer = make(model.parameters())

    def step(x: Tensor) -> Tensor:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    compiled = jit(step)
    losses = []
    for i in range(steps):
        change(optimizer.param_groups, i)
        losses.append(compiled(torch.randn(5, 4, dtype=dtype)))
    return compiled, losses, [list(model.parameters()), optimizer.state_dict()["state"]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("change", [set_rate, set_all])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_groups_change_before_each_step(name: str, change: Any, dtype: torch.dtype) -> None:
    compiled, *results = run(thunder.jit, OPTIMIZERS[name], change, 8, dtype)
    torch.testing.assert_close(results, list(run(lambda f: f, OPTIMIZERS[name], change, 8, dtype)[1:]))
    stats = thunder.compile_stats(compiled)
    assert stats["specializations"] <= 4
    assert stats["eager_calls"] == 0


SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "constant": lambda o: lr_scheduler.ConstantLR(o, total_iters=4),
    "chained": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.LinearLR(o, total_iters=3), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 20),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=5, cycle_momentum=False),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.95**step),
    "linear": lambda o: lr_scheduler.LinearLR(o),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=50),
    "polynomial": lambda o: lr_scheduler.PolynomialLR(o, 20),
    "powers": lambda o: lr_scheduler.LambdaLR(o, lambda step: math.pow(0.95, step)),
    "sequential": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, total_iters=3), lr_scheduler.CosineAnnealingLR(o, 20)], [3]
    ),
    "steps": lambda o: lr_scheduler.MultiStepLR(o, [5, 10, 20]),
    "warm restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5),
    "warm-up": lambda o: lr_scheduler.LambdaLR(
        o, lambda step: step / 5 if step < 5 else 0.5 * (1 + math.cos(math.pi * (step - 5) / 30))
    ),
}


@pytest.mark.parametrize("optimizer", ["sgd", "adamw foreach", "adamw fused"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_within_a_step(name: str, optimizer: str) -> None:
    def trained(jit: Callable[[Any], Any]) -> Any:
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        of = OPTIMIZERS[optimizer](model.parameters())
        schedule = SCHEDULES[name](of)

        def step(x: Tensor) -> None:
            model(x).square().mean().backward()
            of.step()
            schedule.step()
            of.zero_grad()

        compiled = jit(step)
        rates = []
        for _ in range(24):
            compiled(torch.randn(5, 4))
            rates.append({key: value for key, value in of.param_groups[0].items() if key != "params"})
        return compiled, rates, list(model.parameters())

    compiled, rates, parameters = trained(thunder.jit)
    _, expected_rates, expected = trained(lambda function: function)
    assert rates == expected_rates
    torch.testing.assert_close(parameters, expected)
    stats = thunder.compile_stats(compiled)
    assert stats["specializations"] <= 9
    assert stats["eager_calls"] == 0


X = torch.tensor([0.5, -1.25, 3.0])
FOR_EACH: dict[str, Callable[[list[Tensor], float], Any]] = {
    "add": lambda x, n: torch._foreach_add(x, n),
    "add alpha": lambda x, n: torch._foreach_add(x, x, alpha=n),
    "add tensor": lambda x, n: torch._foreach_add(x, torch.tensor(2.0), alpha=n),
    "add_": lambda x, n: torch._foreach_add_(x, x, alpha=n),
    "addcdiv": lambda x, n: torch._foreach_addcdiv(x, x, [t.exp() for t in x], n),
    "addcdiv keyword": lambda x, n: torch._foreach_addcdiv(x, x, [t.exp() for t in x], value=n),
    "addcmul list": lambda x, n: torch._foreach_addcmul(x, x, x, [n, 2.0]),
    "addcmul keyword": lambda x, n: torch._foreach_addcmul(x, x, x, scalars=[n, 2.0]),
    "addcmul_": lambda x, n: torch._foreach_addcmul_(x, x, x, n),
    "clamp_max": lambda x, n: torch._foreach_clamp_max(x, n),
    "clamp_min_": lambda x, n: torch._foreach_clamp_min_(x, n),
    "div": lambda x, n: torch._foreach_div(x, n),
    "div keyword": lambda x, n: torch._foreach_div(x, scalar=n),
    "div_ list": lambda x, n: torch._foreach_div_(x, [n, n + 1]),
    "lerp": lambda x, n: torch._foreach_lerp(x, [t + 1 for t in x], n),
    "lerp keyword": lambda x, n: torch._foreach_lerp(x, [t + 1 for t in x], weight=n),
    "lerp_ list": lambda x, n: torch._foreach_lerp_(x, [t + 1 for t in x], [n, 0.5]),
    "maximum": lambda x, n: torch._foreach_maximum(x, n),
    "minimum_": lambda x, n: torch._foreach_minimum_(x, n),
    "mul": lambda x, n: torch._foreach_mul(tuple(x), n),
    "mul_": lambda x, n: torch._foreach_mul_(x, n),
    "norm": lambda x, n: torch._foreach_norm(x, n),
    "pow": lambda x, n: torch._foreach_pow(x, n),
    "pow of a number": lambda x, n: torch._foreach_pow(n, x),
    "sub": lambda x, n: torch._foreach_sub(x, x, alpha=n),
    "too few": lambda x, n: torch._foreach_mul(x, [n]),
    "too many": lambda x, n: torch._foreach_mul(x, [n, n, n]),
    "no tensors": lambda x, n: torch._foreach_mul([], n),
    "unlike lists": lambda x, n: torch._foreach_add(x, x[:1], alpha=n),
}
PINNED = {"norm", "pow of a number", "too few", "too many", "no tensors", "unlike lists", "add tensor"}


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call, or what it raises."""
    try:
        return function(*arguments)
    except Exception as error:
        return type(error), str(error).split("\n")[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("name", FOR_EACH)
def test_numbers_for_lists_of_tensors(name: str, dtype: torch.dtype) -> None:
    def program(n: float, x: list[Tensor]) -> Any:
        result = FOR_EACH[name](x, n)
        return result, x, isinstance(result, list)

    compiled = thunder.jit(program)
    for n in (0.5, 1.25, 2.0, 3.5, -1.5, 4.75):
        got = outcome(compiled, n, [X.to(dtype) + 0, X.to(dtype) * 2])
        expected = outcome(program, n, [X.to(dtype) + 0, X.to(dtype) * 2])
        if isinstance(expected[0], type):
            assert got == expected
        else:
            torch.testing.assert_close(got, expected, equal_nan=True)
    if name not in PINNED and dtype != torch.int64:
        assert thunder.compile_stats(compiled)["specializations"] <= 3


def test_gradients_of_lists_scaled_by_numbers_that_change() -> None:
    def program(x: Tensor, n: float) -> Tensor:
        first, second = torch._foreach_mul(torch._foreach_add([x, x * 2], [x, x], alpha=n), n)
        return (first * second).sum()

    compiled = thunder.jit(program)
    for n in (0.5, 1.5, 2.5, 3.5):
        gradients = []
        for function in (compiled, program):
            x = X.clone().requires_grad_()
            function(x, n).backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients)
    assert thunder.compile_stats(compiled)["specializations"] == 2


MATH: dict[str, Callable[[float], float]] = {
    "atan2": lambda n: math.atan2(n, 2.0) + math.atan2(1.0, n),
    "copysign": lambda n: math.copysign(2.0, n - 3),
    "expm1": lambda n: math.expm1(n) + math.log1p(n) + math.fabs(n),
    "fmod": lambda n: math.fmod(n, 2.0) + math.remainder(7.0, n),
    "log": lambda n: math.log(n, 2) + math.log(10, n + 1),
    "pow": lambda n: 1 - math.pow(0.9, n),
    "pow of both": lambda n: math.pow(n, n),
    "tan": lambda n: math.tan(n) + math.sinh(n) + math.cosh(n) + math.atan(n),
}


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("name", MATH)
def test_functions_of_math_follow_a_number(name: str, kind: type) -> None:
    def program(x: Tensor, n: float) -> Any:
        number = MATH[name](n)
        return x * number, number

    compiled = thunder.jit(program)
    for n in (2, 3, 4, 5, 6, 7, 11):
        result, number = compiled(X, kind(n))
        expected, expected_number = program(X, kind(n))
        assert number == expected_number
        torch.testing.assert_close(result, expected)
    assert thunder.compile_stats(compiled)["specializations"] <= 3


@pytest.mark.parametrize(
    "numbers", [(0.0, -1.0), (0.0, 0.0), (-2.0, 0.5), (1e200, 2.0), (1e-300, 5.0), (math.inf, -1.0), (1.0, math.nan)]
)
def test_powers_at_the_edges(numbers: tuple[float, float]) -> None:
    compiled = thunder.jit(lambda x, a, b: (x, math.pow(a, b)))
    for a, b in ((1.5, 2.0), (2.5, 3.0), (3.5, 1.0)):
        assert compiled(X, a, b)[1] == math.pow(a, b)
    expected = outcome(math.pow, *numbers)
    got = outcome(compiled, X, *numbers)
    assert (got if isinstance(expected, tuple) else got[1]) == expected


KEYS: dict[str, Any] = {"set": {5, 9}, "frozenset": frozenset((5, 9)), "dict": {9: 1.0, 5: 2.0}, "none": set()}


@pytest.mark.parametrize("name", KEYS)
def test_int_that_changes_among_keys(name: str) -> None:
    def program(x: Tensor, n: int, keys: Any) -> Any:
        return x * n if n in keys else x - n, n not in keys

    compiled = thunder.jit(program)
    for n in range(3, 30):
        torch.testing.assert_close(compiled(X, n, KEYS[name]), program(X, n, KEYS[name]))
    assert thunder.compile_stats(compiled)["specializations"] <= 6


def test_keys_that_change_beside_an_int() -> None:
    keys = {5}
    compiled = thunder.jit(lambda x, n: (x * 2, n in keys))
    for n in (3, 4, 5, 6, 7, 8, 9):
        assert compiled(X, n)[1] == (n == 5)
    keys.add(8)
    for n in (3, 5, 7, 8, 9):
        assert compiled(X, n)[1] == (n in (5, 8))
