"""Python's operations on numbers that come from tensors: as in eager, and whether one trace serves all numbers."""

from __future__ import annotations

import copy
import json
import math
import operator

import numpy as np
import pytest
import torch
from beside_eager import assert_same

import thunder

F = torch.nn.functional

ONCE = {
    "list of numbers": lambda x: torch.tensor([x.sum().item(), x.max().item()]),
    "alpha, a tensor": lambda x: torch.sub(x, x * x, alpha=x.sum()),
    "alpha=": lambda x: torch.add(x, x, alpha=x.sum().item()),
    "arithmetic": lambda x: x * (2 * x.sum().item() + 1) - abs(x.min().item()),
    "base": lambda x: x.abs().mean().item() ** x,
    "clamp": lambda x: x.clamp(-x.abs().mean().item(), x.abs().mean().item()),
    "deepcopy": lambda x: (x, copy.deepcopy([x.sum().item()])),
    "dict": lambda x: (x, {"loss": x.max().item()}["loss"]),
    "dtype": lambda x: x.bfloat16() * x.bfloat16().sum().item(),
    "exponent": lambda x: x.abs() ** x.abs().mean().item(),
    "floor division": lambda x: x // (abs(x.mean().item()) + 1),
    "int": lambda x: x.long().sum().item() * 10**18,
    "left operand": lambda x: x.mean().item() / (x.min().item() - x),
    "math": lambda x: x * math.sqrt(math.exp(x.sum().item()) + math.cos(x.argmax().item()) ** 2),
    "lists of tensors": lambda x: torch._foreach_mul([x, x + 1], [x.sum().item(), 2.0]),
    "lists, scaled": lambda x: torch._foreach_addcdiv([x, x], [x, x], [x, x], [x.sum().item(), x.max().item()]),
    "modulo": lambda x: x % (abs(x.mean().item()) + 1),
    "returned with its tensor": lambda x: (x.mean(), x.mean().item()),
    "round": lambda x: x * round(x.sum().item(), 2),
    "sum": lambda x: x * sum(value.item() for value in x),
    "tensor of a dtype": lambda x: torch.tensor(x.sum().item(), dtype=torch.float64) + 1,
    "tolist": lambda x: [value * row for value, row in zip(x.tolist(), x, strict=True)],
    "types": lambda x: (x, isinstance(x.sum().item(), float), type(x.argmax().item()) is int),
}
AGAIN = {
    "all of them": lambda x: (x, json.dumps({"loss": x.sum().item()})),
    "any": lambda x: x if any(value > 1 for value in x.tolist()) else x * 2,
    "arange": lambda x: torch.arange(int(x.abs().sum().item())),
    "chain": lambda x: x * 2 if 0 < x.sum().item() < 1 else x,
    "complex": lambda x: x * torch.view_as_complex(x.view(-1, 2)).sum().item().real,
    "divmod": lambda x: x * divmod(x.sum().item(), 2)[0],
    "dropout": lambda x: F.dropout(x, p=min(0.5, abs(x[0].item()))),
    "f-string": lambda x: (x, f"{x.sum().item():.3f}"),
    "hash": lambda x: (x, {int(value.item()) for value in x}),
    "index of a list": lambda x: [x, x + 1, x + 2][x[:3].argmax().item()],
    "logic": lambda x: x * 2 if x.sum().item() > 0 and x.max().item() < 1 else x,
    "math": lambda x: x * math.lgamma(x.sum().item()),
    "negative index": lambda x: x[-int((x > 0).sum().item())],
    "numpy": lambda x: (x, float(x.numpy().sum())),
    "pad": lambda x: F.pad(x, (0, int((x > 0).sum()))),
    "percent": lambda x: (x, "%.2f" % x.sum().item()),  # noqa: UP031
    "repr of a tensor": lambda x: (x, str(x)),
    "slice": lambda x: x[: int((x > 0).sum())],
    "sorted": lambda x: (x, sorted(x.tolist())),
    "split": lambda x: [part.sum() for part in x.split([int((x > 0).sum()), 4 - int((x > 0).sum())])],
    "topk": lambda x: x.topk(max(1, int((x > 0).sum())))[0],
    "tuples": lambda x: (x, (x.argmax().item(), 1) == (2, 1)),
}


def compare(function, calls=6):
    compiled = thunder.jit(function)
    for seed in range(calls):
        results = []
        for program in (compiled, function):
            torch.manual_seed(seed)
            results.append(program(torch.randn(4)))
        assert_same(*results, "result")
    return compiled


@pytest.mark.parametrize("name", ONCE)
def test_number_that_only_tensors_get_is_traced_once(name):
    assert thunder.cache_misses(compare(ONCE[name])) == 1


