"""Programs whose sizes are symbols: one specialization for many sizes, equal to eager at each."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import thunder

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="symbols need Python 3.11")

ROWS = (24, 7, 100, 2, 33, 513)
SIZES = ((4, 24), (3, 7), (8, 100), (2, 2), (5, 33), (5, 5))

WIDTH, HEADS, WORDS = 32, 4, 50


def specializations(compiled: Any) -> int:
    count: int = thunder.compile_stats(compiled)["specializations"]
    return count


def require_equal(
    compiled: Any, plain: Callable[..., Tensor], inputs: Sequence[Tensor], leaves: Sequence[Tensor]
) -> None:
    result, expected = compiled(*inputs), plain(*inputs)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    assert result.stride() == expected.stride()
    if not leaves:
        return
    cotangent = torch.randn_like(expected)
    for got, wanted in zip(
        torch.autograd.grad(result, leaves, cotangent), torch.autograd.grad(expected, leaves, cotangent), strict=True
    ):
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(self.norm1(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        mixed = F.softmax(scores, dim=-1) @ v
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words: Tensor, target: Tensor) -> Tensor:
        x = self.embedding(words)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), target.flatten())


def test_an_mlp_has_one_specialization_for_all_marked_sizes() -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
    compiled = thunder.jit(model)
    for rows in ROWS:
        x = torch.randn(rows, 16)
        if rows == ROWS[0]:
            thunder.mark_dynamic(x, 0)
        require_equal(compiled, model, [x], list(model.parameters()))
    assert specializations(compiled) == 1
    assert thunder.compile_stats(compiled)["pinned_sizes"] == []


def test_a_transformer_trains_with_one_specialization() -> None:
    model = Model()
    compiled = thunder.jit(model, dynamic=True)
    for size in SIZES:
        words, target = torch.randint(0, WORDS, size), torch.randint(0, WORDS, size)
        model.zero_grad()
        compiled(words, target).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        model.zero_grad()
        model(words, target).backward()
        for gradient, parameter in zip(gradients, model.parameters(), strict=True):
            torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-5)
    assert specializations(compiled) == 1


def test_sizes_of_one_and_zero_have_specializations_of_their_own() -> None:
    compiled = thunder.jit(lambda x, y: (x * y).sum(0), dynamic=True)
    for rows in (24, 1, 0, 9):
        x, y = torch.randn(rows, 8), torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x, y), (x * y).sum(0))
    assert specializations(compiled) == 3
    broadcast = torch.randn(1, 8)
    torch.testing.assert_close(compiled(x, broadcast), (x * broadcast).sum(0))


def test_sizes_that_were_equal_may_differ_in_another_specialization() -> None:
    compiled = thunder.jit(lambda x, y: x.sum() * y, dynamic=True)
    for left, right in ((6, 6), (6, 9), (30, 4), (5, 5), (7, 7)):
        x, y = torch.randn(left), torch.randn(right)
        torch.testing.assert_close(compiled(x, y), x.sum() * y)
    assert specializations(compiled) == 2


OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "broadcast": lambda x, w: torch.tanh(x + w[0]) * w.sum(),
    "mean": lambda x, w: x.mean(1) + x.mean(),
    "softmax": lambda x, w: torch.softmax(x, 0) * x,
    "log_softmax": lambda x, w: torch.log_softmax(x, -1),
    "layer_norm": lambda x, w: F.layer_norm(x, (8,), w[0], w[1]),
    "rms_norm": lambda x, w: F.rms_norm(x, (8,), w[0]),
    "matmul": lambda x, w: x @ w @ w.t() @ x.t(),
    "gram": lambda x, w: (x.t() @ x) @ w,
    "cat": lambda x, w: torch.cat([x, x * 2, w]),
    "stack": lambda x, w: torch.stack([x, x.sin()]).sum(0),
    "flatten": lambda x, w: x.flatten().cos(),
    "reshape": lambda x, w: (x @ w).reshape(-1, 4, 2).sum(1),
    "unflatten": lambda x, w: x.unflatten(1, (2, 4)).transpose(0, 1).amax(-1),
    "in_place": lambda x, w: (x * 1).add_(1).mul_(x),
    "write_to_a_view": lambda x, w: _double_first_column(x * 1),
    "cumsum": lambda x, w: x.cumsum(0),
    "where": lambda x, w: torch.where(x > 0, x, -x * w[0]),
    "clone_of_a_transpose": lambda x, w: x.t().contiguous().exp(),
    "gather": lambda x, w: w[x.argmax(1)],
    "expand_as": lambda x, w: w[0].expand_as(x) * x,
    "attention": lambda x, w: F.scaled_dot_product_attention(x.unsqueeze(0), x.unsqueeze(0), x.unsqueeze(0)),
}


def _double_first_column(y: Tensor) -> Tensor:
    y.select(1, 0).mul_(2)
    return y


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_of_symbolic_sizes_equal_eager(name: str) -> None:
    function = OPERATIONS[name]
    compiled = thunder.jit(function)
    for rows in (24, 6, 2, 100, 33):
        x, w = torch.randn(rows, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
        thunder.mark_dynamic(x, 0)
        result, expected = compiled(x, w), function(x, w)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
        cotangent = torch.randn_like(expected)
        got = torch.autograd.grad(result, (x, w), cotangent, allow_unused=True)
        wanted = torch.autograd.grad(expected, (x, w), cotangent, allow_unused=True)
        for left, right in zip(got, wanted, strict=True):
            torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-4)
    pinned = thunder.compile_stats(compiled)["pinned_sizes"]
    assert specializations(compiled) == 1, pinned


def _number_of_digits(x: Tensor) -> Tensor:
    return x * len(f"{x.shape[0]}")


def _branch(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] > 10 else x * 3


def _loop(x: Tensor) -> Tensor:
    total = x[0] * 0
    for row in x:
        total = total + row
    return total


def _key(x: Tensor) -> Tensor:
    return x * {24: 2.0, 6: 3.0}.get(x.size(0), 5.0)


def _catch(x: Tensor) -> Tensor:
    try:
        return x.view(4, 6, 8).sum(0)
    except RuntimeError:
        return x.sum(0)


def _inner_gradient(x: Tensor) -> Tensor:
    leaf = x.detach().requires_grad_()
    (leaf.sum() * 2).backward()
    assert leaf.grad is not None
    return leaf.grad + x


def _data(x: Tensor) -> Tensor:
    return x * 2 if x.sum().item() > 0 else x * 3


class _Double(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.size = x.size(0)
        return x * 2

    @staticmethod
    def backward(context: Any, cotangent: Tensor) -> Tensor:  # type: ignore[override]
        return cotangent * context.size


NUMBERS: dict[str, Callable[[Tensor], Tensor]] = {
    "branch": _branch,
    "loop": _loop,
    "key": _key,
    "catch": _catch,
    "inner_gradient": _inner_gradient,
    "data": _data,
    "autograd_function": lambda x: _Double.apply(x),
    "factor": lambda x: x * len(x),
    "count": lambda x: x / x.numel(),
    "slice": lambda x: x[:-1] - x[1:],
    "zeros": lambda x: torch.zeros(x.shape) + x,
    "view": lambda x: x.view(x.shape[0] * 2, 4).sum(0),
    "chunk": lambda x: x.chunk(3)[0],
    "split": lambda x: torch.cat([part * i for i, part in enumerate(x.split(4))]),
    "nonzero": lambda x: x[x[:, 0] > 0].sum(0),
    "stride": lambda x: x.t() * x.t().stride(0),
    "contiguous": lambda x: x * 2 if x.t().is_contiguous() else x * 3,
    "name_of_shape": lambda x: x * len(str(x.shape)),
    "var": lambda x: x.var(0, correction=0),
    "like": lambda x: x + torch.ones_like(x) * torch.zeros_like(x),
    "attention_of_an_index": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None])[0],
    "mean_squares": lambda x: F.mse_loss(x.sin(), x),
    "result_is_a_view": lambda x: (x * 2).t(),
    "result_is_a_part_of_an_input": lambda x: x.select(1, 0),
    "constant_of_that_size": lambda x: x + torch.arange(float(x.size(0)))[:, None],
    "square": lambda x: x.squeeze().unsqueeze(0),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_programs_that_need_a_number_equal_eager(name: str) -> None:
    function = NUMBERS[name]
    compiled = thunder.jit(function)
    for rows in (24, 6, 24, 30, 1, 2):
        x = torch.randn(rows, 8, requires_grad=True)
        thunder.mark_dynamic(x, 0)
        result, expected = compiled(x), function(x)
        torch.testing.assert_close(result, expected)
        assert result.stride() == expected.stride()
        (got,) = torch.autograd.grad(result.sum(), x)
        (wanted,) = torch.autograd.grad(expected.sum(), x)
        torch.testing.assert_close(got, wanted)


def test_an_operation_that_fails_at_other_sizes_runs_no_kernel_there() -> None:
    function = lambda x: torch.combinations(x, 4)  # noqa: E731
    compiled = thunder.jit(function)
    for count in (4, 6, 5):
        x = torch.randn(count)
        thunder.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x), function(x))


def test_pinned_sizes_name_the_line() -> None:
    compiled = thunder.jit(_number_of_digits)
    x = torch.randn(24, 8)
    thunder.mark_dynamic(x, 0)
    compiled(x)
    (pinned,) = thunder.compile_stats(compiled)["pinned_sizes"]
    line = _number_of_digits.__code__.co_firstlineno + 1
    assert pinned == f"24 by {__file__}, line {line}"


def test_a_size_that_is_a_number_does_not_pin_the_others() -> None:
    compiled = thunder.jit(lambda x, w: (x @ w).sin(), dynamic=True)
    weight = nn.Parameter(torch.randn(16, 4))
    for rows in (24, 5, 9):
        x = torch.randn(rows, 16)
        torch.testing.assert_close(compiled(x, weight), (x @ weight).sin())
    assert specializations(compiled) == 1
    assert len(thunder.compile_stats(compiled)["pinned_sizes"]) == 1


@pytest.mark.parametrize("rows", [4, 100])
def test_sizes_beyond_their_bounds_are_errors(rows: int) -> None:
    compiled = thunder.jit(lambda x: x.sin() + 1)
    for fitting in (24, 8, 64):
        x = torch.randn(fitting, 8)
        thunder.mark_dynamic(x, 0, min=8, max=64)
        torch.testing.assert_close(compiled(x), x.sin() + 1)
    assert specializations(compiled) == 1
    x = torch.randn(rows, 8)
    thunder.mark_dynamic(x, 0, min=8, max=64)
    with pytest.raises(ValueError, match="dimension 0: expected a size of at least 8 and at most 64"):
        compiled(x)


def test_static_marks_and_options_keep_numbers() -> None:
    function = lambda x: x.sin() + 1  # noqa: E731
    static, never = thunder.jit(function, dynamic=True), thunder.jit(function, dynamic=False)
    unmarked = thunder.jit(function)
    for rows in (24, 8):
        x = torch.randn(rows, 8)
        unmarked(x)
        thunder.mark_static(x, 0)
        static(x)
        thunder.mark_dynamic(x, -2)
        never(x)
    assert specializations(static) == specializations(never) == specializations(unmarked) == 2


def test_wrong_marks_and_options_are_errors() -> None:
    with pytest.raises(IndexError, match="dimension"):
        thunder.mark_dynamic(torch.zeros(2), 1)
    with pytest.raises(ValueError, match="min <= max"):
        thunder.mark_dynamic(torch.zeros(2), 0, min=3, max=2)
    with pytest.raises(TypeError, match="dynamic"):
        thunder.jit(torch.sin, dynamic="yes")  # type: ignore[call-overload]


def test_running_statistics_follow_batches_of_many_sizes() -> None:
    compiled_norm, plain = nn.BatchNorm1d(8), nn.BatchNorm1d(8)
    compiled = thunder.jit(compiled_norm, dynamic=True)
    for rows in (24, 5, 100):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x), plain(x))
        torch.testing.assert_close(compiled_norm.running_var, plain.running_var)


def test_dropout_draws_the_numbers_of_eager() -> None:
    compiled = thunder.jit(lambda x: F.dropout(x.sin(), 0.5) * 2, dynamic=True)
    for rows in (24, 5, 100):
        x = torch.randn(rows, 8, requires_grad=True)
        torch.manual_seed(rows)
        result = compiled(x)
        torch.manual_seed(rows)
        torch.testing.assert_close(result, F.dropout(x.sin(), 0.5) * 2)


def test_autocast_and_no_grad_have_symbols_too() -> None:
    layer = nn.Linear(8, 8)
    compiled = thunder.jit(layer, dynamic=True)
    for rows in (24, 5, 100):
        x = torch.randn(rows, 8)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(compiled(x), layer(x))
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), layer(x))
    assert specializations(compiled) == 2


def test_writes_to_arguments_of_many_sizes_arrive() -> None:
    compiled = thunder.jit(lambda x: x.mul_(2).sum(), dynamic=True)
    for rows in (24, 5, 100):
        x = torch.randn(rows, 8)
        expected = x * 2
        torch.testing.assert_close(compiled(x), expected.sum())
        torch.testing.assert_close(x, expected)


def test_arguments_in_containers_have_symbols() -> None:
    compiled = thunder.jit(lambda batch: batch["x"] @ batch["parts"][0].t(), dynamic=True)
    for rows in (24, 5, 100):
        batch = {"x": torch.randn(rows, 8), "parts": (torch.randn(3, 8),)}
        torch.testing.assert_close(compiled(batch), batch["x"] @ batch["parts"][0].t())  # type: ignore[index]
    assert specializations(compiled) <= 2


def test_transposed_arguments_keep_their_order_in_memory() -> None:
    compiled = thunder.jit(lambda x: x * 2 + 1, dynamic=True)
    for rows in (24, 5, 100):
        several = torch.randn(rows, 8), torch.randn(8, rows).t(), torch.randn(rows, 1, 8), torch.randn(rows, 16)[:, :8]
        for x in several:
            result = compiled(x)
            torch.testing.assert_close(result, x * 2 + 1)
            assert result.stride() == (x * 2 + 1).stride()


def test_a_function_under_vmap_equals_eager() -> None:
    function = lambda x, w: torch.func.vmap(lambda row: (row @ w).sin())(x)  # noqa: E731
    compiled = thunder.jit(function, dynamic=True)
    for rows in (24, 5, 100):
        x, w = torch.randn(rows, 8), torch.randn(8, 3)
        torch.testing.assert_close(compiled(x, w), function(x, w))


def _attention_by_shapes(x: Tensor) -> Tensor:
    rows, width = x.shape
    heads = x.view(rows, 2, width // 2).transpose(0, 1)
    scores = heads @ heads.transpose(-2, -1) / math.sqrt(width // 2)
    mask = torch.ones(rows, rows, dtype=torch.bool).tril()
    mixed = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ heads
    return mixed.transpose(0, 1).reshape(*x.shape[:-1], -1)


def _append(x: Tensor) -> Tensor:
    longer = torch.cat([x, x[-1:]])
    return longer[: x.shape[0]] * longer.size(0)


# Programs that compute with sizes in Python, with the specializations that they need for rows of 24, 6, 33, 30 and 100.
SHAPES: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "factor": (lambda x: x * len(x), 1),
    "divisor": (lambda x: x.sin() / x.size(0), 1),
    "number_on_the_left": (lambda x: x.shape[0] / (x.exp() + 1), 1),
    "number_of_elements": (lambda x: x.sin() / x.numel(), 1),
    "square": (lambda x: x * x.size(0) ** 2, 1),
    "integers": (lambda x: x * (torch.ones(8, dtype=torch.int32) * x.size(0)), 1),
    "view": (lambda x: (x * 2).view(x.shape[0] * 2, 4).sum(0), 1),
    "leading_sizes": (lambda x: (x * 2).view(*x.shape[:-1], 2, 4).sum(1), 1),
    "zeros": (lambda x: torch.zeros(x.shape) + x, 1),
    "full": (lambda x: torch.full((x.size(0), 8), 2.0) * x, 1),
    "arange": (lambda x: x + torch.arange(x.size(0))[:, None], 1),
    "expand": (lambda x: torch.ones(1, 8).expand(x.size(0), -1) * x, 1),
    "pad": (lambda x: F.pad(x.sin(), (0, 0, 0, x.shape[0] - 1)), 1),
    "slices": (lambda x: x[:-1] - x[1:], 1),
    "half": (lambda x: x[: x.shape[0] // 2].sum(0), 1),
    "new_dimension": (lambda x: (x[None] * 2)[0].sin(), 1),
    "last_row": (lambda x: x.sin()[-1] * 2, 1),
    "is_int": (lambda x: x * (2 if isinstance(x.shape[0], int) and type(x.shape[0]) is int else 3), 1),
    "equal_shapes": (lambda x: x * (2 if x.shape == x.sin().shape else 3), 1),
    "attention": (_attention_by_shapes, 1),
    "append": (_append, 1),
    "constants": (lambda x: x * (torch.arange(8) * 2 + 1) if x.shape[0] > 3 else x.sin(), 1),
    "branch": (_branch, 2),
    "parity": (lambda x: x * 2 if x.shape[0] % 2 == 0 else x * 3, 2),
    "most": (lambda x: x * max(x.size(0), 26), 2),
    "beyond_the_end": (lambda x: x[:28].sum(0), 2),
    "contiguous": (lambda x: x[:, 1:].contiguous().view(-1).sin(), 1),
    "digits": (_number_of_digits, 5),
    "range": (lambda x: sum((x[i] for i in range(x.shape[0])), x[0] * 0), 5),
    "key": (_key, 5),
}


@pytest.mark.parametrize("name", SHAPES)
def test_programs_that_read_sizes_in_python_equal_eager(name: str) -> None:
    function, expected_specializations = SHAPES[name]
    compiled = thunder.jit(function)
    for rows in (24, 6, 33, 30, 100):
        x = torch.randn(rows, 8, requires_grad=True)
        thunder.mark_dynamic(x, 0)
        require_equal(compiled, function, [x], [x])
    assert specializations(compiled) == expected_specializations
    for rows in (2, 1, 3, 24):
        x = torch.randn(rows, 8, requires_grad=True)
        require_equal(compiled, function, [x], [x])


def test_sizes_as_results_are_ints() -> None:
    compiled = thunder.jit(lambda x: (x.shape[0] + 1, x.shape, [len(x)]), dynamic=True)
    for rows in (24, 6):
        x = torch.randn(rows, 8)
        result = compiled(x)
        assert result == (rows + 1, x.shape, [rows])
        assert [type(part) for part in (*result, result[2][0])] == [int, torch.Size, list, int]


def test_a_size_met_with_a_second_value_is_a_symbol() -> None:
    compiled = thunder.jit(lambda x, w: (x @ w).sin() * x.shape[0])
    w = torch.randn(8, 8)
    for rows in (24, 6, 33, 7, 100):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x, w), (x @ w).sin() * rows, rtol=1e-4, atol=1e-4)
    assert specializations(compiled) == 2


def test_batch_and_length_become_symbols_at_the_second_shape() -> None:
    model = Model()
    compiled = thunder.jit(model)
    for size in ((4, 24), (4, 7), (3, 9), (6, 6), (9, 30), (5, 17)):
        words, target = torch.randint(0, WORDS, size), torch.randint(0, WORDS, size)
        torch.testing.assert_close(compiled(words, target), model(words, target), rtol=1e-4, atol=1e-5)
    assert specializations(compiled) == 2


@pytest.mark.parametrize("first", [(7, 24), (7, 9), (5, 24)], ids=["length", "both equal", "batch"])
def test_a_batch_and_a_length_have_three_programs(first: tuple[int, int]) -> None:
    model = Model()
    compiled = thunder.jit(model)
    for size in (first, (7, 17), (1, 12), (8, 42), (1, 40), (3, 3), (4, 2)):
        words, target = torch.randint(0, WORDS, size), torch.randint(0, WORDS, size)
        torch.testing.assert_close(compiled(words, target), model(words, target), rtol=1e-4, atol=1e-5)
    assert specializations(compiled) == 3


def test_a_size_that_is_guessed_and_needed_as_a_number_costs_no_symbol() -> None:
    def degrees(edges: Tensor, x: Tensor) -> Tensor:
        source, target = edges  # the first size is a number
        return torch.zeros_like(x).index_add(0, target, x[source]) * edges.shape[1]

    compiled = thunder.jit(degrees)
    x = torch.randn(5, 3)
    for count in (6, 9, 40, 5, 2):
        edges = torch.randint(0, 5, (2, count))
        torch.testing.assert_close(compiled(edges, x), degrees(edges, x))
    assert specializations(compiled) == 2


def test_guesses_hide_no_pin() -> None:
    def f(x: Tensor) -> Tensor:
        return sum((x[:, i] for i in range(x.shape[1])), x[:, 0])

    compiled = thunder.jit(f)
    for size in ((4, 3), (4, 5), (6, 5), (8, 5), (9, 5)):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), f(x))
    assert specializations(compiled) == 3
    assert any("line" in pin for shapes in thunder.explain_shapes(compiled) for pin in shapes.pinned)


def test_a_guess_that_equals_a_width_costs_no_program() -> None:
    weight = torch.randn(8, 8)

    def f(words: Tensor, x: Tensor) -> Tensor:
        return (x @ weight).sum(-1) + words[:, :1]

    compiled = thunder.jit(f)
    for batch, length in ((8, 4), (8, 5), (8, 9), (3, 7), (4, 4)):
        words, x = torch.randint(0, 9, (batch, length)), torch.randn(batch, 8)
        torch.testing.assert_close(compiled(words, x), f(words, x), rtol=1e-4, atol=1e-5)
    assert specializations(compiled) <= 4


def test_sizes_that_differed_before_may_be_equal_and_differ_again() -> None:
    compiled = thunder.jit(lambda x, y: x.sum() * y)
    for left, right in ((6, 9), (7, 7), (30, 4), (5, 5), (8, 3)):
        x, y = torch.randn(left), torch.randn(right)
        torch.testing.assert_close(compiled(x, y), x.sum() * y)
    assert specializations(compiled) == 2


def test_a_size_that_is_pinned_keeps_its_line() -> None:
    calls = []

    def function(x: Tensor) -> Tensor:
        return x * len(f"{x.shape[0]}")

    compiled = thunder.jit(function)
    for rows in (24, 6, 33, 7):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x), function(x))
        calls.append(thunder.compile_stats(compiled)["pinned_sizes"])
    assert specializations(compiled) == 4
    line = f"{__file__}, line {function.__code__.co_firstlineno + 1}"
    assert calls == [[], [f"6 by {line}"], [f"33 by {line}"], [f"7 by {line}"]]


def _attend_to_more(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    k = torch.cat([k, q], 2)
    return F.scaled_dot_product_attention(q, k, k, mask)


def _attend_to_less(mask: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k[:, :, 1:], k[:, :, 1:], mask)


# Sizes of several inputs are one or more apart, in an operation that raises where they are not.
@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (_attend_to_more, lambda n: (torch.ones(1, n + 2) > 0, torch.randn(3, 2, 2, 8), torch.randn(3, 2, n, 8))),
        (_attend_to_less, lambda n: (torch.ones(1, n - 1) > 0, torch.randn(3, 2, 4, 8), torch.randn(3, 2, n, 8))),
        (lambda m, k: F.cross_entropy(m, k[1:]), lambda n: (torch.randn(n - 1, 5), torch.arange(n) % 5)),
        (lambda m, k: torch.zeros(20).index_add(0, m, k[1:]), lambda n: (torch.arange(n - 1), torch.randn(n))),
        (lambda m, k: torch.baddbmm(m, k[:, 1:], k.mT), lambda n: (torch.randn(3, n - 1, n), torch.randn(3, n, 8))),
    ],
)
def test_sizes_that_are_apart_by_a_constant_have_one_program(function: Any, inputs: Any) -> None:
    compiled = thunder.jit(function)
    for n in (7, 9, 8, 12, 20):
        given = inputs(n)
        torch.testing.assert_close(compiled(*given), function(*given), rtol=1e-4, atol=1e-5)
    assert specializations(compiled) == 2
    assert not thunder.compile_stats(compiled)["pinned_sizes"]
    with pytest.raises((RuntimeError, ValueError, IndexError)):
        compiled(*inputs(9)[:-1], inputs(11)[-1])


class _Cache:
    def __init__(self) -> None:
        self.keys: Tensor | None = None


def test_remainders_of_two_sizes_are_told_apart_in_derivatives() -> None:
    def function(x: Tensor, y: Tensor, number: int) -> Tensor:
        rows, columns = x.shape
        padded = F.pad(x, (y.shape[1] % 4, (4 + rows) % 3, 0, columns % 5))
        return padded.sin().sum() + x[1:].sum() + x.softmax(0).square().sum()

    compiled = thunder.jit(function)
    for columns, number in ((4, 3), (5, 12), (4, 8), (8, 6), (2, 3), (9, 8)):
        x, y = torch.randn(columns, 7).t().requires_grad_(), torch.randn(columns, 3).t()
        expected = torch.autograd.grad(function(x, y, number), x)
        torch.testing.assert_close(torch.autograd.grad(compiled(x, y, number), x), expected)


def test_a_cache_that_grows_has_one_program_for_all_lengths() -> None:
    def step(x: Tensor, cache: _Cache) -> Tensor:
        cache.keys = x if cache.keys is None else torch.cat([cache.keys, x], 1)
        positions = torch.arange(cache.keys.shape[1])
        return (x @ cache.keys.transpose(1, 2) + positions).softmax(-1) @ cache.keys

    compiled = thunder.jit(step)
    cache, expected = _Cache(), _Cache()
    for _ in range(12):
        x = torch.randn(1, 1, 8)
        torch.testing.assert_close(compiled(x, cache), step(x, expected), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(cache.keys, expected.keys)
    assert specializations(compiled) <= 4


# At the second call the cache has a size that never changed, and the mask's is a number beside it.
def test_a_size_that_was_a_number_beside_another_is_tried_again_when_that_changes() -> None:
    def step(x: Tensor, mask: Tensor, cache: _Cache) -> Tensor:
        cache.keys = x if cache.keys is None else torch.cat([cache.keys, x], 2)
        return F.scaled_dot_product_attention(x, cache.keys, cache.keys, mask)

    compiled = thunder.jit(step)
    cache, expected = _Cache(), _Cache()
    for length in range(6, 16):
        x, mask = torch.randn(2, 2, 1 if cache.keys is not None else 6, 8), torch.ones(2, 1, 1, length) > 0
        torch.testing.assert_close(compiled(x, mask, cache), step(x, mask, expected), rtol=1e-4, atol=1e-5)
    assert specializations(compiled) == 3


def test_sizes_that_are_not_marked_stay_numbers_without_generalization() -> None:
    compiled = thunder.jit(lambda x: x.sin() * 2, dynamic=False)
    for rows in (24, 6, 33):
        compiled(torch.randn(rows, 8))
    assert specializations(compiled) == 3


def test_explain_shapes_tells_symbols_conditions_and_pins() -> None:
    compiled = thunder.jit(_branch, dynamic=True)
    compiled(torch.randn(24, 8))
    (shapes,) = thunder.explain_shapes(compiled)
    assert shapes.symbols == ("s0: x.shape[0]", "s1: x.shape[1]")
    line = _branch.__code__.co_firstlineno + 1
    assert shapes.conditions[-1] == f"11 <= x.shape[0] ({__file__}, line {line})"
    assert "s0: x.shape[0]" in str(thunder.explain_shapes(compiled))
    pinned = thunder.jit(_number_of_digits, dynamic=True)
    pinned(torch.randn(24, 8))
    assert thunder.explain_shapes(pinned)[0].pinned[0].startswith("24 by ")


def test_a_miss_names_the_conditions_of_the_program() -> None:
    compiled = thunder.jit(_branch, dynamic=True)
    compiled(torch.randn(24, 8))
    compiled(torch.randn(6, 8))
    assert "11 <= x.shape[0]" in thunder.explain_misses(compiled)[1].reason


def test_symbolic_values_is_a_mode_of_the_cache() -> None:
    compiled = thunder.jit(lambda x: x.sin() * x.shape[0], cache="symbolic values")
    for rows in (24, 6, 33):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x), x.sin() * rows)
    assert specializations(compiled) == 1


def _double_where_it_is_a_view(x: Tensor) -> Tensor:
    y = x * 1
    y.t().reshape(y.shape).mul_(2)
    return y


def _wrong_row(x: Tensor) -> Tensor:
    return (x * 1).index_copy(0, torch.tensor([0, 1]), x[:2] * 2)


# Operations that do something else where a size is what another one is, or less.
NEIGHBORS: dict[str, tuple[Callable[..., Tensor], tuple[int, ...]]] = {
    "reshape_gives_a_view": (_double_where_it_is_a_view, (4,)),
    "flatten_of_a_slice_gives_a_view": (lambda x: (x * 1)[:, :3].reshape(-1).mul_(2), (4,)),
    "cross_finds_a_dimension": (lambda x: torch.cross(x, x.flip(0)), (3,)),
    "solve_takes_vectors": (lambda x: torch.linalg.solve(_regular(x), torch.ones(3, 3)), (3, 3)),
    "diagonal_is_shorter": (lambda x: x * x.diagonal().shape[0], (4,)),
    "zeros_of_a_diagonal": (lambda x: x.new_ones(x.diagonal().shape), (4,)),
    "trapezoid": (lambda x: torch.trapezoid(x, torch.arange(4.0), dim=-1), (4,)),
    "constants_are_folded": (_wrong_row, (4,)),
}


def _regular(x: Tensor) -> Tensor:
    return x + 9 * torch.eye(3)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", NEIGHBORS)
def test_sizes_next_to_others_equal_eager(name: str, requires_grad: bool) -> None:
    function, sizes = NEIGHBORS[name]
    compiled = thunder.jit(function)
    for rows in (5, 7, 4, 3, 2, 6, 4, 3, 8):
        x = torch.randn(rows, *sizes, requires_grad=requires_grad)
        result, expected = compiled(x), function(x)
        torch.testing.assert_close(result, expected)
        assert result.stride() == expected.stride()
        if result.requires_grad:
            (got,) = torch.autograd.grad(result.sum(), x)
            torch.testing.assert_close(got, torch.autograd.grad(expected.sum(), x)[0])


def test_writes_through_what_reshape_gives_arrive_where_it_is_a_view() -> None:
    compiled = thunder.jit(_double_into)
    for rows in (5, 7, 4, 6, 4):
        x, expected = torch.ones(rows, 4), torch.ones(rows, 4)
        compiled(x)
        _double_into(expected)
        assert torch.equal(x, expected)


def _double_into(x: Tensor) -> None:
    x.t().reshape(x.shape).mul_(2)


def test_gradients_of_symbolic_sizes_are_made_with_create_graph() -> None:
    compiled = thunder.jit(lambda x: torch.einsum("ij,kj->ik", x, x))
    for rows in (4, 3, 6):
        x = torch.randn(rows, 3, requires_grad=True)
        (gradient,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
        torch.testing.assert_close(gradient.detach(), 2 * x.detach().sum(0).expand(rows, 3))
        assert gradient.requires_grad


class Images(nn.Module):
    """Windows with strides, whose counts are floor divisions, and running statistics."""

    def __init__(self, *, is_normed: bool) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8) if is_normed else nn.Identity()
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.grouped = nn.Conv2d(8, 8, 3, stride=(3, 2), padding=(1, 2), dilation=(1, 2), groups=4)
        self.average = nn.AvgPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.average(F.relu(self.grouped(self.pool(F.relu(self.norm(self.stem(x)))))))


IMAGES = ((4, 64, 64), (6, 72, 56), (3, 65, 99), (8, 70, 71), (2, 97, 58), (5, 101, 101), (7, 66, 67))


@pytest.mark.parametrize("is_normed", [False, True])
def test_strided_windows_have_one_program_for_images_of_all_sizes(*, is_normed: bool) -> None:
    # The gradient of a bias in front of a batch norm is nothing but rounding errors.
    dtype = torch.float64 if is_normed else torch.float32
    model = Images(is_normed=is_normed).to(dtype)
    compiled = thunder.jit(model)
    for batch, height, width in IMAGES:
        x = torch.randn(batch, 3, height, width, dtype=dtype, requires_grad=True)
        require_equal(compiled, model, [x], [x, *model.parameters()])
    assert specializations(compiled) == 2
    small = torch.randn(2, 3, 9, 9, dtype=dtype)
    with pytest.raises(RuntimeError):
        model(small)
    with pytest.raises(RuntimeError):
        compiled(small)


@pytest.mark.parametrize(
    "window",
    [
        nn.Conv1d(3, 5, 4, stride=3),
        nn.Conv1d(3, 5, 3, padding="same"),
        nn.Conv1d(3, 5, 3, stride=2, padding="valid"),
        nn.MaxPool1d(3, 2, 1),
        nn.MaxPool1d(3, 2, ceil_mode=True),
        nn.AvgPool1d(5, 4, 2),
        nn.LPPool1d(2, 3),
        nn.ConvTranspose1d(3, 5, 3, stride=2),
        nn.Sequential(nn.Conv1d(3, 3, 2, stride=2), nn.Conv1d(3, 3, 2, stride=2), nn.Conv1d(3, 3, 2, stride=2)),
        nn.Sequential(nn.ReflectionPad1d(2), nn.Conv1d(3, 3, 3, stride=5)),
    ],
    ids=str,
)
def test_windows_at_many_lengths_equal_eager(window: nn.Module) -> None:
    compiled = thunder.jit(window)
    for length in (40, 33, *range(12, 32), 1001):
        x = torch.randn(2, 3, length, requires_grad=True)
        require_equal(compiled, window, [x], [x, *window.parameters()])
    has_symbols = "ceil_mode" not in str(window) and "LPPool" not in str(window)
    assert not has_symbols or specializations(compiled) <= 6  # one for each length that has one window


@pytest.mark.parametrize("layers", [1, 2])
def test_an_lstm_trains_at_many_lengths_with_two_programs(layers: int) -> None:
    model = nn.LSTM(3, 4, layers)
    compiled = thunder.jit(model)
    for length in (5, 6, 9, 2, 30):
        x = torch.randn(length, 2, 3, requires_grad=True)
        require_equal(lambda x: compiled(x)[0], lambda x: model(x)[0], [x], [x, *model.parameters()])
    assert specializations(compiled) <= 3


def assert_step_as_eager(compiled: Any, step: Any, model: nn.Module, x: Tensor) -> None:
    """Compare what a step with a backward inside gives, and the gradients that it leaves."""
    model.zero_grad()
    result = compiled(x)
    gradients = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    torch.testing.assert_close(result, step(x))
    for got, parameter in zip(gradients, model.parameters(), strict=True):
        torch.testing.assert_close(got, parameter.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"num_layers": 2}, {"proj_size": 2}, {"bidirectional": True}], ids=str)
@pytest.mark.parametrize("read", ["before", "after"])
def test_a_step_of_an_lstm_that_looks_at_its_loss_has_two_programs(options: dict[str, Any], read: str) -> None:
    torch.manual_seed(0)
    model = nn.LSTM(3, 4, **options)

    def step(x: Tensor) -> Tensor:
        loss = model(x)[0].sin().mean()
        if read == "before" and torch.isnan(loss):
            return loss.detach() * 2
        loss.backward()
        if read == "after" and torch.isnan(loss):
            return loss.detach() * 2
        return loss.detach()

    compiled = thunder.jit(step)
    for batch in (2, 2, 3, 5, 4, 1):
        assert_step_as_eager(compiled, step, model, torch.randn(6, batch, 3))
    assert thunder.compile_stats(compiled)["eager_calls"] == 0
    assert specializations(compiled) <= 3  # one for a batch of one


@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])
@pytest.mark.parametrize("read", [False, True])
def test_a_step_with_a_recurrent_layer_has_one_program_for_all_batches(kind: type[nn.RNNBase], read: bool) -> None:
    torch.manual_seed(0)
    model = kind(5, 8)

    def step(x: Tensor) -> Tensor:
        loss = model(x)[0].sin().mean()
        if read and torch.isnan(loss):
            return loss.detach() * 2
        loss.backward()
        return loss.detach()

    compiled = thunder.jit(step)
    for batch in (2, 3, 5, 4):
        assert_step_as_eager(compiled, step, model, torch.randn(6, batch, 5))
    assert thunder.compile_stats(compiled)["eager_calls"] == 0
    assert specializations(compiled) <= 2


@pytest.mark.parametrize("make", [lambda: nn.BatchNorm1d(3), lambda: nn.BatchNorm2d(3)], ids=["rows", "images"])
def test_running_statistics_are_updated_at_each_batch_size(make: Callable[[], nn.Module]) -> None:
    norm = make()
    plain = copy.deepcopy(norm)
    compiled = thunder.jit(norm)
    for batch in (6, 4, 9, 2, 33):
        x = torch.randn(batch, 3, *([16, 16] if isinstance(norm, nn.BatchNorm2d) else []), requires_grad=True)
        result, expected = compiled(x), plain(x)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
        cotangent = torch.randn_like(expected)
        (gradient,) = torch.autograd.grad(result, x, cotangent)
        (wanted,) = torch.autograd.grad(expected, x, cotangent)
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-5)
        for buffer, other in zip(norm.buffers(), plain.buffers(), strict=True):
            torch.testing.assert_close(buffer, other)
    assert specializations(compiled) == 2
    compiled.eval(), plain.eval()
    torch.testing.assert_close(compiled(x), plain(x), rtol=1e-4, atol=1e-5)


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * torch.sigmoid(1.7 * x)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        gate = torch.sigmoid(1.7 * x)
        return cotangent * gate * (1 + 1.7 * x * (1 - gate))


class _MeanAndScaled(torch.autograd.Function):
    """Sizes in the backward, two results, and an argument without a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, factor: float) -> tuple[Tensor, Tensor]:
        result = x @ weight
        ctx.save_for_backward(x, weight, result)
        ctx.rows, ctx.factor = x.shape[0], factor
        return x.mean(0), result * factor

    @staticmethod
    def backward(ctx: Any, of_mean: Tensor, of_scaled: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, result = ctx.saved_tensors
        spread = of_mean.expand(ctx.rows, -1) / ctx.rows
        inner = of_scaled * ctx.factor + 0 * result
        return spread + inner @ weight.t(), x.t() @ inner, None


class _RoundedStraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        return cotangent


class _LooksAtRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return cotangent * x.cos() * (2 if x.shape[0] > 10 else 3)


FUNCTIONS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], int]] = {
    "one": (lambda x, w: _Gelu.apply(x @ w).sum(-1), 2),
    "twice": (lambda x, w: _Gelu.apply(_Gelu.apply(x) @ w).sin(), 2),
    "view_of_its_result": (lambda x, w: _Gelu.apply(x @ w).t().reshape(4, -1, 2).cos(), 3),  # two rows: other strides
    "two_results": (lambda x, w: sum((t.sum() for t in _MeanAndScaled.apply(x, w, 0.5)), x.sum(1)), 2),
    "second_result": (lambda x, w: _MeanAndScaled.apply(x, w, 0.5)[1].exp(), 2),
    "straight_through": (lambda x, w: _RoundedStraightThrough.apply(x * 3) @ w, 2),
    "written_result": (lambda x, w: _Gelu.apply(x).mul_(2) @ w, 3),
    "decides_on_rows": (lambda x, w: _LooksAtRows.apply(x) @ w, 6),  # as many as sizes: its backward pins them
    "data": (lambda x, w: x @ w * (x.data.max() - x.data.min()), 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_autograd_functions_have_one_program_for_all_sizes(name: str) -> None:
    function, most = FUNCTIONS[name]
    compiled = thunder.jit(function)
    w = torch.randn(8, 8, requires_grad=True)
    for rows in (24, 6, 33, 7, 100, 2):
        x = torch.randn(rows, 8, requires_grad=True)
        require_equal(compiled, function, [x, w], [x, w])
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, w), function(x, w), rtol=1e-4, atol=1e-5)
    assert specializations(compiled) <= 2 * most
    may_pin = name in ("written_result", "view_of_its_result", "decides_on_rows")
    assert may_pin or not thunder.compile_stats(compiled)["pinned_sizes"]


