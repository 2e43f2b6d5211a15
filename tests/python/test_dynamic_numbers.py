"""Ints and floats that change from call to call are inputs; sizes, and views of such sizes, are results."""

from __future__ import annotations

import bisect
import heapq
import math
import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import thunder

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="symbols need Python 3.11")

TABLE = torch.randn(64, 8)
FIVE = 5


def specializations(compiled: Any) -> int:
    count: int = thunder.compile_stats(compiled)["specializations"]
    return count


def _either(x: Tensor, n: int) -> Tensor:
    return x * 2 if n > 20 else x * 3


def _dict_key(x: Tensor, n: int) -> Tensor:
    return x * {7: 2.0, 30: 4.0}.get(n, 3.0)


def _shifted(x: Tensor, n: int) -> Tensor:
    positions = torch.arange(n, n + x.shape[0])
    return x + TABLE[positions]


def _write(x: Tensor, n: int) -> Tensor:
    cache = torch.zeros(64, 8)
    cache[n : n + x.shape[0]] = x
    return cache


def _write_row(x: Tensor, n: int) -> Tensor:
    cache = torch.zeros(64, 8)
    cache[n] = x[0]
    cache[n - 1, 3] = 5
    return cache


# Programs of a tensor and an int, with the specializations that they need for 5, 7, 30, 12 and 40.
PROGRAMS: dict[str, tuple[Callable[[Tensor, int], Any], int]] = {
    "factor": (lambda x, n: x * n, 2),
    "step": (lambda x, n: x / (n + 1), 2),
    "prefix": (lambda x, n: TABLE[:n].sum(0) + x, 2),
    "row": (lambda x, n: TABLE[n] + x, 2),
    "element": (lambda x, n: TABLE[n, 3] + TABLE[:, 2][n] + x, 2),
    "write_of_a_row": (_write_row, 2),
    "positions": (_shifted, 2),
    "write": (_write, 2),
    "zeros": (lambda x, n: torch.zeros(n, 8) + x[0], 2),
    "mask": (lambda x, n: x.masked_fill(torch.arange(4)[:, None] >= n, 0.0), 2),
    "power": (lambda x, n: x * n**2, 2),
    "either": (_either, 3),
    "key": (_dict_key, 5),
    "text": (lambda x, n: x * len(str(n)), 5),
    "sum": (lambda x, n: sum((x * i for i in range(n)), x), 5),
    "not_used": (lambda x, n: x + 1, 2),
    "returned": (lambda x, n: (x.sin(), n, n + 1, [n * 2]), 2),
    "view": (lambda x, n: TABLE[:n], 2),
    "view_of_a_result": (lambda x, n: (TABLE * 2)[n:].t(), 2),
    "full": (lambda x, n: torch.full((2, 2), n), 2),
    "scalar": (lambda x, n: torch.tensor(n) + x, 2),
    "scalars": (lambda x, n: torch.tensor([n, n + 1]).sum() + x, 2),
    "quotient": (lambda x, n: x * (n / 10), 2),
    "fraction": (lambda x, n: x * (n * 0.1) - n**0.5, 2),
    "decay": (lambda x, n: x * (1 - 0.99**n) + 2.0**-n, 2),
    "cosine": (lambda x, n: x * 0.5 * (1 + math.cos(math.pi * n / 100)), 2),
    "warmup": (lambda x, n: x * min(1.0, n / 20), 3),
    "moving_average": (lambda x, n: x * min(0.999, (1 + n) / (10 + n)), 2),
    "rounded": (lambda x, n: x * round(n / 3, 2) + round(n / 3), 2),
    "float": (lambda x, n: (x * float(n), float(n)), 2),
    "square_and_float": (lambda x, n: x * n**2 * 0.5**n, 2),
    "size_and_float": (lambda x, n: torch.zeros(n, 8) + x[0] * (n / 10), 4),
    "ceil": (lambda x, n: x * math.ceil(n / 2) + math.floor(n / 3) - math.trunc(-n / 2), 2),
    "where": (lambda x, n: torch.where(x > 0, n, 0), 2),
    "where_of_a_float": (lambda x, n: torch.where(x > 0, n, n / 2), 2),
    "every_so_many": (lambda x, n: TABLE[:: n + 1].sum(0) + x, 2),
    "pad": (lambda x, n: F.pad(x, (0, n)), 2),
    "roll": (lambda x, n: torch.roll(x, n, 0), 2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_with_an_int_that_changes_equal_eager(name: str) -> None:
    function, expected = PROGRAMS[name]
    compiled = thunder.jit(function)
    for n in (5, 7, 30, 12, 40):
        x = torch.randn(4, 8)
        torch.testing.assert_close(compiled(x, n), function(x, n))
    assert specializations(compiled) <= expected, thunder.explain_shapes(compiled)
    for n in (2, 1, 0, 3):
        x = torch.randn(4, 8)
        torch.testing.assert_close(compiled(x, n), function(x, n))


@pytest.mark.parametrize("function", [lambda x, n: x * (n / 10) + float(n), PROGRAMS["scalar"][0]])
def test_an_int_that_is_held_may_have_any_value(function: Callable[[Tensor, int], Any]) -> None:
    compiled = thunder.jit(function)
    for n in (5, 7, 9, 0, 1, -3, 2**40, -(2**53), 11):
        x = torch.randn(4, dtype=torch.float64)
        torch.testing.assert_close(compiled(x, n), function(x, n))
    assert specializations(compiled) == 2
    for n in (True, 2**53 + 1, 2.5):
        x = torch.randn(4, dtype=torch.float64)
        torch.testing.assert_close(compiled(x, n), function(x, n))


def test_an_int_and_a_size_that_change() -> None:
    def function(x: Tensor, n: int) -> Tensor:
        return x * (1 - 0.99**n) / x.shape[0]

    compiled = thunder.jit(function)
    for rows, n in ((4, 5), (4, 7), (4, 9), (6, 9), (8, 10), (4, 11), (9, 12)):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x, n), function(x, n))


def test_an_int_that_the_program_only_raises_and_computes_with() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = 0

        def forward(self, x: Tensor) -> Tensor:
            self.steps += 1
            if self.steps % 4 == 0:
                x = x + 1
            return x * (1 - 0.9**self.steps)

    plain, model = Model(), Model()
    compiled = thunder.jit(model)
    for _ in range(30):
        x = torch.randn(4, requires_grad=True)
        results = [program(x) for program in (compiled, plain)]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*(torch.autograd.grad(result.sum(), x) for result in results))
        assert type(model.steps) is int
        assert model.steps == plain.steps
    assert specializations(compiled) <= 8


