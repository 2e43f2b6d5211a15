"""Fusions of tensors that lie in several orders of memory: random programs, against eager in float64."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import thunder

Tensor = torch.Tensor
SHAPES = [(2, 2, 32, 64), (2, 4, 8, 64), (4, 4, 4, 64), (2, 8, 16, 128)]


def rotated(a: Tensor, b: Tensor) -> Tensor:
    half = a.shape[-1] // 2
    return torch.cat((-a[..., half:], a[..., :half]), -1) * b


def through_rows(a: Tensor, b: Tensor) -> Tensor:
    return a.transpose(1, 2).flatten(2).tanh().unflatten(2, (a.shape[1], a.shape[3])).transpose(1, 2) * b


STEPS: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda a, b: a * b,
    lambda a, b: a + b,
    lambda a, b: a * b + a,
    lambda a, _: a.sigmoid(),
    lambda a, _: a.softmax(-1),
    lambda a, _: a * torch.rsqrt(a.square().mean(-1, keepdim=True) + 1),
    lambda a, b: a * b.mean(-1, keepdim=True),
    lambda a, b: a * b.mean(0, keepdim=True),
    lambda a, b: a + b.mean(2, keepdim=True),
    lambda a, _: a.contiguous(),
    lambda a, _: a.transpose(1, 2).contiguous().transpose(1, 2),
    lambda a, b: F.pad(a[:, :, ::2].cos(), (0, 0, 0, a.shape[2] // 2)) + b,
    rotated,
    through_rows,
]


def program(seed: int) -> tuple[Callable[[Tensor, Tensor, Tensor], list[Tensor]], list[Tensor]]:
    numbers = random.Random(seed)
    batch, heads, rows, columns = numbers.choice(SHAPES)
    steps = [(numbers.choice(STEPS), numbers.randrange(1, 4), numbers.randrange(1, 5)) for _ in range(10)]

    def run(x: Tensor, y: Tensor, z: Tensor) -> list[Tensor]:
        values = [z, y, x.transpose(1, 2), y]
        for step, left, right in steps:
            values.append(step(values[-left], values[-right]))
        return values[-3:]

    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, rows, heads, columns), (batch, heads, rows, columns), (batch, heads, rows, columns)]
    return run, [torch.randn(shape, generator=generator) for shape in shapes]


def results_of(function: Callable[..., list[Tensor]], inputs: list[Tensor]) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in inputs]
    outputs = function(*leaves)
    total = sum((x * x.detach().cos()).sum() for x in outputs)
    gradients = torch.autograd.grad(total, leaves, allow_unused=True)
    return [x.detach() for x in outputs] + [x for x in gradients if x is not None]


@pytest.mark.parametrize("seed", range(60))
def test_programs(seed: int) -> None:
    function, inputs = program(seed)
    compiled = thunder.jit(function)
    got, eager = results_of(compiled, inputs), results_of(function, inputs)
    exact = results_of(function, [x.double() for x in inputs])
    for ours, theirs, truth in zip(got, eager, exact, strict=True):
        errors = [float((x - truth).norm() / truth.norm()) for x in (ours, theirs)]
        assert errors[0] <= max(1e-5, 3 * errors[1])
    assert [x.stride() for x in got[:3]] == [x.stride() for x in eager[:3]]


def test_rows_are_read_where_they_lie() -> None:
    """The result of attention in another order, and the residual that it is added to, are one fusion."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        return (x.transpose(0, 1) + y).sigmoid() * 2

    x, y = torch.randn(32, 8, 64), torch.randn(8, 32, 64)
    compiled = thunder.jit(function)
    torch.testing.assert_close(compiled(x, y), function(x, y))
    (fusion,) = thunder.fusions(compiled)
    assert len(fusion.operations) == 3


def test_what_is_computed_again_is_in_the_order_of_its_reader() -> None:
    """A cheap operation moves into each fusion that reads it, but not where that goes over another order."""

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        doubled = x.transpose(0, 1) * 2
        return doubled.sigmoid() + doubled, (y.exp() * doubled).tanh() + y

    x, y = torch.randn(32, 8, 64), torch.randn(8, 32, 64)
    torch.testing.assert_close(thunder.jit(function)(x, y), function(x, y))


def test_what_is_overwritten_is_read_in_another_order_before() -> None:
    def function(p: Tensor, x: Tensor) -> Tensor:
        out = x.transpose(0, 1) * p + 1
        p.copy_((p * 0.5 + 1).sigmoid())
        return out

    p, x = torch.randn(64, 64, 64), torch.randn(64, 64, 64)
    written = p.clone()
    torch.testing.assert_close(thunder.jit(function)(written, x), function(p, x))
    torch.testing.assert_close(written, p)
