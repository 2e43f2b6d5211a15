"""Programs that read the data of tensors: traces are specialized on what they met, and gradients flow across."""

from __future__ import annotations

import pytest
import torch

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


def test_full_graph_refuses_with_line():
    with pytest.raises(RuntimeError, match=r"fullgraph=True.*(\n.*)*test_data_dependence\.py"):
        thunder.jit(branch, fullgraph=True)(torch.ones(3))


def test_limit_of_specializations_warns_with_cause():
    compiled = thunder.jit(lambda x: x * x.sum().item())
    with pytest.warns(RuntimeWarning, match="a number or shape read from a tensor's data"):
        results = [float(compiled(torch.full((2,), float(value)))[0]) for value in range(70)]
    assert results == [2.0 * value * value for value in range(70)]
