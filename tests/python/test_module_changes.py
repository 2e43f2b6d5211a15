"""Modules that change between calls are noticed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_module_as_eager
from torch import nn

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
    "state_loaded": lambda module: module.load_state_dict({k: v * 0.5 for k, v in module.state_dict().items()}),
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
