"""A few calls through every layer; what the sanitizer builds run."""

from __future__ import annotations

import copy

import pytest
import torch

import thunder


def test_function_twice() -> None:
    f = thunder.jit(lambda x, y: torch.nn.functional.gelu(x @ y) + 1)
    x, y = torch.randn(2, 3), torch.randn(3, 4)
    for _ in range(2):
        torch.testing.assert_close(f(x, y), torch.nn.functional.gelu(x @ y) + 1)


def test_module_trains_as_in_eager() -> None:
    eager = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))
    compiled = thunder.jit(copy.deepcopy(eager))
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (eager, compiled)]
    for _ in range(3):
        x = torch.randn(5, 4)
        losses = []
        for model, optimizer in zip((eager, compiled), optimizers, strict=True):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        torch.testing.assert_close(losses[1], losses[0])


def test_user_exception_comes_out_as_itself() -> None:
    class OwnError(Exception):
        pass

    @thunder.jit
    def f(x):
        raise OwnError("mine")

    with pytest.raises(OwnError, match="mine"):
        f(torch.ones(1))


def test_many_specializations_are_freed() -> None:
    for _ in range(3):
        f = thunder.jit(lambda x: x.sum())
        for size in range(1, 6):
            assert f(torch.ones(size)) == size
        del f