def test_an_int_by_keyword_has_one_program_for_all_values() -> None:
    compiled = thunder.jit(lambda x, *, n: TABLE[:n] @ x)
    for n in (4, 9, 33, 17):
        x = torch.randn(8)
        torch.testing.assert_close(compiled(x, n=n), TABLE[:n] @ x)
    assert specializations(compiled) == 2


class Counter:
    def __init__(self) -> None:
        self.steps = 3
        self.history: list[int] = [3]


def test_a_count_that_the_program_raises_is_stored() -> None:
    def step(x: Tensor, counter: Counter) -> Tensor:
        counter.steps += 1
        return x * counter.steps

    compiled, counter, expected = thunder.jit(step), Counter(), Counter()
    for _ in range(8):
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x, counter), step(x, expected))
        assert counter.steps == expected.steps
        assert type(counter.steps) is int
    assert specializations(compiled) == 2


def test_a_number_of_data_behind_a_leaf_that_the_program_makes() -> None:
    def step(x: Tensor, counter: Counter) -> tuple[Tensor, Tensor]:
        counter.steps += 1
        leaf = torch.ones(3, requires_grad=True) * x.sum()
        number = torch.full((), float(counter.steps)).item()
        return x * number + (number + 1), leaf * number

    compiled, counter, expected = thunder.jit(step), Counter(), Counter()
    for _ in range(4):
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x, counter), step(x, expected))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.calls = 2

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.linear(x) / self.calls


def test_a_count_of_a_module_has_one_program_for_all_values() -> None:
    layer, plain = Layer(), Layer()
    plain.load_state_dict(layer.state_dict())
    compiled = thunder.jit(layer)
    for _ in range(6):
        x = torch.randn(3, 8)
        torch.testing.assert_close(compiled(x), plain(x))
    assert layer.calls == plain.calls == 8
    assert specializations(compiled) == 2


def test_items_of_a_list_may_change() -> None:
    compiled = thunder.jit(lambda x, sizes: TABLE[: sizes[0]].sum(0) * x + sizes[1])
    for first in (4, 9, 33, 17):
        x = torch.randn(8)
        torch.testing.assert_close(compiled(x, [first, 5]), TABLE[:first].sum(0) * x + 5)
    assert specializations(compiled) == 2


def require_same(compiled: Any, function: Callable[..., Any], x: Tensor, shape: tuple[int, ...]) -> None:
    got, expected = compiled(x, shape), function(x, shape)
    if not isinstance(expected, tuple):
        torch.testing.assert_close(got, expected)
        return
    torch.testing.assert_close(got[0], expected[0])
    assert got[1:] == expected[1:]
    assert [type(each) for each in got] == [type(each) for each in expected]


OF_TUPLES: dict[str, tuple[Callable[[Tensor, tuple[int, ...]], Any], int]] = {
    "expand": (lambda x, shape: x.expand(shape[1], 8) * 2, 2),
    "new tensors": (lambda x, shape: x.sum() * torch.ones(shape) + torch.zeros(*shape), 2),
    "interpolate": (lambda x, shape: F.interpolate(x.expand(1, 1, 8, 8), size=shape, mode="bilinear"), 2),
    "slices": (lambda x, shape: TABLE[: shape[0]].sum(0) * x / shape[1] + len(shape), 2),
    "unpacked": (lambda x, shape: [x * n for n in shape], 2),
    "returned": (lambda x, shape: (x * 2, shape, max(shape), (*shape, 3)), 3),
    "padded": (lambda x, shape: F.pad(x, shape), 2),
    "compared": (lambda x, shape: x * 2 if shape == (5, 7) else x * 3, 5),
    "key": (lambda x, shape: x * {(5, 7): 4.0}.get(shape, 3.0), 5),
    "text": (lambda x, shape: (x * 2, f"{shape}"), 5),
    "identity": (lambda x, shape: x * (2 if shape is shape else 3), 2),
}


@pytest.mark.parametrize("name", OF_TUPLES)
@pytest.mark.parametrize("kind", [tuple, torch.Size])
def test_ints_of_a_tuple_may_change(kind: type, name: str) -> None:
    function, expected = OF_TUPLES[name]
    compiled = thunder.jit(function)
    for shape in ((4, 6), (5, 7), (9, 12), (33, 40), (4, 6), (5, 7)):
        require_same(compiled, function, torch.randn(8), kind(shape))
    assert specializations(compiled) <= expected, thunder.explain_shapes(compiled)
    for other in ((1, 6), (3, 1), (6, 6), (2, 2)):
        require_same(compiled, function, torch.randn(8), kind(other))


OF_TUPLES_OF_TUPLES: dict[str, tuple[Callable[[Tensor, tuple[Any, ...]], Any], int]] = {
    "item": (lambda x, given: x.sum().expand(given[0]) * 2, 2),
    "spread": (lambda x, given: x.sum().expand(*given[0]) * 2, 2),
    "all spread": (lambda x, given: F.interpolate(x.expand(1, 1, 8, 8), *given[:3]), 2),
    "deep": (lambda x, given: x.sum().expand(given[3][0][1], given[0][1]), 2),
    "loop": (lambda x, given: [x * n for n in given[0]], 2),
    "compared": (lambda x, given: (x * 2, given[0] == given[3][0], given[0] is given[3][0]), 2),
    "returned": (lambda x, given: (x.sum().expand(given[0]), given, given[0]), 6),
    "key": (lambda x, given: x * {((5, 7), None, "nearest", ((5, 7),)): 4.0}.get(given, 3.0), 6),
}


@pytest.mark.parametrize("name", OF_TUPLES_OF_TUPLES)
def test_ints_of_a_tuple_in_a_tuple_may_change(name: str) -> None:
    function, expected = OF_TUPLES_OF_TUPLES[name]
    compiled = thunder.jit(function)
    for shape in ((4, 6), (5, 7), (9, 12), (33, 40), (4, 6), (5, 7), (2, 2), (6, 1)):
        x, given = torch.randn(8), (shape, None, "nearest", ((*shape,),))
        require_same(compiled, function, x, given)
    assert specializations(compiled) <= expected + 2, thunder.explain_shapes(compiled)


def test_ints_beside_tensors_that_are_spread_over_arguments_may_change() -> None:
    def function(given: tuple[Any, ...]) -> Tensor:
        return F.layer_norm(*given)

    compiled = thunder.jit(function)
    for n in (4, 5, 9, 33):
        given = (torch.randn(2, n, 3 * n), (n, 3 * n), torch.randn(n, 3 * n))
        torch.testing.assert_close(compiled(given), function(given))
    assert specializations(compiled) == 2


