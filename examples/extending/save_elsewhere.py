"""A transform that keeps saved activations elsewhere between forward and backward: in CPU memory, or in bfloat16.

python examples/extending/save_elsewhere.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import thunder
from thunder import Trace
from thunder.transforms import Transform


class SaveElsewhere(Transform):
    """Base: `pack` makes of an activation what is kept, `unpack` the reverse."""

    def __init__(self) -> None:
        self.packed: dict[int, Any] = {}  # by position among the saved values

    def is_packed(self, value: Any) -> bool:
        """Say whether a saved value is packed."""
        return bool(value.dtype.is_floating_point)

    def pack(self, activation: torch.Tensor) -> torch.Tensor:
        """Return what is kept of an activation."""
        raise NotImplementedError

    def unpack(self, packed: torch.Tensor, value: Any) -> torch.Tensor:
        """Return the activation, which `value` describes."""
        raise NotImplementedError

    def transform_trace_post_optimization(self, computation_trace: Trace, **kwargs: Any) -> Trace:
        if computation_trace.name.startswith("forward"):
            return self._pack(computation_trace)
        return self._unpack(computation_trace) if computation_trace.name.startswith("backward") else computation_trace

    def _pack(self, trace: Trace) -> Trace:
        edit = trace.edit("pack saved activations")
        first = len(trace.outputs) - len(trace.saved)
        # Tensors that the caller holds anyway (parameters, inputs, results) would only be there twice.
        held = {*trace.inputs, *trace.outputs[:first]}
        self.packed = {
            position: edit.insert_last(self.pack, value)
            for position, value in enumerate(trace.saved)
            if value.is_tensor and value not in held and self.is_packed(value)
        }
        for position, packed in self.packed.items():
            edit.set_output(first + position, packed)
        return edit.finish()

    def _unpack(self, trace: Trace) -> Trace:
        edit = trace.edit("unpack saved activations")
        for position, packed in self.packed.items():
            value = trace.saved[position]
            taken = edit.set_input(position, packed)
            first_use = next((symbol for symbol in trace.bound_symbols if value in values_read(symbol)), None)
            if first_use is None:  # a backward for some of the outputs need not read it
                continue
            edit.substitute(value, edit.insert_before(first_use, self._unpacker(value), taken))
        return edit.finish()

    def _unpacker(self, value: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda packed: self.unpack(packed, value)


class OffloadToCpu(SaveElsewhere):
    """Keeps activations of a GPU in the memory of the CPU."""

    def is_packed(self, value: Any) -> bool:
        return super().is_packed(value) and value.device.type != "cpu"

    def pack(self, activation: torch.Tensor) -> torch.Tensor:
        return activation.to("cpu")

    def unpack(self, packed: torch.Tensor, value: Any) -> torch.Tensor:
        return packed.to(value.device)


class SaveAsBfloat16(SaveElsewhere):
    """Keeps float32 activations in half the memory; gradients are as exact as bfloat16 is."""

    def is_packed(self, value: Any) -> bool:
        return bool(value.dtype == torch.float32)

    def pack(self, activation: torch.Tensor) -> torch.Tensor:
        return activation.to(torch.bfloat16)

    def unpack(self, packed: torch.Tensor, value: Any) -> torch.Tensor:
        return packed.to(value.dtype)


def values_read(symbol: Any) -> list[Any]:
    """Return the arguments of a symbol, lists flattened."""
    found = []
    for argument in (*symbol.args, *symbol.kwargs.values()):
        found += argument if isinstance(argument, list) else [argument]
    return found


if __name__ == "__main__":
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 4))
    compiled = thunder.jit(model, transforms=[SaveAsBfloat16()])
    compiled(torch.randn(8, 16)).sum().backward()
    print(thunder.last_traces(compiled)[-1])
    print(thunder.last_backward_traces(compiled)[-1])
