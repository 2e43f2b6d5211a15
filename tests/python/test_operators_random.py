"""Random numbers: seeds and generators inside the program give eager's numbers at each call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager
from programs import Function, parametrize, x

import thunder


def own_generator(a: torch.Tensor) -> Any:
    generator = torch.Generator().manual_seed(3)
    return torch.rand(4, generator=generator) + torch.randn(4, generator=generator) * a


def generator_without_a_seed(a: torch.Tensor) -> Any:
    return a + torch.randint(0, 1000, (4,), generator=torch.Generator())


def state_saved_and_restored(a: torch.Tensor) -> Any:
    state = torch.get_rng_state()
    first = torch.rand(4)
    torch.set_rng_state(state)
    return first, torch.rand(4), a * torch.rand(4)


def state_of_own_generator(a: torch.Tensor) -> Any:
    generator = torch.Generator()
    generator.manual_seed(11)
    state = generator.get_state()
    first = torch.rand(4, generator=generator)
    generator.set_state(state)
    return first * a, torch.rand(4, generator=generator)


SEEDING = [
    ("manual_seed", lambda a: (torch.manual_seed(5), torch.rand(4) * a)[1]),
    ("negative_seed", lambda a: (torch.manual_seed(-5), torch.rand(4) * a)[1]),
    ("seed_of_default_generator", lambda a: (torch.default_generator.manual_seed(5), torch.rand(4) * a)[1]),
    ("own_generator", own_generator),
    ("generator_without_a_seed", generator_without_a_seed),
    ("state_saved_and_restored", state_saved_and_restored),
    ("state_of_own_generator", state_of_own_generator),
]


@parametrize(SEEDING)
def test_seeds_and_generators_inside(program: Function) -> None:
    assert_as_eager(program, x(), calls=3)


FACTORIES = [
    ("empty_like", lambda a: torch.empty_like(a).shape),
    ("rand_like", lambda a: torch.rand_like(a)),
    ("rand_like_of_transposed", lambda a: torch.rand_like(a.t())),
    ("randn_like_in_double", lambda a: torch.randn_like(a, dtype=torch.float64)),
    ("randint_like", lambda a: torch.randint_like(a, 10)),
    ("bernoulli", lambda a: torch.bernoulli(a.sigmoid())),
    ("normal", lambda a: torch.normal(a.detach(), 1.0)),
    ("multinomial", lambda a: torch.multinomial(a.detach().abs(), 2)),
    ("poisson", lambda a: torch.poisson(a.detach().exp())),
    ("exponential_", lambda a: torch.empty_like(a).exponential_()),
    ("uniform_on_part", lambda a: torch.zeros_like(a)[1:].uniform_()),
    ("cauchy_log_normal", lambda a: (torch.empty(3).cauchy_(), torch.empty(3).log_normal_())),
    ("geometric", lambda a: torch.empty(3).geometric_(0.5)),
    ("rrelu", lambda a: torch.nn.functional.rrelu(a, training=True)),
    ("rrelu_", lambda a: torch.nn.functional.rrelu(a * 2, training=True, inplace=True)),
]


@parametrize(FACTORIES)
def test_random_numbers_as_in_eager(program: Function) -> None:
    assert_as_eager(program, x(), calls=3)


FILLS = [
    ("bernoulli", lambda a: a.bernoulli_(0.3)),
    ("bernoulli_of_tensor", lambda a: a.bernoulli_(torch.rand(4))),
    ("normal", lambda a: a.normal_()),
    ("uniform", lambda a: a.uniform_(2, 3)),
    ("exponential", lambda a: a.exponential_()),
    ("random", lambda a: a.random_(0, 9)),
    ("kaiming", lambda a: torch.nn.init.kaiming_uniform_(a)),
]
LAYOUTS = {
    "contiguous": lambda: torch.ones(2, 3, 5, 4),
    "channels_last": lambda: torch.ones(2, 3, 5, 4).to(memory_format=torch.channels_last),
    "transposed": lambda: torch.ones(4, 3, 5, 2).transpose(0, 3),
    "with_gaps": lambda: torch.ones(2, 3, 5, 8)[..., ::2],
}


@parametrize(FILLS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_fills_of_what_holds_something_follow_its_layout(program: Function, layout: str) -> None:
    def of_inputs_and_of_memory_made_inside(a: torch.Tensor) -> Any:
        return program(a * 2), program(a), torch.rand(2)

    assert_as_eager(of_inputs_and_of_memory_made_inside, LAYOUTS[layout]())


def test_generator_argument_goes_on_from_call_to_call() -> None:
    def program(a: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return torch.rand(3, generator=generator) + a

    results = []
    for function in (program, thunder.jit(program)):
        generator = torch.Generator().manual_seed(1)
        results.append([function(torch.zeros(3), generator) for _ in range(3)])
    torch.testing.assert_close(results[1], results[0])


def test_generators_made_inside_are_separate_in_each_thread() -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(3)
        return sum(torch.rand(100, generator=generator) for _ in range(20)) + a

    compiled = thunder.jit(program)
    expected = program(torch.zeros(100))
    results: list[torch.Tensor] = []
    threads = [
        threading.Thread(target=lambda: results.extend(compiled(torch.zeros(100)) for _ in range(20))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 80
    assert all(torch.equal(result, expected) for result in results)


@pytest.mark.parametrize("program", [torch.seed, torch.initial_seed, lambda: torch.Generator().seed()])
def test_seeds_that_are_read_are_refused(program: Callable[[], Any]) -> None:
    with pytest.raises(NotImplementedError, match="not supported inside a jitted function"):
        thunder.jit(lambda a: (program(), a)[1], fullgraph=True)(x())


def drawn_in_two_orders(a: torch.Tensor) -> Any:
    first = a.clone().exponential_()
    return first, torch.rand_like(a), torch.normal(a), a.clone().random_(3), torch.randint_like(a, 5)


def drawn_before_a_decision(a: torch.Tensor) -> Any:
    scale = torch.rand_like(a)
    if (scale.sum() > 0).item():
        a = a + torch.randn_like(a)
    return a * scale


def drawn_before_data_is_read(a: torch.Tensor) -> Any:
    return a * (torch.rand_like(a) * 100).long().sum().item() + torch.rand_like(a)


@pytest.mark.gpu
@pytest.mark.parametrize("program", [drawn_in_two_orders, drawn_before_a_decision, drawn_before_data_is_read])
def test_draws_from_a_gpus_generator(program: Callable[..., Any]) -> None:
    a = torch.randn(7, device="cuda")
    compiled = thunder.jit(program, compile="eager")
    for call in range(4):
        seen = []
        for function in (program, compiled):
            torch.manual_seed(call)
            seen.append((function(a), torch.cuda.get_rng_state(), torch.get_rng_state()))
        torch.testing.assert_close(seen[1], seen[0], rtol=0, atol=0)
