"""Programs that read the data of tensors: traces are specialized on what they met, and gradients flow across."""

from __future__ import annotations

import copy
import gc
import math
import runpy
from pathlib import Path

import pytest
import torch
from beside_eager import assert_same, in_threads

import thunder


def branch(x):
    if x.sum() > 0:
        return x * 2
    return x.sin()


def loop(x):
    while x.abs().max() > 1:
        x = x / 2
    return x


def scaled(x):
    return x * x.max().item() + int(x.numel()) + float(x[0])


def masked(x):
    return x[x > 0] * 3


def positions(x):
    return x.nonzero().float().sum() + x.sum()


def select(x):
    return torch.masked_select(x, x > 0).cos()


def same(x):
    return x + 1 if torch.equal(x, x.clone()) else x


def with_dropout(x):
    y = torch.nn.functional.dropout(x, 0.5)
    return y * 2 if y.sum() > 0 else torch.nn.functional.dropout(y, 0.5)


FUNCTIONS = [branch, loop, scaled, masked, positions, select, same]


def run(function, x):
    x = x.clone().requires_grad_()
    result = function(x)
    result.sum().backward()
    return result.detach(), x.grad


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_values_and_gradients_follow_the_data(function):
    torch.manual_seed(0)
    compiled = thunder.jit(function)
    for scale in (1.0, -1.0, 3.0, 1.0):
        x = torch.randn(5) * scale
        torch.testing.assert_close(run(compiled, x), run(function, x))


def test_value_met_before_is_a_hit():
    compiled = thunder.jit(branch)
    for value in (1.0, -1.0, 2.0, -3.0):
        compiled(torch.full((3,), value))
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (2, 2)


def test_random_numbers_are_those_of_eager():
    compiled = thunder.jit(with_dropout)
    x = torch.linspace(-1, 1, 64)
    for seed in range(8):
        torch.manual_seed(seed)
        expected = with_dropout(x), torch.rand(1)
        torch.manual_seed(seed)
        assert torch.equal(compiled(x), expected[0])
        assert torch.equal(torch.rand(1), expected[1])


READS = [
    lambda x: x * 2 if x.sum() > 0 else x,
    lambda x: x * x.sum().item(),
    lambda x: x[: int(x.sum())],
    lambda x: x.tolist(),
    lambda x: x[x > 0],
    lambda x: x.nonzero(),
    lambda x: [x for _ in range(x.argmax())],
]


@pytest.mark.parametrize("function", READS)
def test_full_graph_refuses_with_the_users_line(function):
    line = function.__code__.co_firstlineno
    with pytest.raises(RuntimeError, match=rf"fullgraph=True(.*\n)*.*test_data_dependence\.py, line {line}\b"):
        thunder.jit(function, fullgraph=True)(torch.ones(3))


# --- past the limit of specializations


def repeat(x, weight):
    y = torch.tanh(x @ weight)
    return y * float(str(y.sum().item())), y[:, : 1 + int(x[0, 0].item()) % 3].sum()


def call_with_many(compiled, weight, count):
    for value in range(count):
        compiled(torch.full((2, 3), value / 8), weight)


def compare_many(compiled, weight, count):
    for value in range(count):
        results = []
        for program in (compiled, repeat):
            x = torch.full((2, 3), value / 8).requires_grad_()
            scaled, part = program(x, weight)
            gradients = torch.autograd.grad(scaled.sum() + part, [x, weight])
            results.append((scaled.detach(), part.detach(), *gradients))
        torch.testing.assert_close(*results)


def test_values_past_the_limit_are_not_kept():
    torch.manual_seed(0)
    compiled = thunder.jit(repeat)
    with pytest.warns(RuntimeWarning, match="a number or shape that was read from a tensor's data") as warned:
        compare_many(compiled, torch.randn(3, 3, requires_grad=True), 80)
    assert len(warned) == 1
    assert "test_data_dependence.py" in str(warned[0].message)
    assert thunder.compile_stats(compiled)["specializations"] == 64


