"""A program writes and draws once a call, also in front of a read of data or of an operation that fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder

pytestmark = pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")

MOMENTUM = 0.1
SIGNS = (1.0, 1.0, -1.0, -1.0, 1.0, -1.0)
LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "rows": (lambda: torch.nn.BatchNorm1d(2), (8, 2)),
    "images": (lambda: torch.nn.BatchNorm2d(2), (4, 2, 6, 6)),
    "volumes": (lambda: torch.nn.BatchNorm3d(2), (2, 2, 4, 4, 4)),
    "instances": (lambda: torch.nn.InstanceNorm2d(2, affine=True, track_running_stats=True), (4, 2, 6, 6)),
}


def no_gradients(layer: Any, x: torch.Tensor, sign: torch.Tensor) -> torch.Tensor:
    return layer(x)


def backward(layer: Any, x: torch.Tensor, sign: torch.Tensor) -> torch.Tensor:
    result = layer(x)
    (result * sign).pow(2).sum().backward()
    return result


def gradient(layer: Any, x: torch.Tensor, sign: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad((layer(x) * sign).pow(2).sum(), layer.weight)[0]


def branches(result: torch.Tensor, sign: torch.Tensor) -> torch.Tensor:
    return result.sum() if sign.sum() > 0 else result.sum() * 2


def reads(result: torch.Tensor, sign: torch.Tensor) -> Any:
    return (result > 0).sum().item()


def fails(result: torch.Tensor, sign: torch.Tensor) -> str:
    try:
        torch.linalg.cholesky(torch.eye(2) * sign)
    except RuntimeError:
        return "failed"
    return "factored"


@pytest.mark.parametrize("then", [branches, reads, fails])
@pytest.mark.parametrize("first", [no_gradients, backward, gradient])
@pytest.mark.parametrize("name", LAYERS)
def test_running_statistics_are_updated_once_a_call(name: str, first: Any, then: Any) -> None:
    make, shape = LAYERS[name]
    layer = make()
    compiled = thunder.jit(lambda x, sign: then(first(layer, x, sign), sign))
    x = torch.ones(shape)  # the mean of each channel is one
    for call, sign in enumerate(SIGNS, start=1):
        compiled(x, torch.tensor([sign]))
        updates = math.log(1 - layer.running_mean[0].item()) / math.log(1 - MOMENTUM)
        assert round(updates, 2) == call


DRAWS: dict[str, Callable[[torch.Tensor, torch.Generator], Any]] = {
    "read": lambda x, generator: torch.rand(2, generator=generator).sum().item(),
    "branch": lambda x, generator: (r := torch.rand(2, generator=generator), r if x.sum() > 0 else -r)[1],
    "permutation": lambda x, generator: torch.randperm(4, generator=generator).tolist(),
    "choice": lambda x, generator: torch.multinomial(torch.ones(4), 2, generator=generator).tolist(),
    "failure": lambda x, generator: (torch.rand(2, generator=generator), fails(x, x[:1])),
}


@pytest.mark.parametrize("name", DRAWS)
def test_generator_of_the_program_draws_once_a_call(name: str) -> None:
    drawn = []
    for jit in (lambda f: f, thunder.jit):
        generator = torch.Generator().manual_seed(1)
        compiled = jit(lambda x, generator=generator: DRAWS[name](x, generator))
        drawn.append([])
        for sign in SIGNS:
            result = compiled(torch.full((2,), sign))
            drawn[-1].append((str(result), torch.rand(1, generator=generator).item()))
    assert drawn[0] == drawn[1]


def test_statistics_in_front_of_random_numbers_that_fail() -> None:
    runs = []
    for compile_it in (False, True):
        layer = torch.nn.BatchNorm1d(3)

        def program(x: torch.Tensor, layer: Any = layer) -> torch.Tensor:
            y = layer(x)
            torch.multinomial(-1 - y.sum().abs() * torch.ones(3), 1)
            return y

        called = thunder.jit(program) if compile_it else program
        for size in (1.0, 2.0):
            with pytest.raises(RuntimeError, match="probability"):
                called(torch.full((2, 3), size))
        runs.append([layer.running_mean.tolist(), layer.running_var.tolist(), layer.num_batches_tracked.item()])
    assert runs[0] == runs[1]
