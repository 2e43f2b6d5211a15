"""Programs that read the data of tensors: traces are specialized on what they met, and gradients flow across."""

from __future__ import annotations

import gc
import runpy
from pathlib import Path

import pytest
import torch
from beside_eager import assert_same, in_threads
from programs import value_and_gradient

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


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_values_and_gradients_follow_the_data(function):
    torch.manual_seed(0)
    compiled = thunder.jit(function)
    for scale in (1.0, -1.0, 3.0, 1.0):
        x = torch.randn(5) * scale
        torch.testing.assert_close(value_and_gradient(compiled, x), value_and_gradient(function, x))


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


DRAWS = {
    "item": lambda x, g: torch.rand(2, generator=g).sum().item(),
    "tolist": lambda x, g: torch.randperm(4, generator=g).tolist(),
    "branch": lambda x, g: torch.rand(2, generator=g) if x.sum() > 0 else torch.rand(2, generator=g) * 2,
    "without_a_meta_kernel": lambda x, g: torch.binomial(x.abs(), torch.full((3,), 0.5), generator=g).tolist(),
    "behind_a_branch": lambda x, g: torch.rand(2, generator=g).tolist() if x.sum() > 0 else x.tolist(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_of_a_generator_of_the_program_are_those_of_eager(name):
    generators = [torch.Generator().manual_seed(1) for _ in range(2)]
    compiled, program = thunder.jit(lambda x: DRAWS[name](x, generators[0])), DRAWS[name]
    for value in (1.0, -1.0, 2.0, -3.0, 4.0):
        x = torch.full((3,), value)
        torch.testing.assert_close(compiled(x), program(x, generators[1]), rtol=0, atol=0)
        assert torch.equal(*(generator.get_state() for generator in generators))


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


def test_known_segments_are_not_compiled_again_past_the_limit(monkeypatch, tmp_path):
    compiled = thunder.jit(repeat)
    weight = torch.randn(3, 3)
    call_with_many(compiled, weight, 64)
    monkeypatch.setenv("THUNDER_DUMP", str(tmp_path))
    with pytest.warns(RuntimeWarning, match="64 specializations"):
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


def test_calls_past_the_limit_run_in_eager_where_that_is_faster():
    compiled = thunder.jit(repeat)
    weight = torch.randn(3, 3)
    with pytest.warns(RuntimeWarning, match="traced for themselves or run in eager, whichever is faster"):
        compare_many(compiled, weight.clone().requires_grad_(), 90)
    stats = thunder.compile_stats(compiled)
    assert thunder.cache_misses(compiled) < 70  # a trace takes a hundred times as long as such a call
    assert stats["eager_calls"] > 20


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
    torch.testing.assert_close(value_and_gradient(compiled, x), value_and_gradient(function, x))


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
