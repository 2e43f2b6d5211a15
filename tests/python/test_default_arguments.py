"""Writes to what a function has as default arguments, or a `functools.partial` as its own, are seen by later calls."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder

Program = Callable[..., Any]


def added(x: torch.Tensor, total: torch.Tensor, items: list[int]) -> torch.Tensor:
    items.append(len(items))
    return total.add_(x) * len(items)


def default() -> Program:
    def program(x: torch.Tensor, total: torch.Tensor = torch.zeros(3), items: list[int] = []) -> torch.Tensor:  # noqa: B006, B008
        return added(x, total, items)

    return program


def keyword_only_default() -> Program:
    def program(x: torch.Tensor, *, total: torch.Tensor = torch.zeros(3), items: list[int] = []) -> torch.Tensor:  # noqa: B006, B008
        return added(x, total, items)

    return program


def default_of_an_inner_function() -> Program:
    inner = default()
    return lambda x: inner(x) + inner(x)


def default_that_holds_a_tensor() -> Program:
    def program(x: torch.Tensor, totals: dict[str, Any] = {"a": (torch.zeros(3),)}) -> torch.Tensor:  # noqa: B006, B008
        totals["a"][0].add_(x)
        return totals["a"][0] * 2

    return program


def default_of_a_method() -> Program:
    class Adder(nn.Module):
        def forward(self, x: torch.Tensor, total: torch.Tensor = torch.zeros(3)) -> torch.Tensor:  # noqa: B008
            total += x
            return total * 2

    return Adder()


def default_that_requires_grad() -> Program:
    def program(x: torch.Tensor, scale: torch.Tensor = torch.ones(3, requires_grad=True)) -> torch.Tensor:  # noqa: B008
        with torch.no_grad():
            scale.add_(x)
        return (scale * x).sum()

    return program


def partial_by_keyword() -> Program:
    return functools.partial(added, total=torch.zeros(3), items=[])


def partial_by_position() -> Program:
    return functools.partial(lambda items, total, x: added(x, total, items), [], torch.zeros(3))


def partial_inside() -> Program:
    partial = functools.partial(added, total=torch.zeros(3), items=[])
    return lambda x: partial(x) + partial(x)


def partial_of_a_partial() -> Program:
    return functools.partial(functools.partial(added, total=torch.zeros(3)), items=[])


@pytest.mark.parametrize(
    "make",
    [
        default, keyword_only_default, default_of_an_inner_function, default_that_holds_a_tensor, default_of_a_method,
        default_that_requires_grad, partial_by_keyword, partial_by_position, partial_inside, partial_of_a_partial,
    ],
)  # fmt: skip
def test_write_to_a_default_argument_is_kept(make: Callable[[], Program]) -> None:
    eager, compiled = make(), thunder.jit(make(), fullgraph=True)
    for call in range(1, 4):
        x = torch.full((3,), float(call))
        expected, got = eager(x), compiled(x)
        assert got.tolist() == expected.tolist()
        if expected.requires_grad:
            expected.backward()
            got.backward()


def test_tensor_that_code_in_c_hands_to_a_function_is_written_to() -> None:
    total = torch.zeros(3)
    add = lambda x, tensor: tensor.add_(x)  # noqa: E731
    compiled = thunder.jit(lambda x: sum(map(functools.partial(add, x), [total])), fullgraph=True)
    for _ in range(2):
        compiled(torch.ones(3))
    assert total.tolist() == [2, 2, 2]


def test_tensor_from_outside_keeps_its_hash_as_a_key() -> None:
    parameters = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))]

    def program(x: torch.Tensor, table: dict[nn.Parameter, Any]) -> torch.Tensor:
        for parameter in parameters:
            table[parameter]["steps"] = table[parameter].get("steps", 0) + 1
        return x

    table: dict[nn.Parameter, Any] = collections.defaultdict(dict)
    for _ in range(3):
        thunder.jit(program, fullgraph=True)(torch.ones(2), table)
    assert [value["steps"] for value in table.values()] == [3, 3]
    assert all(parameter in table for parameter in parameters)
