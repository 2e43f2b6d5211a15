"""Modules that change between calls are noticed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_module_as_eager
from torch import nn
from torch.nn.utils import parametrize, prune

import thunder


class Configured(nn.Module):
    """Reads attributes of several kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.names, self.options = 2.0, ["a", "b"], {"bias": True}
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.activation: Callable[[torch.Tensor], torch.Tensor] = torch.tanh

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = self.activation(layer(x)) * self.scale
        x = x * len(self.names)
        return x + 1 if self.options["bias"] else x


def swap_layers(module: nn.Module) -> None:
    module.layers[0], module.layers[1] = module.layers[1], module.layers[0]


class Symmetric(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.triu() + weight.triu(1).T


def make_symmetric(module: nn.Module) -> None:
    parametrize.register_parametrization(module, "weight", Symmetric())


def half_of_state(module: nn.Module) -> dict[str, torch.Tensor]:
    return {key: value * 0.5 for key, value in module.state_dict().items()}


def tie(module: nn.Module) -> None:
    module.layers[1].weight = module.layers[0].weight


def make_tensor_of_parameter(module: nn.Module) -> None:
    del module.layers[0].weight
    module.layers[0].weight = torch.eye(4)


def replace_module(module: nn.Module) -> None:
    module.layers[0] = nn.Sequential(nn.Flatten(), nn.Identity())


def double_weight(module: nn.Module) -> None:
    with torch.no_grad():
        module.layers[0].weight.mul_(2)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "float": lambda module: setattr(module, "scale", 3.0),
    "float_to_int": lambda module: setattr(module, "scale", 2),
    "list_length": lambda module: module.names.append("c"),
    "dict_value": lambda module: module.options.update(bias=False),
    "function": lambda module: setattr(module, "activation", torch.relu),
    "module_removed": lambda module: module.layers.pop(1),
    "module_added": lambda module: module.layers.append(nn.Identity()),
    "modules_swapped": swap_layers,
    "weight_values": double_weight,
    "weight_data": lambda module: setattr(module.layers[0].weight, "data", torch.ones(4, 4)),
    "weight_frozen": lambda module: module.layers[0].requires_grad_(False),
    "dtype": lambda module: module.double(),
    "hook": lambda module: module.layers[0].register_forward_hook(lambda m, args, out: out * 2) and None,
    "forward_replaced": lambda module: setattr(module.layers[0], "forward", torch.sigmoid),
    "bias_removed": lambda module: setattr(module.layers[0], "bias", None),
    "state_loaded": lambda module: module.load_state_dict(half_of_state(module)),
    "state_assigned": lambda module: module.load_state_dict(half_of_state(module), assign=True),
    "tensors_swapped": lambda module: torch.utils.swap_tensors(module.layers[0].weight, nn.Parameter(torch.eye(4))),
    "parameter_replaced": lambda module: setattr(module.layers[0], "weight", nn.Parameter(torch.eye(4))),
    "parameters_tied": tie,
    "parameter_became_tensor": make_tensor_of_parameter,
    "module_replaced": replace_module,
    "parametrized": lambda module: make_symmetric(module.layers[0]),
    "weight_normed": lambda module: nn.utils.parametrizations.weight_norm(module.layers[0]),
    "pruned": lambda module: prune.l1_unstructured(module.layers[0], "weight", amount=0.5),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_between_calls(change: str) -> None:
    module = Configured()
    eager = copy.deepcopy(module)
    compiled = thunder.jit(module)
    for _ in range(3):
        x = torch.randn(2, 4, dtype=next(module.parameters()).dtype)
        results = [model(x) for model in (compiled, eager)]
        torch.testing.assert_close(*results)
        for model, result in ((module, results[0]), (eager, results[1])):
            model.zero_grad()
            result.sum().backward()
        assert_module_as_eager(module, eager)
        for model in (module, eager):
            if _ == 0:
                CHANGES[change](model)


def test_a_compiled_module_that_is_given_another_class_is_as_in_eager() -> None:
    modules = [nn.Linear(4, 4), nn.Linear(4, 4)]
    modules[1].load_state_dict(modules[0].state_dict())
    compiled = thunder.jit(modules[1])
    x = torch.randn(2, 4)
    for change in (make_symmetric, lambda module: parametrize.remove_parametrizations(module, "weight")):
        torch.testing.assert_close(compiled(x), modules[0](x))
        change(modules[0])
        change(compiled)
        torch.testing.assert_close(compiled(x), modules[0](x))
        torch.testing.assert_close(compiled.weight, modules[0].weight)
        assert isinstance(compiled, thunder.ThunderModule)
        assert type(modules[1]).__name__ == compiled.__class__.__name__ == type(modules[0]).__name__


def test_what_lies_in_slots_of_a_module_is_shared() -> None:
    class Slotted(nn.Module):
        __slots__ = ("scale",)

        def __init__(self) -> None:
            super().__init__()
            self.scale = 2.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    module = Slotted()
    compiled: Any = thunder.jit(module)
    assert compiled(torch.tensor(3.0)) == 6
    compiled.scale = 5.0
    assert module.scale == 5
    assert compiled(torch.tensor(3.0)) == 15
    module.scale = 7.0
    assert compiled.scale == 7
    assert compiled(torch.tensor(3.0)) == 21
    del compiled.scale
    assert not hasattr(module, "scale")


class Moved(nn.Module):
    """Moves its parts to where the input is, as libraries do: they are there already."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.ones(2))
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.how == "module":
            self.linear.to(x.device)
        elif self.how == "data":
            self.scale.data = self.scale.data.to(device=x.device, dtype=x.dtype)
        elif self.how == "detached":
            self.scale.data = self.scale.detach()
        else:
            self.scale.data = self.scale
        return self.linear(x) * self.scale


@pytest.mark.parametrize("how", ["module", "data", "detached", "itself"])
def test_parameters_that_are_moved_to_where_they_are(how: str) -> None:
    plain = Moved(how)
    compiled = thunder.jit(copy.deepcopy(plain), fullgraph=True)
    for _ in range(3):
        x = torch.randn(4, 3)
        results = [module(x) for module in (plain, compiled)]
        torch.testing.assert_close(*results)
        for result in results:
            result.sum().backward()
        for expected, got in zip(plain.parameters(), compiled.parameters(), strict=True):
            torch.testing.assert_close(got.grad, expected.grad)
    assert thunder.cache_misses(compiled) <= 2  # `to` looks at gradients, which the second call has


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("change", [lambda p: p.data[:1], lambda p: p.data.clone(), lambda p: p.detach().t()])
def test_data_of_a_parameter_that_changes_is_left_to_eager(change: Callable[[nn.Parameter], torch.Tensor]) -> None:
    class Changed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.arange(6.0).view(2, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.data = change(self.weight)
            return self.weight * x

    plain, changed = Changed(), Changed()
    compiled = thunder.jit(changed)
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.tensor(2.0)), plain(torch.tensor(2.0)))
        torch.testing.assert_close(changed.weight, plain.weight)
        assert changed.weight.stride() == plain.weight.stride()
