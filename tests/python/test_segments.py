"""Traces cut where the program reads data: what the segments compute together is what eager computes, once."""

from __future__ import annotations

import copy

import pytest
import torch

import thunder

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


def test_last_traces_name_the_segments_of_forward_and_backward():
    def halved(x):
        while x.abs().max() > 1:
            x = x / 2
        return x

    compiled = thunder.jit(halved)
    compiled(torch.full((3,), 1.5, requires_grad=True)).sum().backward()
    # Comparisons have no gradient: the segment in front of the first one has none.
    names = list(dict.fromkeys(trace.name for trace in thunder.last_traces(compiled)))
    assert names == ["computation", "computation_1", "forward_1"]
    names = list(dict.fromkeys(trace.name for trace in thunder.last_backward_traces(compiled)))
    assert names == ["backward_1"]


def test_last_traces_show_the_segments():
    compiled = thunder.jit(lambda x: x * 2 if x.sum() > 0 else x.sin())
    compiled(torch.ones(3))
    names = list(dict.fromkeys(trace.name for trace in thunder.last_traces(compiled)))
    assert names == ["computation", "computation_1"]
    texts = [str(trace) for trace in thunder.last_traces(compiled)]
    assert "prims.check_number" in texts[0]
    assert not any("prims.check_number" in text for text in texts[1:])


def test_gradients_flow_across_segments_to_parameters():
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


def test_a_segment_that_hands_an_input_on_gives_it_its_own_history():
    """A tensor that an operation without a derivative wrote requires grad, with zero gradients, across segments too."""

    def f(x, y, mask):
        v = x * 2
        v.greater_equal_(0.3)
        return v, y[mask]

    compiled = thunder.jit(f)
    mask = torch.tensor([True, False, True, True])
    gradients = []
    for function in (f, compiled):
        torch.manual_seed(0)
        x, y = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
        v, part = function(x, y, mask)
        assert v.requires_grad
        (v.sum() + part.sum()).backward()
        gradients.append((v.detach(), x.grad, y.grad))
    torch.testing.assert_close(*gradients)
    assert "new_zeros" in "".join(map(str, thunder.last_backward_traces(compiled)))


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


def test_look_at_data_leaves_the_versions_of_running_statistics() -> None:
    def program(norm: torch.nn.Module, a: torch.Tensor) -> None:
        norm(a)
        if (a > 0).any():
            norm(a + 1)

    outcomes = []
    for function in (program, thunder.jit(program)):
        norm = torch.nn.BatchNorm1d(3)
        for _ in range(2):
            function(norm, torch.ones(2, 3))
        outcomes.append((norm.running_mean._version, norm.running_var._version, norm.num_batches_tracked._version))
    assert outcomes[1] == outcomes[0]


@pytest.mark.parametrize("is_read", [False, True])
def test_input_that_a_later_segment_writes_is_not_what_a_backward_computes_from(is_read: bool) -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        a.tanh_()
        if (a > 0).any() and is_read:
            return a * 2
        return a

    outcomes = []
    for function in (program, thunder.jit(program)):
        for _ in range(2):
            leaf = torch.tensor([0.5, -1.0], requires_grad=True)
            function(leaf * 1).sum().backward()
            outcomes.append(leaf.grad.tolist())
    assert outcomes[2:] == [pytest.approx(gradient) for gradient in outcomes[:2]]
