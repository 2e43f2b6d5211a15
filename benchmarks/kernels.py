"""Single operations that the CPU executor runs in kernels of its own, or another library's, beside ATen's.

python benchmarks/kernels.py [--threads 2] [--names REGEX]

`ns` is the time for one element of the first argument: of what is filled, of the gradient that comes in, of a matrix.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import common
import torch

Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


def bernoulli(dtype: torch.dtype) -> Case:
    return lambda x: x.bernoulli_(0.9), (torch.empty(4, 12, 128, 512, dtype=dtype),)


def filter_gradient(channels: int, size: int, filter: int, stride: int, layout: torch.memory_format) -> Case:
    """The filter's gradient in a depthwise convolution of 8 images."""
    x = torch.randn(8, channels, size, size).contiguous(memory_format=layout)
    w = torch.randn(channels, 1, filter, filter, requires_grad=True)

    def gradient(cotangent: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        options: Any = ([stride] * 2, [filter // 2] * 2, [1, 1], False, [0, 0], channels, [False, True, False])
        return torch.ops.aten.convolution_backward(cotangent, x, w, None, *options)[1]

    out = torch.nn.functional.conv2d(x, w, stride=stride, padding=filter // 2, groups=channels)
    return gradient, (torch.randn_like(out), x, w.detach())


def product(rows: int, common: int, columns: int, transposed: str) -> Case:
    """A matmul of two matrices; those that `transposed` names lie in memory column by column."""
    left, right = torch.randn(rows, common), torch.randn(common, columns)
    if "left" in transposed:
        left = torch.randn(common, rows).t()
    if "right" in transposed:
        right = torch.randn(columns, common).t()
    return torch.mm, (left, right)


def gathered_gradient(rows: int, count: int, columns: int) -> Case:
    """The gradient of a table whose rows were gathered: edges of a graph that read its nodes."""

    def gradient(cotangent: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return cotangent.new_zeros(rows, columns).index_put((index,), cotangent, accumulate=True)

    return gradient, (torch.randn(count, columns), torch.randint(rows, (count,)))


def convolution(channels: int, size: int, filters: int, filter: int, dtype: torch.dtype) -> Case:
    """A convolution of 8 images that lie channels last, then `silu`."""
    x = torch.randn(8, channels, size, size, dtype=dtype).contiguous(memory_format=torch.channels_last)
    w, b = torch.randn(filters, channels, filter, filter, dtype=dtype), torch.randn(filters, dtype=dtype)
    return lambda x, w, b: torch.nn.functional.silu(torch.conv2d(x, w, b, padding=filter // 2)), (x, w, b)


FILTERS = [(96, 56, 7, 1), (192, 28, 7, 1), (384, 14, 7, 1), (768, 7, 7, 1)]  # ConvNeXt
FILTERS += [(32, 112, 3, 1), (96, 112, 3, 2), (144, 56, 3, 1), (576, 14, 3, 1), (960, 7, 3, 1)]  # MobileNet
LAYOUTS = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}

CONVOLUTIONS = [(32, 112, 96, 1), (256, 28, 256, 1), (3, 224, 32, 3), (64, 56, 64, 3)]

PRODUCTS = [(16, 768, 3072, "right"), (512, 768, 3072, "right"), (512, 3072, 768, ""), (3072, 512, 768, "left")]

CASES: dict[str, Callable[[], Case]] = {
    "bernoulli bool": lambda: bernoulli(torch.bool),
    "bernoulli float32": lambda: bernoulli(torch.float32),
    "gathered gradient 40000 of 4000 rows of 64": lambda: gathered_gradient(4000, 40000, 64),
    "gathered gradient 4096 of 50000 rows of 768": lambda: gathered_gradient(50000, 4096, 768),
    **{
        f"convolution and silu {c}@{size} {k}x{k} to {f} {str(dtype)[6:]}": functools.partial(
            convolution, c, size, f, k, dtype
        )
        for c, size, f, k in CONVOLUTIONS
        for dtype in (torch.float32, torch.bfloat16)
    },
    **{
        f"product {m}x{k}x{n}" + (f" {transposed} transposed" if transposed else ""): functools.partial(
            product, m, k, n, transposed
        )
        for m, k, n, transposed in PRODUCTS
    },
    **{
        f"filter gradient {c}@{size} {k}x{k}/{stride} {name}": functools.partial(
            filter_gradient, c, size, k, stride, layout
        )
        for c, size, k, stride in FILTERS
        for name, layout in LAYOUTS.items()
    },
}


def measure(name: str, arguments: Any) -> list[dict[str, Any]]:
    function, inputs = CASES[name]()
    calls = {}
    for compiler in arguments.compilers:
        compiled = common.compiled(compiler, function)
        calls[compiler] = lambda compiled=compiled: compiled(*inputs)
        calls[compiler]()
        common.settle(compiler, compiled)
    rows = []
    for compiler, figure in common.take_turns(calls, count=1, rounds=arguments.rounds).items():
        row = {"name": name, "compiler": compiler, **figure, "ns": figure["us"] * 1e3 / inputs[0].numel()}
        rows.append(row)
        common.report(row)
    return rows


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--names", default="", help="regular expression over the names of operations")
    parser.set_defaults(compilers=["eager", "thunder"], rounds=15)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    rows = [row for name in CASES if re.search(arguments.names, name) for row in measure(name, arguments)]
    common.write(arguments, rows)


if __name__ == "__main__":
    main()
