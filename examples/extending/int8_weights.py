"""A transform that keeps the weights of linear layers in 8 bits: one parameter becomes packed data and a scale.

python examples/extending/int8_weights.py
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import thunder
from thunder import Trace
from thunder.transforms import Transform, add_parameter, override_parameter


def quantize(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return int8 `[rows, columns]` and the scale of each row, `[rows, 1]`, whose product is about `weight`."""
    scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-8) / 127
    return (weight / scale).round().to(torch.int8), scale


def dequantize(packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return the weight that programs compute with."""
    return packed.to(scale.dtype) * scale


class Int8Weights(Transform):
    """Replaces `weight` of each linear layer by its int8 form, and adds `weight_scale`."""

    def transform_module(self, model: Any) -> None:
        for path, module in list(model.named_modules()):
            if not isinstance(module, nn.Linear):
                continue
            packed, scale = quantize(module.weight.detach())
            name = f"{path}.weight".lstrip(".")
            override_parameter(model, name, packed)
            add_parameter(model, f"{name}_scale", scale, beside=name)

    def transform_traces_pre_prologue(
        self, prologue_trace: Trace, computation_trace: Trace, epilogue_trace: Trace, **kwargs: Any
    ) -> Any:
        edit = computation_trace.edit("int8 weights")
        parameters = computation_trace.parameters
        # Tied ones have several names.
        scales = {weight: parameters.get(f"{name}_scale") for name, weight in parameters.items()}
        for weight, scale in scales.items():
            if scale is not None:
                packed = edit.take_stored(weight)
                edit.substitute(weight, edit.insert_first(dequantize, packed, scale))
        return prologue_trace, edit.finish(), epilogue_trace

    def transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        if "weight_scale" in model.get_submodule(submodule_name)._buffers:
            packed, scale = quantize(state_dict["weight"])
            state_dict = {**state_dict, "weight": packed, "weight_scale": scale}
        return state_dict

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        if "weight_scale" in state_dict:
            scale = state_dict["weight_scale"]
            state_dict = {name: value for name, value in state_dict.items() if name != "weight_scale"}
            state_dict["weight"] = dequantize(state_dict["weight"], scale)
        return state_dict


if __name__ == "__main__":
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4))
    compiled = thunder.jit(model, transforms=[Int8Weights()])
    x = torch.randn(8, 16)
    print("largest difference:", (compiled(x) - model(x)).abs().max().item())
    print({name: tensor.dtype for name, tensor in compiled.state_dict().items()})
    print(thunder.last_traces(compiled)[0])
