"""Sizes that follow from data are symbols from the second value on: one program for all of them, equal to eager."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import thunder

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="symbols need Python 3.11")


def specializations(compiled: Any) -> int:
    count: int = thunder.compile_stats(compiled)["specializations"]
    return count


def values(count: int, rows: int = 12, columns: int = 4) -> Tensor:
    """Rows of which the first `count` begin with a positive number, in a random order."""
    x = torch.rand(rows, columns) + 0.1
    x[count:, 0] *= -1
    return x[torch.randperm(rows)]


def _two_masks(x: Tensor) -> Tensor:
    large, small = x[x[:, 0] > 0], x[x[:, 0] < 0]
    return large.exp().sum(0) + small.cos().mean(0)


def _same_mask(x: Tensor) -> Tensor:
    mask = x[:, 0] > 0
    return (x[mask] * x.sin()[mask]).sum(0) + x[mask, 1].sum()


def _positions(x: Tensor) -> Tensor:
    rows, columns = torch.where(x > 0.5)
    return x[rows, columns] * columns + rows


def _nested(x: Tensor) -> Tensor:
    kept = x[x[:, 0] > 0]
    return kept[kept[:, 1] > 0.2].sum(0) + kept.mean(0)


def _written(x: Tensor) -> Tensor:
    y = x * 2
    mask = x[:, 0] > 0
    y[mask] = x[mask].sin()
    return y


def _cat(x: Tensor) -> Tensor:
    kept = x[x[:, 0] > 0]
    return F.softmax(torch.cat([kept, x]) @ kept.t(), dim=-1)


def _sizes_in_python(x: Tensor) -> Tensor:
    kept = x[x[:, 0] > 0]
    count = kept.shape[0]
    return kept.sum(0) / count + torch.arange(count).sum() + kept.new_zeros(count, 3).numel()


def _branch_on_size(x: Tensor) -> Tensor:
    kept = x[x[:, 0] > 0]
    return kept.sum(0) if kept.shape[0] > 6 else kept.prod(0)


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "mask": lambda x: x[x[:, 0] > 0].sin(),
    "mask of elements": lambda x: x[x > 0.5].exp() * 2,
    "masked_select": lambda x: torch.masked_select(x, x > 0.5).cos(),
    "nonzero": lambda x: (x > 0.5).nonzero().float().sum(0) + x.sum(),
    "positions": _positions,
    "two masks": _two_masks,
    "same mask": _same_mask,
    "nested": _nested,
    "written": _written,
    "cat": _cat,
    "mask of columns": lambda x: x.t()[:, x[:, 0] > 0].sum(1),
    "unique": lambda x: torch.unique((x * 4).long()).float() * x.sum(),
    "unique with inverse": lambda x: torch.unique((x * 4).long(), return_inverse=True)[1] * x,
    "unique rows": lambda x: torch.unique((x * 2).long(), dim=0, return_counts=True)[1] * x.sum(),
    "unique_consecutive": lambda x: torch.unique_consecutive((x * 2).long()).float() * x.sum(),
    "repeat_interleave": lambda x: x.repeat_interleave((x[:, 0] > 0).long() + 1, dim=0).sin(),
    "sizes in Python": _sizes_in_python,
    "branch on size": _branch_on_size,
}
COUNTS = (5, 8, 10, 3, 9, 4, 7)


def require_equal(compiled: Any, plain: Callable[[Tensor], Tensor], x: Tensor) -> None:
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    result, expected = compiled(ours), plain(theirs)
    torch.testing.assert_close(result, expected, equal_nan=True)
    assert result.stride() == expected.stride()
    assert result.requires_grad == expected.requires_grad
    if not expected.requires_grad:
        return
    cotangent = torch.randn_like(expected)
    (got,) = torch.autograd.grad(result, ours, cotangent)
    (wanted,) = torch.autograd.grad(expected, theirs, cotangent)
    torch.testing.assert_close(got, wanted, equal_nan=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_from_data_have_one_program_after_the_second_value(name: str) -> None:
    torch.manual_seed(0)
    plain = PROGRAMS[name]
    compiled = thunder.jit(plain)
    for count in COUNTS:
        require_equal(compiled, plain, values(count))
    assert specializations(compiled) == (3 if name == "branch on size" else 2)


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_of_arguments_and_from_data_change_together(name: str) -> None:
    torch.manual_seed(0)
    plain = PROGRAMS[name]
    compiled = thunder.jit(plain)
    for count, rows in ((5, 12), (8, 15), (11, 40), (3, 17), (9, 30), (20, 33)):
        require_equal(compiled, plain, values(count, rows))
    assert specializations(compiled) <= 3


@pytest.mark.parametrize("name", PROGRAMS)
def test_empty_results_and_single_rows_equal_eager(name: str) -> None:
    torch.manual_seed(0)
    plain = PROGRAMS[name]
    compiled = thunder.jit(plain)
    for count in (4, 7, 0, 1, 9, 0, 1, 12, 6):
        require_equal(compiled, plain, values(count))
    assert specializations(compiled) <= 8


class Convolution(nn.Module):
    """A layer on the edges of a graph without its loops, which are put in anew, as graph networks have it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        kept = edges[:, edges[0] != edges[1]]
        loops = torch.arange(x.shape[0]).expand(2, -1)
        source, target = torch.cat([kept, loops], dim=1)
        degree = torch.zeros(x.shape[0]).scatter_add(0, target, torch.ones(target.shape[0]))
        weight = degree[source].rsqrt() * degree[target].rsqrt()
        messages = self.linear(x)[source] * weight[:, None]
        return torch.zeros(x.shape[0], 6).index_add(0, target, messages)


