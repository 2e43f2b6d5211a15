"""An operator of one's own, with forward and backward: a fused `silu(gate) * up`.

python examples/extending/custom_operator.py
"""

from __future__ import annotations

import torch

import thunder
from thunder.extend import OperatorExecutor, get_grad, put_grad

swiglu_executor = OperatorExecutor("swiglu")


def meta(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(gate)


def forward_of_mine(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Stands for a kernel in C++, CUDA or whatever calls one."""
    result = torch.empty_like(gate)
    torch.sigmoid(gate, out=result)
    return result.mul_(gate).mul_(up)


def meta_of_two(cotangent: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(gate), torch.empty_like(up)


def backward_of_mine(
    cotangent: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    sigmoid = torch.sigmoid(gate)
    silu = gate * sigmoid
    return cotangent * up * (sigmoid + silu * (1 - sigmoid)), cotangent * silu


swiglu = swiglu_executor.register_operator("swiglu", meta=meta, fn=forward_of_mine)
swiglu_backward = swiglu_executor.register_operator("swiglu_backward", meta=meta_of_two, fn=backward_of_mine)


def swiglu_gradient(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    result = swiglu(gate, up)
    for_gate, for_up = swiglu_backward(get_grad(result), gate, up)
    put_grad(gate, for_gate)
    put_grad(up, for_up)
    return result


swiglu_executor.register_implementation(swiglu, grad_transform=swiglu_gradient)


class FeedForward(torch.nn.Module):
    """The feed-forward part of a Llama block."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = torch.nn.Linear(width, hidden, bias=False)
        self.up = torch.nn.Linear(width, hidden, bias=False)
        self.down = torch.nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(swiglu(self.gate(x), self.up(x)))


if __name__ == "__main__":
    module = thunder.jit(FeedForward(8, 16), executors=[swiglu_executor])
    module(torch.randn(4, 8)).sum().backward()
    print(thunder.last_traces(module)[-1])
    print(thunder.last_backward_traces(module)[-1])
