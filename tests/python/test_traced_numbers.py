"""Numbers that come from tensors and only feed tensors: values of the trace, for any of which it holds."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_same
from programs import value_and_gradient

import thunder


def scale_by_mean(x):
    return x * x.mean().item()


def arithmetic(x):
    scale = x.max().item()
    return (x - scale) / (abs(scale) * 2 + 1e-3) + 3 * scale - scale**2


def in_place(x):
    y = x.clone()
    view = y[0]
    view *= x.sum().item()
    y[1] = x.mean().item()
    y -= x.min().item()
    return y


def filled(x):
    value = x.sum().item()
    return torch.full((2,), value) + torch.tensor(value) + torch.full_like(x, value).sum() + x.new_full((2,), value)


def methods(x):
    value = x.mean().item()
    return x.add(value).mul(value).masked_fill(x > 0, value).clamp(max=value) + torch.where(x > value, x, value)


def counted_loss(x):
    return x.square().sum() / (x > 0).sum().item()


def returned(x):
    loss = x.square().mean()
    return loss, loss.item(), {"double": loss.item() * 2, "rounded": [int(loss)]}


def gain(x):
    values = x[0].tolist()
    return x * values[0] - values[1]


def rounded(x):
    value = x.sum().item()
    return x * round(value, 2), round(value, 3), round(value), x + round(value * 10)


def checked(x):
    loss = x.square().mean().item()
    if not math.isfinite(loss) or math.isnan(loss) or math.isinf(loss):
        raise ValueError(f"loss is {loss}")
    return x * loss


NUMBER_FUNCTIONS = [
    scale_by_mean,
    arithmetic,
    in_place,
    filled,
    methods,
    counted_loss,
    returned,
    gain,
    rounded,
    checked,
]


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("function", NUMBER_FUNCTIONS, ids=lambda function: function.__name__)
def test_numbers_that_feed_tensors_do_not_specialize(function, requires_grad):
    torch.manual_seed(0)
    compiled = thunder.jit(function)
    for seed in range(6):
        x = (torch.randn(3, 2) + seed).requires_grad_(requires_grad)
        got, expected = (program(x.detach().clone().requires_grad_(requires_grad)) for program in (compiled, function))
        assert_same(got, expected, "result")
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("value", [0.5, 1.5, 2.675, -0.04, 1e-30, 1e21, 1234567.987654, math.inf, math.nan, 5e-324])
@pytest.mark.parametrize("digits", [0, 1, 2, 5, 22, 30, -1])
def test_numbers_are_rounded_as_in_python(value, digits):
    def function(x, y):
        number = y.item()
        return x * round(number, digits), repr(round(number, digits))

    compiled, x = thunder.jit(function), torch.ones(2, dtype=torch.float64)
    for y in (torch.tensor(0.25, dtype=torch.float64), torch.tensor(value, dtype=torch.float64)):
        assert_same(compiled(x, y), function(x, y), "result")


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_loss_that_is_not_finite_raises_at_the_call_that_has_it(value):
    compiled = thunder.jit(checked)
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3))
        with pytest.raises(ValueError, match=r"loss is (inf|nan)"):
            compiled(torch.full((3,), value))


def test_gradients_take_the_number_of_the_call():
    compiled = thunder.jit(arithmetic)
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(5)
        torch.testing.assert_close(value_and_gradient(compiled, x), value_and_gradient(arithmetic, x))
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_numbers_keep_pythons_promotion(dtype):
    def function(x, y):
        number = y.sum().item()
        return x * number, x + number, x[0] * number, number * 2

    compiled = thunder.jit(function)
    for value in (2, 3, 2**20):
        for y in (torch.tensor([value]), torch.tensor([value + 0.5])):
            x = torch.arange(3).to(dtype)
            assert_same(compiled(x, y), function(x, y), "result")


def test_outcome_of_a_comparison_is_what_counts():
    def clip(x):
        norm = x.norm().item()
        if norm > 1.0:
            return x / norm
        return x

    compiled = thunder.jit(clip)
    for value in (0.1, 0.2, 3.0, 4.0, 0.3, 5.0):
        x = torch.full((2,), value)
        torch.testing.assert_close(compiled(x), clip(x))
    assert thunder.cache_misses(compiled) == 2


def look(x):
    value = x.sum().item()
    if value in (1.0, 2.0):
        return x + 1
    if math.sqrt(abs(value)) > 2 or round(value) == 3:
        return x + 2
    if str(value).startswith("0.5") or f"{value:.1f}" == "0.7" or {0.25: True}.get(value):
        return x + 3
    if max([value, 0.0]) == 0.0 or sorted([0.1, value])[0] == value:
        return x + 4
    return x + 5


def test_numbers_that_python_looks_at():
    compiled = thunder.jit(look)
    for _ in range(2):
        for value in (1.0, 2.0, 9.0, 3.0, 0.5, 0.7, 0.25, -0.5, 0.05, 0.9, 1.5):
            x = torch.full((1,), value)
            assert torch.equal(compiled(x), look(x)), value


def kinds(x):
    value, count = x.sum().item(), x.numel() * x[0].long().item()
    kind = (type(value), type(count), isinstance(value, float), isinstance(count, int), isinstance(count, float))
    match value:
        case int():
            kind += ("int",)
        case float():
            kind += ("float",)
    return x, kind, value is None, value == "a", count == 4.0


def test_numbers_are_of_pythons_types():
    compiled = thunder.jit(kinds)
    for value in (1.0, 2.0, 2.5):
        assert_same(compiled(torch.full((2,), value)), kinds(torch.full((2,), value)), "result")


def integers(x, table):
    n = x.argmax().item()
    rows = [x[n], x[:n].sum(), x[n:].sum(), torch.zeros(n + 1).sum(), table[n], "ab" * n, list(range(n)), n // 2, n % 2]
    small = n - 0
    return rows, small is n, [1, 2, 3, 4].index(n) if n else None, {n: "key"}, x.view(-1, 1)[n, 0]


def test_integers_index_and_repeat():
    compiled = thunder.jit(integers)
    for _ in range(2):
        for position in (0, 3, 1, 2):
            x = torch.zeros(4)
            x[position] = 1.0
            got, expected = (program(x, [10, 20, 30, 40])[0] for program in (compiled, integers))
            assert_same(got, expected, "result")


def test_zero_division_is_raised_where_it_happens():
    def function(x):
        try:
            return x * (1.0 / x.sum().item())
        except ZeroDivisionError:
            return x - 1

    compiled = thunder.jit(function)
    for value in (2.0, 0.0, 4.0, 0.0, 3.0):
        x = torch.full((2,), value)
        assert torch.equal(compiled(x), function(x))


def test_integers_may_leave_the_range_of_tensors():
    def function(x):
        return x, x.item() * 2**40

    compiled = thunder.jit(function)
    for value in (3, 2**50, 5):
        assert compiled(torch.tensor(value))[1] == value * 2**40


def test_state_keeps_numbers_of_the_call():
    class Running:
        def __init__(self):
            self.best = float("inf")
            self.history = []

    def function(state, x):
        loss = x.square().mean()
        state.best = min(state.best, loss.item())
        state.history.append(loss.item())
        return loss / 2

    compiled = thunder.jit(function)
    states = Running(), Running()
    for value in (3.0, 2.0, 4.0, 1.0, 1.5):
        x = torch.full((2,), value)
        torch.testing.assert_close(compiled(states[0], x), function(states[1], x))
        assert (states[0].best, states[0].history) == (states[1].best, states[1].history)
        assert type(states[0].best) is float


def all_at_once(x):
    array = x.numpy()
    return x + float(array.sum()), array.tolist(), len(x.tolist())


def test_whole_contents_are_met():
    compiled = thunder.jit(all_at_once)
    for value in (1.0, 2.0, 1.0):
        x = torch.full((40,), value)
        assert_same(compiled(x), all_at_once(x), "result")
    assert thunder.cache_misses(compiled) == 2


FILLED = {
    "full": lambda n: torch.full((2,), n, dtype=torch.int64),
    "full_like": lambda n: torch.full_like(torch.arange(3), n),
    "tensor": lambda n: torch.tensor(n, dtype=torch.int8),
    "fill": lambda n: torch.arange(3).fill_(n),
    "item": lambda n: operator.setitem(torch.arange(3), 0, n),
    "items": lambda n: operator.setitem(torch.zeros(3, dtype=torch.uint8), torch.tensor([0, 1]), n),
    "masked_fill": lambda n: torch.arange(3).masked_fill(torch.tensor([True, False, True]), n),
    "index_fill": lambda n: torch.arange(3).index_fill(0, torch.tensor([1]), n),
    "pad": lambda n: torch.nn.functional.pad(torch.arange(3), (1, 1), value=n),
    "alpha": lambda n: torch.add(torch.arange(3), torch.arange(3), alpha=n),
    "alpha_of_floats": lambda n: torch.add(torch.arange(3), torch.ones(3), alpha=n),
    "product": lambda n: torch.arange(3) * n,
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("name", FILLED)
def test_float_that_integers_cannot_hold_raises_as_in_eager(name):
    def function(x):
        return x + 1, FILLED[name](x.sum().item())

    def outcome(function, value):
        try:
            return repr(function(torch.tensor([value])))
        except RuntimeError as error:
            return str(error).split("\n")[0]

    compiled = thunder.jit(function)
    for value in (3.0, math.nan, 2.0, 1e30, math.inf, -math.inf, 1.0):
        assert outcome(compiled, value) == outcome(function, value)


NARROWED = {
    "full": lambda n, m: torch.full((2,), n, dtype=torch.int8),
    "full_of_halves": lambda n, m: torch.full((2,), m, dtype=torch.float16),
    "full_of_floats": lambda n, m: torch.full((2,), m * 1e300),
    "full_like": lambda n, m: torch.full_like(torch.zeros(2, dtype=torch.uint8), n),
    "new_full": lambda n, m: torch.zeros(2, dtype=torch.int16).new_full((2,), n),
    "tensor": lambda n, m: torch.tensor(n, dtype=torch.int8),
    "tensor_of_list": lambda n, m: torch.tensor([1, n], dtype=torch.int32),
    "new_tensor": lambda n, m: torch.zeros(1, dtype=torch.int8).new_tensor([n]),
    "scalar_tensor": lambda n, m: torch.scalar_tensor(n, dtype=torch.uint8),
    "fill": lambda n, m: torch.zeros(2, dtype=torch.float16).fill_(m),
    "item": lambda n, m: operator.setitem(torch.zeros(3, dtype=torch.int8), 0, n),
    "masked_fill": lambda n, m: torch.zeros(2, dtype=torch.int8).masked_fill(torch.tensor([True, False]), n),
    "where": lambda n, m: torch.where(torch.tensor([True, False]), torch.ones(2, dtype=torch.int8), n),
    "clamp": lambda n, m: torch.full((2,), 100, dtype=torch.int8).clamp(max=n),
    "pow": lambda n, m: torch.full((2,), 2, dtype=torch.int8) ** n,
    "pow_of_integers": lambda n, m: torch.full((2,), 2) ** n,
    "alpha": lambda n, m: torch.add(torch.ones(2, dtype=torch.int8), torch.ones(2, dtype=torch.int8), alpha=n),
    "value": lambda n, m: torch.addcmul(torch.ones(2).half(), torch.ones(2).half(), torch.ones(2).half(), value=m),
    "bools": lambda n, m: torch.full((2,), n, dtype=torch.bool),
    "sum": lambda n, m: torch.ones(2, dtype=torch.int8) + n,
    "product": lambda n, m: torch.ones(2).half() * m,
    "comparison": lambda n, m: torch.ones(2, dtype=torch.int8) < n,
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("name", NARROWED)
@pytest.mark.parametrize("values", [(5.0, 300.0, -1.0, -129.0, 70000.0, 3e9, math.inf, 7.0), (70000.0, 2.0)])
def test_number_that_a_narrower_dtype_cannot_hold_raises_as_in_eager(name, values):
    def function(x):
        n = x.item()
        return NARROWED[name](int(n) if math.isfinite(n) else 1, n)

    def outcome(function, value):
        try:
            return repr(function(torch.tensor(value, dtype=torch.float64)))
        except RuntimeError as error:
            return str(error).split("\n")[0]

    compiled = thunder.jit(function)
    for value in values:
        assert outcome(compiled, value) == outcome(function, value)


def test_number_that_fits_is_no_reason_to_trace_again():
    compiled = thunder.jit(lambda x: torch.full((2,), int(x.item()) * 2, dtype=torch.int8))
    for value in (1.0, 2.0, 60.0):
        assert torch.equal(compiled(torch.tensor(value)), torch.full((2,), int(value) * 2, dtype=torch.int8))
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: torch.scalar_tensor(n),
        lambda x, n: torch.scalar_tensor(n, dtype=torch.int32),
        lambda x, n: torch.bucketize(n, x.sort()[0]),
        lambda x, n: torch.quantile(x.float(), 1 / n),
        lambda x, n: x.scatter(0, torch.tensor([0]), n + 0.5),
        lambda x, n: torch.ldexp(x.float(), n),
        lambda x, n: torch.maximum(x, n),
        lambda x, n: torch.atan2(x.float(), n),
    ],
)
def test_functions_that_tell_numbers_from_tensors(function: Callable[[torch.Tensor, Any], Any]) -> None:
    def program(x: torch.Tensor) -> Any:
        try:
            return function(x, x[0].item())
        except TypeError as error:
            return str(error)

    compiled = thunder.jit(program)
    for numbers in ([3, 1], [2, 5]):
        got, expected = compiled(torch.tensor(numbers)), program(torch.tensor(numbers))
        if isinstance(expected, str):
            assert got == expected
        else:
            torch.testing.assert_close(got, expected)
    assert thunder.compile_stats(compiled)["eager_calls"] == 0
