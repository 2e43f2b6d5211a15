"""Operators that take functions, and operators of the user's own, inside compiled programs."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
from beside_eager import assert_as_eager
from programs import Function, named, parametrize, x
from torch._higher_order_ops import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import thunder


@torch.library.custom_op("thunder_tests::scaled_sin", mutates_args=())
def scaled_sin(a: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.from_numpy(numpy.sin(a.detach().numpy()) * scale)


@scaled_sin.register_fake
def _(a: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.empty_like(a)


def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.scale = inputs[1]


def backward(ctx: Any, gradient: torch.Tensor) -> Any:
    """Ten times the derivative, so that another one shows."""
    return gradient * ctx.saved_tensors[0].cos() * ctx.scale * 10, None


scaled_sin.register_autograd(backward, setup_context=setup_context)


def operator_of_the_user(a: torch.Tensor) -> Any:
    return scaled_sin(a * 2, 3.0).exp()


def operator_by_name(a: torch.Tensor) -> Any:
    return torch.ops.thunder_tests.scaled_sin(a, 0.5) * a


def operator_of_the_user_differentiated_inside(a: torch.Tensor) -> Any:
    return torch.autograd.grad(scaled_sin(a * 2, 3.0).sum(), a)


def operator_map(a: torch.Tensor) -> Any:
    return map_over(lambda row: row.sin() * row[0], a.detach())


def operator_while_loop(a: torch.Tensor) -> Any:
    start = torch.zeros((), dtype=torch.int64)
    return while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t.sin() * 2), (start, a.detach()))


def operator_scan(a: torch.Tensor) -> Any:
    return scan(lambda carry, row: (carry + row, carry * row), torch.zeros(4), a.detach())


PROGRAMS = [f for name, f in sorted(globals().items()) if name.startswith("operator_")]


@parametrize([named(f) for f in PROGRAMS])
def test_operator_is_as_in_eager(program: Function) -> None:
    assert_as_eager(program, x())


@pytest.mark.parametrize("grad", [False, True])
def test_cond_takes_the_branch_of_each_call(grad: bool) -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        return torch.cond(a.sum() > 0, lambda t: t.sin(), lambda t: t.cos() * 2, (a,))

    compiled = thunder.jit(program)
    for value in (1.0, -1.0, 2.0, -2.0):
        a = torch.full((3,), value, requires_grad=grad)
        expected = a.sin() if value > 0 else a.cos() * 2
        torch.testing.assert_close(compiled(a), expected)
        if grad:
            got = torch.autograd.grad(compiled(a).sum(), a)
            torch.testing.assert_close(got, torch.autograd.grad(expected.sum(), a))
    assert thunder.cache_misses(compiled) == 2


@torch.library.custom_op("thunder_tests::segments", mutates_args=())
def segments(a: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return a[: ends.tolist()[-1]] * 2


@segments.register_fake
def _(a: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(a)


segments.register_autograd(
    lambda ctx, gradient: (gradient[: ctx.saved_tensors[0].tolist()[-1]] * 2, None),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[1]),
)


@torch.library.custom_op("thunder_tests::parts", mutates_args=())
def parts(
    a: torch.Tensor, lengths: list[int], b: torch.Tensor, *, scale: float = 2.0
) -> tuple[torch.Tensor, torch.Tensor]:
    return a * b * scale, a.sin() + sum(lengths)


@parts.register_fake
def _(a, lengths, b, *, scale=2.0):
    return torch.empty_like(a), torch.empty_like(a)


def _save_parts(ctx, inputs, keyword_only_inputs, output):
    ctx.save_for_backward(inputs[0], inputs[2], output[1])
    ctx.scale = keyword_only_inputs["scale"]


def _backward_of_parts(ctx, product, sine):
    a, b, result = ctx.saved_tensors
    factor = ctx.scale * len(result.tolist())
    of_b = product * a * factor if ctx.needs_input_grad[2] else None
    return product * b * factor + sine * a.cos(), None, of_b


parts.register_autograd(_backward_of_parts, setup_context=_save_parts)

READS_DATA = {
    "segments": lambda a, b: segments(a * 2, torch.tensor([1, 2])).sum(),
    "parts": lambda a, b: sum(part.sum() for part in parts(a.sin(), [1, 2], b.exp(), scale=3.0)),
    "one_result": lambda a, b: parts(a.sin(), [1, 2], b)[0].square().sum(),
    "one_argument": lambda a, b: parts(a, [1], b.detach())[1].square().sum(),
    "twice_the_same": lambda a, b: parts(a, [1], a)[0].sum(),
    "inside": lambda a, b: torch.autograd.grad(segments(a * 2, torch.tensor([1, 2])).sum(), a)[0].sum() + b.sum(),
}


@pytest.mark.parametrize("name", READS_DATA)
def test_backward_of_an_operator_that_reads_data_runs_as_a_whole(name: str) -> None:
    def gradients(function):
        a, b = (torch.arange(2.0) + i for i in range(2))
        result = function(a.requires_grad_(), b.requires_grad_())
        result.backward()
        return result.detach(), a.grad, b.grad

    f = thunder.jit(READS_DATA[name])
    for _ in range(2):
        torch.testing.assert_close(gradients(f), gradients(READS_DATA[name]))


def test_backward_that_runs_as_a_whole_is_in_the_backward_trace() -> None:
    f = thunder.jit(lambda a: segments(a, torch.tensor([1, 2])))
    f(torch.ones(2, requires_grad=True))
    assert "thunder_backward.thunder_tests_segments" in str(thunder.last_backward_traces(f)[-1])


_library = torch.library.Library("thunder_tests_library", "DEF")
_library.define("segments(Tensor a, Tensor ends) -> Tensor")
_library.impl("segments", lambda a, ends: a * 2, "CompositeExplicitAutograd")


class _Segments(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, ends):
        ctx.save_for_backward(ends)
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.thunder_tests_library.segments(a, ends)

    @staticmethod
    def backward(ctx, gradient):
        return gradient[: ctx.saved_tensors[0].tolist()[-1]] * 2, None


_library.impl("segments", _Segments.apply, "Autograd")
_segments = torch.ops.thunder_tests_library.segments


def test_backward_that_nobody_registered_and_that_reads_data_is_refused_by_name() -> None:
    def program(a: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return _segments(a, ends).sum()

    message = r"segments \(called in .*test_higher_order.py.*reads the data"
    a, ends = torch.ones(4, requires_grad=True), torch.tensor([2, 4])
    with pytest.raises(NotImplementedError, match=message):
        thunder.jit(program, fullgraph=True)(a, ends)
    with pytest.warns(thunder.EagerFallbackWarning, match=message):
        result = thunder.jit(program)(a, ends)
    torch.testing.assert_close(torch.autograd.grad(result, a), torch.autograd.grad(program(a, ends), a))
