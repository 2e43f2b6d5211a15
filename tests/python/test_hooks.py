"""Hooks of modules and parameters, compiled."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager, assert_module_as_eager
from small_modules import mlp, sequence
from torch import nn

import thunder


class Recorder:
    """Hooks that write down what they see, in order."""

    def __init__(self, module: nn.Module) -> None:
        self.seen: list[Any] = []
        module.register_forward_pre_hook(lambda m, args: self.seen.append(("pre", args[0].shape)))
        module.register_forward_hook(lambda m, args, out: self.seen.append(("forward", out.shape)))


def test_hooks_that_record_python_values_run_at_each_call() -> None:
    module = mlp()
    recorder = Recorder(module[0])
    compiled = thunder.jit(module)
    for _ in range(3):
        compiled(sequence())
    assert recorder.seen == [("pre", (2, 3, 4)), ("forward", (2, 3, 8))] * 3


def test_hook_that_keeps_activations() -> None:
    module, kept = mlp(), []
    eager = copy.deepcopy(module)
    module[0].register_forward_hook(lambda m, args, out: kept.append(out.detach()))
    compiled = thunder.jit(module)
    for _ in range(2):
        x = sequence()
        compiled(x)
        torch.testing.assert_close(kept[-1], eager[0](x).detach())


def double_gradient(parameter: nn.Parameter) -> None:
    parameter.grad.mul_(2)


@pytest.mark.parametrize(
    "register",
    [
        lambda m: m.register_forward_pre_hook(lambda m, args: (args[0] * 2,)),
        lambda m: m.register_forward_hook(lambda m, args, out: out * 3),
        lambda m: m.register_forward_hook(lambda m, args, keywords, out: out * 3, with_kwargs=True),
        lambda m: m.weight.register_hook(lambda gradient: gradient * 2),
        lambda m: m.weight.register_post_accumulate_grad_hook(double_gradient),
    ],
    ids=["pre", "forward", "kwargs", "tensor", "accumulated"],
)
def test_hook_that_changes_values(register: Callable[[nn.Module], Any]) -> None:
    module = mlp()
    eager = copy.deepcopy(module)
    register(module[2]), register(eager[2])
    compiled = thunder.jit(module)
    for _ in range(2):
        x = sequence().detach().requires_grad_()
        results = [model(x * 2) for model in (compiled, eager)]
        torch.testing.assert_close(*results)
        for result in results:
            result.sum().backward()
        assert_module_as_eager(module, eager)


def test_retain_grad_inside() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 2
        y.retain_grad()
        return y * 3

    assert_as_eager(program, sequence())