def test_an_autograd_function_that_reads_data_in_its_backward_equals_eager() -> None:
    class Clipped(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, cotangent: Tensor) -> Tensor:
            return cotangent * (2 if float(cotangent.sum()) > 0 else 3)

    def function(x: Tensor) -> Tensor:
        return Clipped.apply(x.sin()).cos()

    compiled = thunder.jit(function)
    for rows in (24, 6, 33):
        x = torch.randn(rows, requires_grad=True)
        require_equal(compiled, function, [x], [x])


def test_a_gradient_that_fits_at_one_size_alone_raises_at_others() -> None:
    class FirstSix(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, cotangent: Tensor) -> Tensor:
            return cotangent[:6]

    def function(x: Tensor) -> Tensor:
        return FirstSix.apply(x.sin()).cos()

    compiled = thunder.jit(function)
    for rows in (5, 6, 33, 7):
        x = torch.randn(rows, requires_grad=True)
        if rows <= 6:
            require_equal(compiled, function, [x], [x])
            continue
        for call in (function, compiled):
            with pytest.raises(RuntimeError, match=r"invalid gradient|expected shape"):
                call(x).sum().backward()


class _Averaged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int) -> Tensor:
        ctx.count = count
        return x * 2

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, None]:
        return cotangent / ctx.count, None


