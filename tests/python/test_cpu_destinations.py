"""Results of a fusion that are computed where they go to: in a whole that they are parts of, in what takes a copy."""

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
    "aten::stack",
    "aten::constant_pad_nd",
    "aten::slice_backward",
    "aten::select_backward",
}


def copies_parts(call: Callable[[], object]) -> bool:
    return not PUTS_TOGETHER.isdisjoint(operators_of(call))


def check(function: Function, *inputs: torch.Tensor, copies: bool) -> None:
    compiled = thunder.jit(function)
    for _ in range(2):
        got, expected = compiled(*inputs), function(*inputs)
        unit = torch.finfo(expected.dtype).eps  # eager rounds between operations
        torch.testing.assert_close(got, expected, rtol=max(8 * unit, 1e-5), atol=max(8 * unit, 1e-6))
        assert got.stride() == expected.stride()
        assert got.storage_offset() == 0
    assert copies_parts(lambda: compiled(*inputs)) == copies


def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return F.silu(x) * y, torch.sigmoid(x) * y


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_along_each_dimension(dim: int, dtype: torch.dtype) -> None:
    x, y = (torch.randn(6, 50, 33, dtype=dtype) for _ in range(2))
    check(lambda x, y: torch.cat(both(x, y), dim), x, y, copies=False)
    check(lambda x, y: torch.cat([*both(x, y), (x - y).exp()], dim), x, y, copies=False)


def test_large_and_transposed_inputs() -> None:
    check(lambda x, y: torch.cat(both(x, y), -1), torch.randn(1500, 2000), torch.randn(1500, 2000), copies=False)
    x = torch.randn(300, 700)[:, ::2]
    check(lambda x, y: torch.cat(both(x, y), -1), x, torch.randn(350), copies=False)


def test_rows() -> None:
    x = torch.randn(64, 200)
    check(lambda x: torch.cat([torch.softmax(x, -1), x.sigmoid() * 2], 1), x, copies=False)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.cat([F.silu(x) * y, F.silu(x) * y], 1),  # one result, twice
        lambda x, y: torch.cat([both(x, y)[0], both(x, y)[1].double()], 1),  # of two dtypes
        lambda x, y: torch.cat(x.split(20), 0),  # parts of the caller's memory
        lambda x, y: F.pad(both(x, y)[0], (1, 1, -1, 2)),  # cut off at one end, padded at the other
        lambda x, y: F.pad(both(x, y)[0].sum(0), (1, 1)),  # known at the end
    ],
)
def test_what_is_copied(function: Function) -> None:
    check(function, torch.randn(60, 80), torch.randn(60, 80), copies=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.cat([both(x, y)[0], y], 1),
        lambda x, y: torch.cat([y[:2], both(x, y)[0], both(x, y)[1], x[1:].t().contiguous().t()], 0),
        lambda x, y: torch.cat([F.silu(x) * y, (x @ y.t()).exp() * 2], 1),  # of two fusions
        lambda x, y: torch.cat([both(x, y)[0], (x * y).sum(-1, keepdim=True)], 1),  # of rows
        lambda x, y: torch.cat([both(x, y)[0], (both(x, y)[0] * 2).mean(0, keepdim=True)]),  # known at the end
    ],
)
def test_only_other_parts_are_copied(function: Function) -> None:
    check(function, torch.randn(60, 80), torch.randn(60, 80), copies=False)


