"""`autocast`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder._check import load_extension
from thunder.transforms.functional.structures import Kept, compiled, runs_as_torch

__all__ = ["autocast"]

_functional = load_extension().functional


def autocast(
    func: Callable[..., Any], dtype: torch.dtype = torch.bfloat16, *, device_type: str = "cpu"
) -> Callable[..., Any]:
    """Return `func` in mixed precision: products in `dtype`, what needs the range in float32, as `torch.autocast` says.

    Args:
        func: a function or module that takes and returns tensors, and containers of them.
        dtype: torch.bfloat16 or torch.float16.
        device_type: "cpu" or "cuda": whose operations are cast.

    Raises:
        TypeError: `func` is not callable.
        ValueError: another `dtype` or `device_type`.

    Example:
        >>> import torch, thunder
        >>> thunder.autocast(torch.matmul)(torch.ones(2, 2), torch.ones(2, 2)).dtype
        torch.bfloat16
    """
    if dtype not in (torch.bfloat16, torch.float16):
        raise ValueError(f"thunder.autocast: dtype: expected torch.bfloat16 or torch.float16, got {dtype}")
    if device_type not in ("cpu", "cuda"):
        raise ValueError(f"thunder.autocast: device_type: expected 'cpu' or 'cuda', got {device_type!r}")
    device = torch.device(device_type)

    def cast(*args: Any, **kwargs: Any) -> Any:
        if runs_as_torch():
            with torch.autocast(device_type, dtype):
                return func(*args, **kwargs)
        arguments = Kept((args, kwargs))
        recorded: list[Any] = []

        def call(tensors: list[Any]) -> list[Any]:
            given, keywords = arguments.restored(tensors)
            recorded.append(Kept(func(*given, **keywords)))
            return list(recorded[-1].tensors)

        inputs = arguments.tensors
        trace, captures = _functional.record("autocast", call, inputs, False)
        everything = [*inputs, *captures]
        program = _functional.autocast(trace, everything, device, dtype)
        return recorded[-1].restored(_functional.replay(program, everything))

    return compiled("autocast", cast, func)
