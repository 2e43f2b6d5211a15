"""A transform that keeps the largest inputs of each linear layer in the last calls, as scaling to FP8 needs them.

python examples/extending/amax_history.py
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import thunder
from thunder import Trace
from thunder.transforms import Transform, add_parameter


class AmaxHistory(Transform):
    """Adds the buffer `amax_history` `[length]` to linear layers: largest absolute inputs, the last call's first."""

    def __init__(self, length: int = 16) -> None:
        self.length = length

    def __repr__(self) -> str:
        return f"AmaxHistory({self.length})"

    def transform_module(self, model: Any) -> None:
        for path, module in list(model.named_modules()):
            if isinstance(module, nn.Linear):
                prefix = f"{path}." if path else ""
                history = torch.zeros(self.length, device=module.weight.device)
                add_parameter(model, f"{prefix}amax_history", history, beside=f"{prefix}weight")

    def transform_traces_pre_prologue(
        self, prologue_trace: Trace, computation_trace: Trace, epilogue_trace: Trace, **kwargs: Any
    ) -> Any:
        edit, epilogue = computation_trace.edit("amax history"), epilogue_trace.edit("amax history")
        parameters = computation_trace.parameters
        names = {weight: name.removesuffix("weight") + "amax_history" for name, weight in parameters.items()}
        histories = {name: parameters[name] for name in names.values() if name in parameters}
        for symbol in computation_trace.bound_symbols:
            if symbol.name.startswith("aten.to.") and symbol.args[0] in names:  # under autocast
                names[symbol.results[0]] = names[symbol.args[0]]
            if symbol.name == "aten.linear.default" and names.get(symbol.args[1]) in histories:
                name = names[symbol.args[1]]  # a layer may be called twice
                histories[name] = edit.insert_before(symbol, self._note, histories[name], symbol.args[0])
        for name, history in histories.items():
            epilogue.store(name, edit.add_output(history))
        return prologue_trace, edit.finish(), epilogue.finish()

    def _note(self, history: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.detach().abs().amax().to(history.dtype).reshape(1), history[:-1]])

    def transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        module = model.get_submodule(submodule_name)
        if "amax_history" in module._buffers:
            state_dict = {**state_dict, "amax_history": torch.zeros_like(module.amax_history)}
        return state_dict

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        return {name: value for name, value in state_dict.items() if name != "amax_history"}


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4))
    compiled = thunder.jit(model, transforms=[AmaxHistory(length=4)])
    for scale in (1.0, 2.0, 3.0):
        compiled(scale * torch.randn(8, 16)).sum().backward()
    print(compiled[0].amax_history, compiled[2].amax_history)
    print(thunder.last_epilogue_traces(compiled)[-1])
