"""Calls whose arguments must fit each other closely (convolutions, losses, …): PyTorch's own samples of operators."""

from __future__ import annotations

import functools
import math
import random
from typing import Any

import torch

from tests.fuzz import inputs

_SAMPLES = 6
_LEFT_OUT = (
    *("sparse", "empty", "nested", "to_", "jiterator", "_ref", "rnn", "resize", "from_", "native_", "unsafe"),
    *("rrelu", "pdist"),  # uninitialized numbers; crashes in eager
)


@functools.cache
def _infos() -> tuple[Any, ...]:
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError:  # it needs packages that PyTorch does not
        return ()
    return tuple(info for info in op_db if _is_taken(info.name))


def _is_taken(name: str) -> bool:
    return _callable_text(name) is not None and not name.startswith("_") and not any(w in name for w in _LEFT_OUT)


def _callable_text(name: str) -> str | None:
    found: Any = torch
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"torch.{name}" if callable(found) else None


@functools.lru_cache(maxsize=256)
def _samples(name: str, variant: str, dtype: torch.dtype) -> list[Any]:
    info = next(info for info in _infos() if (info.name, info.variant_test_name) == (name, variant))
    torch.manual_seed(0)
    taken = []
    for sample in info.sample_inputs("cpu", dtype, requires_grad=False):
        taken.append((sample.input, *sample.args, sample.kwargs))
        if len(taken) == _SAMPLES:
            break
    return taken


def _expression(value: torch.Tensor) -> str:
    if value.layout != torch.strided or value.is_conj() or value.is_neg():
        raise ValueError
    if value.numel() > 40:
        if not value.is_floating_point():
            raise ValueError
        return inputs.tensor(tuple(value.shape), str(value.dtype))
    if not all(math.isfinite(abs(number)) for number in value.flatten().tolist()):
        raise ValueError
    if value.numel() == 0:
        return inputs.tensor(tuple(value.shape), str(value.dtype))
    return f"torch.tensor({value.tolist()}, dtype={value.dtype})"


def sample_call(source: random.Random, settings: Any, writer: Any) -> str:
    """Return a call of an operator of op_db; its tensors become inputs, or values that look alike."""
    info = source.choice(_infos())
    if not settings.randomness and "dropout" in info.name:
        raise ValueError
    dtype = source.choice((torch.float32, torch.float32, torch.float64, torch.int64))
    if dtype not in info.dtypes:
        raise ValueError
    *arguments, keywords = source.choice(_samples(info.name, info.variant_test_name, dtype))

    def text(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            alike = [
                name
                for name in writer.tensors()
                if writer.values[name].shape == value.shape and writer.values[name].dtype == value.dtype
            ]
            return source.choice(alike) if alike else writer.add_input(_expression(value))
        if isinstance(value, list):
            return f"[{', '.join(map(text, value))}]"
        if isinstance(value, tuple):
            return f"({''.join(text(item) + ', ' for item in value)})"
        if value is None or isinstance(value, bool | int | float | complex | str | torch.dtype):
            if isinstance(value, float | complex) and not math.isfinite(abs(value)):
                raise ValueError
            return repr(value)
        raise ValueError

    parts = [*map(text, arguments), *(f"{name}={text(value)}" for name, value in keywords.items())]
    return f"{_callable_text(info.name)}({', '.join(parts)})"
