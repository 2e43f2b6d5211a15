"""A pass that counts floating-point operations of matrix products, by shapes alone.

python examples/extending/count_flops.py
"""

from __future__ import annotations

import math
from typing import Any

import torch

import thunder
from thunder import Trace
from thunder.transforms import Transform


def _linear(x: Any, weight: Any, bias: Any = None) -> int:
    return 2 * math.prod(x.shape) * int(weight.shape[0])


def _product(x: Any, y: Any) -> int:
    return 2 * math.prod(x.shape) * int(y.shape[-1])


def _attention(query: Any, key: Any, value: Any, *rest: Any, **options: Any) -> int:
    scores = math.prod(query.shape[:-1]) * int(key.shape[-2])
    return 2 * scores * (int(query.shape[-1]) + int(value.shape[-1]))


FLOPS = {
    "aten.linear.default": _linear,
    "aten.mm.default": _product,
    "aten.bmm.default": _product,
    "aten.matmul.default": _product,
    "aten.addmm.default": lambda bias, x, y, **options: _product(x, y),
    "aten.scaled_dot_product_attention.default": _attention,
}


def count_flops(trace: Trace) -> int:
    """Return 2 for each multiply-add of the matrix products and attentions in a trace."""
    symbols = (symbol for symbol in trace.bound_symbols if symbol.name in FLOPS)
    return sum(FLOPS[symbol.name](*symbol.args, **symbol.kwargs) for symbol in symbols)


class CountFlops(Transform):
    """Counts in the final traces of the last compilation; changes nothing."""

    def __init__(self) -> None:
        self.flops: dict[str, int] = {}

    def transform_trace_post_optimization(self, computation_trace: Trace, **kwargs: Any) -> Trace:
        self.flops[computation_trace.name] = count_flops(computation_trace)
        return computation_trace


if __name__ == "__main__":
    counter = CountFlops()
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 4))
    compiled = thunder.jit(model, transforms=[counter])
    compiled(torch.randn(8, 16, requires_grad=True)).sum().backward()
    print(counter.flops)
