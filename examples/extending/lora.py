"""A transform that fine-tunes linear layers by two small matrices beside each frozen weight (LoRA, arXiv 2106.09685).

python examples/extending/lora.py
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

import thunder
from thunder import Trace
from thunder.transforms import Transform, add_parameter


class Lora(Transform):
    """Adds `lora_a` `[rank, inputs]` and `lora_b` `[outputs, rank]` to linear layers, and freezes all that was there.

    The layer computes `linear(x, weight, bias) + scale * x @ lora_a.T @ lora_b.T`; `lora_b` begins with zeros. In a
    list of transforms it stands before those that put something else in the place of weights.
    """

    def __init__(self, rank: int, scale: float = 1.0) -> None:
        self.rank, self.scale = rank, scale

    def __repr__(self) -> str:
        return f"Lora(rank={self.rank})"

    def transform_module(self, model: Any) -> None:
        frozen = {}  # over the same memory; those of the original stay trainable
        for module in model.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    frozen.setdefault(parameter, nn.Parameter(parameter.detach(), requires_grad=False))
                    module._parameters[name] = frozen[parameter]
        for path, module in list(model.named_modules()):
            if not isinstance(module, nn.Linear):
                continue
            prefix = f"{path}." if path else ""
            a = torch.empty(self.rank, module.in_features, device=module.weight.device, dtype=module.weight.dtype)
            nn.init.kaiming_uniform_(a, a=5**0.5)
            b = torch.zeros(module.out_features, self.rank, device=a.device, dtype=a.dtype)
            add_parameter(model, f"{prefix}lora_a", nn.Parameter(a), beside=f"{prefix}weight")
            add_parameter(model, f"{prefix}lora_b", nn.Parameter(b), beside=f"{prefix}weight")

    def transform_traces_pre_prologue(
        self, prologue_trace: Trace, computation_trace: Trace, epilogue_trace: Trace, **kwargs: Any
    ) -> Any:
        edit = computation_trace.edit("lora")
        parameters = computation_trace.parameters
        prefixes = {
            value: name.removesuffix("weight")
            for name, value in parameters.items()
            if f"{name.removesuffix('weight')}lora_a" in parameters
        }
        adapted: dict[Any, Any] = {}  # results of layers, which the next layer may take as they are
        for symbol in computation_trace.bound_symbols:
            if symbol.name.startswith("aten.to.") and symbol.args[0] in prefixes:  # under autocast
                prefixes[symbol.results[0]] = prefixes[symbol.args[0]]
            if symbol.name == "aten.linear.default" and symbol.args[1] in prefixes:
                prefix = prefixes[symbol.args[1]]
                a, b = parameters[f"{prefix}lora_a"], parameters[f"{prefix}lora_b"]
                y, x = symbol.results[0], adapted.get(symbol.args[0], symbol.args[0])
                adapted[y] = edit.insert_after(symbol, self._adapt, y, x, a, b)
                edit.substitute(y, adapted[y])
        return prologue_trace, edit.finish(), epilogue_trace

    def _adapt(self, y: torch.Tensor, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return y + self.scale * (x @ a.t().to(x.dtype) @ b.t().to(x.dtype))

    def transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        module = model.get_submodule(submodule_name)
        if hasattr(module, "lora_b"):
            state_dict = {**state_dict, "lora_a": module.lora_a.detach(), "lora_b": torch.zeros_like(module.lora_b)}
        return state_dict

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        if "lora_a" not in state_dict:
            return state_dict
        merged = {name: value for name, value in state_dict.items() if not name.startswith("lora_")}
        merged["weight"] = merged["weight"] + self.scale * state_dict["lora_b"] @ state_dict["lora_a"]
        return merged


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4))
    compiled = thunder.jit(model, transforms=[Lora(rank=4)])
    trained = [parameter for parameter in compiled.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.05)
    x, target = torch.randn(32, 16), torch.randn(32, 4)
    for step in range(5):
        loss = nn.functional.mse_loss(compiled(x), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item())
    merged = copy.deepcopy(model)
    merged.load_state_dict(compiled.original_state_dict())
    print("largest difference of the merged model:", (compiled(x) - merged(x)).abs().max().item())