def test_known_pieces_are_not_compiled_again_past_the_limit(monkeypatch, tmp_path):
    compiled = thunder.jit(repeat)
    weight = torch.randn(3, 3)
    with pytest.warns(RuntimeWarning, match="64 specializations"):
        call_with_many(compiled, weight, 70)
    monkeypatch.setenv("THUNDER_DUMP", str(tmp_path))
    compiled(torch.full((2, 3), 99.0), weight)
    assert not list(tmp_path.glob("*_computation_00_recorded.py"))
    assert list(tmp_path.glob("*_computation_1_00_recorded.py"))


def test_calls_past_the_limit_leave_no_objects():
    compiled = thunder.jit(repeat)
    weight, counts = torch.randn(3, 3), []
    with pytest.warns(RuntimeWarning, match="64 specializations"):
        call_with_many(compiled, weight, 70)
    for start in (100, 200, 300):
        for value in range(start, start + 100):
            compiled(torch.full((2, 3), float(value)), weight)
        gc.collect()
        counts.append(len(gc.get_objects()))
    assert counts[2] - counts[1] < 50


def test_value_met_before_the_limit_is_a_hit_after_it():
    compiled = thunder.jit(repeat)
    weight = torch.randn(3, 3)
    with pytest.warns(RuntimeWarning, match="64 specializations"):
        call_with_many(compiled, weight, 66)
    misses = thunder.cache_misses(compiled)
    compiled(torch.full((2, 3), 3 / 8), weight)
    assert thunder.cache_misses(compiled) == misses


def test_miss_names_the_line_that_read_the_data():
    compiled = thunder.jit(branch)
    compiled(torch.ones(3))
    compiled(-torch.ones(3))
    reason = thunder.explain_misses(compiled)[1].reason
    assert f"test_data_dependence.py:{branch.__code__.co_firstlineno + 1}" in reason


# --- threads


def count_positive(x):
    total = x.sum() * 0
    for _ in range(int((x > 0).sum())):
        total = total + x.max() * x.mean().item()
    return total if total > 1 else total.sin()


def test_eight_threads_that_meet_different_values():
    compiled = thunder.jit(count_positive)

    def work(number):
        generator = torch.Generator().manual_seed(number)
        for _ in range(25):
            x = torch.randn(6, generator=generator)
            assert_close_with_gradients(compiled, count_positive, x)

    in_threads(8, work)
    assert thunder.compile_stats(compiled)["specializations"] <= 14  # 7 counts, 2 branches


def assert_close_with_gradients(compiled, function, x):
    torch.testing.assert_close(run(compiled, x), run(function, x))


# --- pieces


calls: list[int] = []


