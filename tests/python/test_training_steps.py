"""Training steps inside of jitted functions: optimizers of all kinds, and loops that people write around them."""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from beside_eager import assert_same
from torch import nn

import thunder

pytestmark = pytest.mark.filterwarnings("error::thunder.EagerFallbackWarning")

Jit = Callable[[Any], Any]
Program = Callable[[Jit], Iterator[Any]]


def perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8, bias=False), nn.Tanh(), nn.Linear(8, 3, bias=False))


def state(model: nn.Module, optimizer: Any = None) -> Any:
    """Return a copy of everything that a step may change."""
    grads = [p.grad for p in model.parameters()]
    kept = [dict(optimizer.state[p]) for p in model.parameters()] if optimizer is not None else []
    return copy.deepcopy((model.state_dict(), grads, kept, torch.get_rng_state()))


def steps(
    jit: Jit, model: nn.Module, optimizer: Any, between: Callable[[int], Any] = lambda call: None
) -> Iterator[Any]:
    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    compiled = jit(step)
    for call in range(4):
        between(call)
        yield compiled(torch.randn(5, 4)), state(model, optimizer)


OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    "SGD fused": {"lr": 0.1, "momentum": 0.5, "fused": True},
    "Adam": {"lr": 0.1, "amsgrad": True},
    "Adam of a tensor": {"lr": torch.tensor(0.1)},
    "AdamW foreach": {"lr": 0.1, "foreach": True},
    "AdamW fused": {"lr": 0.1, "fused": True},
    "RMSprop": {"lr": 0.01, "centered": True},
    **{name: {"lr": 0.1} for name in ("ASGD", "Adadelta", "Adagrad", "Adamax", "NAdam", "RAdam", "Rprop")},
}


def of_torch(name: str) -> Program:
    def program(jit: Jit) -> Iterator[Any]:
        model = perceptron()
        optimizer = getattr(torch.optim, name.split()[0])(model.parameters(), **copy.deepcopy(OPTIMIZERS[name]))

        def between(call: int) -> None:
            if call == 3:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
                optimizer.param_groups[0]["lr"] = 0.05

        return steps(jit, model, optimizer, between)

    return program


def groups_and_frozen_parameters(jit: Jit) -> Iterator[Any]:
    model = perceptron()
    optimizer = torch.optim.SGD([{"params": [model[0].weight], "lr": 0.1}])

    def between(call: int) -> None:
        if call == 1:
            optimizer.add_param_group({"params": [model[2].weight], "lr": 0.2, "momentum": 0.9})
        model[0].weight.requires_grad_(call != 2)

    return steps(jit, model, optimizer, between)


def closures(jit: Jit) -> Iterator[Any]:
    model, x = perceptron(), torch.randn(6, 4)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss

    compiled = jit(lambda: optimizer.step(closure))
    yield from ((compiled(), state(model)) for _ in range(2))


def steps_in_the_backward(jit: Jit) -> Iterator[Any]:
    model = perceptron()
    for parameter in model.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.5)
        parameter.register_post_accumulate_grad_hook(lambda p, of=optimizer: (of.step(), of.zero_grad())[1])
    step, forward = jit(lambda x: model(x).pow(2).mean().backward()), jit(model)
    for _ in range(2):
        step(torch.randn(5, 4))
        yield state(model)
        forward(torch.randn(5, 4)).pow(2).mean().backward()
        yield state(model)


def replayed_memory(jit: Jit) -> Iterator[Any]:
    memory: collections.deque[Any] = collections.deque(maxlen=3)
    online, target = nn.Linear(2, 2), nn.Linear(2, 2)
    optimizer = torch.optim.SGD(online.parameters(), lr=0.1)

    def learn(seen: torch.Tensor, action: int, reward: torch.Tensor) -> float:
        memory.append((seen, torch.tensor(action), reward))
        before, actions, rewards = map(torch.stack, zip(*memory, strict=True))
        with torch.no_grad():
            wanted = rewards + 0.9 * target(before).amax(1)
        loss = F.smooth_l1_loss(online(before).gather(1, actions[:, None])[:, 0], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() < 1:
            target.load_state_dict(online.state_dict())
        return loss.item()

    compiled = jit(learn)
    for call in range(5):
        yield compiled(torch.randn(2), call % 2, torch.tensor(float(call))), state(online), state(target), [*memory]


OWN = [groups_and_frozen_parameters, closures, steps_in_the_backward, replayed_memory]
PROGRAMS: dict[str, Program] = {**{name: of_torch(name) for name in OPTIMIZERS}, **{p.__name__: p for p in OWN}}


@pytest.mark.parametrize("name", PROGRAMS)
def test_step_equals_eager(name: str) -> None:
    seen = []
    for jit in (lambda fn: fn, thunder.jit):
        torch.manual_seed(0)
        seen.append(list(PROGRAMS[name](jit)))
    for call, (expected, got) in enumerate(zip(*seen, strict=True)):
        assert_same(got, expected, f"call {call}", rtol=1e-4, atol=1e-5)