@pytest.mark.parametrize("dim", [0, 1, 2, -2])
def test_stacks(dim: int) -> None:
    x, y = torch.randn(30, 80), torch.randn(30, 80)
    check(lambda x, y: torch.stack([*both(x, y), y], dim), x, y, copies=dim == 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("pads", [(2, 3), (0, 0, 1, 0), (1, 1, 2, 2), (0, 1, 0, 0, 3, 0), (0, 0, 0, 0, 0, 0, 1, 2)])
@pytest.mark.parametrize("value", [0, 1.5, float("-inf")])
def test_pads_of_results(pads: tuple[int, ...], value: float, dtype: torch.dtype) -> None:
    x, y = (torch.randn(3, 4, 20, 33, dtype=dtype) for _ in range(2))
    check(lambda x, y: F.pad(x * y + x, pads, value=value), x, y, copies=False)


def test_pad_of_channels_last_images() -> None:
    x, y = (torch.randn(3, 16, 10, 12).to(memory_format=torch.channels_last) for _ in range(2))
    check(lambda x, y: F.pad(both(x, y)[0], (1, 2, 1, 0)), x, y, copies=False)


def test_pads_of_integers() -> None:
    x = torch.arange(2000).view(40, 50)
    compiled = thunder.jit(lambda x: F.pad(x * 3 - x % 7 * x, (1, 1), value=-100))
    assert torch.equal(compiled(x), F.pad(x * 3 - x % 7 * x, (1, 1), value=-100))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("pads", [(-2, -3), (0, 0, -1, 0), (-1, -1, -2, -2), (0, -1, 0, 0, -2, 0), (0, 0)])
def test_pieces_of_results(pads: tuple[int, ...], dtype: torch.dtype) -> None:
    x, y = (torch.randn(3, 4, 20, 33, dtype=dtype) for _ in range(2))
    check(lambda x, y: F.pad(x * y + x, pads), x, y, copies=False)


def test_pieces_of_short_rows_are_copied() -> None:
    x, y = torch.randn(300, 12), torch.randn(300, 12)
    check(lambda x, y: F.pad(x * y + x, (-1, 0)), x, y, copies=True)
    check(lambda x, y: F.pad(x * y + x, (0, 0, -1, 0)), x, y, copies=False)


def test_piece_of_what_is_read_elsewhere() -> None:
    x, y = torch.randn(60, 80), torch.randn(60, 80)
    compiled = thunder.jit(lambda x, y: [F.pad(each, (-1, 0)) * 1 for each in both(x, y)] + [both(x, y)[0]])
    expected = [F.pad(each, (-1, 0)) for each in both(x, y)] + [both(x, y)[0]]
    torch.testing.assert_close(compiled(x, y), expected, rtol=1e-5, atol=1e-6)


def test_derivative_of_a_pad() -> None:
    x, y = (torch.randn(40, 200, requires_grad=True) for _ in range(2))

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(F.pad(x, (1, 2, 3, 4)) * F.pad(y, (1, 2, 3, 4)))

    compiled = thunder.jit(function)
    cotangent = torch.randn(47, 203)
    for each in (cotangent, cotangent.t().contiguous().t(), cotangent[:, :1].expand(47, 203)):
        got, expected = (torch.autograd.grad(f(x, y), (x, y), each) for f in (compiled, function))
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
        assert got[0].stride() == expected[0].stride()
    assert not copies_parts(lambda: torch.autograd.grad(compiled(x, y), (x, y), cotangent))


def test_derivatives_of_slices_of_what_is_computed() -> None:
    x, y = (torch.randn(40, 200, requires_grad=True) for _ in range(2))

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x[3:, 10:-5] * y[3:, 10:-5])

    compiled = thunder.jit(function)
    cotangent = torch.randn(37, 185)
    got, expected = (torch.autograd.grad(f(x, y), (x, y), cotangent) for f in (compiled, function))
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def test_part_that_is_read_elsewhere() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        left, right = both(x, y)
        return torch.cat([left, right], 1), left

    x, y = torch.randn(60, 80), torch.randn(60, 80)
    whole, left = thunder.jit(function)(x, y)
    left.fill_(7)
    torch.testing.assert_close(whole, function(x, y)[0], rtol=1e-5, atol=1e-6)


def test_gated_unit() -> None:
    def gated(x: torch.Tensor) -> torch.Tensor:
        gate, value = x.chunk(2, -1)
        return F.silu(gate) * value

    x = torch.randn(128, 512, requires_grad=True)
    compiled = thunder.jit(gated)
    cotangent = torch.randn(128, 256)
    gradients = [torch.autograd.grad(f(x), x, cotangent)[0] for f in (compiled, gated)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)
    assert not copies_parts(lambda: torch.autograd.grad(compiled(x), x, cotangent))
    # Cotangents of other strides.
    gradients = [torch.autograd.grad(f(x).sum(), x)[0] for f in (compiled, gated)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)