def graph(nodes: int, count: int) -> tuple[Tensor, Tensor]:
    return torch.randn(nodes, 4), torch.randint(0, nodes, (2, count))


def require_equal_training(
    compiled: Any, module: nn.Module, inputs: tuple[Tensor, ...], parameters: list[nn.Parameter]
) -> None:
    result, expected = compiled(*inputs), module(*inputs)
    torch.testing.assert_close(result, expected)
    for got, wanted in zip(
        torch.autograd.grad(result.sin().sum(), parameters),
        torch.autograd.grad(expected.sin().sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted)


def test_a_graph_network_trains_on_all_graphs_with_one_program() -> None:
    torch.manual_seed(0)
    module = Convolution()
    compiled = thunder.jit(module)
    for nodes, count in ((10, 40), (14, 47), (9, 33), (30, 90), (14, 47), (12, 41)):
        require_equal_training(compiled, module, graph(nodes, count), list(module.parameters()))
    assert specializations(compiled) == 2


def test_graphs_of_equal_sizes_with_other_loops_have_one_program() -> None:
    torch.manual_seed(0)
    module = Convolution()
    compiled = thunder.jit(module)
    for _ in range(8):
        require_equal_training(compiled, module, graph(12, 60), list(module.parameters()))
    assert specializations(compiled) == 2


@pytest.mark.parametrize("layer", ["GCNConv", "GATConv", "SAGEConv", "GINConv"])
def test_layers_of_pytorch_geometric_have_one_program_for_all_graphs(layer: str) -> None:
    networks = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    made = {"GINConv": lambda kind: kind(nn.Linear(4, 6)), "GATConv": lambda kind: kind(4, 3, heads=2)}
    module = made.get(layer, lambda kind: kind(4, 6))(getattr(networks, layer))
    compiled = thunder.jit(module)
    for nodes, count in ((10, 40), (14, 47), (9, 33), (30, 90)):
        require_equal_training(compiled, module, graph(nodes, count), list(module.parameters()))
    assert specializations(compiled) == 2


def test_a_pooling_layer_of_pytorch_geometric_has_one_program_for_all_graphs() -> None:
    networks = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    module = networks.TopKPooling(4, ratio=0.5)
    compiled = thunder.jit(lambda x, edges: module(x, edges)[0])
    for nodes, count in ((10, 40), (14, 47), (9, 33), (30, 90)):
        x, edges = graph(nodes, count)
        torch.testing.assert_close(compiled(x, edges), module(x, edges)[0])
    assert specializations(compiled) == 2


def test_all_sizes_are_symbols_from_the_first_call_with_dynamic() -> None:
    torch.manual_seed(0)
    compiled = thunder.jit(PROGRAMS["cat"], dynamic=True)
    for count, rows in ((5, 12), (8, 15), (10, 40), (3, 17)):
        require_equal(compiled, PROGRAMS["cat"], values(count, rows))
    assert specializations(compiled) == 1


@pytest.mark.parametrize("name", ["cat", "same mask", "written"])
def test_programs_without_gradients_and_with_autocast_equal_eager(name: str) -> None:
    torch.manual_seed(0)
    plain = PROGRAMS[name]
    compiled = thunder.jit(plain)
    for count in COUNTS:
        x = values(count)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), plain(x))
        with torch.autocast("cpu"):
            torch.testing.assert_close(compiled(x), plain(x), rtol=2e-2, atol=2e-2)
    assert specializations(compiled) == 4


