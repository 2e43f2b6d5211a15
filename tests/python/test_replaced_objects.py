"""Objects written in C that a program finds outside: another one in their place is noticed."""

from __future__ import annotations

import decimal
import functools
import operator
import re
import struct
import types
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

import thunder

X = torch.ones(3)

# An object, another one that comes in its place, and what the program takes of it.
REPLACED: dict[str, tuple[Any, Any, Callable[[Any], float]]] = {
    "compiled pattern": (re.compile("a+"), re.compile("b"), lambda each: len(each.findall("aabaa"))),
    "decimal": (decimal.Decimal(1), decimal.Decimal(2), int),
    "dtype of an array": (numpy.dtype("int8"), numpy.dtype("int64"), lambda each: each.itemsize),
    "format": (struct.Struct("<i"), struct.Struct("<q"), lambda each: each.size),
    "generic alias": (list[int], dict[int, str], lambda each: len(each.__args__)),
    "item getter": (operator.itemgetter(0), operator.itemgetter(1), lambda each: each([2, 3])),
    "limits of a dtype": (torch.finfo(torch.float32), torch.finfo(torch.float64), lambda each: each.bits),
    "memoized": (functools.cache(lambda: 2), functools.cache(lambda: 3), lambda each: each()),
    "method caller": (operator.methodcaller("count", 1), operator.methodcaller("index", 1), lambda each: each([1, 1])),
    "method of a list": ([1, 2].count, [1, 1].count, lambda each: each(1)),
    "partial": (functools.partial(max, 2), functools.partial(min, 2), lambda each: each(1)),
    "cell": (types.CellType(4), types.CellType(5), lambda each: each.cell_contents),
    "ufunc": (numpy.sin, numpy.cos, lambda each: float(each(1.0))),
    "union": (int | str, float | str, lambda each: isinstance(3, each)),
}


@pytest.mark.parametrize("name", REPLACED)
def test_replaced_object_is_noticed(name: str) -> None:
    before, after, take = REPLACED[name]
    table = {"object": before}
    compiled = thunder.jit(lambda x: x * take(table["object"]), fullgraph=True)
    for each in (before, after, before):
        table["object"] = each
        assert torch.equal(compiled(X), X * take(each))
