"""Activations that oneDNN computes of a product or a convolution before it stores it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from profiled import operators_of
from test_cpu_matmuls import error_of
from test_cpu_prepacked import ERRORS, needs_onednn_for

import thunder

Tensor = torch.Tensor
WIDTH = 160

TAKEN: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu tanh": lambda t: F.gelu(t, approximate="tanh"),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "leaky_relu": lambda t: F.leaky_relu(t, 0.2),
}
LEFT: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,  # oneDNN's makes NaN a number, as do the next ones
    "leaky_relu that is relu": lambda t: F.leaky_relu(t, 0.0),
    "hardtanh": F.hardtanh,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,  # infinite from other numbers on
    "elu": F.elu,
    "gelu of another dtype": lambda t: F.gelu(t.double()),
    "gelu and more": lambda t: F.gelu(t) * 2,
    "product read twice": lambda t: (F.gelu(t), t)[0] + t.cumsum(0),
    "activation of a part": lambda t: F.gelu(t[:, :128]),
}


def operands(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(WIDTH, WIDTH).to(dtype), torch.randn(WIDTH, WIDTH).to(dtype), torch.randn(WIDTH).to(dtype)


def is_taken(compiled: Callable[..., Tensor]) -> bool:
    return "and its activation" in str(thunder.last_traces(compiled)[-1])


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("name", [*TAKEN, *LEFT])
def test_results(name: str, dtype: torch.dtype) -> None:
    needs_onednn_for(dtype)
    activation = {**TAKEN, **LEFT}[name]
    x, w, b = operands(dtype)
    for function in (lambda x, w, b: activation(F.linear(x, w, b)), lambda x, w, b: activation(torch.addmm(b, x, w))):
        compiled = thunder.jit(function)
        got, expected, exact = compiled(x, w, b), function(x, w, b), function(x.double(), w.double(), b.double())
        assert is_taken(compiled) == (name in TAKEN)
        assert (got.dtype, got.stride()) == (expected.dtype, expected.stride())
        assert error_of(got, exact) <= ERRORS[dtype] * error_of(expected, exact)


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("name", TAKEN)
def test_hard_numbers(name: str, dtype: torch.dtype) -> None:
    """The product is each of the numbers."""
    needs_onednn_for(dtype)
    values = [0.0, -0.0, 1e-42, 1e-30, 0.5, 3.0, 5.5, 8.0, 14.0, 40.0, 88.0, 90.0, 100.0, 1e4, 1e30, 3e38]
    values += [-value for value in values] + [float("inf"), float("-inf"), float("nan")]
    x = torch.tensor(values).repeat(8)[:, None].to(dtype)
    w = torch.ones(1 << 13, 1).to(dtype)
    function = lambda x, w: TAKEN[name](F.linear(x, w))  # noqa: E731
    compiled = thunder.jit(function)
    got, expected, exact = compiled(x, w), function(x, w), function(x.double(), w.double())
    assert is_taken(compiled)
    assert torch.equal(got.isnan(), expected.isnan())
    assert torch.equal(got.isinf(), expected.isinf())
    finite = expected.isfinite() & (exact.abs() < 1e3)
    assert error_of(got[finite], exact[finite]) <= 1.5 * error_of(expected[finite], exact[finite])
    large = expected.isfinite() & ~finite
    torch.testing.assert_close(got[large], expected[large], rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", TAKEN)
def test_gradients(name: str) -> None:
    """An activation whose derivative needs its argument stays an operation of its own."""
    needs_onednn_for(torch.float32)

    def run(function: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor]:
        leaves = [x.to(dtype, copy=True).requires_grad_() for x in operands(torch.float32)]
        out = function(*leaves)
        out.cos().sum().backward()
        return [out.detach(), *(x.grad for x in leaves if x.grad is not None)]

    function = lambda x, w, b: TAKEN[name](F.linear(x / 10, w, b))  # noqa: E731
    compiled = thunder.jit(function)
    triples = zip(run(compiled, torch.float32), run(function, torch.float32), run(function, torch.float64), strict=True)
    for ours, eager, exact in triples:
        assert error_of(ours, exact) <= 2.5 * error_of(eager, exact)
    assert is_taken(compiled) == (name in ("tanh", "sigmoid"))


def test_other_ways_to_run() -> None:
    needs_onednn_for(torch.bfloat16)
    near = {"atol": 0.05, "rtol": 0.02}  # the product is not rounded
    x, w, b = operands(torch.bfloat16)
    function = lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh")  # noqa: E731
    compiled = thunder.jit(function)
    compiled(x, w, b)
    assert "aten::gelu" not in operators_of(lambda: compiled(x, w, b))
    torch.testing.assert_close(compiled(x, w, b), function(x, w, b), **near)
    with torch.backends.mkldnn.flags(enabled=False):
        torch.testing.assert_close(compiled(x, w, b), function(x, w, b), **near)
        assert "aten::gelu" in operators_of(lambda: compiled(x, w, b))
    apart = torch.randn(WIDTH, 2 * WIDTH).bfloat16()[:, ::2]
    torch.testing.assert_close(compiled(apart, w, b), function(apart, w, b), **near)
    with pytest.raises(RuntimeError):
        compiled(x, w[:, :8], b)


def images(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x, w = torch.randn(2, 8, 20, 24), torch.randn(16, 8, 3, 3)
    return x.to(dtype).to(memory_format=torch.channels_last), w.to(dtype), torch.randn(16).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [*TAKEN, "relu", "leaky_relu that is relu", "hardswish", "product read twice"])
def test_convolutions(name: str, dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16:
        needs_onednn_for(dtype)
    activation = {**TAKEN, **LEFT}[name]
    x, w, b = images(dtype)
    for bias in (b, None):
        function = lambda x, w, b: activation(F.conv2d(x, w, b, stride=(2, 1), padding=1))  # noqa: E731
        for options in ({}, {"prepack_weights": True}):
            compiled = thunder.jit(function, **options)
            exact = function(x.double(), w.double(), None if bias is None else bias.double())
            expected = function(x, w, bias)
            for _ in range(3):  # the filters are kept in oneDNN's layout from the second call on
                got = compiled(x, w, bias)
                assert (got.dtype, got.stride()) == (expected.dtype, expected.stride())
                assert error_of(got, exact) <= 1.5 * error_of(expected, exact)
            assert is_taken(compiled) == (name in TAKEN)


def test_convolutions_that_are_left() -> None:
    x, w, b = images(torch.float32)
    lefts: list[Callable[..., Tensor]] = [
        lambda x, w, b: F.silu(F.conv2d(x.contiguous(), w, b)),  # oneDNN's layouts are others
        lambda x, w, b: F.silu(F.conv2d(x, w[:, :4], b, groups=2)),
        lambda x, w, b: F.silu(F.conv2d(x, w, b)[:, :8]),
        lambda x, w, b: F.silu(F.conv2d(x.double(), w.double(), b.double())),
    ]
    for function in lefts:
        compiled = thunder.jit(function)
        torch.testing.assert_close(compiled(x, w, b), function(x, w, b))
        assert not is_taken(compiled)


def test_other_ways_to_run_convolutions() -> None:
    x, w, b = images(torch.float32)
    function = lambda x, w, b: F.silu(F.conv2d(x, w, b))  # noqa: E731
    compiled = thunder.jit(function)
    compiled(x, w, b)
    assert "aten::silu" not in operators_of(lambda: compiled(x, w, b))
    with torch.backends.mkldnn.flags(enabled=False):
        torch.testing.assert_close(compiled(x, w, b), function(x, w, b))
        assert "aten::silu" in operators_of(lambda: compiled(x, w, b))
    w[0, 0, 0, 0] = float("nan")
    torch.testing.assert_close(compiled(x, w, b), function(x, w, b), equal_nan=True)
    with pytest.raises(RuntimeError):
        compiled(x, w[:, :4], b)