def test_masks_of_dropout_and_data_draw_the_numbers_of_eager() -> None:
    torch.manual_seed(0)

    def dropped(x: Tensor) -> Tensor:
        kept = F.dropout(x, 0.4)[x[:, 0] > 0]
        return kept + torch.rand(kept.shape[0], 1)

    compiled = thunder.jit(dropped)
    for count in COUNTS:
        x = values(count)
        torch.manual_seed(count)
        result = compiled(x)
        torch.manual_seed(count)
        torch.testing.assert_close(result, dropped(x))
    assert specializations(compiled) == 2


def test_a_write_by_a_mask_reaches_the_argument() -> None:
    torch.manual_seed(0)

    def write(x: Tensor, y: Tensor) -> None:
        mask = x[:, 0] > 0
        x[mask] = y[mask] * 2

    compiled = thunder.jit(write)
    for count in COUNTS:
        x, y = values(count), torch.randn(12, 4)
        expected = x.clone()
        write(expected, y)
        compiled(x, y)
        torch.testing.assert_close(x, expected)
    assert specializations(compiled) == 2


def test_sizes_that_were_equal_by_chance_differ_later() -> None:
    torch.manual_seed(0)

    def product(x: Tensor, y: Tensor) -> Tensor:
        return x[x[:, 0] > 0].sum(0) * y[y[:, 0] > 0].sum(0)

    compiled = thunder.jit(product)
    for left, right in ((5, 5), (8, 8), (4, 9), (7, 3), (6, 6)):
        x, y = values(left), values(right)
        torch.testing.assert_close(compiled(x, y), product(x, y))
    assert specializations(compiled) == 3


def test_a_size_that_python_needs_as_a_number_is_pinned() -> None:
    torch.manual_seed(0)

    def powers(x: Tensor) -> Tensor:
        kept = x[x[:, 0] > 0]
        return sum((kept.sum(0) ** i for i in range(kept.shape[0])), torch.zeros(4))

    compiled = thunder.jit(powers)
    for count in (3, 4, 5, 3, 4, 5):
        x = values(count)
        torch.testing.assert_close(compiled(x), powers(x))
    assert specializations(compiled) == 3
    assert "pinned: 4 by" in str(thunder.explain_shapes(compiled))


def test_explain_shapes_names_the_operation_and_a_miss_the_condition() -> None:
    torch.manual_seed(0)
    compiled = thunder.jit(_branch_on_size)
    for count in (5, 8, 9, 3):
        compiled(values(count))
    assert "size of nonzero in" in str(thunder.explain_shapes(compiled))
    assert "7 <= size of nonzero in" in thunder.explain_misses(compiled)[-1].reason


def test_the_printed_trace_runs_at_other_sizes() -> None:
    torch.manual_seed(0)
    compiled = thunder.jit(_same_mask)
    for count in (5, 8):
        compiled(values(count))
    scope: dict[str, Any] = {}
    exec(str(thunder.last_traces(compiled)[0]), scope)
    x = values(9)
    torch.testing.assert_close(scope["computation"](x)[0], _same_mask(x))


def _loop_on_data(x: Tensor) -> Tensor:
    y = x / x.abs().max() * 3
    while y.abs().max() > 1:
        y = y / 2
    return y


def _mask_if_any(x: Tensor) -> Tensor:
    if (x[:, 0] < 0).any():
        x = x[x[:, 0] > 0]
    return x.sin().sum(0) / x.shape[0]


