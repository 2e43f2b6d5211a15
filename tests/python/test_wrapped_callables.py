"""Callables that others wrapped, and modules whose work is done by other methods than `forward`."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager
from torch import nn

import thunder


def sine(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * 2


def test_function_of_torch_compile_is_traced_as_the_function() -> None:
    compiled = torch.compile(sine, backend="eager")
    jitted = thunder.jit(compiled, fullgraph=True)
    assert jitted.__wrapped__ is sine
    torch.testing.assert_close(jitted(torch.ones(3)), sine(torch.ones(3)))
    assert thunder.cache_misses(jitted) == 1


def test_module_of_torch_compile_is_traced_as_the_module() -> None:
    module = nn.Linear(3, 3)
    jitted = thunder.jit(torch.compile(module, backend="eager"), fullgraph=True)
    assert jitted.weight is module.weight
    torch.testing.assert_close(jitted(torch.ones(3)), module(torch.ones(3)))
    assert list(jitted.state_dict()) == ["weight", "bias"]


@pytest.mark.parametrize("wrap", [lambda f: torch.compile(f, backend="eager"), torch.compiler.disable])
def test_wrapped_function_is_called_inside_as_itself(wrap) -> None:
    inner = wrap(sine)
    assert_as_eager(lambda x: inner(x) + 1, torch.randn(3, requires_grad=True), options={"fullgraph": True})


def test_change_behind_a_wrapped_function_is_seen() -> None:
    factors = [2.0]

    def scale(x: torch.Tensor) -> torch.Tensor:
        return x * factors[0]

    inner = torch.compile(scale, backend="eager")
    jitted = thunder.jit(lambda x: inner(x))
    assert jitted(torch.ones(1)).item() == 2.0
    factors[0] = 3.0
    assert jitted(torch.ones(1)).item() == 3.0


def test_module_that_was_compiled_in_place_is_traced_once() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    module[0].compile(backend="eager")
    assert_as_eager(thunder.jit(module).__wrapped__, torch.randn(2, 3), options={"fullgraph": True})


class Steps(nn.Module):
    """Trained through a method, as by Lightning."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Linear(3, 1)
        self.logged: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        x, y = batch
        loss = nn.functional.mse_loss(self(x), y)
        self.logged.append(loss.detach())
        return loss


def test_method_that_calls_the_module_runs_compiled_code() -> None:
    torch.manual_seed(0)
    eager, module = Steps(), Steps()
    module.load_state_dict(eager.state_dict())
    jitted = thunder.jit(module, fullgraph=True)
    for step in range(3):
        batch = (torch.randn(4, 3), torch.randn(4, 1))
        losses = [each.training_step(batch, step) for each in (eager, jitted)]
        for loss in losses:
            loss.backward()
        torch.testing.assert_close(*losses)
        torch.testing.assert_close(module.model.weight.grad, eager.model.weight.grad)
    assert (thunder.cache_misses(jitted), thunder.cache_hits(jitted)) == (1, 2)
    assert len(module.logged) == 3


class OnlySteps(nn.Module):
    """Has no `forward`."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Linear(3, 1)

    def training_step(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x).sum()


class HandsOn(nn.Module):
    """Has a `forward` that does nothing itself, as `LightningModule` has."""

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        return super().forward(*arguments, **keywords)


class OnlyStepsBehind(OnlySteps, HandsOn):
    pass


@pytest.mark.parametrize("module", [OnlySteps, OnlyStepsBehind])
def test_module_without_forward_says_that_nothing_is_compiled(module: Any) -> None:
    with pytest.warns(UserWarning, match=f"{module.__name__} has no forward.*nothing of it is compiled") as caught:
        jitted = thunder.jit(module())
    assert caught[0].filename == __file__
    assert jitted.training_step(torch.ones(2, 3)).requires_grad


def test_jitted_submodule_or_method_of_such_a_module_is_compiled() -> None:
    module = OnlySteps()
    x = torch.ones(2, 3)
    expected = module.training_step(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step = thunder.jit(module.training_step)
        torch.testing.assert_close(step(x), expected)
        module.model = thunder.jit(module.model)
        torch.testing.assert_close(module.training_step(x), expected)
    assert thunder.cache_misses(step) == 1
    assert thunder.cache_misses(module.model) == 1


class WithDecorators(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 3.0

    @thunder.jit
    @staticmethod
    def of_class(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2

    @thunder.jit(fullgraph=True)
    @classmethod
    def named(cls, x: torch.Tensor) -> Any:
        return x.cos(), cls.__name__

    beside = thunder.jit(staticmethod(lambda x: x.tanh()))


@pytest.mark.parametrize("owner", [WithDecorators, WithDecorators()])
def test_static_and_class_methods_are_compiled(owner: Any) -> None:
    x = torch.ones(3)
    for function, expected in (
        (owner.of_class, x.sin() * 2),
        (owner.beside, x.tanh()),
        (lambda x: owner.named(x)[0], x.cos()),
    ):
        assert torch.equal(function(x), expected)
    assert owner.named(x)[1] == "WithDecorators"
    assert thunder.compile_stats(owner.of_class).eager_calls == thunder.compile_stats(owner.named).eager_calls == 0


def test_a_static_method_itself_is_called_and_asked() -> None:
    f = thunder.jit(staticmethod(lambda x: x.sin()), fullgraph=True)
    assert torch.equal(f(torch.ones(3)), torch.ones(3).sin())
    assert thunder.compile_stats(f).calls == 1
    assert thunder.last_traces(f)