def _averaged_by_rows(weight: Tensor, x: Tensor) -> Tensor:
    return _Averaged.apply(weight.sin(), x.shape[0]).cos()


def _averaged_by_positive(weight: Tensor, x: Tensor) -> Tensor:
    positive = x[x > 0]
    return _Averaged.apply(weight.sin(), positive.shape[0]).cos() * positive.max()


@pytest.mark.parametrize("function", [_averaged_by_rows, _averaged_by_positive])
def test_sizes_that_only_a_backward_reads_equal_eager(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    compiled = thunder.jit(function)
    weight = torch.randn(6, requires_grad=True)
    for rows in (24, 10, 33, 57, 100):
        x = torch.randn(rows, 3)
        require_equal(compiled, function, [weight, x], [weight])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("padding", [None, 1])
@pytest.mark.parametrize("has_last", [False, True])
def test_embedding_bags_of_many_sizes(mode: Any, dtype: torch.dtype, padding: int | None, has_last: bool) -> None:
    module = torch.nn.EmbeddingBag(7, 3, mode=mode, dtype=dtype, padding_idx=padding, include_last_offset=has_last)
    compiled = thunder.jit(module)
    for count, offsets in ((4, [0, 2]), (5, [0, 2]), (6, [0, 3, 4]), (9, [0, 1, 2, 5]), (1, [0])):
        indices = torch.randint(0, 7, (count,))
        starts = torch.tensor(offsets + [count] * has_last)
        found = []
        for function in (module, compiled):
            module.zero_grad()
            result = function(indices, starts)
            result.square().sum().backward()
            found.append((result, module.weight.grad.clone()))
            with torch.no_grad():
                assert torch.allclose(function(indices, starts), result)
        assert all(torch.allclose(mine, theirs) for mine, theirs in zip(*found, strict=True))


def _added_where_shapes_differ(x: Tensor, mask: Tensor) -> Tensor:
    if mask.shape != x.shape:
        mask = torch.broadcast_to(mask.clone(), x.shape)
    return x * mask


# A program, and its arguments for a number: sizes of weights, groups and windows change, too.
GENERAL: dict[str, tuple[Callable[..., Tensor], Callable[[int], Sequence[Tensor]]]] = {
    "sizes that differ": (_added_where_shapes_differ, lambda n: (torch.randn(3 * n, 2 * n), torch.randn(2 * n))),
    "masked sum": (
        lambda x, mask: torch.masked.sum(x, -1, mask=mask > 0) * mask.sum(),
        lambda n: (torch.randn(3 * n, 2 * n, 2 * n), torch.randn(2 * n, 2 * n)),
    ),
    "glu": (lambda x: F.glu(x, 1), lambda n: (torch.randn(5, 4 * n, n),)),
    "group norm": (lambda x: F.group_norm(x, 2), lambda n: (torch.randn(n, 6 * n, 3 * n),)),
    "conv channels": (F.conv1d, lambda n: (torch.randn(2, 3 * n, 9), torch.randn(4 * n, 3 * n, 3))),
    "conv windows": (F.conv1d, lambda n: (torch.randn(2, 3, 5 * n), torch.randn(3, 3, n))),
    "transposed conv": (
        lambda x, w: F.conv_transpose2d(x, w, stride=3, padding=1, output_padding=1),
        lambda n: (torch.randn(2, 3, n, 4 * n), torch.randn(3, 5, n + 1, 3)),
    ),
}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", GENERAL)
def test_programs_with_two_traces(name: str, *, requires_grad: bool) -> None:
    function, make = GENERAL[name]
    compiled = thunder.jit(function)
    for n in (2, 3, 5, 4):
        inputs = [each.requires_grad_(requires_grad) for each in make(n)]
        require_equal(compiled, function, inputs, inputs if requires_grad else [])
    assert specializations(compiled) == 2


@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_fusion_of_a_row_that_begins_at_a_symbol_serves_rows_that_begin_at_numbers(requires_grad: bool) -> None:
    def function(x: Tensor, k: int) -> Tensor:
        return x[-2, :k].sin().sum() + x[4:].sin().sum()

    compiled = thunder.jit(function)
    # The second program's row of two begins at `2 * s0 - 4`; the third one, for numbers alone, has an equal fusion.
    for sizes, k in (((7, 6), 5), ((8, 2), 5), ((2, 5), 2)):
        x = torch.randn(*sizes, requires_grad=requires_grad)
        torch.testing.assert_close(compiled(x, k), function(x, k))


# Arguments that are slices: rows lie further apart than they are long, by as much at each length or to one place.
SLICES = {
    "all_but_the_last": lambda rows, n: torch.randn(rows, n + 1)[:, :-1],
    "all_but_the_first": lambda rows, n: torch.randn(rows, n + 1)[:, 1:],
    "begin_of_a_buffer": lambda rows, n: torch.randn(rows, 70)[:, :n],
    "some_channels": lambda rows, n: torch.randn(rows, n, 9)[:, :, :8],
    "one_channel": lambda rows, n: torch.randn(rows, n, 3)[:, :, 1],
    "transposed": lambda rows, n: torch.randn(n, rows + 2).t()[2:],
    "cache": lambda rows, n: torch.randn(rows, 2, 64, 8)[:, :, :n],
}
OF_SLICES: dict[str, Callable[[Tensor], Any]] = {
    "chain": lambda x: (x.sin() * 2 + x).relu(),
    "sum": lambda x: x.sum(-1) + x.mean(),
    "softmax": lambda x: x.softmax(1) * 2,
    "rows": lambda x: x.flatten(1) @ x.flatten(1).mT,
    "flat": lambda x: x.reshape(-1) * 2,
    "view_and_copy": lambda x: (x[1:], x * 1, x.contiguous()),
    "strides": lambda x: x * x.stride(0) + x.is_contiguous() if x.is_contiguous() else x.cos() / x.stride(1),
    "other_slices": lambda x: x[:, 1:] * x[:, :-1],
    "cat": lambda x: torch.cat([x, x], 1).cumsum(1),
}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("of_slice", OF_SLICES)
@pytest.mark.parametrize("kind", SLICES)
def test_slices_have_one_program_for_all_lengths(kind: str, of_slice: str, device: str) -> None:
    function = OF_SLICES[of_slice]
    compiled = thunder.jit(function)
    for rows, n in ((4, 7), (4, 9), (5, 12), (3, 30), (2, 2), (7, 40), (6, 60)):
        x = SLICES[kind](rows, n)
        results, expected = [], []
        for call, into in ((compiled, results), (function, expected)):
            given = torch.as_strided(_memory_of(x).to(device, copy=True), x.shape, x.stride(), x.storage_offset())
            leaf = given.detach().requires_grad_()
            values = call(leaf)
            values = values if isinstance(values, tuple) else (values,)
            (gradient,) = torch.autograd.grad(sum((value * value).sum() for value in values), leaf)
            into += [*values, gradient]
        for result, value in zip(results, expected, strict=True):
            torch.testing.assert_close(result, value, rtol=1e-4, atol=1e-4)
            assert (result.stride(), result.storage_offset()) == (value.stride(), value.storage_offset())
    assert specializations(compiled) <= 4  # some things are others where n is two
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


def _memory_of(x: Tensor) -> Tensor:
    return torch.empty(0).set_(x.untyped_storage())  # type: ignore[arg-type]


def test_a_slice_up_to_the_end_of_its_buffer_is_another_program() -> None:
    compiled = thunder.jit(lambda x: x.sin() if x.is_contiguous() else x.cos())
    buffer = torch.randn(4, 70)
    for n in (7, 9, 30, 70, 69, 71):
        x = torch.randn(4, 71)[:, :n] if n == 71 else buffer[:, :n]
        torch.testing.assert_close(compiled(x), x.sin() if x.is_contiguous() else x.cos())


@pytest.mark.parametrize("rows", [1, 4])
def test_shifted_words_of_a_language_model_have_one_program(rows: int) -> None:
    embedding, head = nn.Embedding(50, 16), nn.Linear(16, 50)

    def loss(words: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(head(embedding(words).relu()).flatten(0, 1), targets.reshape(-1))

    compiled = thunder.jit(loss)
    for length in (8, 20, 9, 33):
        words = torch.randint(0, 50, (rows, length))
        torch.testing.assert_close(compiled(words[:, :-1], words[:, 1:]), loss(words[:, :-1], words[:, 1:]))
    assert specializations(compiled) == 2


# Arguments whose rows lie apart by a distance that their own sizes do not tell, and expanded ones.
APART: dict[str, Callable[[int, int], Tensor]] = {
    "last": lambda rows, n: torch.randn(rows, n, 4)[:, -1],
    "last_of_length_one": lambda rows, n: torch.randn(rows, n, 4)[:, -1:],
    "first_few": lambda rows, n: torch.randn(rows, n + 3, 4)[:, :3],
    "window": lambda rows, n: torch.randn(rows, n + 6)[:, -6:],
    "column": lambda rows, n: torch.randn(rows, n)[:, 0],
    "one_column": lambda rows, n: torch.randn(rows, n)[:, :1],
    "chunk": lambda rows, n: torch.randn(rows, 3 * n, 4).chunk(3, 1)[1],
    "every_other": lambda rows, n: torch.randn(rows, 2 * n)[:, ::2],
    "crop": lambda rows, n: torch.randn(rows, 2, n + 5, n + 7)[..., 1:5, 2:5],
    "block": lambda rows, n: torch.randn(9, 70)[:rows, :n],
    "diagonal": lambda rows, n: torch.randn(n, n).diagonal(),
    "expanded": lambda rows, n: torch.randn(1, n).expand(rows, n),
    "mask": lambda rows, n: torch.randn(rows, 1, 1, n).expand(rows, 1, n, n),
}


def _write(x: Tensor) -> Tensor:
    x.mul_(2).clamp_(min=0)
    return x.sum(-1)


OF_APART: dict[str, Callable[[Tensor], Any]] = {
    "chain": lambda x: (x.sin() * 2 + x).relu(),
    "softmax": lambda x: x.softmax(-1) * 2,
    "flat": lambda x: x.reshape(-1),
    "views": lambda x: (x, x[1:], x[None], x.transpose(0, -1), x.contiguous()),
    "copies": lambda x: (x.clone(), x.transpose(0, -1) * 2, torch.cat([x, x], -1), x.flip(0)),
    "view": lambda x: x.view(-1) * 2,
    "decides": lambda x: (x.cos() if x.is_contiguous() else x.sin() * x.numel(),),
    "writes": _write,
}


def _outcome(function: Any, x: Tensor, *, takes_grad: bool) -> tuple[Any, ...]:
    memory = _memory_of(x).clone()
    leaf = torch.as_strided(memory, x.shape, x.stride(), x.storage_offset()).requires_grad_(takes_grad)
    try:
        results = function(leaf)
    except RuntimeError:
        return (RuntimeError,)
    results = results if isinstance(results, tuple) else (results,)
    differentiable = [(result * result).sum() for result in results if result.grad_fn is not None]
    gradients = torch.autograd.grad(sum(differentiable), leaf) if differentiable else ()
    where = [(result.untyped_storage()._cdata == memory.untyped_storage()._cdata, result is leaf) for result in results]
    # Strides of dimensions of one mean nothing.
    strides = [[step for step, size in zip(r.stride(), r.shape, strict=True) if size > 1] for r in results]
    return ([result.detach() for result in results], *gradients, memory), where, strides


@pytest.mark.parametrize("takes_grad", [False, True])
@pytest.mark.parametrize("of_apart", OF_APART)
@pytest.mark.parametrize("kind", APART)
def test_distances_of_rows_may_change(kind: str, of_apart: str, *, takes_grad: bool) -> None:
    function = OF_APART[of_apart]
    for calls in (
        ((3, 7), (3, 9), (3, 12), (3, 8), (3, 33)),
        ((1, 7), (1, 9), (1, 12)),
        ((2, 2), (3, 5), (1, 4), (4, 1)),
    ):
        compiled = thunder.jit(function)
        fails = False
        for rows, n in calls:
            x = APART[kind](rows, n)
            result, expected = (_outcome(each, x, takes_grad=takes_grad) for each in (compiled, function))
            fails = fails or len(expected) == 1
            assert result[1:] == expected[1:]
            if not fails:
                torch.testing.assert_close(result[0], expected[0], rtol=1e-4, atol=1e-4)
        assert fails or len(calls) == 4 or specializations(compiled) <= 3


def test_rows_that_follow_one_another_are_not_apart() -> None:
    function = lambda x: (x.reshape(-1), x.is_contiguous(), x.stride(0))  # noqa: E731
    compiled = thunder.jit(function)
    for n in (20, 25, 31, 6, 40, 7):
        x = torch.randn(4, n)[:, :6]
        (flat, *told), (expected, *told_there) = compiled(x), function(x)
        assert told == told_there
        assert (flat.data_ptr() == x.data_ptr()) == (expected.data_ptr() == x.data_ptr())
    assert specializations(compiled) == 3


def test_arguments_with_the_same_distance_of_rows_have_one_symbol() -> None:
    compiled = thunder.jit(lambda x, y: x + y)
    for n, m in ((5, 5), (8, 8), (9, 9), (9, 12)):
        x, y = torch.randn(3, n, 4)[:, -1], torch.randn(3, m, 4)[:, 0]
        torch.testing.assert_close(compiled(x, y), x + y)
    assert "x.stride(0) == y.stride(0)" in thunder.explain_shapes(compiled)[1].conditions
    assert specializations(compiled) == 3


def test_a_stride_that_is_needed_as_a_number_is_pinned() -> None:
    compiled = thunder.jit(lambda x: x * sum(range(x.stride(0))))
    for n in (8, 9, 12, 15):
        x = torch.randn(3, n)[:, :6]
        torch.testing.assert_close(compiled(x), x * sum(range(n)))
    assert any("a stride of 9 by" in pin for pins in thunder.explain_shapes(compiled) for pin in pins.pinned)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_context_that_is_cut_has_one_program(rows: int) -> None:
    embedding, head = nn.Embedding(50, 16), nn.Linear(16, 50)
    compiled = thunder.jit(lambda words: head(embedding(words).cumsum(1).tanh()))
    words = torch.randint(0, 50, (rows, 3))
    with torch.no_grad():
        for _ in range(20):
            context = words if words.shape[1] <= 8 else words[:, -8:]
            logits = compiled(context)
            torch.testing.assert_close(logits, head(embedding(context).cumsum(1).tanh()))
            words = torch.cat([words, logits[:, -1].argmax(-1, keepdim=True)], 1)
    assert specializations(compiled) <= 3


# In C, which takes the tensors out of what holds them.
PADDED: dict[str, Callable[[Any], Tensor]] = {
    "function": lambda xs: nn.utils.rnn.pad_sequence(xs, batch_first=True),
    "in_c": lambda xs: torch._C._nn.pad_sequence(xs, True, 0.5, "right"),
    "copied": lambda xs: torch._C._nn.pad_sequence(list(xs), False, 0.0, "left"),
}


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("name", PADDED)
def test_sequences_in_an_argument_are_padded_by_one_program(name: str, kind: Callable[[Any], Any]) -> None:
    compiled = thunder.jit(PADDED[name])
    for lengths in ((3, 4), (5, 6), (7, 2), (9, 3), (12, 5)):
        sequences = kind(torch.randn(length, 3) for length in lengths)
        torch.testing.assert_close(compiled(sequences), PADDED[name](sequences))
    assert specializations(compiled) == 2


@pytest.mark.parametrize("most", [6, 8, 16, 32])
def test_sizes_with_close_bounds_are_symbols(most: int) -> None:
    compiled = thunder.jit(lambda x: (x @ x.t()).softmax(-1) * x.shape[0])
    x = torch.randn(5, 4)
    thunder.mark_dynamic(x, 0, max=most)
    for rows in (5, 2, 4, 6, 3):
        x = x if rows == 5 else torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), (x @ x.t()).softmax(-1) * rows)
    assert specializations(compiled) == 1