@torch.library.custom_op("thunder_tests::counted", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    calls.append(1)
    return x + 1


@counted.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def count_around_branch(x):
    y = counted(x)
    y = counted(y) if y.sum() > 0 else counted(counted(y))
    return counted(y) if y.max() > 10 else y


def test_hit_runs_each_operation_once():
    compiled = thunder.jit(count_around_branch)
    inputs = [torch.full((3,), value) for value in (1.0, -5.0, 20.0, -50.0)]
    for x in inputs:
        compiled(x)
    misses = thunder.cache_misses(compiled)
    for x in inputs * 2:
        calls.clear()
        expected = count_around_branch(x)
        times = len(calls)
        calls.clear()
        assert torch.equal(compiled(x), expected)
        assert len(calls) == times
    assert thunder.cache_misses(compiled) == misses


def test_last_traces_name_the_pieces_of_forward_and_backward():
    compiled = thunder.jit(loop)
    compiled(torch.full((3,), 1.5, requires_grad=True)).sum().backward()
    # Comparisons have no gradient: the piece in front of the first one has none.
    names = list(dict.fromkeys(trace.name for trace in thunder.last_traces(compiled)))
    assert names == ["computation", "computation_1", "forward_1"]
    names = list(dict.fromkeys(trace.name for trace in thunder.last_backward_traces(compiled)))
    assert names == ["backward_1"]


def test_last_traces_show_the_pieces():
    compiled = thunder.jit(branch)
    compiled(torch.ones(3))
    names = list(dict.fromkeys(trace.name for trace in thunder.last_traces(compiled)))
    assert names == ["computation", "computation_1"]
    texts = [str(trace) for trace in thunder.last_traces(compiled)]
    assert "prims.check_number" in texts[0]
    assert not any("prims.check_number" in text for text in texts[1:])


def test_gradients_flow_across_pieces_to_parameters():
    torch.manual_seed(0)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(4, 4)
            self.second = torch.nn.Linear(4, 4)

        def forward(self, x):
            h = self.first(x).relu()
            for _ in range(int(x[0, 0].item())):
                h = self.second(h).tanh()
            return h.sum() if h.mean() > 0 else h.square().sum()

    eager = Model()
    compiled = thunder.jit(copy.deepcopy(eager))
    for steps in (1, 3, 0, 2, 3, 1):
        x = torch.randn(2, 4)
        x[0, 0] = steps
        results = []
        for model in (eager, compiled):
            model.zero_grad()
            loss = model(x)
            loss.backward()
            results.append((loss.detach(), [p.grad for p in model.parameters()]))
        torch.testing.assert_close(results[1], results[0])


def normalized(model, x):
    y = model(x)
    return y * 2 if y.max() > 1 else y.sin()


def test_batch_norm_before_a_read_updates_statistics_once():
    torch.manual_seed(0)
    eager = torch.nn.BatchNorm1d(3)
    model = copy.deepcopy(eager)
    compiled = thunder.jit(lambda x: normalized(model, x))
    for scale in (0.1, 5.0, 1.0, 0.1, 5.0):
        x = torch.randn(8, 3) * scale + scale
        torch.testing.assert_close(compiled(x), normalized(eager, x))
        torch.testing.assert_close(dict(model.state_dict()), dict(eager.state_dict()))


def test_side_effects_happen_once_and_in_order():
    def function(state, x):
        state["seen"] = state["seen"] + [len(state["seen"])]
        state["total"].add_(x.sum())
        if state["total"] > 3:
            state["seen"].append("large")
            state["total"].zero_()
        return x + state["total"]

    compiled = thunder.jit(function)
    states = [{"seen": [], "total": torch.zeros(())} for _ in range(2)]
    for value in (1.0, 1.0, 1.0, 1.0, 0.5, 4.0):
        x = torch.full((1,), value)
        torch.testing.assert_close(compiled(states[0], x), function(states[1], x))
        assert states[0]["seen"] == states[1]["seen"]
        assert torch.equal(states[0]["total"], states[1]["total"])


def test_branches_with_other_guards():
    def function(x, settings):
        if x.sum() > 0:
            return x * settings["up"]
        return x * settings["down"]

    compiled = thunder.jit(function)
    for value in (1.0, -1.0):
        for up, down in ((2, 3), (2, 4), (5, 4)):
            x = torch.full((2,), value)
            settings = {"up": up, "down": down}
            assert torch.equal(compiled(x, settings), function(x, settings))


ROUNDING = [
    (torch.nn.MultiheadAttention(32, 4, batch_first=True), lambda: (torch.randn(2, 9, 32),) * 3),
    (torch.nn.TransformerEncoderLayer(32, 4, dropout=0.0, batch_first=True), lambda: (torch.randn(2, 9, 32),)),
    (torch.nn.LSTM(16, 16), lambda: (torch.randn(5, 3, 16),)),
]


@pytest.mark.parametrize(("module", "make"), ROUNDING)
def test_kernels_round_alike_while_tracing_and_later(module, make):
    def function(*arguments):
        result = module(*arguments)
        result = result[0] if isinstance(result, tuple) else result
        return result * float(str(result.sum().item()))

    compiled = thunder.jit(function)
    for seed in range(3):
        torch.manual_seed(seed)
        arguments = make()
        torch.testing.assert_close(compiled(*arguments), function(*arguments))


# --- numbers that only feed tensors


def scale_by_mean(x):
    return x * x.mean().item()


def arithmetic(x):
    scale = x.max().item()
    return (x - scale) / (abs(scale) * 2 + 1e-3) + 3 * scale - scale**2


def in_place(x):
    y = x.clone()
    view = y[0]
    view *= x.sum().item()
    y[1] = x.mean().item()
    y -= x.min().item()
    return y


def filled(x):
    value = x.sum().item()
    return torch.full((2,), value) + torch.tensor(value) + torch.full_like(x, value).sum() + x.new_full((2,), value)


def methods(x):
    value = x.mean().item()
    return x.add(value).mul(value).masked_fill(x > 0, value).clamp(max=value) + torch.where(x > value, x, value)


def counted_loss(x):
    return x.square().sum() / (x > 0).sum().item()


def returned(x):
    loss = x.square().mean()
    return loss, loss.item(), {"double": loss.item() * 2, "rounded": [int(loss)]}


def gain(x):
    values = x[0].tolist()
    return x * values[0] - values[1]


NUMBER_FUNCTIONS = [scale_by_mean, arithmetic, in_place, filled, methods, counted_loss, returned, gain]


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("function", NUMBER_FUNCTIONS, ids=lambda function: function.__name__)
def test_numbers_that_feed_tensors_do_not_specialize(function, requires_grad):
    torch.manual_seed(0)
    compiled = thunder.jit(function)
    for seed in range(6):
        x = (torch.randn(3, 2) + seed).requires_grad_(requires_grad)
        got, expected = (program(x.detach().clone().requires_grad_(requires_grad)) for program in (compiled, function))
        assert_same(got, expected, "result")
    assert thunder.cache_misses(compiled) == 1


def test_gradients_take_the_number_of_the_call():
    compiled = thunder.jit(arithmetic)
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(5)
        torch.testing.assert_close(run(compiled, x), run(arithmetic, x))
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_numbers_keep_pythons_promotion(dtype):
    def function(x, y):
        number = y.sum().item()
        return x * number, x + number, x[0] * number, number * 2

    compiled = thunder.jit(function)
    for value in (2, 3, 2**20):
        for y in (torch.tensor([value]), torch.tensor([value + 0.5])):
            x = torch.arange(3).to(dtype)
            assert_same(compiled(x, y), function(x, y), "result")


def test_outcome_of_a_comparison_is_what_counts():
    def clip(x):
        norm = x.norm().item()
        if norm > 1.0:
            return x / norm
        return x

    compiled = thunder.jit(clip)
    for value in (0.1, 0.2, 3.0, 4.0, 0.3, 5.0):
        x = torch.full((2,), value)
        torch.testing.assert_close(compiled(x), clip(x))
    assert thunder.cache_misses(compiled) == 2


def look(x):
    value = x.sum().item()
    if value in (1.0, 2.0):
        return x + 1
    if math.sqrt(abs(value)) > 2 or round(value) == 3:
        return x + 2
    if str(value).startswith("0.5") or f"{value:.1f}" == "0.7" or {0.25: True}.get(value):
        return x + 3
    if max([value, 0.0]) == 0.0 or sorted([0.1, value])[0] == value:
        return x + 4
    return x + 5


def test_numbers_that_python_looks_at():
    compiled = thunder.jit(look)
    for _ in range(2):
        for value in (1.0, 2.0, 9.0, 3.0, 0.5, 0.7, 0.25, -0.5, 0.05, 0.9, 1.5):
            x = torch.full((1,), value)
            assert torch.equal(compiled(x), look(x)), value


def kinds(x):
    value, count = x.sum().item(), x.numel() * x[0].long().item()
    kind = (type(value), type(count), isinstance(value, float), isinstance(count, int), isinstance(count, float))
    match value:
        case int():
            kind += ("int",)
        case float():
            kind += ("float",)
    return x, kind, value is None, value == "a", count == 4.0


def test_numbers_are_of_pythons_types():
    compiled = thunder.jit(kinds)
    for value in (1.0, 2.0, 2.5):
        assert_same(compiled(torch.full((2,), value)), kinds(torch.full((2,), value)), "result")


def integers(x, table):
    n = x.argmax().item()
    rows = [x[n], x[:n].sum(), x[n:].sum(), torch.zeros(n + 1).sum(), table[n], "ab" * n, list(range(n)), n // 2, n % 2]
    small = n - 0
    return rows, small is n, [1, 2, 3, 4].index(n) if n else None, {n: "key"}, x.view(-1, 1)[n, 0]


def test_integers_index_and_repeat():
    compiled = thunder.jit(integers)
    for _ in range(2):
        for position in (0, 3, 1, 2):
            x = torch.zeros(4)
            x[position] = 1.0
            got, expected = (program(x, [10, 20, 30, 40])[0] for program in (compiled, integers))
            assert_same(got, expected, "result")


def test_zero_division_is_raised_where_it_happens():
    def function(x):
        try:
            return x * (1.0 / x.sum().item())
        except ZeroDivisionError:
            return x - 1

    compiled = thunder.jit(function)
    for value in (2.0, 0.0, 4.0, 0.0, 3.0):
        x = torch.full((2,), value)
        assert torch.equal(compiled(x), function(x))


def test_integers_may_leave_the_range_of_tensors():
    def function(x):
        return x, x.item() * 2**40

    compiled = thunder.jit(function)
    for value in (3, 2**50, 5):
        assert compiled(torch.tensor(value))[1] == value * 2**40


def test_state_keeps_numbers_of_the_call():
    class Running:
        def __init__(self):
            self.best = float("inf")
            self.history = []

    def function(state, x):
        loss = x.square().mean()
        state.best = min(state.best, loss.item())
        state.history.append(loss.item())
        return loss / 2

    compiled = thunder.jit(function)
    states = Running(), Running()
    for value in (3.0, 2.0, 4.0, 1.0, 1.5):
        x = torch.full((2,), value)
        torch.testing.assert_close(compiled(states[0], x), function(states[1], x))
        assert (states[0].best, states[0].history) == (states[1].best, states[1].history)
        assert type(states[0].best) is float


def all_at_once(x):
    array = x.numpy()
    return x + float(array.sum()), array.tolist(), len(x.tolist())


def test_whole_contents_are_met():
    compiled = thunder.jit(all_at_once)
    for value in (1.0, 2.0, 1.0):
        x = torch.full((40,), value)
        assert_same(compiled(x), all_at_once(x), "result")
    assert thunder.cache_misses(compiled) == 2


# --- programs


def greedy(x, weight):
    tokens = []
    for _ in range(8):
        x = torch.tanh(x @ weight)
        token = x.argmax().item()
        tokens.append(token)
        if token == 0:
            break
        x = x + token * 0.01
    return x, tokens


def membership(x, others):
    return x + 1 if x.sum() in [other.sum() for other in others] else x - 1


def ordered(xs):
    return torch.stack(sorted(xs, key=lambda x: x.sum()))


def checked(x):
    assert torch.allclose(x, x.clone()), "never"
    return x * 2 if not torch.equal(x, x.abs()) else x


PROGRAMS = [
    (greedy, lambda: (torch.randn(4), torch.randn(4, 4))),
    (membership, lambda: (torch.randint(0, 2, (2,)), [torch.randint(0, 2, (2,)) for _ in range(2)])),
    (ordered, lambda: ([torch.randn(2) for _ in range(3)],)),
    (checked, lambda: (torch.randn(1),)),
    (lambda x: torch.unique(x, return_counts=True), lambda: (torch.randint(0, 3, (4,)),)),
    (lambda x: [part.sum() for part in x[x > 0].split(1)], lambda: (torch.randn(3),)),
    (lambda x: torch.where(x > 0)[0] * 2, lambda: (torch.randn(3),)),
    (lambda x: x.repeat_interleave(x), lambda: (torch.randint(0, 2, (3,)),)),
]


@pytest.mark.parametrize(("program", "make"), PROGRAMS)
def test_programs_as_in_eager_for_many_values(program, make):
    torch.manual_seed(0)
    compiled = thunder.jit(program)
    for _ in range(12):
        arguments = make()
        assert_same(compiled(*arguments), program(*arguments), "result")


def test_exception_that_depends_on_data_leaves_no_trace():
    def function(state, x):
        state.append(1)
        if x.sum() < 0:
            raise ValueError("negative")
        return x + len(state)

    compiled = thunder.jit(function)
    state: list[int] = []
    assert torch.equal(compiled(state, torch.ones(1)), torch.full((1,), 2.0))
    with pytest.raises(ValueError, match="negative"):
        compiled(state, -torch.ones(1))
    assert torch.equal(compiled(state, torch.ones(1)), torch.full((1,), 1.0 + len(state)))


def test_example_of_the_docs_runs(tmp_path, capsys):
    page = (Path(__file__).parents[2] / "docs" / "data_dependence.md").read_text()
    example = tmp_path / "example.py"
    example.write_text(page.split("```python\n")[1].split("```")[0])
    runpy.run_path(str(example))
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "2 3"
    assert any(line.startswith("computation_1 ") for line in printed)
    assert "example.py:7" in printed[-1]
