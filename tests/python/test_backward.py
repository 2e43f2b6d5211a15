"""Training compiled modules: optimizers, several backwards, frozen and tied parameters, autocast."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_module_as_eager
from small_modules import Tied, mlp, picture, resnet, sequence, tokens
from torch import nn
from torch.nn import functional as F

import thunder


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
        lambda p: torch.optim.Adam(p, 0.01),
        lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
        lambda p: torch.optim.AdamW(p, 0.01, foreach=False),
        lambda p: torch.optim.AdamW(p, 0.01, fused=True),
        lambda p: torch.optim.RMSprop(p, 0.01),
    ],
    ids=["sgd", "adam", "adamw_foreach", "adamw", "adamw_fused", "rmsprop"],
)
def test_optimizer(optimizer: Callable[[Any], torch.optim.Optimizer]) -> None:
    module = resnet()
    eager = copy.deepcopy(module)
    compiled = thunder.jit(module)
    x, labels = picture().detach(), torch.tensor([0, 3])
    losses = []
    for model in (eager, compiled):
        steps = optimizer(model.parameters())
        for _ in range(4):
            steps.zero_grad()
            loss = F.cross_entropy(model(x), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            steps.step()
            losses.append(loss.item())
    assert losses[4:] == pytest.approx(losses[:4], rel=1e-4)
    assert thunder.cache_misses(compiled) == 1


def test_zero_grad_in_place_keeps_gradients_apart() -> None:
    compiled = thunder.jit(mlp())
    compiled(sequence()).sum().backward()
    first = compiled[0].weight.grad
    kept = first.clone()
    compiled(sequence()).sum().backward()
    assert compiled[0].weight.grad is first
    assert not torch.equal(first, kept)


@pytest.mark.parametrize("retain", [True, False])
def test_second_backward(retain: bool) -> None:
    module = mlp()
    eager = copy.deepcopy(module)
    x = sequence().detach()
    errors = []
    for model in (eager, thunder.jit(module)):
        loss = model(x).square().sum()
        loss.backward(retain_graph=retain)
        try:
            loss.backward()
        except RuntimeError as error:
            errors.append(str(error))
    assert_module_as_eager(module, eager)
    assert len(errors) == (0 if retain else 2)
    assert len(set(errors)) <= 1


def test_two_losses_of_one_forward_in_turn() -> None:
    module = nn.Linear(4, 4)
    eager = copy.deepcopy(module)
    x = sequence().detach()
    for call in (eager, thunder.jit(module)):
        y = call(x)
        y[0].sum().backward(retain_graph=True)
        y[1].square().sum().backward()
    assert_module_as_eager(module, eager)


def test_backwards_of_several_forwards_in_reverse_order() -> None:
    module = mlp()
    eager = copy.deepcopy(module)
    inputs = [torch.randn(2, 4) for _ in range(3)]
    for model in (eager, thunder.jit(module)):
        losses = [model(x).square().sum() for x in inputs]
        for loss in reversed(losses):
            loss.backward()
    assert_module_as_eager(module, eager)


def test_double_backward_raises() -> None:
    compiled = thunder.jit(mlp())
    x = sequence()
    (gradient,) = torch.autograd.grad(compiled(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        gradient.sum().backward()


def test_gradient_through_slices_of_complex_numbers_is_made_with_create_graph() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.stft(x, 4, window=torch.hann_window(4), return_complex=True).abs().square().sum()

    gradients = []
    for function in (program, thunder.jit(program)):
        x = torch.arange(16.0).cos().requires_grad_()
        gradients.append(torch.autograd.grad(function(x), x, create_graph=True)[0])
    torch.testing.assert_close(gradients[1], gradients[0])
    assert gradients[1].requires_grad


def test_weight_changed_between_forward_and_backward_raises_as_in_eager() -> None:
    compiled = thunder.jit(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)))
    loss = compiled(sequence()).sum()
    with torch.no_grad():
        compiled[2].weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_frozen_parameters_get_no_gradient_and_thawed_ones_do() -> None:
    module = mlp()
    module[0].requires_grad_(False)
    eager = copy.deepcopy(module)
    compiled = thunder.jit(module)
    x = sequence().detach()
    for thaw in (False, True):
        for model in (eager, compiled):
            model[0].requires_grad_(thaw)
            model.zero_grad()
            model(x).sum().backward()
        assert_module_as_eager(module, eager)


def test_untied_weights_get_their_own_gradients() -> None:
    module = Tied()
    eager = copy.deepcopy(module)
    compiled, ids = thunder.jit(module), tokens()
    for untie in (False, True):
        for model in (eager, compiled):
            if untie:
                model.head.weight = nn.Parameter(model.embedding.weight.detach().clone())
            model.zero_grad()
            model(ids).square().sum().backward()
        assert_module_as_eager(module, eager)


@pytest.mark.parametrize("around", [True, False], ids=["around", "inside"])
def test_autocast(around: bool) -> None:
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=not around):
                return self.body(x).softmax(-1)

    module = Cast()
    eager = copy.deepcopy(module)
    x = sequence()
    results = []
    for model in (eager, thunder.jit(module)):
        with torch.autocast("cpu", torch.bfloat16, enabled=around):
            results.append(model(x))
        results[-1].square().sum().backward()
    assert results[0].dtype == results[1].dtype
    torch.testing.assert_close(results[1], results[0])
    for got, expected in zip(module.parameters(), eager.parameters(), strict=True):
        assert got.grad.dtype == expected.grad.dtype
        torch.testing.assert_close(got.grad, expected.grad, rtol=1e-2, atol=1e-3)


def written_into(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(4, 3)
    y[1:3] = x
    return y


# Functions of a leaf (2, 3) whose derivative is a part of the cotangent, or shows it in another shape.
WITHIN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "written into a slice": written_into,
    "concatenated": lambda x: torch.cat([x, torch.zeros(2, 3)]),
    "stacked": lambda x: torch.stack([x, torch.zeros(2, 3)]).view(4, 3),
    "padded": lambda x: F.pad(x, (0, 0, 1, 1)),
    "scattered into a slice": lambda x: torch.zeros(4, 3).slice_scatter(x, 0, 1, 3),
    "scattered by strides": lambda x: torch.zeros(4, 3).as_strided_scatter(x, (2, 3), (3, 1), 3),
    "in another shape": lambda x: torch.cat([x.view(3, 2).view(2, 3), torch.zeros(2, 3)]),
}
# How the results of two leaves meet.
MEETING: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sin of the sum": lambda y, z: (y + z).sin(),
    "sum": lambda y, z: y + z,
    "difference": lambda y, z: z - y,
    "concatenated": lambda y, z: torch.cat([y, z]),
}


@pytest.mark.parametrize("meeting", MEETING)
@pytest.mark.parametrize("within", WITHIN)
def test_gradients_that_lie_in_each_other_do_not_share_memory(within: str, meeting: str) -> None:
    def program(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return MEETING[meeting](WITHIN[within](x), z)

    outcomes = []
    for function in (program, thunder.jit(program)):
        torch.manual_seed(0)
        x, z = torch.randn(2, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
        for _ in range(2):
            function(x, z).sum().backward()
            nn.utils.clip_grad_norm_([x, z], 1.0)
        assert x.grad is not None
        assert z.grad is not None
        outcomes += [x.grad.clone(), z.grad.clone()]
        x.grad.zero_()
        outcomes.append(z.grad)
    for expected, actual in zip(outcomes[:3], outcomes[3:], strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("within", WITHIN)
def test_gradient_does_not_lie_in_a_cotangent_of_the_caller(within: str) -> None:
    x = torch.ones(2, 3, requires_grad=True)
    cotangent = torch.ones(4, 3)
    thunder.jit(WITHIN[within])(x).backward(cotangent)
    assert x.grad is not None
    x.grad.zero_()
    assert cotangent.sum() == 12


def test_hook_on_one_gradient_does_not_change_another() -> None:
    def count_rows(leaf: torch.Tensor) -> None:
        assert leaf.grad is not None
        leaf.grad.mul_(leaf.shape[0])

    x, z = torch.ones(2, 3, requires_grad=True), torch.ones(4, 3, requires_grad=True)
    for leaf in (x, z):
        leaf.register_post_accumulate_grad_hook(count_rows)
    thunder.jit(lambda x, z: torch.cat([x, torch.zeros(2, 3)]) + z)(x, z).sum().backward()
    assert torch.equal(x.grad, torch.full((2, 3), 2.0))
    assert torch.equal(z.grad, torch.full((4, 3), 4.0))


WRITES: dict[str, Callable[[nn.Module, torch.Tensor], Any]] = {
    "add": lambda m, y: (m(y), y.add_(1))[0],
    "after another": lambda m, y: (y.mul_(0.5), m(y), y.add_(1))[1],
    "part": lambda m, y: (m(y), y[:, 0].zero_())[0],
    "view": lambda m, y: (m(y.view(-1, 4)), y.add_(1))[0],
    "other": lambda m, y: (m(y + 1), y.add_(1))[0],
    "shape": lambda m, y: (m(y + 1).sum(0, keepdim=True).expand_as(y), y.add_(1))[0],
    "sum": lambda m, y: (m.weight.sum() * y.sum(), y.add_(1))[0],
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_what_a_backward_needs_is_written_to_inside(name: str, needs_grad: bool, shape: tuple[int, ...]) -> None:
    runs = []
    for function in (WRITES[name], thunder.jit(WRITES[name])):
        torch.manual_seed(0)
        module = nn.Linear(4, 4)
        x = torch.randn(shape, requires_grad=needs_grad)
        y, run = x * 1.5, []
        for _ in range(3):
            result = function(module, y)
            try:
                result.sin().sum().backward(retain_graph=True)
            except RuntimeError:
                run.append("RuntimeError")
            else:
                run.append([each.clone() for each in (y.detach(), module.weight.grad)])
        runs.append(run)
    torch.testing.assert_close(*[[each for each in run if each != "RuntimeError"] for run in runs])
    assert [each == "RuntimeError" for each in runs[0]] == [each == "RuntimeError" for each in runs[1]]