_WORDS = torch.randn(40, 3)


# The trace with symbols is made where the slice is all of the tensor.
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[-7:] * 1.5,
        lambda x: x[:7] * 1.5,
        lambda x: x[:, None][-7:] * 1.5,
        lambda x: x[-7:].clone(),
        lambda x: (x[x.shape[0] - 1 :] * 1.5, x[-7:] + 0),
        lambda x: x.narrow(0, x.shape[0] - 7, 7) * 2,
        lambda x: torch.stack([x[-7:], x[-7:]]),
        lambda x: torch.arange(x.shape[0])[-7:] * 2,
        lambda x: _WORDS[x[-7:].abs().long()],
        lambda x: x.as_strided((7,), (1,), x.shape[0] - 7) * 2,
        lambda x: F.pad(x[None, -7:], (1, 1)),
    ],
)
@pytest.mark.parametrize("sizes", [(9, 7, 8, 10, 20), (7, 9, 7, 20), (9, 7, 6, 8, 4)])
@pytest.mark.parametrize("takes_grad", [False, True])
def test_a_slice_that_is_all_of_a_tensor_at_one_size(function: Any, sizes: tuple[int, ...], takes_grad: bool) -> None:
    def outcome(call: Any, x: Tensor) -> Any:
        try:
            results = call(x)
        except RuntimeError:
            return ()
        results = results if isinstance(results, tuple) else (results,)
        differentiable = [each.sum() for each in results if each.requires_grad]
        return (*results, *(torch.autograd.grad(sum(differentiable), x) if differentiable else ()))

    compiled = thunder.jit(function)
    for n in sizes:
        x = torch.randn(n, requires_grad=takes_grad)
        torch.testing.assert_close(outcome(compiled, x), outcome(function, x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.fft.hfft2(x, s=(3, 10), dim=(1, 2), norm="ortho"),
        lambda x: torch.fft.irfft(x, n=5, dim=1),
        lambda x: torch.fft.fft2(x, s=(3, 10)).abs(),
        lambda x: torch.fft.fftn(x, s=(4, 3, 10)).abs(),
    ],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_spectra_of_what_is_padded_or_cut(function: Any, dynamic: bool | None) -> None:
    compiled = thunder.jit(function, dynamic=dynamic)
    for sizes in ((5, 6, 7), (5, 17, 7), (5, 2, 16), (5, 3, 16), (3, 4, 6), (5, 2, 12), (3, 8, 5)):
        x = torch.randn(sizes, dtype=torch.float64, requires_grad=True)
        result, expected = compiled(x), function(x)
        cotangent = torch.randn_like(expected)
        torch.testing.assert_close(result, expected)
        (gradient,) = torch.autograd.grad(result, x, cotangent)
        torch.testing.assert_close(gradient, torch.autograd.grad(expected, x, cotangent)[0])


# Programs of two sizes whose first trace with symbols assumes that they are equal, or one twice the other: (6, 12).
NARROWED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "strided": lambda x, y: y.as_strided((x.shape[0], 2), (1, 1)) * 2,
    "strided_copy": lambda x, y: y.contiguous().as_strided((x.shape[0], 2), (1, 1)) * 2,
    "strided_view": lambda x, y: (y[None].as_strided((x.shape[0], 2), (1, 1)) * 2, x.shape[0] - 1, y[None]),
    "strided_result": lambda x, y: (y.as_strided((x.shape[0], 2), (1, 1)),),
}


