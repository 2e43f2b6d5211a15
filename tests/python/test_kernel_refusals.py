"""Fusions refuse the constants and dtypes that PyTorch's kernels refuse, in whose place they run.

Meta kernels, which say what results are like, do not make all of these checks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder

pytestmark = pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning", "ignore::UserWarning")

Program = Callable[[torch.Tensor, torch.Tensor], Any]

PROGRAMS: dict[str, Program] = {
    "abs": lambda x, y: torch.abs(x),
    "neg": lambda x, y: -x,
    "sign": lambda x, y: torch.sign(x),
    "square": lambda x, y: torch.square(x),
    "relu": lambda x, y: torch.relu(x),
    "floor": lambda x, y: torch.floor(x),
    "round": lambda x, y: torch.round(x),
    "frac": lambda x, y: torch.frac(x),
    "invert": lambda x, y: ~x,
    "bitwise_and": lambda x, y: x & y,
    "silu": lambda x, y: F.silu(x),
    "mish": lambda x, y: F.mish(x),
    "hardswish": lambda x, y: F.hardswish(x),
    "hardsigmoid": lambda x, y: F.hardsigmoid(x),
    "gelu": lambda x, y: F.gelu(x),
    "gelu_unknown": lambda x, y: F.gelu(x, approximate="erf"),
    "gelu_empty": lambda x, y: F.gelu(x, approximate=""),
    "elu": lambda x, y: F.elu(x, 0.0),
    "celu": lambda x, y: F.celu(x),
    "celu_zero": lambda x, y: F.celu(x, 0.0),
    "leaky_relu": lambda x, y: F.leaky_relu(x, 0.5),
    "softplus": lambda x, y: F.softplus(x, 0.0),
    "threshold": lambda x, y: F.threshold(x, 0.5, 20.5),
    "hardtanh": lambda x, y: F.hardtanh(x),
    "hardtanh_crossed": lambda x, y: F.hardtanh(x, 1.0, -1.0),
    "clamp_crossed": lambda x, y: torch.clamp(x, 1, -1),
    "clamp_nothing": lambda x, y: torch.clamp(x),
    "add": lambda x, y: x + y,
    "add_truth": lambda x, y: x + True,
    "add_scaled": lambda x, y: torch.add(x, y, alpha=1.5),
    "sub": lambda x, y: x - y,
    "sub_number": lambda x, y: x - 1,
    "sub_from_number": lambda x, y: 1 - x,
    "sub_from_truth": lambda x, y: True - x,
    "sub_mask": lambda x, y: x - (y > 1),
    "sub_scaled_by_truth": lambda x, y: torch.sub(x, y, alpha=True),
    "div_unknown": lambda x, y: torch.div(x, y, rounding_mode="round"),
    "div_floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "floor_divide_by_zero": lambda x, y: x // 0,
    "remainder_of_zero": lambda x, y: x % 0,
    "pow_negative": lambda x, y: x**-1,
    "maximum": lambda x, y: torch.maximum(x, y),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y),
    "lerp": lambda x, y: torch.lerp(x, y, 0.5),
    "logit": lambda x, y: torch.logit(x, math.nan),
    "fill": lambda x, y: torch.full_like(x, 300),
    "dropout": lambda x, y: F.dropout(x, 2.0),
    "alpha_dropout": lambda x, y: F.alpha_dropout(x, -1.0, True),
    "softmax": lambda x, y: torch.softmax(x, -1),
    "log_softmax": lambda x, y: torch.log_softmax(x, -1),
    "mean": lambda x, y: x.mean(-1),
    "layer_norm": lambda x, y: F.layer_norm(x, (64,)),
    "layer_norm_negative": lambda x, y: F.layer_norm(x, (64,), eps=-1.0),
    "group_norm": lambda x, y: F.group_norm(x, 3),
    "batch_norm": lambda x, y: F.batch_norm(x, None, None, training=True, eps=-1.0),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y, beta=-1.0),
    "huber": lambda x, y: F.huber_loss(x, y, delta=0.0),
    "mse_unknown": lambda x, y: F.mse_loss(x, y, reduction="average"),
    "cross_entropy_smoothed": lambda x, y: F.cross_entropy(x, torch.arange(64), label_smoothing=2.0),
    "cross_entropy_of_32_bits": lambda x, y: F.cross_entropy(x, torch.arange(64, dtype=torch.int32)),
    "where_number": lambda x, y: torch.where(x, x, y),
    "masked_fill": lambda x, y: x.masked_fill(x, 1),
    "cumsum": lambda x, y: torch.cumsum(x, 2),
}
DTYPES = {"bool": torch.bool, "int64": torch.int64, "float16": torch.float16, "float32": torch.float32}


def outcome(program: Callable[..., Any], *arguments: torch.Tensor) -> Any:
    torch.manual_seed(0)
    try:
        return program(*arguments).dtype
    except Exception as error:
        return type(error), str(error).split("\n")[0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_fusion_refuses_what_the_kernel_refuses(name: str, dtype: str) -> None:
    def convert(t: torch.Tensor) -> torch.Tensor:
        return t * 2 > 1 if dtype == "bool" else (t * 2).to(DTYPES[dtype])

    def program(a: torch.Tensor, b: torch.Tensor) -> Any:
        return PROGRAMS[name](convert(a), convert(b))

    arguments = torch.rand(64, 64) + 0.5, torch.rand(64, 64) + 0.5
    compiled = thunder.jit(program)
    expected = outcome(program, *arguments)
    for _ in range(2):
        assert outcome(compiled, *arguments) == expected


def test_refusal_of_a_kernel_names_the_line() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x * 2, approximate="erf")

    with pytest.raises(NotImplementedError, match=r"(?s)gelu: .*approximate.*test_kernel_refusals\.py, line"):
        thunder.jit(program, fullgraph=True)(torch.ones(3))


MIXING: dict[str, Program] = {
    "matmul": lambda x, y: x @ y,
    "mv": lambda x, y: x.mv(y[0]),
    "bmm": lambda x, y: torch.bmm(x[None], y[None]),
    "baddbmm": lambda x, y: torch.baddbmm(x[None], x[None], y[None]),
    "linear": F.linear,
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
    "conv2d": lambda x, y: F.conv2d(x[None, None], y[None, None]),
    "layer_norm": lambda x, y: F.layer_norm(x, (4,), y[0]),
    "batch_norm": lambda x, y: F.batch_norm(x, None, None, y[0], y[0], True),
    "group_norm": lambda x, y: F.group_norm(x, 1, y[0], y[0]),
    "cdist": torch.cdist,
    "grid_sample": lambda x, y: F.grid_sample(x[None, None], y[None, None, :, :2]),
}


@pytest.mark.parametrize("name", MIXING)
def test_refusal_of_two_dtypes_that_a_program_catches_after_a_write(name: str) -> None:
    def program(x: torch.Tensor, y: torch.Tensor, count: torch.Tensor) -> Any:
        count.add_(1)
        try:
            return MIXING[name](x, y)
        except RuntimeError:
            return count

    for function in (program, thunder.jit(program)):
        count = torch.zeros(())
        for _ in range(2):
            assert function(torch.ones(4, 4), torch.ones(4, 4, dtype=torch.float64), count) is count
        assert count == 2


@pytest.mark.filterwarnings("error")
def test_kernels_that_take_two_dtypes_run_compiled() -> None:
    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        y = F.group_norm(F.layer_norm(x, (8,), weight), 2, weight, weight)
        return F.batch_norm(torch.where(y > 0, y, weight), None, None, weight, weight, True)

    x, weight = torch.randn(4, 8, dtype=torch.bfloat16), torch.ones(8)
    torch.testing.assert_close(thunder.jit(program, fullgraph=True)(x, weight), program(x, weight))


def test_custom_operator_of_two_dtypes_is_not_tried() -> None:
    calls = []

    @torch.library.custom_op("test_kernel_refusals::scaled", mutates_args=())
    def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        calls.append(x.dtype)
        return x * y.to(x.dtype)

    scaled.register_fake(lambda x, y: torch.empty_like(x))
    compiled = thunder.jit(lambda x, y: scaled(x, y) + 1)
    x, y = torch.ones(3), torch.full((3,), 2.0, dtype=torch.float64)
    for count in (1, 2):
        torch.testing.assert_close(compiled(x, y), x * 2 + 1)
        assert len(calls) == count
