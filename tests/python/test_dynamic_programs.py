"""Programs that people write, at sizes that change: equal to eager, and one program for all from the second size on."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import thunder

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="symbols need Python 3.11")

ROWS = (22, 35, 46, 27)
BATCHES = ((2, 11), (3, 17), (4, 23), (6, 14))  # and lengths


def specializations(compiled: Any) -> int:
    count: int = thunder.compile_stats(compiled)["specializations"]
    return count


def require_equal(compiled: Any, plain: Callable[..., Any], *inputs: Tensor) -> None:
    leaves = [x for x in inputs if x.requires_grad]
    result, expected = compiled(*inputs), plain(*inputs)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    if not isinstance(expected, Tensor) or not expected.requires_grad:
        return
    assert result.stride() == expected.stride()
    cotangent = torch.randn_like(expected)
    got = torch.autograd.grad(result, leaves, cotangent)
    wanted = torch.autograd.grad(expected, leaves, cotangent)
    torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-5)


def _pad_to_eight(x: Tensor) -> Tensor:
    if x.shape[0] % 8 != 0:
        x = F.pad(x, (0, 0, 0, 8 - x.shape[0] % 8))
    return x.view(-1, 8, 8).sum(1)


def _divided(x: Tensor) -> Tensor:
    count, rest = divmod(x.shape[0], 4)
    return x[: count * 4].view(count, 4, 8).sum(1) + rest


def _windows(x: Tensor) -> Tensor:
    count = math.floor((x.shape[0] + 2 - 3) / 2 + 1)
    return x[:count].sin() + round(x.shape[0] / 3)


def _pairs(x: Tensor) -> Tensor:
    i, j = torch.triu_indices(x.shape[0], x.shape[0], offset=1)
    return (x[i] - x[j]).pow(2).sum(-1)


def _half(x: Tensor) -> Tensor:
    return x[: int(x.shape[0] / 2)] * x.shape[0] - x[: int(x.shape[0] * 0.5)]


def _offsets(x: Tensor) -> Tensor:
    return x * x[1:].storage_offset() + x[x.shape[0] // 2 :, 3].storage_offset()


def _padded_to_the_longest(x: Tensor) -> Tensor:
    sequences = [x[: x.shape[0] // 2], x, x[5:]]
    left = nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=2, padding_side="left")
    return nn.utils.rnn.pad_sequence(sequences).transpose(0, 1) + left


def _added(x: Tensor) -> Tensor:
    rows, columns = map(operator.add, x.shape, (1, 2))
    first, *_ = itertools.chain.from_iterable([x.shape, (3,)])
    return F.pad(x, (0, columns - 8, 0, rows - first)) * max(x.shape, key=lambda size: -size)


def _in_iterators(x: Tensor) -> Tensor:
    (rows, column), *_ = itertools.zip_longest(x.shape, (3,), fillvalue=0)
    doubled = list(itertools.starmap(operator.mul, zip(x.shape, (2, 1), strict=True)))
    kept = itertools.compress(reversed(x.shape), (False, True))
    return torch.ones(doubled).sum() * x[:rows] * next(kept) + column + next(itertools.pairwise(x.shape))[0]


def _moved(x: Tensor) -> Tensor:
    ends = list(itertools.accumulate([x.shape[0] // 2, x.shape[0] - x.shape[0] // 2], initial=0))
    return torch.cat([x[start:end] * i for i, (start, end) in enumerate(itertools.pairwise(ends))])


# Programs of rows, with the specializations that they need for four numbers of rows.
OF_ROWS: dict[str, tuple[Callable[[Tensor], Any], int]] = {
    "ceil": (lambda x: F.pad(x, (0, 0, 0, math.ceil(x.shape[0] / 8) * 8 - x.shape[0])).sin(), 2),
    "pad_to_eight": (_pad_to_eight, 2),
    "divmod": (_divided, 2),
    "output_size": (_windows, 2),
    "half_by_floats": (_half, 2),
    "shifted": (lambda x: x[: x.shape[0] >> 1] * (x.shape[0] << 1), 2),
    "bits": (lambda x: x[: x.shape[0] & ~3].view(-1, 4, 8).sum(1) * (x.shape[0] & 7), 2),
    "square_root": (lambda x: x.sum(0) / math.sqrt(x.shape[0]) * x.shape[0] ** -0.5, 2),
    "inverse": (lambda x: x * (1.0 / x.shape[0]), 2),
    "logarithm": (lambda x: x * math.log(x.shape[0]) + math.log2(x.shape[0] + 1), 2),
    "ratio": (lambda x: x * (x.shape[0] / x.shape[1]) if x.shape[0] / x.shape[1] > 0.5 else x.sin(), 2),
    "float_results": (lambda x: (x.sum(), x.shape[0] / 2, float(x.shape[0])), 2),
    "tensor_of_a_size": (lambda x: x.sum(0) / torch.tensor(x.shape[0]), 2),
    "beside_data": (lambda x: x * (x.detach().sum().item() / x.shape[0]), 2),
    "slices": (lambda x: x[: x.shape[0] // 2].sum(0) - x[x.shape[0] // 3 :].sum(0), 2),
    "rolled": (lambda x: x.flip(0) + x.roll(-x.shape[0] // 2, 0), 2),
    "one_hot": (lambda x: F.one_hot(torch.arange(x.shape[0]), x.shape[0]).float() @ x, 2),
    "linspace": (lambda x: x * torch.linspace(0, 1, x.shape[0])[:, None], 2),
    "pairs": (_pairs, 2),
    "distances": (lambda x: torch.cdist(x, x.detach() + 1).sum(1), 3),  # a formula of its own up to 25 rows
    "windows": (lambda x: x.unfold(0, 4, 2).sin().sum(-1), 2),
    "product": (lambda x: x.reshape(math.prod(x.shape)).sin() * math.prod(x.shape), 2),
    "operators": (lambda x: x * operator.mul(x.shape[0], operator.add(x.shape[1], 2)), 2),
    "variance": (lambda x: x.var(dim=0, unbiased=False) + x.var(1).sum(), 2),
    "standardized": (lambda x: (x - x.mean(0)) / (x.std(0) + 1e-5), 2),
    "deviation_and_mean": (lambda x: sum(torch.std_mean(x, 0), x.var()), 2),
    "repeated_list": (lambda x: torch.stack([x.sum(0)] * 3) * x[:1], 2),
    "several_parts": (lambda x: torch.cat([x, x[:5], x[2:]]) * 2, 2),
    "pieces": (lambda x: x.split([x.shape[0] // 3, x.shape[0] - x.shape[0] // 3])[1] * 2, 2),
    "strides": (lambda x: x.as_strided((x.shape[0] // 2, 8), (2 * x.stride(0), x.stride(1))) * 2, 2),
    "shape_of_sizes": (lambda x: x.t().reshape(torch.Size([x.shape[1], x.shape[0]])), 2),
    "truths": (lambda x: x * 2 if all(x.shape) and any((0, x.shape[0])) else x, 2),
    "common_divisor": (lambda x: x * math.gcd(x.shape[0], 8) + math.gcd(15, x.shape[0]), 4),
    "truths_in_iterators": (lambda x: x * 2 if all(n > 1 for n in x.shape) and any(map(bool, x.shape)) else x, 2),
    "reduced": (lambda x: x.reshape(functools.reduce(operator.mul, x.shape)).sin(), 2),
    "reduced_by_a_function": (lambda x: x.reshape(functools.reduce(lambda n, m: n * m, x.shape, 1)), 2),
    "products_of_generators": (lambda x: x.reshape(math.prod(n for n in x.shape)) * math.prod(x.shape, start=2), 2),
    "accumulated": (lambda x: x * list(itertools.accumulate(x.shape, operator.mul))[-1], 2),
    "pieces_by_ends": (_moved, 2),
    "chained": (lambda x: x.new_ones(*itertools.chain(x.shape, (1,))) * x[..., None], 2),
    "added": (_added, 2),
    "in_iterators": (_in_iterators, 2),
    "counted": (lambda x: x * next(itertools.islice(itertools.count(x.shape[0], x.shape[1]), 2, None)), 2),
    "offsets": (_offsets, 2),
    "longest": (_padded_to_the_longest, 2),
    "where_of_numbers": (lambda x: torch.where(x > 0, x.shape[0], 0) + torch.where(x > 1, 0, x.shape[0] / 2), 2),
    "every_so_many": (lambda x: x[:: x.shape[0] // 4] * 2, 2),
    "elements_of_a_shape": (lambda x: x * torch.Size((x.shape[0], 2)).numel() + x.shape.numel(), 2),
    "tensor_of_sizes": (lambda x: x * torch.tensor([[len(x), 2.5]]).sum() + x.new_tensor([len(x), 3]).sum(), 2),
}


@pytest.mark.parametrize("name", OF_ROWS)
def test_programs_of_rows_equal_eager(name: str) -> None:
    function, expected = OF_ROWS[name]
    compiled = thunder.jit(function)
    for rows in ROWS:
        require_equal(compiled, function, torch.randn(rows, 8, requires_grad=True))
    assert specializations(compiled) <= expected, thunder.explain_shapes(compiled)
    for rows in (16, 9, 8, 26):
        require_equal(compiled, function, torch.randn(rows, 8, requires_grad=True))


def _patches(x: Tensor) -> Tensor:
    batch, length, width = x.shape
    x = x.repeat(1, 4, 1).view(batch, 4 * length, width // 4, 4)
    rows = x.reshape(batch, (4 * length) // 4, 4, width // 4, 4).permute(0, 1, 3, 2, 4)
    return rows.reshape(batch, length * (width // 4), 16).sin()


def _gated(x: Tensor) -> Tensor:
    left, right = torch.cat([x, x], 1).chunk(2, dim=1)
    return F.silu(left) * right


def _causal(x: Tensor) -> Tensor:
    length = x.shape[1]
    mask = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
    scores = x @ x.transpose(-1, -2) / math.sqrt(x.shape[-1])
    return scores.masked_fill(mask, float("-inf")).softmax(-1) @ x


def _trimmed(x: Tensor) -> Tensor:
    length = x.shape[1] - x.shape[1] % 3
    return x[:, :length].reshape(x.shape[0], -1, 3, 8).mean(2)


OF_BATCHES: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "heads": (lambda x: x.view(x.shape[0], -1, 2, 4).transpose(1, 2).reshape(x.shape[0] * 2, -1, 4).softmax(1), 2),
    "patches": (_patches, 2),
    "gated": (_gated, 2),
    "causal": (_causal, 2),
    "trimmed": (_trimmed, 2),
    "inverse_spectrum": (lambda x: torch.fft.irfft(x, n=x.shape[1], dim=1), 2),
    "spectrum": (lambda x: torch.fft.rfft(x, dim=1).abs().sum(1), 2),
    "enlarged": (lambda x: F.interpolate(x.transpose(1, 2), scale_factor=1.5, mode="linear"), 2),
    "reduced": (lambda x: F.interpolate(x.transpose(1, 2), scale_factor=0.5), 2),
    "first_ones": (lambda x: x.topk(5, dim=1).values, 2),
    "reflected": (lambda x: F.pad(x.transpose(1, 2), (3, 3), mode="reflect"), 2),
    "sections": (lambda x: torch.cat([part * i for i, part in enumerate(x.tensor_split(3, 1))], 1), 2),
}


@pytest.mark.parametrize("name", OF_BATCHES)
def test_programs_of_batches_equal_eager(name: str) -> None:
    function, expected = OF_BATCHES[name]
    compiled = thunder.jit(function)
    for size in BATCHES:
        require_equal(compiled, function, torch.randn(*size, 8, requires_grad=True))
    assert specializations(compiled) <= expected, thunder.explain_shapes(compiled)
    for size in ((5, 6), (7, 30), (3, 12)):
        require_equal(compiled, function, torch.randn(*size, 8, requires_grad=True))


def _as_an_image(x: Tensor) -> Tensor:
    batch, count, width = x.shape
    side = int(math.sqrt(count))
    image = x.transpose(1, 2).reshape(batch, width, side, side)
    return F.avg_pool2d(F.pad(image, (1, 1, 1, 1)), 3, stride=1).flatten(2).transpose(1, 2)


def _in_windows(x: Tensor) -> Tensor:
    batch, count, width = x.shape
    side = int(count**0.5)
    assert side * side == count, "the image is no square"
    image = x.view(batch, side, side, width).roll((1, 1), (1, 2))
    return image.view(batch, count, width) + math.isqrt(count)


def _resized(x: Tensor) -> Tensor:
    batch, count, width = x.shape
    side = math.isqrt(count)
    image = x.reshape(batch, side, side, width).permute(0, 3, 1, 2)
    larger = F.interpolate(image, size=(2 * side, 2 * side), mode="bilinear")
    return larger.permute(0, 2, 3, 1).reshape(batch, -1, width)


IMAGES: dict[str, Callable[[Tensor], Tensor]] = {
    "image": _as_an_image,
    "windows": _in_windows,
    "resized": _resized,
    "first_tokens": lambda x: x[:, : round(math.sqrt(x.shape[1]))].sin() * math.ceil(math.sqrt(x.shape[1])),
}


@pytest.mark.parametrize("name", IMAGES)
def test_square_images_of_tokens_have_one_program_for_all_sizes(name: str) -> None:
    function = IMAGES[name]
    compiled = thunder.jit(function)
    for batch, side in ((2, 4), (3, 4), (3, 5), (4, 7), (5, 9), (2, 12), (6, 3)):
        require_equal(compiled, function, torch.randn(batch, side * side, 4, requires_grad=True))
    assert specializations(compiled) <= 3, thunder.explain_shapes(compiled)
    for batch, side in ((1, 4), (2, 1), (3, 2)):
        require_equal(compiled, function, torch.randn(batch, side * side, 4, requires_grad=True))


def test_images_that_are_no_squares_raise_as_in_eager() -> None:
    compiled = thunder.jit(_in_windows)
    for side in (4, 5, 7):
        compiled(torch.randn(2, side * side, 4))
    with pytest.raises(AssertionError, match="the image is no square"):
        compiled(torch.randn(2, 24, 4))
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        thunder.jit(_as_an_image)(torch.randn(2, 24, 4))


ROUNDED: dict[str, Callable[[int], int]] = {
    "floor": lambda n: math.floor(n / 3),
    "ceil": lambda n: math.ceil(n / 7 + 1),
    "trunc": lambda n: int((n - 20) / 3) + 30,
    "round_to_even": lambda n: round(n / 2),
    "round_thirds": lambda n: round(n / 3),
    "scaled": lambda n: int(n * 1.75),
    "negative": lambda n: 40 + math.floor(-n / 4),
    "chained": lambda n: int((n / 2 - 0.5) / 3),
    "root": lambda n: int(math.sqrt(n)) + int((n - 1) ** 0.5) * 2 + math.isqrt(n + 3),
    "root_up": lambda n: math.ceil(math.sqrt(n)) + math.ceil((n - 20) ** 0.5),
    "root_to_even": lambda n: round(n**0.5) + round(math.sqrt(n * n)),
    "masked": lambda n: (n & 7) + (n & -8) + (n >> 2) + (n << 1) + ~n,
    "share": lambda n: int(0.8 * n) + int(n * 0.1) + int(0.7 * n),
    "share_up": lambda n: math.ceil(n * 0.1) + math.ceil(n / 0.3) + math.ceil(0.7 * n),
    "share_to_even": lambda n: round(0.1 * n) + round(n * 0.35) + round(2.5 * (n / 3)),
    "share_of_less": lambda n: math.floor((n - 19) * 0.9 - 3) + int(0.6 * (n // 2)) + int(30 - 0.1 * n),
    "steps": lambda n: int(n * 0.1 * 3 / 0.3 + 0.7) + int(-0.3 * n) + 40,
    "scaled_root": lambda n: int(n**0.5 * 1.7) + int(0.3 * math.sqrt(n)) + int(n**0.75),
    "at_least": lambda n: max(1, int(n * 0.01)) + min(n, math.ceil(0.95 * n)),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_sizes_are_rounded_as_python_rounds_floats(name: str) -> None:
    function = ROUNDED[name]
    compiled: Any = thunder.jit(lambda x: x.new_zeros(3) + function(x.shape[0]))
    for rows in range(20, 60):
        x = torch.zeros(rows)
        assert compiled(x).tolist() == [function(rows)] * 3
    assert specializations(compiled) <= 3, thunder.explain_shapes(compiled)


def test_a_share_of_a_size_is_what_floats_give_at_each_size() -> None:
    compiled: Any = thunder.jit(lambda x: x[: int(0.1 * x.shape[0])] * 2 + int(x.shape[0] * 0.7))
    for rows in (20, *range(30, 400, 10), 1000, 10_000, 100_000):
        x = torch.randn(rows, requires_grad=True)
        require_equal(compiled, lambda x: x[: int(0.1 * x.shape[0])] * 2 + int(x.shape[0] * 0.7), x)
    assert specializations(compiled) <= 3, thunder.explain_shapes(compiled)
    for rows in (0, 1, 5, 9):  # nothing is left
        assert compiled(torch.ones(rows)).tolist() == []


def test_the_best_of_a_share_of_the_columns_have_one_program() -> None:
    def best(x: Tensor) -> Tensor:
        return x.topk(max(1, int(0.8 * x.shape[1])), dim=1).values

    compiled: Any = thunder.jit(best)
    for columns in range(5, 30):
        require_equal(compiled, best, torch.randn(2, columns, requires_grad=True))
    assert specializations(compiled) <= 3, thunder.explain_shapes(compiled)
    require_equal(compiled, best, torch.randn(2, 1, requires_grad=True))


def test_a_float_and_a_size_that_change() -> None:
    compiled: Any = thunder.jit(lambda x, rate: (x * rate).sum(0) / x.shape[0])
    for rows, rate in ((22, 0.1), (35, 0.2), (46, 0.7), (27, 0.3), (31, 0.9)):
        x = torch.randn(rows, 8, requires_grad=True)
        require_equal(lambda y, rate=rate: compiled(y, rate), lambda y, rate=rate: (y * rate).sum(0) / y.shape[0], x)
    assert specializations(compiled) <= 3, thunder.explain_shapes(compiled)


def test_an_lstm_trains_with_batches_of_many_sizes() -> None:
    torch.manual_seed(0)
    model = nn.LSTM(8, 8, num_layers=2, batch_first=True, bidirectional=True)
    compiled = thunder.jit(model)
    for batch, length in BATCHES:
        x = torch.randn(batch, length, 8, requires_grad=True)
        require_equal(lambda y: compiled(y)[0], lambda y: model(y)[0], x)


# Expressions that a few sizes do not tell apart, each with a size at which they differ.
ALIKE: dict[str, tuple[Callable[[int], int], int]] = {
    "remainder": (lambda n: n % 5000, 6000),
    "quotient": (lambda n: n // 5000, 6000),
    "dividend": (lambda n: 5 // (n - 24), 27),
    "remainder_of_number": (lambda n: 5 % (n - 24), 27),
    "low_bits": (lambda n: n & 8191, 9001),
}


@pytest.mark.parametrize("name", ALIKE)
def test_expressions_that_are_often_equal_are_told_apart(name: str) -> None:
    function, last = ALIKE[name]
    compiled: Any = thunder.jit(lambda x: x * function(x.shape[0]))
    for rows in (*ROWS, last):
        assert compiled(torch.ones(rows)).tolist() == [function(rows)] * rows


def _padded(x: Tensor) -> Tensor:
    columns = x.shape[1]
    padded = x.new_zeros(len(x), (columns + 7) // 8 * 8)
    padded[:, :columns] = x
    return padded.view(len(x), -1, 8)


def _scanned_in_chunks(x: Tensor) -> Tensor:
    padded = F.pad(x, (0, -x.shape[1] % 16))
    return padded.reshape(len(x), -1, 16).cumsum(-1)


def _in_rows_of_four(x: Tensor) -> Tensor:
    return x.view(len(x), x.shape[1] // 4, 4).softmax(-1)


# Columns of each call, and how many of them are traced.
SPECIAL_SIZES: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...], int]] = {
    "padded": (_padded, (29, 33, 35, 16, 24, 50), 3),
    "padded_to_one_piece": (_padded, (3, 5, 7, 2, 6, 8, 4, 30, 7), 4),
    "padded_to_one_piece_later": (_padded, (29, 35, 5, 7, 2, 9, 16, 17, 8, 4), 5),
    "chunks_of_a_scan": (_scanned_in_chunks, (3, 5, 7, 2, 14, 15, 9), 2),
    "one_chunk_of_a_scan_later": (_scanned_in_chunks, (30, 50, 3, 9, 47, 12, 60, 5, 2, 15, 17, 31), 3),
    "one_column_is_left": (lambda x: x[:, :-1].exp() * x[:, 1:], (9, 2, 8, 9, 13, 20, 30), 3),
    "one_row": (_in_rows_of_four, (12, 4, 8, 16, 20, 24), 3),
    "one_place_of_pooling": (lambda x: torch.max_pool1d(x, 2).relu(), (9, 3, 8, 9, 13, 20), 3),
    "few_values_before_a_branch": (lambda x: x.sin() if x.shape[1] > 4 else x.cos(), (20, 3, 8, 9, 30, 40), 3),
}


QUOTIENTS: dict[str, Callable[[int], Any]] = {
    "compared": lambda n: int(1 / max(n // 4, 1)) > 0.5,
    "smaller": lambda n: min(2.5, int(1 / max(n // 4, 1))),
    "larger": lambda n: max(5 / max(n, 1), int(1 / max(n // 4, 1))),
    "floor": lambda n: math.floor(min(0.5, int(7 / max(n // 4, 1)))),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", QUOTIENTS)
def test_quotients_by_what_small_sizes_make_zero_are_compared_as_in_python(name: str, dynamic: bool | None) -> None:
    function = QUOTIENTS[name]
    compiled: Any = thunder.jit(lambda x: function(x.shape[0]), dynamic=dynamic)
    for rows in (32, 9, 2, 40, 3, 17):
        assert compiled(torch.ones(rows)) == function(rows)


@pytest.mark.parametrize("name", SPECIAL_SIZES)
def test_sizes_that_are_special_leave_others_one_program(name: str) -> None:
    function, columns, count = SPECIAL_SIZES[name]
    compiled: Any = thunder.jit(function)
    for size in columns:
        require_equal(compiled, function, torch.randn(4, size, requires_grad=True))
    assert thunder.cache_misses(compiled) == count


def _in_pieces_by_a_tensor(x: Tensor) -> Tensor:
    x = x[:, : x.shape[1] // 4 * 4]
    return x.view(x.size(0), torch.div(x.size(1), 4, rounding_mode="trunc"), 4).sum(2)


def _written_to(x: Tensor) -> tuple[Tensor, int, int]:
    size = torch.tensor(x.shape[1])
    before = size.item()
    size.view(1)[0] = 3
    return x[:, : int(size)].sin(), int(before), int(size)


# Tensors that hold sizes, with the specializations that all columns but 1 and 0 need.
HELD: dict[str, tuple[Callable[[Tensor], Any], int]] = {
    "view": (_in_pieces_by_a_tensor, 3),
    "int": (lambda x: x[:, : int(torch.tensor(x.shape[1])) // 2].sin(), 2),
    "item": (lambda x: (x * 2, torch.tensor(x.shape[1] - 1).item()), 2),
    "float": (lambda x: x * float(torch.tensor(x.shape[1])), 2),
    "expand": (lambda x: x.expand(torch.tensor(x.shape[1]), *x.shape).sin(), 2),
    "shape": (lambda x: x / torch.tensor(x.shape).prod(), 2),
    "written_to": (_written_to, 2),
    "floor": (lambda x: x.repeat(torch.floor_divide(x.shape[1] + 4, 2), 1), 2),
    # Python and PyTorch divide negative numbers in other ways.
    "negative": (lambda x: x * int(torch.div(x.shape[1] - 40, 7, rounding_mode="trunc")), 10),
    "branch": (lambda x: x.sin() if int(torch.tensor(x.shape[1])) > 12 else x.cos(), 3),
}


@pytest.mark.parametrize("name", HELD)
def test_tensors_that_hold_sizes_are_read_at_all_sizes(name: str) -> None:
    function, count = HELD[name]
    compiled: Any = thunder.jit(function)
    for columns in (9, 20, 15, 12, 21, 13, 30, 1, 0):
        x = torch.randn(3, columns)
        torch.testing.assert_close(compiled(x), function(x))
        assert columns < 2 or thunder.cache_misses(compiled) <= count, thunder.explain_shapes(compiled)


class _Window:
    """Keys of the last tokens, as `transformers` keeps them for attention within a window."""

    def __init__(self, size: int) -> None:
        self.size, self.count, self.keys = size, 0, torch.zeros(3, 0, 4)

    def attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        first = max(self.count - self.size + 1, 0)
        length = (self.size - 1 if self.count >= self.size else self.count) + x.shape[1]
        key, query = torch.arange(length) + first, torch.arange(x.shape[1]) + self.count
        is_seen = (key[None] <= query[:, None]) & (key[None] > query[:, None] - self.size)
        if mask is not None:
            is_seen = is_seen & mask[:, key][:, None]
        self.count += x.shape[1]
        keys = torch.cat([self.keys, x], 1)
        self.keys = keys[:, -self.size + 1 :]
        return (x @ keys.mT).masked_fill(~is_seen, -1e9).softmax(-1) @ keys


# A cache that becomes full leaves a size few values just before, and one that no longer changes from then on.
@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize(
    ("size", "prompt", "count"), [(12, 7, 4), (12, 11, 3), (12, 12, 3), (12, 20, 3), (6, 1, 7), (5, 4, 3), (2, 2, 3)]
)
def test_a_cache_that_becomes_full_has_few_programs(size: int, prompt: int, count: int, is_masked: bool) -> None:
    compiled: Any = thunder.jit(_Window.attend)
    window, expected = _Window(size), _Window(size)
    for tokens in [prompt, *[1] * 16]:
        x = torch.randn(3, tokens, 4)
        mask = torch.rand(3, window.count + tokens) > 0.2 if is_masked else None
        torch.testing.assert_close(compiled(window, x, mask), _Window.attend(expected, x, mask))
        torch.testing.assert_close(window.keys, expected.keys)
        assert window.keys.stride() == expected.keys.stride()
    assert thunder.cache_misses(compiled) <= count, thunder.explain_shapes(compiled)


def test_a_size_that_conditions_leave_one_value_names_their_line() -> None:
    compiled: Any = thunder.jit(_Window.attend)
    window = _Window(12)
    for tokens in [9, 1, 1, 1]:
        compiled(window, torch.randn(3, tokens, 4), None)
    (pinned,) = thunder.compile_stats(compiled)["pinned_sizes"]
    first = _Window.attend.__code__.co_firstlineno
    assert pinned in {f"11 by {__file__}, line {first + i}" for i in (1, 2)}


def test_pieces_whose_sizes_are_often_equal_have_the_gradient_of_each() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.cat([part * (i + 1) for i, part in enumerate(x.tensor_split(4))])

    compiled: Any = thunder.jit(function)
    for rows in (22, 35, 46, 26, 70, 24):
        require_equal(compiled, function, torch.randn(rows, 8, requires_grad=True))


# Ints that 64 bits do not hold, or floats do not count: at these sizes or at larger ones.
LARGE: dict[str, Callable[[int], int]] = {
    "power": lambda n: n**6,
    "square_of_square": lambda n: (n * n) * (n * n) * (n * n),
    "factors": lambda n: n * 10**12 * 10**5,
    "factors_of_zero": lambda n: (n - 35) * 10**12 * 10**12,
    "shifted": lambda n: n << 45,
    "mask": lambda n: n & -(2**63),
    "wide_mask": lambda n: n & (2**64 - 1),
    "fractions": lambda n: int(n / 2**20 / 2**20 + n * 2**20),
    "scaled": lambda n: int(n * 1024.0 * 1024.0 * 1024.0),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_numbers_of_sizes_are_those_of_python(name: str) -> None:
    function = LARGE[name]
    compiled: Any = thunder.jit(lambda x: (x.sin(), function(x.shape[0])))
    for rows in (22, 35, 46, 5000, 300000):
        assert compiled(torch.zeros(rows))[1] == function(rows)


def test_a_variance_over_an_empty_list_of_dimensions_has_the_gradient_of_eager() -> None:
    compiled: Any = thunder.jit(lambda x: x.var(dim=[]))
    for rows in ROWS:
        x = torch.randn(rows, 8, requires_grad=True)
        got, wanted = torch.autograd.grad(compiled(x), x), torch.autograd.grad(x.var(dim=[]), x)
        torch.testing.assert_close(got, wanted, equal_nan=True)


def _halves(x: Tensor) -> Tensor:
    half = x.shape[0] // 2
    x[:half] = x[half : 2 * half] * half
    x[-1] += 1 / x.shape[0]
    return x.sum(0)


def _centered(x: Tensor) -> Tensor:
    x.sub_(x.mean(0))
    x.div_(x.shape[0])
    return x * 2


def _read_between(x: Tensor) -> Tensor:
    x.add_(1)
    total = x.sum().item()
    x.mul_(total / 100)
    return x * total


def _root(x: Tensor) -> Tensor:
    x.add_(1)
    return x * math.sqrt(x.shape[0] - 20)  # of a negative number at the last sizes


# Programs that write to their argument, with the specializations that they need for four numbers of rows.
WRITES: dict[str, tuple[Callable[[Tensor], Any], int]] = {
    "the_argument": (lambda x: x.add_(1), 2),
    "nothing": (lambda x: [x.mul_(x.shape[0]), None][1], 2),
    "a_view": (lambda x: x.add_(1)[1:], 2),
    "a_transposed_view": (lambda x: x.t().add_(torch.arange(x.shape[0])), 2),
    "halves": (_halves, 3),  # of odd and of even numbers
    "centered": (_centered, 2),
    "random": (lambda x: x.uniform_() + x.normal_(0, 2), 4),
    "data": (_read_between, 2),
    "root": (_root, 4),
}


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("name", WRITES)
def test_arguments_of_many_sizes_that_are_written_to_equal_eager(name: str, is_transposed: bool) -> None:
    function, most = WRITES[name]
    compiled: Any = thunder.jit(function)

    def run(of: Callable[[Tensor], Any], rows: int) -> Any:
        torch.manual_seed(rows)
        x = torch.randn(8, rows).t() if is_transposed else torch.randn(rows, 8)
        try:
            result = of(x)
        except ValueError:
            result = "refused"
        return result, x, x._version

    for rows in (*ROWS, 64, 9, 1):
        (got, x, version), (wanted, expected, expected_version) = run(compiled, rows), run(function, rows)
        torch.testing.assert_close(x, expected)
        assert version == expected_version
        if not isinstance(wanted, Tensor):
            assert got == wanted
        else:
            torch.testing.assert_close(got, wanted)
            assert (got is x) == (wanted is expected)
            assert got.stride() == wanted.stride()
        if rows == ROWS[-1]:
            assert specializations(compiled) <= most, thunder.explain_shapes(compiled)


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("name", ["gather", "scatter", "scatter_add", "scatter_reduce"])
def test_fewer_indices_than_elements_have_one_program_for_all_sizes(name: str, dim: int) -> None:
    def function(x: Tensor, index: Tensor, values: Tensor) -> Tensor:
        if name == "gather":
            return x.gather(dim, index) * values
        more = ("sum",) if name == "scatter_reduce" else ()
        result: Tensor = getattr(x, name)(dim, index, values, *more)
        return result

    compiled: Any = thunder.jit(function)
    for rows, few in ((22, 11), (46, 17), (35, 19), (27, 21)):
        x = torch.randn(rows, rows + 1, requires_grad=True)
        index = torch.stack([torch.randperm(few) for _ in range(few)], dim)
        require_equal(compiled, function, x, index, torch.randn(few, few, requires_grad=True))
    assert specializations(compiled) <= 2, thunder.explain_shapes(compiled)
    x, index = torch.randn(12, 30), torch.stack([torch.randperm(12) for _ in range(12)], dim)
    require_equal(compiled, function, x, index, torch.randn(12, 12))
    with pytest.raises((IndexError, RuntimeError)):
        compiled(torch.randn(9, 9), index, torch.randn(12, 12))


def test_running_statistics_of_many_channels_are_written() -> None:
    def function(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        return F.batch_norm(x, mean, variance, training=True)

    compiled: Any = thunder.jit(function)
    for channels in ROWS:
        x = torch.randn(4, channels, 3)
        ours, theirs = [(torch.zeros(channels), torch.ones(channels)) for _ in range(2)]
        torch.testing.assert_close(compiled(x, *ours), function(x, *theirs))
        torch.testing.assert_close(ours, theirs)
    assert specializations(compiled) <= 2, thunder.explain_shapes(compiled)


def test_an_argument_with_a_history_that_is_written_to_has_gradients_at_many_sizes() -> None:
    def function(x: Tensor) -> Tensor:
        x.mul_(2)
        return x.sin() / x.shape[0]

    compiled: Any = thunder.jit(function)
    for rows in ROWS:
        first = torch.randn(rows, 8, requires_grad=True)
        second = first.detach().clone().requires_grad_()
        for of, leaf in ((compiled, first), (function, second)):
            x = leaf * 3
            (of(x) + x).sum().backward()
        torch.testing.assert_close(first.grad, second.grad)


@pytest.mark.parametrize("loss", [F.multilabel_margin_loss, F.multi_margin_loss])
def test_losses_whose_time_grows_fast_with_the_classes_are_traced_at_once(loss: Any) -> None:
    compiled = thunder.jit(loss)
    for rows, classes in ((4, 3), (4, 5), (6, 7)):
        target = torch.randint(classes, (rows, classes) if loss is F.multilabel_margin_loss else (rows,))
        require_equal(compiled, loss, torch.randn(rows, classes, requires_grad=True), target)


def test_a_program_whose_derivative_is_for_some_sizes_alone_is_not_shared_with_others() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.fft.irfft(torch.fft.rfft(x) * 2, n=x.shape[1])

    compiled = thunder.jit(program)
    for sizes in ((4, 3), (6, 5), (5, 7), (7, 4), (8, 6), (9, 11)):  # odd ones first
        require_equal(compiled, program, torch.randn(sizes, requires_grad=True))
    assert specializations(compiled) == 3
    assert thunder.compile_stats(compiled)["eager_calls"] == 0
