"""An executor that runs `torch.nn.functional.linear` itself, where it can.

python examples/extending/own_linear.py
"""

from __future__ import annotations

from typing import Any

import torch

import thunder
from thunder.extend import OperatorExecutor


def linear_in_blocks(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Stands for a kernel of one's own: computes 64 columns of the result at a time."""
    blocks = [x @ block.t() for block in weight.split(64)]
    result = torch.cat(blocks, dim=-1)
    return result if bias is None else result.add_(bias)


def is_supported(x: Any, weight: Any, bias: Any = None) -> bool:
    """Says which calls the executor takes, by shapes, dtypes and devices."""
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and weight.shape[0] >= 64


blocks_executor = OperatorExecutor("blocks")
blocks_linear = blocks_executor.register_operator("linear", like=torch.nn.functional.linear, fn=linear_in_blocks)
blocks_executor.register_implementation(torch.nn.functional.linear, blocks_linear, checker=is_supported)


if __name__ == "__main__":
    model = torch.nn.Sequential(torch.nn.Linear(16, 128), torch.nn.GELU(), torch.nn.Linear(128, 4))
    compiled = thunder.jit(model, executors=[blocks_executor])
    compiled(torch.randn(2, 16)).sum().backward()
    print(thunder.last_traces(compiled)[-1])
