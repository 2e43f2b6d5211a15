"""A transform that keeps parameters in bfloat16 and computes in float32, as the program was written.

python examples/extending/bfloat16_parameters.py
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import thunder
from thunder import Trace
from thunder.transforms import Transform, override_parameter, overrides_of


class Bfloat16Parameters(Transform):
    """Stores float32 parameters in half the memory; their gradients are in bfloat16, too."""

    def transform_module(self, model: Any) -> None:
        for name, parameter in list(model.named_parameters()):
            if parameter.dtype == torch.float32:
                stored = nn.Parameter(parameter.detach().bfloat16(), requires_grad=parameter.requires_grad)
                override_parameter(model, name, stored)

    def transform_traces_pre_prologue(
        self, prologue_trace: Trace, computation_trace: Trace, epilogue_trace: Trace, **kwargs: Any
    ) -> Any:
        edit = computation_trace.edit("parameters in bfloat16")
        for value in dict.fromkeys(computation_trace.parameters.values()):  # tied ones have several names
            stored = edit.take_stored(value)
            if stored.dtype == torch.bfloat16:
                edit.substitute(value, edit.insert_first(lambda x: x.float(), stored))
            else:
                edit.substitute(value, stored)
        return prologue_trace, edit.finish(), epilogue_trace

    def transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        return {name: self._converted(model, submodule_name, name, value, False) for name, value in state_dict.items()}

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        return {name: self._converted(model, submodule_name, name, value, True) for name, value in state_dict.items()}

    def _converted(self, model: Any, path: str, name: str, value: torch.Tensor, back: bool) -> torch.Tensor:
        override = overrides_of(model).get(f"{path}.{name}".lstrip("."))
        if override is None or override.owner != repr(self):
            return value
        return value.to(override.dtype) if back else value.bfloat16()


if __name__ == "__main__":
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4))
    compiled = thunder.jit(model, transforms=[Bfloat16Parameters()])
    compiled(torch.randn(8, 16)).sum().backward()
    print(thunder.last_traces(compiled)[0])
    print({name: parameter.grad.dtype for name, parameter in compiled.named_parameters()})