@pytest.mark.parametrize("name", NARROWED)
def test_equal_traces_share_no_program_that_is_for_other_sizes(name: str) -> None:
    function = NARROWED[name]
    compiled = thunder.jit(function)
    with pytest.raises(RuntimeError, match="setStorage"):
        compiled(torch.randn(5), torch.randn(4))
    raised = thunder.compile_stats(compiled)["eager_calls"]
    for rows, length in ((6, 12), (4, 7), (6, 24), (8, 12), (5, 10), (7, 9)):
        x, y = torch.randn(rows), torch.randn(length)
        torch.testing.assert_close(compiled(x, y), function(x, y), rtol=0, atol=0)
    assert thunder.cache_misses(compiled) <= 3
    assert thunder.compile_stats(compiled)["eager_calls"] == raised


def test_a_size_that_is_once_a_number_which_divides_it() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        rows = x.shape[0]
        part = y[: rows + (8 - rows % 8) % 8]
        part[part.shape[0] - rows :] = x
        return part.view(-1, 4) * 2

    for all_rows in ((24, 16, 40), (16, 8, 64, 24, 8, 40, 16)):  # expressions of the first ones are those of the others
        compiled = thunder.jit(function)
        for rows in all_rows:
            x = torch.randn(rows, requires_grad=True)
            torch.testing.assert_close(compiled(x, torch.arange(128.0)), function(x, torch.arange(128.0)))
        assert thunder.compile_stats(compiled)["eager_calls"] == 0
        assert thunder.cache_misses(compiled) <= 3


