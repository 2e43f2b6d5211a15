"""Gradients taken inside of programs, and parts under checkpoint, at sizes that change: one program for all."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import thunder

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="symbols need Python 3.11")

SIZES = (3, 4, 5, 8, 2, 17, 1, 33)
LINEAR, NORM = nn.Linear(8, 8), nn.LayerNorm(8)


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * gradient * x


def _part(x: Tensor) -> Tensor:
    return F.gelu(NORM(LINEAR(x))) * 2


def _part_in_a_part(x: Tensor) -> Tensor:
    return checkpoint(lambda t: checkpoint(_part, t, use_reentrant=False) * 2, x, use_reentrant=False)


def _descent(x: Tensor) -> Tensor:
    for _ in range(2):
        x = x - 0.1 * torch.autograd.grad(_part(x).sum(), x, create_graph=True)[0]
    return x


def _penalty(x: Tensor) -> Tensor:
    (gradient,) = torch.autograd.grad(_part(x).pow(2).sum(), x, create_graph=True)
    return (gradient.norm(dim=-1) - 1).pow(2).mean()


def _hooked(x: Tensor) -> Tensor:
    y = LINEAR(x)
    y.register_hook(lambda gradient: gradient * 2)
    return torch.autograd.grad(F.relu(y).sum(), x)[0]


def _leaf(x: Tensor) -> Tensor:
    leaf = x.detach().clone().requires_grad_()
    return torch.autograd.grad((leaf * leaf).sum(), leaf)[0] * x


def _with_flag(x: Tensor) -> Tensor:
    bias = torch.zeros(len(x), 1)
    bias.requires_grad = True  # as T5 does for the sake of checkpoint
    return checkpoint(lambda t, b: _part(t) + b, x, bias, use_reentrant=False)


def _backward(x: Tensor) -> Tensor:
    _part(x).sum().backward()
    assert x.grad is not None
    return x.grad * 2


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "part": lambda x: checkpoint(_part, x, use_reentrant=False).sum(-1),
    "reentrant part": lambda x: checkpoint(_part, x, use_reentrant=True).sum(-1),
    "part in a part": _part_in_a_part,
    "function in a part": lambda x: checkpoint(lambda t: _Square.apply(LINEAR(t)), x, use_reentrant=False),
    "attention in a part": lambda x: checkpoint(lambda t: F.softmax(t @ t.mT, -1) @ t, x, use_reentrant=False),
    "size in a part": lambda x: checkpoint(lambda t: t.T.reshape(-1) * t.shape[0], x, use_reentrant=False),
    "dropout in a part": lambda x: checkpoint(lambda t: F.dropout(LINEAR(t), 0.5), x, use_reentrant=False),
    "parts in a row": lambda x: checkpoint_sequential([_part, _part, LINEAR], 2, x, use_reentrant=False),
    "leaf made in front of a part": _with_flag,
    "gradient": lambda x: torch.autograd.grad(_part(x).sum(), x)[0],
    "gradient by a parameter": lambda x: torch.autograd.grad(_Square.apply(LINEAR(x)).mean(), LINEAR.weight)[0],
    "gradient of rows with each other": lambda x: torch.autograd.grad((x @ x.T).softmax(-1).log().sum(), x)[0],
    "gradient of a broadcast": lambda x: torch.autograd.grad((x[:, None] * x[None]).sum((1, 2)).exp().sum(), x)[0],
    "gradient penalty": _penalty,
    "backward into a leaf": _backward,
    "descent": _descent,
    "hook": _hooked,
    "leaf made inside": _leaf,
}


def _results(program: Callable[[Tensor], Tensor], size: int) -> list[Tensor | None]:
    torch.manual_seed(size)
    x = torch.randn(size, 8, requires_grad=True)
    LINEAR.zero_grad()
    result = program(x)
    if result.requires_grad:
        result.backward(torch.randn(result.shape))
    return [result.detach(), x.grad, LINEAR.weight.grad]


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_inside_equal_eager_at_all_sizes(name: str) -> None:
    plain = PROGRAMS[name]
    compiled = thunder.jit(plain)
    for size in SIZES:
        torch.testing.assert_close(_results(compiled, size), _results(plain, size), rtol=1e-3, atol=1e-4)
    assert thunder.compile_stats(compiled)["specializations"] <= 3  # at the first size, at any, and at one


def _step(model: Any, optimizer: Any, x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def _adversarial_step(model: Any, optimizer: Any, x: Tensor, y: Tensor) -> Tensor:
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(F.cross_entropy(model(x), y), x)
    return _step(model, optimizer, (x + 0.1 * gradient.sign()).detach(), y)


def _penalized_step(model: Any, optimizer: Any, x: Tensor, y: Tensor) -> Tensor:
    optimizer.zero_grad()
    x = x.clone().requires_grad_()
    loss = F.cross_entropy(model(x), y)
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    (loss + gradient.pow(2).sum()).backward()
    optimizer.step()
    return loss.detach()


@pytest.mark.parametrize("step", [_step, _adversarial_step, _penalized_step])
def test_training_steps_in_one_program_take_batches_of_any_size(step: Callable[..., Tensor]) -> None:
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))]
    models.append(copy.deepcopy(models[0]))
    optimizers = [torch.optim.AdamW(model.parameters(), 1e-2) for model in models]
    compiled = thunder.jit(step)
    for size in SIZES[:6]:
        x, y = torch.randn(size, 8), torch.randint(4, (size,))
        expected = step(models[0], optimizers[0], x.clone(), y)
        torch.testing.assert_close(compiled(models[1], optimizers[1], x.clone(), y), expected)
        torch.testing.assert_close(list(models[1].parameters()), list(models[0].parameters()), rtol=1e-4, atol=1e-4)
    assert thunder.compile_stats(compiled)["specializations"] <= 3


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: x[n].sin() + x[-n].cos(),
        lambda x, n: x[n - 7].sin() + x[1].cos(),
        lambda x, n: x[:, -n - 1].sin() + x[:, 2].cos(),
        lambda x, n: x[x[:n].shape[0] - x.shape[0]].sin() * 2 + x[2],
        lambda x, n: torch.select(x * 2, 0, -n).sin() + x.sin().select(0, n),
    ],
)
def test_gradients_of_rows_that_are_counted_from_the_end(function: Callable[..., Tensor]) -> None:
    compiled = thunder.jit(function)
    for n in (2, 3, 4, 6, 5):
        x = torch.randn(8, 64, dtype=torch.float64, requires_grad=True)
        (got,) = torch.autograd.grad(compiled(x, n).sum(), x)
        (expected,) = torch.autograd.grad(function(x, n).sum(), x)
        torch.testing.assert_close(got, expected)
    assert thunder.cache_misses(compiled) == 2


def test_rows_of_a_linear_layer_behind_a_convolution_are_a_product_of_three_sizes() -> None:
    kernel, weight = (torch.randn(*sizes, dtype=torch.float64, requires_grad=True) for sizes in ((8, 8, 2, 2), (4, 8)))

    def block(x: Tensor) -> Tensor:
        y = F.layer_norm(x.permute(0, 2, 3, 1), (8,)).permute(0, 3, 1, 2)
        return F.linear(F.conv2d(y, kernel, stride=2).permute(0, 2, 3, 1), weight)

    compiled = thunder.jit(block)
    for batch, height, width in ((2, 6, 8), (3, 8, 10), (4, 10, 6), (2, 14, 12)):
        x = torch.randn(batch, 8, height, width, dtype=torch.float64, requires_grad=True)
        got = torch.autograd.grad(compiled(x).sin().sum(), (x, kernel, weight))
        torch.testing.assert_close(got, torch.autograd.grad(block(x).sin().sum(), (x, kernel, weight)))
    assert thunder.cache_misses(compiled) == 2


LEAVES: dict[str, Callable[[int], Tensor]] = {
    "in the middle": lambda n: torch.randn(n, 1, 8),
    "last": lambda n: torch.randn(n, 8, 1),
    "first": lambda n: torch.randn(1, n, 8),
    "transposed": lambda n: torch.randn(8, 1, n).transpose(0, 2),
    "channels last": lambda n: torch.randn(n, 1, 2, 4).to(memory_format=torch.channels_last),
    "any stride": lambda n: torch.randn(n, 8).as_strided((n, 1, 8), (8, 77, 1)),
    "expanded": lambda n: torch.randn(1, 1, 8).expand(n, 1, 8),
}
LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "flat": lambda x: x.flatten(1).tanh().pow(2).mean(),
    "as it is": lambda x: x.sin().sum(),
    "of a squeezed one": lambda x: (x.squeeze() * 2).exp().mean(),
    "of another order": lambda x: (x.transpose(0, -1).contiguous() * x.shape[0]).cos().sum(),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("leaf", LEAVES)
def test_gradients_of_leaves_with_a_dimension_of_one_are_laid_out_as_in_eager(leaf: str, loss: str) -> None:
    def step(x: Tensor) -> Tensor:
        result = LOSSES[loss](x)
        result.backward()
        return result.detach()

    compiled = thunder.jit(step)
    for size in (6, 6, 4, 5, 7):
        mine = LEAVES[leaf](size).requires_grad_()
        theirs = mine.detach().requires_grad_()
        for _ in range(2):
            torch.testing.assert_close(compiled(mine), step(theirs))
            assert mine.grad is not None
            assert theirs.grad is not None
            torch.testing.assert_close(mine.grad, theirs.grad)
            strides = [zip(x.shape, x.stride(), strict=True) for x in (mine.grad, theirs.grad)]
            got, expected = ([stride for size, stride in each if size > 1] for each in strides)
            assert got == expected
    count = 10 if leaf in ("transposed", "expanded", "any stride") else 4  # the second call adds to a gradient
    assert thunder.compile_stats(compiled)["specializations"] <= count, thunder.explain_shapes(compiled)