# Steps after which an expression is twice as long.
DOUBLING: dict[str, Callable[[Any], Any]] = {
    "generator": lambda n: (n * 1103515245 + 12345) % 2**31,
    "square": lambda n: (n * n + n) % 97,
    "halves": lambda n: (n * 2 + n // 2 + 1) % 13,
    "sum": lambda n: n + n // 2,
    "shifts": lambda n: (n << 1) + (n >> 1) & 0xFFFF,
    "bounds": lambda n: max(n, 7) + min(n, 9) // 2,
}


@pytest.mark.parametrize("of_size", [False, True])
@pytest.mark.parametrize("step", DOUBLING)
def test_arithmetic_that_doubles_expressions_ends(step: str, of_size: bool) -> None:
    def function(x: Tensor, n: int) -> Tensor:
        number = x.shape[0] if of_size else n
        for _ in range(40):
            number = DOUBLING[step](number)
        return x * (number % 1000)

    compiled = thunder.jit(function)
    for n in (2, 3, 5, 8):
        x = torch.randn(n + 1)
        torch.testing.assert_close(compiled(x, n), function(x, n))


INTEGERS: dict[str, Callable[[int], Any]] = {
    "product": lambda k: k * 1000000000,
    "squares": lambda k: ((k * k) % 97, -k * k, k * k * k - k * k * (k - 1)),
    "parts": lambda k: ((k // 2) * (k % 3), ((k % 7) * (k // 97)) // 2, (k % -7) * (k * k), (97 * k) * (k % 2)),
    "sums": lambda k: (k + k, k * 2 - k, k << 20, k >> 3, max(k, 5) * min(k, 7)),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_arithmetic_with_ints_knows_no_limit(name: str) -> None:
    """Also where 64 bits would not hold a term of what is computed."""
    compiled = thunder.jit(lambda x, k: (x * 2, INTEGERS[name](k)))
    numbers = [
        2,
        3,
        5,
        97,
        10**6,
        5 * 10**9,
        123456789,
        10**10,
        10**12,
        2**31,
        2**40,
        2**52,
        2**62,
        2**64,
        -5,
        -(10**12),
    ]
    for k in [*numbers, 0, 1, 7]:
        assert compiled(torch.ones(2), k)[1] == INTEGERS[name](k)


def test_arithmetic_with_sizes_knows_no_limit() -> None:
    def function(x: Tensor) -> Tensor:
        number = x.shape[0]
        for _ in range(4):
            number = number * number % 1009
        return x.new_zeros(number)

    compiled = thunder.jit(function)
    for n in (2, 3, 96, 97, 150, 5, 1, 0):
        assert compiled(torch.ones(n)).shape == function(torch.ones(n)).shape


OF_LISTS: dict[str, Callable[[Tensor, list[int]], Tensor]] = {
    "expand": lambda x, shape: x.expand(shape[0], 8) * 2,
    "new tensors": lambda x, shape: x.sum() * torch.ones(shape),
    "pad": lambda x, shape: F.pad(x, shape),
    "upsample": lambda x, shape: torch._C._nn.upsample_bilinear2d(x.expand(1, 1, 8, 8), shape, False, None),
}


@pytest.mark.parametrize("name", OF_LISTS)
def test_ints_of_a_list_that_pytorch_gets_may_change(name: str) -> None:
    compiled = thunder.jit(OF_LISTS[name])
    shapes = [[n, m] for n, m in ((4, 6), (5, 7), (9, 12), (33, 40), (4, 6))]
    for shape in shapes:
        x = torch.randn(8)
        torch.testing.assert_close(compiled(x, shape), OF_LISTS[name](x, shape))
    assert specializations(compiled) == 2
    assert shapes[1] == [5, 7]


def test_a_list_that_the_program_writes_to_is_given_as_it_is_now() -> None:
    def function(x: Tensor, shape: list[int]) -> Tensor:
        first = x.sum() * torch.ones(shape)
        shape[0] += 1
        shape.append(2)
        return first.sum() * torch.ones(shape)

    compiled = thunder.jit(function)
    for n in (4, 5, 9, 33):
        x, shape, expected = torch.randn(8), [n, n + 2], [n, n + 2]
        torch.testing.assert_close(compiled(x, shape), function(x, expected))
        assert shape == expected


def test_a_tuple_of_another_length_or_kind_is_another_program() -> None:
    compiled = thunder.jit(lambda x, shape: x * sum(shape))
    for shape in ((4, 6), (5, 7), (9, 12), (5, 7, 8), [9, 3], (2.5, 3), (True, 4), torch.Size((5, 6))):
        x = torch.randn(8)
        torch.testing.assert_close(compiled(x, shape), x * sum(shape))


def test_a_tuple_of_a_module_may_change() -> None:
    class Resize(nn.Module):
        size = (4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return F.interpolate(x, self.size) * self.size[0]

    model = Resize()
    compiled = thunder.jit(model)
    for n in (4, 6, 9, 12, 4):
        model.size = (n, n + 1)
        x = torch.randn(1, 2, 8, 8)
        torch.testing.assert_close(compiled(x), model(x))
    assert specializations(compiled) == 2


@pytest.mark.parametrize("dynamic", [None, True])
def test_ints_change_beside_sizes_that_are_all_symbols(dynamic: bool | None) -> None:
    compiled = thunder.jit(lambda x, n: x[:n] * 2, dynamic=dynamic)
    for n in (6, 9, 12, 15, 21, 7):
        x = torch.randn(64, 3)
        torch.testing.assert_close(compiled(x, n), x[:n] * 2)
    assert specializations(compiled) == 2


def test_a_size_that_a_derivative_needs_leaves_the_batch_alone() -> None:
    def loss(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(x, y, label_smoothing=0.1)

    compiled = thunder.jit(loss, dynamic=True)
    for n in (16, 27, 20, 150):
        x, y = torch.randn(n, 11, requires_grad=True), torch.randint(0, 11, (n,))
        got, expected = (torch.autograd.grad(f(x, y), x)[0] for f in (compiled, loss))
        torch.testing.assert_close(got, expected)
    assert specializations(compiled) == 1


def test_a_variable_of_the_surroundings_may_change() -> None:
    n = 2

    def function(x: Tensor) -> Tensor:
        nonlocal n
        n += 1
        return x * n

    compiled = thunder.jit(function)
    for expected in range(3, 9):
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x), x * expected)
        assert n == expected
    assert specializations(compiled) == 2


def test_two_ints_that_were_equal_may_differ() -> None:
    compiled = thunder.jit(lambda x, m, n: TABLE[:m].sum(0) * n + x)
    for m, n in ((5, 5), (7, 7), (8, 9), (30, 4), (6, 6)):
        x = torch.randn(8)
        torch.testing.assert_close(compiled(x, m, n), TABLE[:m].sum(0) * n + x)
    assert specializations(compiled) <= 3


@pytest.mark.parametrize("kind", ["ints", "sizes", "tuple"])
def test_two_numbers_that_the_program_compares(kind: str) -> None:
    def function(x: Tensor, *given: Any) -> Tensor:
        m, n = given[0] if kind == "tuple" else (each.shape[0] if kind == "sizes" else each for each in given)
        return x[: n + 1] * (2 if m == n else 3)

    compiled = thunder.jit(function)
    for m, n in ((4, 5), (6, 6), (7, 7), (8, 9), (9, 8), (3, 3), (4, 5)):
        given = {"ints": (m, n), "sizes": (torch.ones(m), torch.ones(n)), "tuple": ((m, n),)}[kind]
        torch.testing.assert_close(compiled(TABLE, *given), function(TABLE, *given))
    assert specializations(compiled) <= 4


def test_an_int_that_c_code_looks_at_is_guarded() -> None:
    def function(x: Tensor, counter: Counter) -> Tensor:
        first = x * counter.steps
        return first * len(repr(vars(counter)["steps"])) + sorted(vars(counter).items(), key=str)[1][1]

    compiled, counter = thunder.jit(function), Counter()
    for steps in (3, 4, 12, 100, 7):
        counter.steps = steps
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x, counter), function(x, counter))


def test_bools_and_floats_stay_what_they_are() -> None:
    compiled = thunder.jit(lambda x, n: x * n)
    for n in (5, 7, True, 2.5, 9, -3, 2**60):
        x = torch.randn(4, dtype=torch.float64)
        torch.testing.assert_close(compiled(x, n), x * n)


def _decayed(x: Tensor, rate: float) -> Tensor:
    return x * math.exp(-rate) + math.sqrt(rate) / 2


def _floor(x: Tensor, rate: float) -> Tensor:
    return x * rate if rate > 0.35 else x - rate


# Programs of a tensor and a float, with the specializations that they need for 0.1, 0.2, 0.7, 0.3 and 0.9.
FLOATS: dict[str, tuple[Callable[[Tensor, float], Tensor], int]] = {
    "factor": (lambda x, rate: x * rate, 2),
    "scale": (lambda x, rate: torch.add(x, x.sin(), alpha=-rate), 2),
    "arithmetic": (lambda x, rate: (x / (1 - rate**3)).clamp(min=0) - 2 * rate, 2),
    "functions": (_decayed, 2),
    "in_place": (lambda x, rate: (x * 1).mul_(1 - rate).add_(x, alpha=rate), 2),
    "full": (lambda x, rate: torch.full_like(x, rate) + x, 2),
    "either": (_floor, 3),
    "text": (lambda x, rate: x * len(str(rate)), 5),
    "returned": (lambda x, rate: [x * rate, rate, rate * 2], 2),  # type: ignore[dict-item, return-value]
    "softmax": (lambda x, rate: torch.softmax(x / rate, -1), 2),
}


@pytest.mark.parametrize("name", FLOATS)
def test_programs_with_a_float_that_changes_equal_eager(name: str) -> None:
    function, expected = FLOATS[name]
    compiled = thunder.jit(function)
    for rate in (0.1, 0.2, 0.7, 0.3, 0.9):
        x = torch.randn(4, 8)
        torch.testing.assert_close(compiled(x, rate), function(x, rate))
    assert specializations(compiled) <= expected
    for rate in (0.25, float("inf"), 1e-30):
        x = torch.randn(4, 8)
        torch.testing.assert_close(compiled(x, rate), function(x, rate), equal_nan=True)


def test_gradients_follow_a_float_that_changes() -> None:
    compiled = thunder.jit(lambda x, rate: (x.sin() * rate).sum())
    for rate in (0.1, 0.2, 0.7, 0.3):
        x = torch.randn(8, requires_grad=True)
        (got,) = torch.autograd.grad(compiled(x, rate), x)
        torch.testing.assert_close(got, x.detach().cos() * rate)
    assert specializations(compiled) == 2


def test_an_optimizer_inside_has_one_program_for_all_learning_rates() -> None:
    def train(make: Callable[[Any], Any]) -> tuple[Tensor, Any]:
        torch.manual_seed(0)
        layer = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.5, momentum=0.9)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = layer(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        call = make(step)
        for i in range(8):
            optimizer.param_groups[0]["lr"] = 0.5 / (i + 1)
            call(torch.ones(2, 4) * i)
        return layer.weight.detach().clone(), call

    expected, _ = train(lambda step: step)
    got, compiled = train(thunder.jit)
    torch.testing.assert_close(got, expected)
    assert specializations(compiled) <= 4


def test_explain_shapes_names_the_int() -> None:
    compiled = thunder.jit(_either)
    for n in (25, 30):
        compiled(torch.randn(4, 8), n)
    shapes = thunder.explain_shapes(compiled)[1]
    assert shapes.symbols == ("s0: n",)
    assert "21 <= n" in shapes.conditions[-1]


def test_gradients_flow_where_an_int_changes() -> None:
    def function(x: Tensor, n: int) -> Tensor:
        return (x[:n].sin() * n).sum()

    compiled = thunder.jit(function)
    for n in (5, 7, 30, 12):
        x = torch.randn(40, requires_grad=True)
        (got,) = torch.autograd.grad(compiled(x, n), x)
        (expected,) = torch.autograd.grad(function(x, n), x)
        torch.testing.assert_close(got, expected)
    assert specializations(compiled) == 2


# Programs whose results are views, or hold sizes: one program for all numbers of rows.
RESULTS: dict[str, Callable[[Tensor], Any]] = {
    "transposed": lambda x: (x * 2).t(),
    "part_of_an_input": lambda x: x.select(1, 0),
    "rows_of_an_input": lambda x: x[1:-1],
    "two_views": lambda x: (x.t(), x.t()[1:]),
    "view_of_a_sum": lambda x: (x + 1).view(x.shape[0] * 2, 4),
    "split": lambda x: (x * 2).split([x.shape[0] - 1, 1]),
    "expanded": lambda x: x.sum(0).expand(x.shape[0], -1),
    "sizes": lambda x: (x.shape[0] + 1, x.shape, [len(x), {"rows": x.numel()}]),
    "size_and_view": lambda x: (x.size(0) // 2, x[: x.size(0) // 2]),
    "unflatten": lambda x: x.unflatten(1, (2, 4)).transpose(0, 1),
    "detached": lambda x: x.detach()[1:],
    "diagonal": lambda x: (x @ x.t()).diagonal(),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_that_are_views_or_sizes_have_one_program(name: str) -> None:
    function = RESULTS[name]
    compiled = thunder.jit(function)
    for rows in (24, 6, 33, 5, 100):
        x = torch.randn(rows, 8, requires_grad=True)
        thunder.mark_dynamic(x, 0)
        got, expected = compiled(x), function(x)
        torch.testing.assert_close(got, expected)
        if isinstance(got, Tensor):
            assert got.stride() == expected.stride()
            assert got.storage_offset() == expected.storage_offset()
            assert (got._base is x) == (expected._base is x)
            if not got.requires_grad:
                continue
            cotangent = torch.randn_like(expected)
            for left, right in zip(
                torch.autograd.grad(got, x, cotangent), torch.autograd.grad(expected, x, cotangent), strict=True
            ):
                torch.testing.assert_close(left, right)
    assert specializations(compiled) == 1, thunder.explain_shapes(compiled)


def test_a_write_through_a_view_that_was_returned_arrives_in_the_input() -> None:
    compiled = thunder.jit(lambda x: x[1:, 2], dynamic=True)
    for rows in (24, 6, 33):
        x = torch.zeros(rows, 8)
        compiled(x).add_(1)
        assert x.sum() == rows - 1
    assert specializations(compiled) == 1


def test_a_size_is_stored() -> None:
    def function(x: Tensor, counter: Counter) -> Tensor:
        counter.steps = x.shape[0]
        counter.history.append(x.shape[0] + 1)
        return x * 2

    compiled, counter, expected = thunder.jit(function, dynamic=True), Counter(), Counter()
    for rows in (24, 6, 33):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x, counter), function(x, expected))
        assert (counter.steps, counter.history) == (expected.steps, expected.history)
    assert [type(each) for each in counter.history] == [int] * 4


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call, or what it raises."""
    try:
        return function(*arguments)
    except Exception as error:
        return type(error), str(error).split("\n")[0]


def assert_same_outcomes(program: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    compiled = thunder.jit(program)
    for call in calls:
        got, expected = outcome(compiled, *call), outcome(program, *call)
        assert type(got) is type(expected), (call, got, expected)
        if isinstance(expected, torch.Tensor):
            assert got.dtype == expected.dtype
            torch.testing.assert_close(got, expected, equal_nan=True)
        else:
            assert got == expected, call


LIKE_TENSORS = {
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
    "masked_fill_": lambda x, n: torch.Tensor.masked_fill_(x.clone(), x > 0, value=n),
    "lerp": lambda x, n: torch.lerp(x, x * 2, n),
    "foreach_lerp": lambda x, n: torch._foreach_lerp([x], [x * 2], n)[0],
    "where of two": lambda x, n: torch.where(x > 0, n, n),
    "where": lambda x, n: torch.where(x > 0, x, n),
    "fill": lambda x, n: x.clone().fill_(n),
    "full_like": lambda x, n: torch.full_like(x, n),
    "pad": lambda x, n: torch.nn.functional.pad(x, (1, 1), value=n),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8, torch.uint8, torch.float64])
@pytest.mark.parametrize("name", LIKE_TENSORS)
def test_number_where_a_tensor_does_something_else(name: str, dtype: torch.dtype) -> None:
    x = torch.ones(3, dtype=dtype)
    beyond_float = () if "where" in name or "lerp" in name else (1e39,)
    for values in ((0.5, 0.25, 2.0, 1e5, *beyond_float, -1e5, float("inf")), (2, 3, 5, 300, -5, 2**31, 2**40)):
        assert_same_outcomes(LIKE_TENSORS[name], [(x, value) for value in values])


@pytest.mark.parametrize("number", [1e5, 1e39, -1e9, 300, -1, 3.7, float("nan")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.bool])
def test_masked_fill_with_a_constant_that_the_dtype_cannot_hold(dtype: torch.dtype, number: float) -> None:
    assert_same_outcomes(lambda x: (x + x).masked_fill(x > 0, number), [(torch.ones(3, dtype=dtype),)])


ARRAYS = [numpy.zeros(0, numpy.float32), numpy.ones((2, 0), numpy.int8), numpy.ones(2, numpy.float16), numpy.int8(3)]


@pytest.mark.parametrize("step", [1, 0.25])
@pytest.mark.parametrize("operation", ["add", "sub", "mul", "truediv", "floordiv", "pow", "lt"])
@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}-{array.shape}")
def test_number_beside_an_array(array: Any, operation: str, step: float) -> None:
    def results(jit: Callable[[Any], Any]) -> list[Any]:
        state = {"count": step}

        def program(operand: Any) -> list[Any]:
            state["count"] += step
            function = getattr(operator, operation)
            return [function(operand, state["count"]), function(state["count"], operand)]

        compiled = jit(program)
        compiled(torch.ones(2))
        return [result for _ in range(3) for result in compiled(array)]

    for got, expected in zip(results(thunder.jit), results(lambda function: function), strict=True):
        assert type(got) is type(expected)
        assert got.dtype == expected.dtype
        numpy.testing.assert_array_equal(got, expected)


def test_a_number_behind_a_transform_that_is_not_followed_at_other_sizes() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        gradients = thunder.vmap(thunder.grad(lambda row: row.sum()))(x)
        number = torch.full((), 3.0).sum().item()
        return gradients * number + y.sum() * (number + 1)

    compiled = thunder.jit(f)
    x = torch.randn(3, 3)
    for rows in (1, 9, 4):
        y = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x, y), f(x, y))


@pytest.mark.parametrize("reads", [False, True])
def test_a_tuple_with_ints_that_change_is_given_back_itself(reads: bool) -> None:
    kept: dict[str, Any] = {"inner": None}

    @thunder.jit
    def function(given: tuple[Any, ...], x: Tensor) -> Any:
        kept["inner"] = given[1]
        return given[1], [given, given[1]], x * given[1][0] if reads else x

    for number in (300, 400, 500, 600, 700):
        given = (2.5, (number, number + 1))
        inner, outer, scaled = function(given, torch.ones(2))
        assert inner is given[1]
        assert outer[0] is given
        assert outer[1] is given[1]
        assert kept["inner"] is given[1]
        assert scaled.tolist() == [number if reads else 1] * 2
    assert specializations(function) == 2


CONDITIONS: dict[str, Callable[[int, int], bool]] = {
    "one above": lambda e, v: v > 2,
    "one below": lambda e, v: v * 2 <= 4,
    "equal by two": lambda e, v: e >= v and e <= v,
    "equal": lambda e, v: e == v,
    "smallest": lambda e, v: min(e, v) > 2,
    "one of": lambda e, v: v in (2, 4),
    "power": lambda e, v: v**2 < 5,
}
PAIRS = [(10, 3), (13, 5), (18, 2), (20, 2), (20, 5), (4, 4), (9, 9), (2, 2), (3, 2), (2, 3), (8, 4), (2, 7)]


@pytest.mark.parametrize("of_sizes", [False, True])
@pytest.mark.parametrize("name", CONDITIONS)
def test_a_comparison_that_leaves_a_number_one_value(name: str, of_sizes: bool) -> None:
    written: dict[str, Any] = {}

    def function(x: Tensor, left: Any, right: Any) -> Any:
        e, v = (left.shape[0], right.shape[0]) if of_sizes else (left, right)
        if CONDITIONS[name](e, v):
            x = x + 1
        written["step"] = e + 2 * v
        return x * (e + v), x.sum() * ((e + v) / 2), x * (e * v), e - v, [v, e]

    compiled = thunder.jit(function)
    for pair in PAIRS:
        arguments = [torch.ones(number) for number in pair] if of_sizes else pair
        got = compiled(torch.ones(1), *arguments)
        step = written["step"]
        expected = function(torch.ones(1), *arguments)
        assert got == expected
        assert step == written["step"]
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


def test_product_of_sizes_that_have_to_be_equal() -> None:
    def function(x: Tensor) -> Tensor:
        n, m = x.shape
        if n == m:
            x = x + 1
        return x.sum() * (n * m)

    compiled = thunder.jit(function)
    for shape in ((5, 2), (4, 4), (6, 6), (5, 3), (3, 3)):
        assert torch.equal(compiled(torch.ones(shape)), function(torch.ones(shape)))
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


@pytest.mark.parametrize("read", [lambda x, k: x[k], lambda x, k: x[None][:, k], lambda x, k: x[: k + 2].item()])
def test_an_error_that_names_a_number_names_that_of_the_call(read: Callable[[Tensor, int], Any]) -> None:
    def function(x: Tensor, k: int) -> str:
        try:
            return str(read(x, k))
        except (IndexError, RuntimeError) as error:
            return str(error)

    compiled = thunder.jit(function)
    for size, k in ((2, 1), (3, 7), (4, 8), (6, 9)):
        assert compiled(torch.ones(size), k) == function(torch.ones(size), k)


def test_sizes_beside_autocast_that_is_left() -> None:
    compiled = thunder.jit(lambda x: torch.linalg.matrix_power(x @ x.mT, 0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        compiled(torch.randn(7, 3, requires_grad=True))
    for rows in (4, 5):
        assert torch.equal(compiled(torch.randn(rows, 3, requires_grad=True)), torch.eye(rows))


@pytest.mark.parametrize(
    "strides",
    [
        lambda x: (x * 2).stride(),
        lambda x: x.stride(),
        lambda x: list((x * 2).stride()),
        lambda x: {"strides": x.T.stride()},
        lambda x: (x * 2).stride()[::-1],
        lambda x: dict(zip("ab", (x + 1).stride(), strict=True)),
    ],
)
def test_strides_that_are_returned(strides: Any) -> None:
    compiled = thunder.jit(strides)
    for shape in ((2, 4), (3, 6), (4, 8), (5, 7)):
        x = torch.ones(shape)
        assert repr(compiled(x)) == repr(strides(x))


@pytest.mark.parametrize("insert", [heapq.heappush, bisect.insort], ids=["heappush", "insort"])
def test_functions_in_c_that_write_a_number_to_a_list(insert: Callable[[list[int], int], None]) -> None:
    def run(compiles: bool) -> tuple[list[int], list[float]]:
        items: list[int] = []

        def f(x: Tensor, offset: int) -> Tensor:
            insert(items, x.shape[0])
            insert(items, offset)
            return x * items[0]

        called = thunder.jit(f) if compiles else f
        return items, [called(torch.ones(size), size * 2).sum().item() for size in (3, 4, 6, 5, 3)]

    assert run(True) == run(False)


def _scaled(x: Tensor, *, rows: int, times: int) -> Tensor:
    return x[:rows] * times


def _unpacked(x: Tensor, given: Any) -> Tensor:
    rows, weight, times = given
    return x[:rows] * weight * times


def _starred(x: Tensor, given: Any) -> Tensor:
    rows, *rest = given
    return x[:rows] * rest[1]


def _in_a_loop(x: Tensor, given: Any) -> Tensor:
    for each in given:
        x = x * each
    return x


SPREAD: dict[str, tuple[Callable[[Tensor, Any], Tensor], Callable[[int], Any]]] = {
    "arguments": (lambda x, sizes: x.expand(*sizes), lambda n: [n, 2, 20, 6]),
    "arguments behind others": (lambda x, sizes: x.expand(3, *sizes), lambda n: (n, 20, 6)),
    "a tuple behind others": (lambda x, given: x.expand(*given), lambda n: ((n, 20, 6),)),
    "keywords": (lambda x, given: _scaled(x, **given), lambda n: {"rows": n, "times": n + 1}),
    "keywords beside others": (lambda x, given: _scaled(x, rows=2, **given), lambda n: {"times": n + 1}),
    "keywords of two": (lambda x, given: _scaled(x, **{"rows": 3, **given}), lambda n: {"times": n + 1}),
    "a tuple unpacked": (_unpacked, lambda n: (n, torch.full((), 2.0), n + 1)),
    "a list unpacked": (_unpacked, lambda n: [n, torch.full((), 2.0), n + 1]),
    "a starred rest": (_starred, lambda n: (n, torch.full((), 2.0), n + 1)),
    "a loop over a tuple": (_in_a_loop, lambda n: (n, torch.full((), 2.0), n + 1)),
}


@pytest.mark.parametrize("name", SPREAD)
def test_numbers_of_containers_that_are_spread(name: str) -> None:
    function, make = SPREAD[name]
    compiled = thunder.jit(function)
    x = torch.randn(20, 6)
    for n in (2, 3, 5, 4):
        torch.testing.assert_close(compiled(x, make(n)), function(x, make(n)))
    assert specializations(compiled) == 2


def test_containers_that_are_spread_are_guarded() -> None:
    compiled = thunder.jit(lambda x, given, options: sum(given, *options.values()) * x)
    x = torch.ones(2)
    for given, options in (([1.0], {}), ([1.0, 2.0], {}), ([1.0], {"start": 4.0}), ([1.0], {}), ([5.0], {})):
        expected = sum(given, *options.values()) * x
        torch.testing.assert_close(compiled(x, given, options), expected)


def test_a_number_over_a_tensor_is_rounded_as_in_eager() -> None:
    compiled = thunder.jit(lambda x, k: k / x)
    x = torch.tensor([1e-4, 300.0, 0.0], dtype=torch.float16)
    for k in (2.0, 3.0, 1e-8, 16777217.0):
        torch.testing.assert_close(compiled(x, k), k / x)
    assert specializations(compiled) == 2


def test_a_number_over_bytes_is_refused_as_in_eager() -> None:
    def function(x: Tensor, k: float, divisor: Any) -> Tensor:
        try:
            return x * (k / divisor)
        except TypeError:
            return x * k

    compiled = thunder.jit(function, fullgraph=True)
    for k in (2.0, 3.0, 4.0):
        torch.testing.assert_close(compiled(torch.ones(2), k, b"ab"), torch.full((2,), k))


def _same_as_itself(x: Tensor) -> Any:
    n = x.shape[0]
    return n is n, x * 2


# Whether ints are one object: the program, and the most specializations that it has for `IDENTITIES`.
IDENTITIES = ((3, 4), (6, 4), (5, 5), (300, 300), (5, 7), (6, 6), (8, 8), (300, 4), (301, 301), (9, 9), (10, 9), (5, 5))


def _attend_in_ring(buffer: Tensor, x: Tensor, position: int) -> Tensor:
    size = buffer.shape[1]
    buffer[:, position % size] = x
    keys = buffer[:, : min(position + 1, size)]
    return (x[:, None] @ keys.transpose(1, 2)).softmax(-1) @ keys


def test_positions_in_a_ring_have_one_program_behind_its_end() -> None:
    compiled = thunder.jit(_attend_in_ring)
    buffers = torch.zeros(2, 8, 4), torch.zeros(2, 8, 4)
    for position in range(30):
        x = torch.randn(2, 4)
        torch.testing.assert_close(compiled(buffers[0], x, position), _attend_in_ring(buffers[1], x, position))
        torch.testing.assert_close(*buffers)
    assert specializations(compiled) <= 5


ONE_OBJECT: dict[str, Callable[[Tensor, int, int], Any]] = {
    "constant": lambda x, n, m: (x.shape[0] is FIVE, x * 2),
    "not_constant": lambda x, n, m: (x.shape[0] is not FIVE, x * 2),
    "two_sizes": lambda x, n, m: (x.shape[0] is x.shape[1], x * 2),
    "one_size": lambda x, n, m: (x.shape[0] is x.size(0), x * 2),
    "itself": lambda x, n, m: _same_as_itself(x),
    "computed": lambda x, n, m: ((x.shape[0] - 2) is (x.shape[1] - 2), x * 2),
    "operator": lambda x, n, m: (operator.is_(x.shape[0], FIVE), operator.is_not(x.shape[0], x.shape[1]), x * 2),
    "id": lambda x, n, m: (id(x.shape[0]) == id(FIVE), x * 2),
    "None": lambda x, n, m: (x.shape[0] is None, x * 2),
    "arguments": lambda x, n, m: (n is m, x * 2),
    "argument": lambda x, n, m: (n is FIVE, n * 2 is 2 * FIVE, n is x.shape[0], x * n),
    "data": lambda x, n, m: (int((x > 0).sum()) is FIVE, x * 2),
    "sizes_of_data": lambda x, n, m: (x[x > 0].shape[0] is FIVE, x * 2),
    "two_of_data": lambda x, n, m: (int((x > 0).sum()) is int((x[0] > 0).sum()), x * 2),
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("name", ONE_OBJECT)
def test_ints_are_one_object_where_they_are_in_eager(name: str) -> None:
    function = ONE_OBJECT[name]
    compiled = thunder.jit(function)
    for rows, columns in IDENTITIES:
        x = -torch.ones(rows, columns)
        x.flatten()[:rows] = 1
        got, expected = (f(x, int(str(rows)), int(str(columns))) for f in (compiled, function))
        assert got[:-1] == expected[:-1], (rows, columns)
        torch.testing.assert_close(got[-1], expected[-1])
    assert thunder.cache_misses(compiled) <= 10


LONG = torch.randn(1000, 4)
# Programs of a tensor of one integer, with the most specializations that they need for six values from 2 on.
POSITIONS: dict[str, tuple[Callable[[Tensor], Any], int]] = {
    "tensor": (lambda t: LONG[t] * 2, 2),
    "view": (lambda t: LONG[t], 6),  # where a result is a view at a position from data, each has a program
    "in a tuple": (lambda t: LONG.t()[:, t] + LONG[t, 1:].sum(), 3),
    "behind an ellipsis": (lambda t: LONG.t()[..., t] * 2, 6),
    "beside a tensor": (lambda t: LONG[t, torch.tensor([0, 2])] * 2, 2),
    "of two": (lambda t: LONG[t] - LONG[t - 1], 3),
    "of a slice": (lambda t: LONG[:900][t].exp(), 2),
    "written": (lambda t: (LONG * 1)[t].add_(1) * 2, 2),
    "set": (lambda t: _set_row(LONG.clone(), t), 2),
    "int": (lambda t: LONG[int(t)] * 2, 2),
    "list of ints": (lambda t: LONG[[int(t)]], 1),
    "list of two ints": (lambda t: LONG[[int(t), int(t) - 1]] + LONG[[t.item(), 3]], 2),
}


def _set_row(x: Tensor, t: Tensor) -> Tensor:
    x[t] = 7
    x[t, 1:] += 1
    row = x[t]
    row.mul_(2)
    return x


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8])
@pytest.mark.parametrize("name", POSITIONS)
def test_tensor_of_one_integer_is_an_index(name: str, dtype: torch.dtype) -> None:
    program, most = POSITIONS[name]
    compiled = thunder.jit(program)
    large = (400, 999, 340) if dtype != torch.int8 else (44, 99, 34)
    for position in (7, 3, 12, *(min(each, 899) if name == "of a slice" else each for each in large)):
        t = torch.tensor(position, dtype=dtype)
        torch.testing.assert_close(compiled(t), program(t))
    assert specializations(compiled) <= most
    assert thunder.compile_stats(compiled)["eager_calls"] == 0
    for position in (0, 1, -1, -3):
        t = torch.tensor(position, dtype=dtype)
        torch.testing.assert_close(compiled(t), program(t))


def test_tensor_of_one_integer_shows_a_part_that_is_a_view() -> None:
    compiled = thunder.jit(lambda x, t: x[t])
    x = torch.zeros(500, 3)
    for position in (7, 3, 499, 0, 12, -2):
        row = compiled(x, torch.tensor(position))
        assert row._base is x
        row.add_(position)
        assert x[position].tolist() == [position] * 3


def test_tensor_of_one_integer_beyond_the_end_raises_as_in_eager() -> None:
    compiled = thunder.jit(lambda t: LONG[t] * 2)
    for position in (5, 6, 7):
        compiled(torch.tensor(position))
    for position in (1000, 4000, -1001):
        got = outcome(compiled, torch.tensor(position))
        assert got == outcome(lambda t: LONG[t] * 2, torch.tensor(position))
        assert got[0] is IndexError


@pytest.mark.parametrize("t", [torch.tensor(True), torch.tensor(False), torch.tensor([3]), torch.tensor([], dtype=int)])
def test_masks_and_lists_are_no_integers(t: Tensor) -> None:
    torch.testing.assert_close(thunder.jit(lambda t: LONG[t] * 2)(t), LONG[t] * 2)


def test_gradient_of_a_part_that_a_tensor_of_one_integer_shows() -> None:
    x = torch.randn(300, 3, requires_grad=True)
    compiled = thunder.jit(lambda x, t: (x[t] ** 2).sum())
    for position in (5, 6, 200, 299, 8):
        t = torch.tensor(position)
        (got,) = torch.autograd.grad(compiled(x, t), x)
        torch.testing.assert_close(got, torch.autograd.grad((x[t] ** 2).sum(), x)[0])
    assert specializations(compiled) == 2


@pytest.mark.parametrize("transform", [torch.func.vmap, torch.func.grad, thunder.vmap, thunder.grad])
def test_index_inside_of_a_transform(transform: Callable[..., Any]) -> None:
    def program(x: Tensor, t: Tensor) -> Tensor:
        result: Tensor = transform(lambda row: (row[t] * LONG[t, 0]).sum())(x)
        return result

    compiled = thunder.jit(program)
    x = torch.randn(30, 30) if "vmap" in transform.__name__ else torch.randn(30)
    for position in (3, 4, 5, 20):
        torch.testing.assert_close(compiled(x, torch.tensor(position)), program(x, torch.tensor(position)))


def test_a_tuple_with_floats_that_change() -> None:
    group = {"betas": (0.5, 0.99)}

    @thunder.jit
    def function(x: Tensor) -> Tensor:
        first, second = group["betas"]
        group["betas"] = (first * 0.75, second)
        return x * first + second

    number = 0.5
    for _ in range(8):
        torch.testing.assert_close(function(torch.ones(2)), torch.ones(2) * number + 0.99)
        number *= 0.75
        assert group["betas"] == (number, 0.99)
        assert [type(each) for each in group["betas"]] == [float, float]
    assert specializations(function) == 2


class CountedTable:
    def __init__(self, period: int) -> None:
        self.step, self.table = 0, [float(i) for i in range(period)]
        self.cells: list[list[Any]] = [[None, None] for _ in range(period)]


def _row_of_a_table(counter: CountedTable, x: Tensor) -> Tensor:
    counter.step += 1
    return x * counter.table[counter.step % 10]


def _write_to_a_table(counter: CountedTable, x: Tensor) -> Tensor:
    counter.step += 1
    cell = counter.cells[(counter.step + 3) % 10]
    cell[0] = counter.step
    return x * 2


def _turn(counter: CountedTable, x: Tensor) -> Tensor:
    counter.step += 1
    return x * (2 if counter.step % 5 == 3 else counter.step % 5 + 1 if counter.step % 3 == 1 else 7)


def _loop(counter: CountedTable, x: Tensor) -> Tensor:
    counter.step += 1
    for i in range(counter.step % 4):
        x = x + i + counter.step
    return x


@pytest.mark.parametrize(
    ("program", "most"),
    [(_row_of_a_table, 12), (_write_to_a_table, 12), (_turn, 17), (_loop, 6)],
    ids=["row", "write", "turn", "loop"],
)
def test_a_remainder_that_is_looked_at_has_a_program_for_each_of_its_values(
    program: Callable[[CountedTable, Tensor], Tensor], most: int
) -> None:
    counter, other = CountedTable(10), CountedTable(10)
    compiled: Any = thunder.jit(lambda x: program(counter, x))
    for _ in range(60):
        assert torch.equal(compiled(torch.ones(3)), program(other, torch.ones(3)))
        assert (counter.step, counter.cells) == (other.step, other.cells)
    assert specializations(compiled) <= most, thunder.explain_shapes(compiled)
    assert thunder.compile_stats(compiled)["eager_calls"] == 0
    for step in (0, 1, 1_000_003, 10**15, -7):
        counter.step = other.step = step
        assert torch.equal(compiled(torch.ones(3)), program(other, torch.ones(3)))


def _buffered(counter: CountedTable, x: Tensor) -> Tensor:
    counter.step += 1
    cell = counter.cells[counter.step % 10]
    if cell[0] == counter.step:
        rate = cell[1]
    else:
        cell[0] = counter.step
        rate = cell[1] = math.sqrt(1 - 0.999**counter.step) / (1 - 0.9**counter.step)
    return x * rate


def test_factors_of_a_step_that_are_kept_in_a_ring_have_programs_for_its_places() -> None:
    counter, other = CountedTable(10), CountedTable(10)
    compiled: Any = thunder.jit(lambda x: _buffered(counter, x))
    counts = []
    for _ in range(60):
        torch.testing.assert_close(compiled(torch.ones(3)), _buffered(other, torch.ones(3)), rtol=0, atol=0)
        assert (counter.step, counter.cells) == (other.step, other.cells)
        counts.append(thunder.compile_stats(compiled)["cache_misses"])
    assert counts[-1] == counts[35] <= 32, thunder.explain_misses(compiled)
    assert thunder.compile_stats(compiled)["eager_calls"] == 0
    for step in (4, 0, 10**7, 2**53 + 11, 2**62, 5):
        counter.step = other.step = step
        torch.testing.assert_close(compiled(torch.ones(3)), _buffered(other, torch.ones(3)), rtol=0, atol=0)
        assert (counter.step, counter.cells) == (other.step, other.cells)


def test_a_remainder_of_a_size_that_is_looked_at_has_a_program_for_each_of_its_values() -> None:
    def padded(x: Tensor) -> Tensor:
        return F.pad(x, (0, [0, 3, 2, 1][x.shape[0] % 4]))

    compiled: Any = thunder.jit(padded)
    for rows in range(2, 40):
        x = torch.randn(rows, requires_grad=True)
        result = compiled(x)
        assert torch.equal(result, padded(x))
        assert result.shape[0] % 4 == 0
        result.sum().backward()
        assert torch.equal(x.grad, torch.ones(rows))
    assert specializations(compiled) <= 6, thunder.explain_shapes(compiled)


SCHEDULES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "a part": lambda x, n: x * (n / 10),
    "warm-up": lambda x, n: x * min(1.0, (n + 1) / 20),
    "moving average": lambda x, n: x * min(0.999, (1 + n) / (10 + n)),
    "decay": lambda x, n: x * 0.9**n,
    "bias correction": lambda x, n: x / (1 - 0.9 ** (n + 1)),
    "largest": lambda x, n: x / max(n, 1),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_counter_that_is_divided_has_one_program_from_its_second_value_on(name: str) -> None:
    program = SCHEDULES[name]
    for numbers, count in (((0, 1, 2, 3, 4, 5, 6), 3), ((5, 6, 7, 8, 9), 2)):
        compiled = thunder.jit(program)
        for n in numbers:
            x = torch.rand(4)
            torch.testing.assert_close(compiled(x, n), program(x, n))
        assert specializations(compiled) == count
