"""`torch.autograd.Function` inside compiled programs: its backward is used, not that of its forward's operations."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import thunder


class ScaledGradient(torch.autograd.Function):
    """The sine, with ten times its gradient, so that a wrong backward shows."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.cos() * 10 * ctx.factor, None


class TwoResults(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx, product, total):
        x, y = ctx.saved_tensors
        return product * y + 2 * total, product * x + 3 * total


def gradients_of(function, *inputs):
    inputs = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    result = function(*inputs)
    result.square().sum().backward()
    return result.detach(), [x.grad for x in inputs]


PROGRAMS = {
    "alone": lambda x, y: ScaledGradient.apply(x, 2.0),
    "inside": lambda x, y: F.gelu(ScaledGradient.apply(x * y, 0.5)) @ y,
    "chained": lambda x, y: ScaledGradient.apply(ScaledGradient.apply(x, 1.0), 1.0) + y,
    "used_twice": lambda x, y: (lambda z: ScaledGradient.apply(z, 1.0) * z)(ScaledGradient.apply(x, 1.0)),
    "two_results": lambda x, y: sum(TwoResults.apply(x * 2, y)),
    "one_of_two_results": lambda x, y: TwoResults.apply(x, y.exp())[1],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_backward_of_function_is_used(name):
    torch.manual_seed(0)
    x, y = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    expected = gradients_of(PROGRAMS[name], x, y)
    actual = gradients_of(thunder.jit(PROGRAMS[name]), x, y)
    torch.testing.assert_close(actual, expected)


def test_function_without_gradient_runs_its_forward():
    x = torch.randn(3)
    assert torch.equal(thunder.jit(PROGRAMS["alone"])(x, x), x.sin())


def test_backward_of_function_is_in_backward_trace():
    compiled = thunder.jit(PROGRAMS["alone"])
    compiled(torch.randn(3, requires_grad=True), torch.randn(3))
    assert "aten.cos" in str(thunder.last_backward_traces(compiled)[-1])


class KeepsAnswer(torch.autograd.Function):
    """Its gradient is a tensor that the forward saved, as it is."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.cos())
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.saved_tensors[0]


def test_backward_that_returns_a_saved_tensor():
    x = torch.randn(3, requires_grad=True)
    for _ in range(2):
        x.grad = None
        thunder.jit(lambda a: KeepsAnswer.apply(a * 2) * 5)(x).sum().backward()
        torch.testing.assert_close(x.grad, 2 * (2 * x).cos().detach())


def test_vmap_and_grad_of_a_function_use_its_forward_and_its_backward():
    x = torch.randn(3, 4)
    torch.testing.assert_close(thunder.vmap(lambda a: ScaledGradient.apply(a, 1.0))(x), x.sin())
    gradient = thunder.grad(lambda a: ScaledGradient.apply(a, 1.0).sum())
    leaf = x.clone().requires_grad_()
    ScaledGradient.apply(leaf, 1.0).sum().backward()
    torch.testing.assert_close(gradient(x), leaf.grad)
    torch.testing.assert_close(thunder.vmap(gradient)(x), leaf.grad)


def test_gradient_through_vmap_of_a_function_is_refused():
    x = torch.randn(3, 4, requires_grad=True)
    with pytest.raises(NotImplementedError, match=r"got a torch\.autograd\.Function"):
        thunder.vmap(lambda a: ScaledGradient.apply(a, 1.0))(x)