@pytest.mark.parametrize("name", AGAIN)
def test_number_that_python_looks_at_is_followed(name):
    assert thunder.cache_misses(compare(AGAIN[name])) > 1


COMPARISONS = [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]
FLOATS = [1.5, math.nan, math.inf, -math.inf, 0.0, -0.0, 2.0**53, 9.3e18]
INTEGERS = [1, 0, 2**53 + 1, -(2**53) - 1, 2**63 - 1]
LOOKS_AT_FLOATS = {
    "in": lambda v, w: (v in [v], v in (w, 1.0), v in {w: 1}),
    "keys": lambda v, w: [len({v, w, v + 0})],
    "math": lambda v, w: (math.isnan(v), math.isinf(w), math.isfinite(v), math.copysign(1.0, v)),
    "max": lambda v, w: (max(v, w), max(w, v), min([v, w, 1.0]), sorted([2.0, v, w])),
    "truth": lambda v, w: (not v, bool(w), v or w, v and w),
    "same number": lambda v, w: [compare(v, v) for compare in COMPARISONS],
    "sign of zero": lambda v, w: (str(0.0 * v), -v, abs(v), v + 0.0, math.atan2(v, -1.0)),
    "chain": lambda v, w: (-1.0 < v < 2.0, v == w == v),
}


def texts(results):
    return [f"{type(result).__name__} {result!r}" for result in results]


@pytest.mark.parametrize("name", LOOKS_AT_FLOATS)
def test_floats_that_are_not_finite_are_pythons(name):
    def function(x):
        return LOOKS_AT_FLOATS[name](x[0].item(), x[1].item())

    compiled = thunder.jit(function)
    for value in FLOATS:
        x = torch.tensor([value, 1.5], dtype=torch.float64)
        assert texts(compiled(x)) == texts(function(x)), value


def test_filters_over_a_list_drop_nan():
    compiled = thunder.jit(lambda x: [value for value in x.tolist() if value == value and value <= 2])
    for values in ([1.0, math.nan, 3.0], [math.nan, 2.0, 1.0], [1.0, 2.0, math.inf]):
        assert compiled(torch.tensor(values)) == [value for value in values if value <= 2]


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_integers_and_floats_compare_exactly(comparison):
    def function(x, y):
        return comparison(x.item(), y.item()), comparison(y.item(), x.item())

    compiled = thunder.jit(function)
    for integer in INTEGERS:
        for value in FLOATS:
            x, y = torch.tensor(integer), torch.tensor(value, dtype=torch.float64)
            assert compiled(x, y) == function(x, y), (integer, value)


def test_numbers_meet_those_of_numpy():
    def function(x):
        array = np.arange(2.0)
        array += x.item()
        return np.float32(3) + x.item(), np.float32(1) == x.item(), np.add(array, x.item()).sum(), x.item() - array[0]

    compiled = thunder.jit(function)
    for value in (1.0, math.nan, 2.5):
        assert texts(compiled(torch.tensor(value))) == texts(function(torch.tensor(value)))


class Held:
    """An object whose conversions give numbers of a tensor."""

    def __init__(self, tensor):
        self.tensor = tensor

    def number(self):
        return self.tensor.sum().item()

    __float__ = __int__ = __index__ = __complex__ = __hash__ = number


class HeldSize(Held):
    def number(self):
        return self.tensor.shape[0]

    __float__ = __int__ = __index__ = __hash__ = number


CONVERSIONS = {
    "float": (float, torch.float32),
    "math": (math.sqrt, torch.float32),
    "percent": (lambda held: "%.3f" % held, torch.float32),  # noqa: UP031
    "no int": (int, torch.float32),
    "int": (int, torch.int64),
    "index": (operator.index, torch.int64),
    "item": (lambda held: list(range(20))[held], torch.int64),
    "slice": (lambda held: list(range(20))[:held], torch.int64),
    "range": (range, torch.int64),
    "hash": (hash, torch.int64),
    "key": (lambda held: {held: 1}[held], torch.int64),
    "complex": (complex, torch.complex64),
    "no float": (float, torch.complex64),
}


@pytest.mark.parametrize("name", CONVERSIONS)
@pytest.mark.parametrize("kind", [Held, HeldSize])
def test_conversions_that_give_numbers_of_tensors(name, kind):
    convert, dtype = CONVERSIONS[name]

    def program(x):
        try:
            return x + 1, convert(kind(x))
        except Exception as error:
            return x - 1, (type(error), str(error))

    compiled = thunder.jit(program)
    for size, value in ((2, 1), (2, 2), (3, 1), (4, 2), (2, 1)):
        x = torch.full((size,), value, dtype=dtype)
        (result, found), (expected, wanted) = compiled(x), program(x)
        assert torch.equal(result, expected)
        assert (type(found), found) == (type(wanted), wanted)
