"""Results of `pad`, `cat` and derivatives of slices, whose parts a fusion reads where they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from profiled import operators_of

import thunder

Function = Callable[..., torch.Tensor]
PUTS_TOGETHER = {
    "aten::cat",
    "aten::concat",
    "aten::constant_pad_nd",
    "aten::slice_backward",
    "aten::select_backward",
    "aten::slice_scatter",
    "aten::stack",
}


def check(function: Function, *inputs: torch.Tensor, fused: bool = True) -> None:
    compiled = thunder.jit(function)
    got, expected = compiled(*inputs), function(*inputs)
    unit = torch.finfo(expected.dtype).eps if expected.is_floating_point() else 0
    torch.testing.assert_close(got, expected, rtol=max(8 * unit, 1e-5), atol=max(8 * unit, 1e-6))
    assert got.stride() == expected.stride()
    assert PUTS_TOGETHER.isdisjoint(operators_of(lambda: compiled(*inputs))) == fused


def images(size: int = 20, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(3, 4, size, 33, dtype=dtype)


PADS = [(2, 3), (0, 0, 1, 0), (1, 1, 2, 2), (-1, -2), (-1, 3, 4, -2), (0, 0, 0, 0, 2, -1), (0, 0, 0, 0, 0, 0, 1, 0)]


FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("pads", PADS, ids=str)
def test_pads(pads: tuple[int, ...], dtype: torch.dtype) -> None:
    check(lambda x: F.pad(x, pads).relu() * 2, images(dtype=dtype))


@pytest.mark.parametrize("value", [1.0, -0.3, float("inf"), float("nan")])
def test_values_of_pads(value: float) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.where(F.pad(x, (1, 2), value=value) > 0, 1.0, -1.0) * F.pad(x, (2, 1), value=value)

    x = images()
    torch.testing.assert_close(thunder.jit(function)(x), function(x), equal_nan=True)


def test_value_that_the_dtype_has_not_raises_what_eager_raises() -> None:
    x = torch.randn(40, 50, dtype=torch.float16)
    with pytest.raises(RuntimeError, match="without overflow"):
        thunder.jit(lambda x: F.pad(x, (1, 2), value=1e6).sigmoid() * 2)(x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool], ids=lambda d: str(d)[6:])
def test_integers_and_bools(dtype: torch.dtype) -> None:
    x = torch.arange(2000).view(40, 50).to(dtype)
    check(lambda x: torch.where(F.pad(x, (3, 4)) > 1, 1.0, 2.0) * 3, x)
    check(lambda x: torch.where(torch.cat([x, x], 1) > 1, 1.0, 2.0) * 3, x)
    check(lambda x: torch.where(F.pad(x, (3, 4), value=1) > 1, 1.0, 2.0) * 3, x, fused=False)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (F.pad(x, (1, 1, 1, 1)) * 2).sum((2, 3)),
        lambda x: (F.pad(x, (0, 0, 1, 1)) * 2).sum((0, 2, 3)),
        lambda x: torch.softmax(F.pad(x, (3, 4)), -1) * 2,
        lambda x: F.layer_norm(F.pad(x, (0, 0, 1, 0)), (21, 33)) * 2,
        lambda x: F.layer_norm(F.pad(x, (1, 0, 1, 0)), (21, 34)) * 2,
        lambda x: (F.pad(x, (1, 1)) * 2).sum(0),
        lambda x: (F.pad(x, (1, 1)) * 2).mean(),
        lambda x: torch.cat([x, x.flip(-1)], 2).exp().sum((2, 3)),
        lambda x: F.pad(x, (1, 0, 0, 0)).view(12, -1).tanh() * 2,
    ],
)
def test_rows(function: Function) -> None:
    check(function, images())


@pytest.mark.parametrize("dim", [0, 1, 2, 3, -1])
def test_cats(dim: int) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x.flip(1), x.narrow(dim, 0, 1)], dim).sigmoid() * 2

    check(function, images())


def test_short_parts_stay_eager() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[..., :3], x, x[..., :3], x[..., :3]], -1).sigmoid() * 2

    check(function, images(), fused=False)


def test_layouts() -> None:
    x = torch.randn(3, 16, 10, 12).to(memory_format=torch.channels_last)
    check(lambda x: F.pad(x, (1, 1, 1, 1)).sigmoid() * 2, x)
    check(lambda x: F.pad(x, (1, 1, 1, 1)).sigmoid() * 2, torch.randn(3, 16, 10, 64)[1:, ::2, :, :32])
    x = torch.randn(3, 16, 10, 32).transpose(1, 2)
    check(lambda x: F.pad(x, (1, 1, 1, 1)).sigmoid() * 2, x, fused=False)


def test_inputs_of_other_strides_than_were_traced() -> None:
    function: Function = lambda x: torch.tanh(x[:, 1:] * x[:, :-1]) + F.pad(x, (-1, 0)) * 2  # noqa: E731
    compiled = thunder.jit(function)
    x = torch.randn(40, 50, requires_grad=True)
    cotangent = torch.randn(40, 49)
    expanded = [cotangent[:1].expand(40, 49), cotangent[:, :1].expand(40, 49)]
    for each in (cotangent, cotangent.t().contiguous().t(), *expanded):
        got, expected = (torch.autograd.grad(f(x), x, each)[0] for f in (compiled, function))
        torch.testing.assert_close(got, expected)
    assert PUTS_TOGETHER.isdisjoint(operators_of(lambda: torch.autograd.grad(compiled(x), x, cotangent)))


def test_what_others_need_in_memory_is_not_read_in_parts() -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        padded = F.pad(x, (1, 1))
        return padded @ w + (padded * 2).exp().sum()

    check(function, torch.randn(40, 50), torch.randn(52, 3), fused=False)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_threads(threads: int) -> None:
    x = torch.randn(300, 700)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        check(lambda x: torch.cat([x, F.pad(x, (3, 4))], 1).sigmoid() * 2, x, fused=False)
        check(lambda x: F.pad(x, (3, 4, 5, 6)).sigmoid() * 2, x)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[0:-1:2] * x[1::2] + x[2:2:2].sum() + x[:1],
        lambda x: x[3:-1:2].sin() + x[-1:],
        lambda x: torch.cat([x[:, i::2, j::2] for i in range(2) for j in range(2)], -1),
        lambda x: x[:, ::2, ::3].cos() * x[:, 1::2, 2::3],
        lambda x: x[:, :, 1:7:4].cos() + x[:, :, 2:9:4],
        lambda x: (x[:, ::2], x[:, :, ::2].sum(2, keepdim=True))[0] * 2 + x[:, ::2, 1:2],
        lambda x: x.transpose(0, 1)[::2].sigmoid() * x.transpose(0, 1)[1::2],
        lambda x: x[..., ::2] * x[..., 1::2],  # short rows, which stay PyTorch's
    ],
)
def test_gradients_of_slices_with_steps(function: Function) -> None:
    x = torch.randn(8, 6, 12, 18)
    results = []
    for call, dtype in ((thunder.jit(function), torch.float32), (function, torch.float64)):
        leaf = x.to(dtype).requires_grad_()
        out = call(leaf)
        (gradient,) = torch.autograd.grad((out * out.detach().cos()).sum(), leaf)
        results.append((out.detach().double(), gradient.double()))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)


def test_gradients_of_slices_with_steps_are_one_fusion() -> None:
    compiled = thunder.jit(lambda x: (x[:-2:2] * x[1:-1:2]).sin() + x[2::2])
    x = torch.randn(64, 4, 32, requires_grad=True)
    compiled(x).sum().backward()
    assert PUTS_TOGETHER.isdisjoint(operators_of(lambda: compiled(x).sum().backward()))