def _written_number(x: Tensor) -> Tensor:
    y = x.clone()
    y[0] = x.mean().item()
    return y.clamp(max=x.max().item() / 2)


def _number_and_size(x: Tensor) -> Tensor:
    total = x.sum().item()
    return x * total + x.shape[0]


READS: dict[str, Callable[[Tensor], Tensor]] = {
    "branch": lambda x: x.sin() if x.abs().sum() > 0 else x.cos(),
    "item": lambda x: x * x.abs().max().item(),
    "arithmetic": lambda x: x * (2 * float(x.sum()) + 1),
    "loop": _loop_on_data,
    "mask if any": _mask_if_any,
    "written number": _written_number,
    "number and size": _number_and_size,
    "equal": lambda x: x * 2 if torch.equal(x, x.clone()) else x,
}


@pytest.mark.parametrize("name", READS)
def test_programs_that_read_data_have_one_program_for_all_sizes(name: str) -> None:
    torch.manual_seed(0)
    plain = READS[name]
    compiled = thunder.jit(plain)
    for rows in (24, 7, 100, 33, 12):
        require_equal(compiled, plain, values(rows // 2, rows))
    assert specializations(compiled) == 2


def test_a_number_that_is_returned_beside_tensors_of_all_sizes() -> None:
    compiled = thunder.jit(lambda x: (x * 2, x.sum().item()))
    for rows in (24, 7, 100):
        x = torch.randn(rows)
        doubled, total = compiled(x)
        torch.testing.assert_close(doubled, x * 2)
        assert total == x.sum().item()
    assert specializations(compiled) == 2


def test_contents_that_are_read_pin_their_size() -> None:
    compiled = thunder.jit(lambda x, y: x * float(y.numpy().sum()))
    for rows in (24, 7, 24, 7):
        x, y = torch.randn(rows), torch.ones(rows)
        torch.testing.assert_close(compiled(x, y), x * rows)
    assert specializations(compiled) == 2


def _trimmed(x: Tensor, lengths: Tensor) -> Tensor:
    return x[:, : int(lengths.max())].sin().sum(1)


def _trimmed_with_a_mask(x: Tensor, lengths: Tensor) -> Tensor:
    longest = lengths.max().item()
    mask = torch.arange(longest) < lengths[:, None]  # type: ignore[arg-type]
    return (x[:, :longest] * mask).sum(1) / lengths


def _counted(x: Tensor, lengths: Tensor) -> Tensor:
    return x.new_zeros(int(lengths.max()) + 1).index_add_(0, lengths, x[:, 0])


def _viewed(x: Tensor, lengths: Tensor) -> Tensor:
    n = int(lengths.max())
    return x.flatten()[: 2 * n].view(2, n).sum(0)


def _split(x: Tensor, lengths: Tensor) -> Tensor:
    parts = x.flatten()[: int(lengths.sum())].split(lengths.tolist())
    return torch.stack([part.sum() for part in parts])


def _from_the_end(x: Tensor, lengths: Tensor) -> Tensor:
    return x[:, int(lengths.max()) :].cumsum(1)


def _one_column(x: Tensor, lengths: Tensor) -> Tensor:
    return x[:, int(lengths.min())] * 2


def _narrowed(x: Tensor, lengths: Tensor) -> Tensor:
    return x.narrow(1, 0, int(lengths.max())).exp().mean(1)


def _padded(x: Tensor, lengths: Tensor) -> Tensor:
    return F.pad(x, (0, int(lengths.max()))).softmax(1)


def _checked(x: Tensor, lengths: Tensor) -> Tensor:
    assert lengths.max().item() <= x.shape[1]
    return x.sum(1) if lengths.min().item() < x.shape[0] else x.mean(1)


def _size_in_a_tensor(x: Tensor, lengths: Tensor) -> Tensor:
    return x.view(int(torch.tensor(x.shape[1])), -1).sin()


WITH_NUMBERS = [
    _trimmed,
    _trimmed_with_a_mask,
    _counted,
    _viewed,
    _split,
    _from_the_end,
    _one_column,
    _narrowed,
    _padded,
    _checked,
    _size_in_a_tensor,
]


@pytest.mark.parametrize("program", WITH_NUMBERS)
def test_an_int_from_data_is_a_size(program: Callable[[Tensor, Tensor], Tensor]) -> None:
    compiled = thunder.jit(program)
    for columns in (8, 9, 12, 11, 15, 10):
        mine = torch.rand(3, columns, requires_grad=program is not _split)
        theirs = mine.detach().clone().requires_grad_(mine.requires_grad)
        lengths = torch.tensor([columns - 4, columns - 2, columns - 5])
        expected, got = program(theirs, lengths), compiled(mine, lengths)
        assert got.stride() == expected.stride()
        torch.testing.assert_close(got, expected)
        if mine.requires_grad:
            got.square().sum().backward()
            expected.square().sum().backward()
            torch.testing.assert_close(mine.grad, theirs.grad)
    assert specializations(compiled) <= 3, thunder.explain_misses(compiled)
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


@pytest.mark.parametrize("program", WITH_NUMBERS)
def test_an_int_from_data_is_no_size_where_it_is_zero_one_or_negative(program: Callable[..., Tensor]) -> None:
    compiled = thunder.jit(program)
    x = torch.rand(3, 8)
    for lengths in ([3, 5, 2], [4, 6, 1], [1, 1, 1], [0, 0, 0], [-2, -3, -1], [2, 7, 3], [-2, 3, 4], [9, 20, 8]):
        try:
            expected = program(x, torch.tensor(lengths))
        except (RuntimeError, IndexError, AssertionError) as error:
            with pytest.raises(type(error)):
                compiled(x, torch.tensor(lengths))
        else:
            torch.testing.assert_close(compiled(x, torch.tensor(lengths)), expected, equal_nan=True)


def test_an_int_from_data_that_is_no_size_is_guarded_by_its_value() -> None:
    def program(x: Tensor, at: Tensor) -> Tensor:
        rows = [x * 1, x * 2, x * 3, x * 4]
        return rows[int(at)].masked_fill(x > 0.5, int(at))

    compiled = thunder.jit(program)
    x = torch.rand(4).half()
    for at in (0, 2, 3, 1, 2):
        torch.testing.assert_close(compiled(x, torch.tensor(at)), program(x, torch.tensor(at)))
    assert specializations(compiled) == 4


def test_ints_from_data_are_as_large_as_they_like() -> None:
    table = torch.arange(70_000.0)

    def program(x: Tensor, at: Tensor) -> tuple[Tensor, ...]:
        return x * table[int(at)], table[: int(at)].sum(), x.new_zeros(int(at) + 1)

    compiled = thunder.jit(program)
    for at in (3, 7, 254, 255, 256, 300, 1000, 40_000, 69_999):
        torch.testing.assert_close(compiled(torch.ones(3), torch.tensor(at)), program(torch.ones(3), torch.tensor(at)))
    assert specializations(compiled) == 2
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


class Cache:
    """Keys and values that are written at a position, as generation does it."""

    def __init__(self) -> None:
        self.rows = torch.zeros(32, 4)
        self.last: Tensor | None = None
        self.length = 0


def _read_at(x: Tensor, at: Tensor, cache: Cache) -> Any:
    row = cache.rows[int(at) :]
    return x * row[0], row, row[1:]


def _written_at(x: Tensor, at: Tensor, cache: Cache) -> Any:
    position = at.item()
    cache.rows[position : position + 1] = x  # type: ignore[misc]
    cache.last = cache.rows[: position + 1]  # type: ignore[misc]
    return cache.last, cache.last[-1:], cache.last.t()


def _computed_at(x: Tensor, at: Tensor, cache: Cache) -> Any:
    y = (cache.rows + x)[: int(at)]
    return y, y[1:], y.view(-1), y.shape[0]


def _kept_at(x: Tensor, at: Tensor, cache: Cache) -> Any:
    kept = cache.rows[torch.arange(32) < at] + x
    cache.last, cache.length = kept[1:], len(kept)
    return kept, kept.shape, kept.view(-1)[2:]


VIEWED = [_read_at, _written_at, _computed_at, _kept_at]


def pairs_of(program: Callable[..., Any], compiled: Any, **how: Any) -> Any:
    mine, theirs = Cache(), Cache()
    for position in (3, 5, 4, 8, 11, 17, 25):
        x = torch.randn(1, 4)
        ours, others = (x.clone().requires_grad_(**how) for _ in range(2))
        at = torch.tensor(position)
        with torch.set_grad_enabled(program is not _written_at):
            got, expected = compiled(ours, at, mine), program(others, at, theirs)
        yield (ours, got, mine), (others, expected, theirs)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("program", VIEWED)
def test_views_and_sizes_that_follow_from_data_are_results(program: Callable[..., Any], requires_grad: bool) -> None:
    compiled = thunder.jit(program)
    for (x, got, mine), (y, expected, theirs) in pairs_of(program, compiled, requires_grad=requires_grad):
        for left, right in zip((*got, *vars(mine).values()), (*expected, *vars(theirs).values()), strict=True):
            assert type(left) is type(right)
            torch.testing.assert_close(left, right)
            if isinstance(left, Tensor):
                assert left.stride() == right.stride()
                assert left.storage_offset() == right.storage_offset()
        losses = [
            [each.square().sum() for each in results if isinstance(each, Tensor) and each.requires_grad]
            for results in (got, expected)
        ]
        assert len(losses[0]) == len(losses[1])
        if losses[0]:
            torch.testing.assert_close(torch.autograd.grad(sum(losses[0]), x), torch.autograd.grad(sum(losses[1]), y))
    assert specializations(compiled) <= 3, thunder.explain_misses(compiled)
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


def test_a_view_among_the_results_shares_memory_with_the_cache() -> None:
    compiled = thunder.jit(_written_at)
    for (_, got, mine), _ in pairs_of(_written_at, compiled):
        got[1].fill_(7)
        assert mine.rows[len(got[0]) - 1].tolist() == [7.0] * 4


def _lengths_of_batch(seed: int, *, joins_targets: bool) -> tuple[Tensor, ...]:
    torch.manual_seed(seed)
    lengths = torch.randint(1, 5, (3,))
    if seed == 5:
        lengths[:] = 0
    targets = torch.randint(1, 5, (int(lengths.sum()),) if joins_targets else (3, 4))
    return torch.randn(12, 3, 5), targets, torch.randint(9, 13, (3,)), lengths


@pytest.mark.parametrize("takes_grad", [False, True])
@pytest.mark.parametrize("joins_targets", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_ctc_loss_has_few_programs_for_all_lengths(reduction: str, joins_targets: bool, takes_grad: bool) -> None:
    def program(x: Tensor, targets: Tensor, inputs: Tensor, lengths: Tensor) -> Tensor:
        return F.ctc_loss(x.log_softmax(-1), targets, inputs, lengths, reduction=reduction, zero_infinity=True)

    compiled = thunder.jit(program)
    for seed in range(10):
        x, *others = _lengths_of_batch(seed, joins_targets=joins_targets)
        results = []
        for function in (program, compiled):
            leaf = x.clone().requires_grad_(takes_grad)
            loss = function(leaf, *others)
            results.append((loss, *torch.autograd.grad(loss.sum(), leaf)) if takes_grad else (loss,))
        torch.testing.assert_close(results[1], results[0])
    assert specializations(compiled) <= 4


@pytest.mark.parametrize("lengths", [([13, 12], [1, 1]), ([12, 12], [5, 1]), ([12], [1, 1]), ([12, 12], [-1, 1])])
def test_ctc_loss_raises_for_lengths_as_eager(lengths: tuple[list[int], list[int]]) -> None:
    x, targets = torch.randn(12, 2, 5).log_softmax(-1), torch.randint(1, 5, (2, 4))
    compiled = thunder.jit(F.ctc_loss)
    inputs, counts = (torch.tensor(each) for each in lengths)
    with pytest.raises(RuntimeError) as expected:
        F.ctc_loss(x, targets, inputs, counts)
    for others in ([2, 3], [1, 4], [3, 2]):
        compiled(x, targets, torch.tensor([11, 12]), torch.tensor(others))
        with pytest.raises(RuntimeError) as got:
            compiled(x, targets, inputs, counts)
        assert str(got.value).splitlines()[0] == str(expected.value).splitlines()[0]
