"""Inputs of programs, as expressions: shapes, dtypes and layouts."""

from __future__ import annotations

import random

import torch

FLOATS = ("torch.float32", "torch.float64", "torch.bfloat16", "torch.float16")
COMPLEX = ("torch.complex64", "torch.complex128")
INTEGERS = ("torch.int64", "torch.int32", "torch.int16", "torch.int8", "torch.uint8")

LAYOUTS = ("contiguous",) * 3 + ("transposed", "strided", "offset", "reversed_dims", "expanded", "channels_last")


def random_dtype(source: random.Random) -> str:
    """Return the text of a dtype; float32 in half of the cases."""
    kind = source.random()
    if kind < 0.5:
        return "torch.float32"
    if kind < 0.7:
        return source.choice(FLOATS)
    if kind < 0.77:
        return source.choice(COMPLEX)
    return "torch.bool" if kind < 0.83 else source.choice(INTEGERS)


def random_shape(source: random.Random, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape of dimensions among `sizes` and 1, seldom 0; broadcasting between two of them is likely."""
    rank = source.choices((0, 1, 2, 3, 4), weights=(1, 3, 6, 3, 1))[0]
    shape = [source.choice(sizes) for _ in range(rank)]
    for i in range(rank):
        kind = source.random()
        shape[i] = 1 if kind < 0.12 else 0 if kind < 0.14 else shape[i]
    return tuple(shape)


def tensor(shape: tuple[int, ...], dtype: str, below: int = 4) -> str:
    """Return an expression for random numbers; integers lie in [0, `below`)."""
    text = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    if dtype == "torch.bool":
        return f"torch.randint(2, ({text})).bool()"
    if dtype in INTEGERS:
        return f"torch.randint({below}, ({text}), dtype={dtype})"
    if dtype in ("torch.float16", "torch.bfloat16"):
        return f"torch.randn(({text})).to({dtype})"
    return f"torch.randn(({text}), dtype={dtype})"


def laid_out(source: random.Random, shape: tuple[int, ...], dtype: str, written: bool) -> str:
    """Return an expression for a tensor of this shape in one of the layouts.

    Where it may be `written`, no elements share memory: what eager then does depends on the kernel.
    """
    layout = source.choice(LAYOUTS)
    if written and layout == "expanded":
        layout = "contiguous"
    rank = len(shape)
    if layout == "transposed" and rank >= 2:
        return f"{tensor((*shape[:-2], shape[-1], shape[-2]), dtype)}.mT"
    if layout == "strided" and rank >= 1:
        return f"{tensor((*shape[:-1], 2 * shape[-1]), dtype)}[..., ::2]"
    if layout == "offset" and rank >= 1:
        return f"{tensor((shape[0] + 1, *shape[1:]), dtype)}[1:]"
    if layout == "reversed_dims" and rank >= 3:
        order = tuple(reversed(range(rank)))
        return f"{tensor(tuple(reversed(shape)), dtype)}.permute{order}"
    if layout == "expanded" and rank >= 1:
        return f"{tensor((1, *shape[1:]), dtype)}.expand({', '.join(map(str, shape))})"
    if layout == "channels_last" and rank == 4:
        return f"{tensor(shape, dtype)}.contiguous(memory_format=torch.channels_last)"
    return tensor(shape, dtype)


def on_device(value: torch.Tensor, device: str) -> torch.Tensor:
    """Return a copy of a tensor on the device, laid out as it is within a copy of its whole memory."""
    memory = value.untyped_storage().to(device=torch.device(device))
    return torch.empty(0, dtype=value.dtype, device=device).set_(
        memory, value.storage_offset(), value.shape, value.stride()
    )


def make(expressions: tuple[str, ...], seed: int, requires_grad: bool, device: str = "cpu") -> list[torch.Tensor]:
    """Return the tensors that the expressions stand for; with `requires_grad`, those that may be differentiated do.

    On every device they have the same elements.
    """
    torch.manual_seed(seed)
    tensors = [eval(expression, {"torch": torch}) for expression in expressions]
    if device != "cpu":
        tensors = [on_device(value, device) for value in tensors]
    for value in tensors:
        if requires_grad and (value.is_floating_point() or value.is_complex()):
            value.requires_grad_()
    return tensors