def test_a_size_that_two_numbers_divide_once() -> None:
    def function(x: Tensor) -> Tensor:
        padded = F.pad(x, (0, 0, 0, x.shape[0] % 2)).clone()
        padded[::2] = 1
        return padded.reshape(-1, 4).sum(-1)

    compiled = thunder.jit(function)
    for rows in (20, 8, 12, 4, 16, 4, 24):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x), function(x))
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


def _sum_of_chunks(x: Tensor) -> Tensor:
    length = x.shape[1]
    padding = (16 - length % 16) % 16
    chunks, total = F.pad(x, (0, padding)).view(x.shape[0], -1, 16), x.sum() * 0
    for i in range((length + padding) // 16):
        total = total + (chunks[:, i] * total).sum() + chunks[:, i].sin().sum()
    return total


COUNTS_OF_CHUNKS: dict[str, Callable[[Tensor], Tensor]] = {
    "range": _sum_of_chunks,
    "index of a list": lambda x: x * [1, 2, 3, 4][x.shape[1] // 16],
    "key": lambda x: x * {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}[x.shape[1] // 16],
    "equality": lambda x: x.sin() if x.shape[1] // 16 == 1 else x.cos(),
    "a bounded loop": lambda x: sum((x[:, i].sin() for i in range(min(x.shape[1], 3))), x.sum(1)),
}


@pytest.mark.parametrize("takes_grad", [False, True])
@pytest.mark.parametrize("name", COUNTS_OF_CHUNKS)
def test_a_number_that_many_sizes_give_has_one_program_for_these(name: str, *, takes_grad: bool) -> None:
    program = COUNTS_OF_CHUNKS[name]
    compiled = thunder.jit(program)

    def check(lengths: tuple[int, ...]) -> int:
        for length in lengths:
            results = []
            for function in (program, compiled):
                torch.manual_seed(length)
                x = torch.randn(2, length, requires_grad=takes_grad)
                y = function(x)
                results.append((y, *torch.autograd.grad(y.sum(), x)) if takes_grad else (y,))
            torch.testing.assert_close(results[1], results[0])
        count: int = thunder.compile_stats(compiled)["specializations"]
        return count

    assert check((17, 20, 18, 31, 29, 22)) == 2
    assert check((35, 45, 40, 17, 47, 33, 25)) <= 3
    check((16, 15, 2, 1, 32, 48, 3))


def test_a_condition_on_a_number_of_chunks_is_told() -> None:
    compiled = thunder.jit(COUNTS_OF_CHUNKS["key"])
    for length in (17, 20):
        compiled(torch.randn(2, length))
    conditions = thunder.explain_shapes(compiled)[-1].conditions
    assert any(each.startswith("(x.shape[1]//16) == 1") for each in conditions), conditions


def test_a_number_of_chunks_of_a_long_sequence_leaves_the_batch_a_symbol() -> None:
    compiled = thunder.jit(lambda x: x * [0, 1][x.shape[1] // 320 - 149])
    for batch, length in ((2, 48010), (3, 48100), (4, 48200), (5, 48003)):
        x = torch.randn(batch, length)
        torch.testing.assert_close(compiled(x), x)
    assert thunder.compile_stats(compiled)["specializations"] == 2