def test_the_trace_says_where_results_lie() -> None:
    x, y = torch.randn(60, 80), torch.randn(60, 80)
    compiled = thunder.jit(lambda x, y: torch.cat([*both(x, y), y], 1))
    compiled(x, y)
    text = str(thunder.last_traces(compiled)[-1])
    assert "aten.cat" not in text
    assert text.count("aten.empty_strided") == 1
    assert text.count("aten.copy_") == 3
    program: dict[str, Callable[..., tuple[torch.Tensor, ...]]] = {}
    exec(text, program)
    torch.testing.assert_close(program["computation"](x, y)[0], torch.cat([*both(x, y), y], 1))


@pytest.mark.parametrize("executor", ["cpu", "reference"])
def test_executors_agree_on_where_results_lie(executor: str) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        joined = torch.cat([*both(x, y), y], 1), torch.stack([torch.exp(x) * y, torch.sin(x) * x])
        padded = F.pad(torch.cos(x) * y, (1, 2, 3, 4), value=1.5), F.pad(torch.tan(x) * y, (-1, -2))
        x.copy_(torch.tanh(x) * 2 + y)
        return (*joined, *padded)

    compiled = thunder.jit(function, executors=[executor, "aten"])
    x, y = torch.rand(60, 80), torch.randn(60, 80)
    other = x.clone()
    for got, expected in zip(compiled(x, y), function(other, y), strict=True):
        torch.testing.assert_close(got, expected)
        assert got.stride() == expected.stride()
    torch.testing.assert_close(x, other)
    assert x._version == other._version


def test_copies_of_an_input_that_is_written_again() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.copy_(torch.tanh(x) * 2)
        x.copy_(torch.sin(x) + y)
        return x * 2 + y

    check_writes = thunder.jit(function)
    x, y = torch.randn(60, 80), torch.randn(60, 80)
    other = x.clone()
    torch.testing.assert_close(check_writes(x, y), function(other, y))
    torch.testing.assert_close(x, other)


# --- copies to inputs


def swap(x: torch.Tensor, y: torch.Tensor) -> None:
    a, b = torch.tanh(x) + y, torch.sin(y) * x
    x.copy_(a)
    y.copy_(b)


def shift(x: torch.Tensor, y: torch.Tensor) -> None:
    x.copy_(torch.tanh(x - x[:1]) + y)


def center(x: torch.Tensor, y: torch.Tensor) -> None:
    x.copy_(torch.tanh(x - x.mean(-1, keepdim=True)) * y)
    y.mul_(2)


def read_later(x: torch.Tensor, y: torch.Tensor) -> None:
    a = torch.tanh(x) * 2
    y.copy_(x.t().cumsum(0).t() + a)
    x.copy_(a)


def count(x: torch.Tensor, y: torch.Tensor) -> None:
    a = torch.tanh(x) * 2
    total = y[0, 0].item()
    x.copy_(a + total)
    y.add_(1)


@pytest.mark.parametrize("program", [swap, shift, center, read_later, count])
@pytest.mark.parametrize("overlap", ["none", "part", "same"])
def test_copies_to_inputs(program: Callable[..., None], overlap: str) -> None:
    compiled = thunder.jit(program)

    def arguments() -> tuple[torch.Tensor, torch.Tensor]:
        memory = torch.randn(2, 301, 200, generator=torch.Generator().manual_seed(1)).unbind()
        if overlap == "none":
            return memory
        return memory[0][:-1], memory[0][1:] if overlap == "part" else memory[0][:-1]

    for _ in range(3):
        got, expected = arguments(), arguments()
        compiled(*got)
        program(*expected)
        versions = [(a._version, b._version) for a, b in zip(got, expected, strict=True)]
        torch.testing.assert_close(got, expected)
        assert all(a > 0 for a, b in versions if b > 0)


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (0, 0, -2, 0)])
@pytest.mark.parametrize("first", [0, 1])
def test_pieces_of_a_result_that_others_are_computed_from(first: int, pads: tuple[int, ...]) -> None:
    def pieces(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        sums = [a + b, (a + b) * b]
        one, other = (F.conv2d(F.pad(sums[i], pads), w) for i in (first, 1 - first))
        return torch.cat([one, other])

    a, b = (torch.randn(2, 16, 20, 33) for _ in range(2))
    w = torch.ones(8, 16, 1, 1)
    compiled = thunder.jit(pieces)
    for _ in range(3):
        torch.testing.assert_close(compiled(a, b, w), pieces(a, b, w), rtol=1e-4, atol=1e-4)
    assert len(thunder.fusions(compiled)[0].operations) == 4
