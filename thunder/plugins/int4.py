"""Weights of linear layers in 4 bits."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch

from thunder._arguments import shown
from thunder.plugins.plugin import Plugin
from thunder.trace import Trace
from thunder.transforms import Transform, add_parameter, override_parameter

__all__ = ["Int4Weights", "QuantizeInt4"]

_LEVELS = 15  # of 4 bits, from 0


def quantize(weight: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a weight in 4 bits, two elements a byte, and for each group of a row its scale and its smallest value.

    Args:
        weight: `[rows, columns]`, with an even number of columns, a multiple of `group`.
        group: how many elements of a row share a scale.

    Returns:
        uint8 `[rows, columns / 2]`, and `[2, rows, columns / group, 1]` of the weight's dtype.
    """
    rows, columns = weight.shape
    values = weight.detach().float().reshape(rows, columns // group, group)
    low, high = values.amin(-1, keepdim=True), values.amax(-1, keepdim=True)
    scale = ((high - low) / _LEVELS).clamp(min=1e-8)
    # Rounded as they are stored, so that the nearest of the values that programs see is chosen.
    stored = torch.stack([scale, low]).to(weight.dtype)
    scale, low = stored.float()
    levels = ((values - low) / scale).round().clamp(0, _LEVELS).to(torch.uint8).reshape(rows, columns)
    return levels[:, 0::2] | (levels[:, 1::2] << 4), stored


def dequantize(packed: torch.Tensor, stored: torch.Tensor) -> torch.Tensor:
    """Return the weight that programs compute with."""
    levels = torch.stack([packed & _LEVELS, packed >> 4], -1).to(stored.dtype)
    rows, groups = stored.shape[1:3]
    return (levels.reshape(rows, groups, -1) * stored[0] + stored[1]).reshape(rows, -1)


class Int4Weights(Transform):
    """Replaces the weight of each linear layer by 4 bits an element, and adds `weight_int4` with scales and offsets.

    A weight whose rows have an odd number of elements stays as it is. Where `group` does not divide the columns, the
    whole row is a group. The weights are not trained; what is around them may be.

    Args:
        group: how many elements of a row share a scale and an offset; an even number.

    Raises:
        TypeError: `group` is no int.
        ValueError: `group` is no even number from 2 on.

    Example:
        >>> import torch, thunder
        >>> model = thunder.jit(torch.nn.Linear(64, 3), transforms=[thunder.plugins.Int4Weights()])
        >>> model.weight.dtype, tuple(model.weight.shape)  # two elements a byte
        (torch.uint8, (3, 32))
    """

    def __init__(self, group: int = 64) -> None:
        if not isinstance(group, int) or isinstance(group, bool):
            raise TypeError(f"Int4Weights: group: expected an even number from 2 on, got {shown(group)}")
        if group < 2 or group % 2:
            raise ValueError(f"Int4Weights: group: expected an even number from 2 on, got {group}")
        self.group = group

    def __repr__(self) -> str:
        return f"Int4Weights(group={self.group})"

    def transform_module(self, model: Any) -> None:
        """Pack the weights of linear layers."""
        done: set[int] = set()
        for path, module in list(model.named_modules()):
            if not isinstance(module, torch.nn.Linear) or module.in_features % 2 or id(module.weight) in done:
                continue
            packed, stored = quantize(module.weight, self._group_of(module.in_features))
            name = f"{path}.weight".lstrip(".")
            override_parameter(model, name, packed)
            add_parameter(model, f"{name}_int4", stored, beside=name)
            done.add(id(module.weight))

    def transform_traces_pre_prologue(
        self, prologue_trace: Trace, computation_trace: Trace, epilogue_trace: Trace, **kwargs: Any
    ) -> tuple[Trace, Trace, Trace]:
        """Unpack the weights where programs use them."""
        edit = computation_trace.edit(repr(self))
        parameters = computation_trace.parameters
        # Tied weights have several names, one of which has the scales beside it.
        scales = {weight: f"{name}_int4" for name, weight in parameters.items() if f"{name}_int4" in parameters}
        for weight, scale in scales.items():
            packed = edit.take_stored(weight)
            edit.substitute(weight, edit.insert_first(dequantize, packed, parameters[scale]))
        return prologue_trace, edit.finish(), epilogue_trace

    def transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Pack the weight of a submodule."""
        if "weight_int4" in model.get_submodule(submodule_name)._buffers:
            weight = state_dict["weight"]
            packed, stored = quantize(weight, self._group_of(weight.shape[1]))
            state_dict = {**state_dict, "weight": packed, "weight_int4": stored}
        return state_dict

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Unpack the weight of a submodule."""
        if "weight_int4" in state_dict:
            weight = dequantize(state_dict["weight"], state_dict["weight_int4"])
            state_dict = {name: value for name, value in state_dict.items() if name != "weight_int4"}
            state_dict["weight"] = weight
        return state_dict

    def _group_of(self, columns: int) -> int:
        return self.group if columns % self.group == 0 else columns


class QuantizeInt4(Plugin):
    """Keeps the weights of linear layers in 4 bits: the transform `Int4Weights`.

    Args:
        group: how many elements of a row share a scale.
    """

    def __init__(self, group: int = 64) -> None:
        self.transform = Int4Weights(group)

    def setup_model(self, model: Any) -> Any:
        """Return the model, of which a linear layer is expected."""
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"thunder.plugins.QuantizeInt4: expected a module, got {shown(model)}")
        linear = (each for each in model.modules() if isinstance(each, torch.nn.Linear))
        if all(each.in_features % 2 for each in linear):
            warnings.warn(
                f"thunder.plugins.QuantizeInt4: {type(model).__qualname__} has no torch.nn.Linear with an even number "
                "of inputs, so that nothing of it is kept in 4 bits",
                stacklevel=2,
            )
        return model

    def setup_transforms(self) -> Iterable[Transform]:
        """Return the transform."""
        return [self.transform]
