"""An executor that takes matrix multiplications, forward and backward, and computes them in double precision.

python examples/extending/exact_matmul.py
"""

from __future__ import annotations

from typing import Any

import torch

import thunder
from thunder.extend import OperatorExecutor

exact_executor = OperatorExecutor("exact")


def is_supported(*operands: Any, **numbers: Any) -> bool:
    """Say which calls the executor takes, by dtypes and devices."""
    tensors = [x for x in operands if x is not None]
    return all(x.device.type == "cpu" and x.dtype == torch.float32 for x in tensors)


def take(matmul: Any) -> None:
    """Have the executor run an operator of PyTorch's that multiplies matrices."""

    def in_double(*operands: torch.Tensor | None, **numbers: float) -> torch.Tensor:
        return matmul(*(x if x is None else x.double() for x in operands), **numbers).float()

    ours = exact_executor.register_operator(matmul.__name__, like=matmul, fn=in_double)
    exact_executor.register_implementation(matmul, ours, checker=is_supported)


for each in ("mm", "bmm", "addmm", "baddbmm", "linear", "matmul"):
    take(getattr(torch.ops.aten, each))


if __name__ == "__main__":
    model = torch.nn.Sequential(torch.nn.Linear(16, 128), torch.nn.GELU(), torch.nn.Linear(128, 4))
    compiled = thunder.jit(model, executors=[exact_executor])
    compiled(torch.randn(2, 16)).sum().backward()
    print(thunder.last_traces(compiled)[-1])
