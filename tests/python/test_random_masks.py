"""Random masks are drawn again in the backward, from the generator's state: numbers as in eager, in less memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import thunder

STATE = torch.get_rng_state().numel()  # bytes
COUNT = 2 * 16 * 32 * 32  # elements of what programs take
OURS = torch.Generator()

Program = Callable[[torch.Tensor], torch.Tensor]


def make_input(*, layout: torch.memory_format = torch.contiguous_format, dtype: Any = torch.float32) -> torch.Tensor:
    return torch.randn(2, 16, 32, 32, dtype=dtype).contiguous(memory_format=layout).requires_grad_()


def inputs_of_backward(compiled: Any) -> str:
    """Return the lines of the printed backward that say what it takes: cotangents, and what is saved for it."""
    text = str(thunder.last_backward_traces(compiled)[-1])
    return "\n".join(line for line in text.splitlines() if line.startswith("  # "))


def run(f: Program, x: torch.Tensor, seed: int = 3) -> list[torch.Tensor]:
    """Return result, gradient, the next random number, after the forward and after the backward."""
    torch.manual_seed(seed)
    OURS.manual_seed(seed)
    result = f(x)
    after = torch.get_rng_state()
    (gradient,) = torch.autograd.grad(result, x, torch.linspace(0, 1, result.numel(), dtype=x.dtype).view_as(result))
    return [result.detach(), gradient, after, torch.get_rng_state(), OURS.get_state()]


def attention(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x, x, dropout_p=0.3)


def own_mask(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * torch.bernoulli(torch.ones_like(x.detach()), 0.3)


def mask_of_given_generator(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * torch.empty_like(x).bernoulli_(0.3, generator=OURS)


def mask_of_own_generator(x: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator()
    generator.manual_seed(5)
    return x.sin() * torch.empty_like(x).bernoulli_(0.3, generator=generator)


def two_masks(x: torch.Tensor) -> torch.Tensor:
    y = F.dropout(x.exp(), 0.2)
    return F.dropout(y + torch.randn_like(y), 0.7) * torch.rand_like(y)


def checkpointed(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda t: F.dropout(t.sin(), 0.4).exp(), x, use_reentrant=False) * 2


PROGRAMS: dict[str, Program] = {
    "dropout": lambda x: F.dropout(x.sin(), 0.1),
    "dropout of almost nothing": lambda x: F.dropout(x, 1e-7),
    "dropout of almost all": lambda x: F.dropout(x, 1 - 1e-7),
    "channel dropout": lambda x: F.dropout2d(x, 0.5),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.5, training=True),
    "attention": attention,
    "own mask": own_mask,
    "mask of a given generator": mask_of_given_generator,
    "mask of an own generator": mask_of_own_generator,
    "two masks": two_masks,
    "checkpointed": checkpointed,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_gradients_and_generators_are_eagers(name: str, dtype: torch.dtype) -> None:
    program, x = PROGRAMS[name], make_input(dtype=dtype)
    compiled = thunder.jit(program)
    for _ in range(2):
        got, expected = run(compiled, x), run(program, x)
        tolerance = 6e-2 if dtype == torch.bfloat16 else 1e-5
        for ours, theirs in zip(got, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format], ids=str)
def test_masks_lie_in_memory_as_eagers_do(layout: torch.memory_format) -> None:
    x = make_input(layout=layout)
    for ours, theirs in zip(run(thunder.jit(PROGRAMS["dropout"]), x), run(PROGRAMS["dropout"], x), strict=True):
        torch.testing.assert_close(ours, theirs)
        assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - {"channel dropout"}))
def test_the_backward_draws_again(name: str) -> None:
    compiled = thunder.jit(PROGRAMS[name])
    run(compiled, make_input())
    backward = str(thunder.last_backward_traces(compiled)[-1])
    assert backward.count("bernoulli_from_state") == (2 if name == "two masks" else 1)
    assert "b8[2, 16, 32, 32]" not in inputs_of_backward(compiled)
    assert f"ui8[{STATE}]" in inputs_of_backward(compiled)


@pytest.mark.parametrize(
    ("count", "options"), [(STATE // 2, {}), (COUNT, {"rematerialize": False}), (COUNT, {"passes": []})]
)
def test_a_mask_is_saved_where_it_is_small_or_nothing_is_recomputed(count: int, options: dict[str, Any]) -> None:
    compiled = thunder.jit(lambda x: F.dropout(x, 0.5), **options)
    x = torch.randn(count, requires_grad=True)
    compiled(x).sum().backward()
    forward = str(thunder.last_traces(compiled)[-1])
    assert "bernoulli_.float" in forward
    assert "state" not in forward


def test_a_retained_graph_draws_the_same_again() -> None:
    x = make_input()
    y = thunder.jit(PROGRAMS["dropout"])(x).sum()
    first = torch.autograd.grad(y, x, retain_graph=True)
    torch.rand(3)
    torch.testing.assert_close(first, torch.autograd.grad(y, x), rtol=0, atol=0)


def test_threads_that_draw_at_once_get_the_masks_of_their_forwards() -> None:
    compiled = thunder.jit(lambda x: F.dropout(x, 0.5))
    compiled(torch.ones(COUNT, requires_grad=True)).sum().backward()
    differ: list[int] = []

    def work() -> None:
        for i in range(20):
            x = torch.ones(COUNT, requires_grad=True)
            y = compiled(x)
            y.backward(torch.ones(COUNT))
            if not torch.equal(y.detach(), x.grad):
                differ.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not differ


def test_printed_traces_draw_what_the_program_draws() -> None:
    compiled = thunder.jit(lambda x: F.dropout(x, 0.5))
    x = torch.randn(COUNT, requires_grad=True)
    torch.manual_seed(0)
    expected = compiled(x)
    (gradient,) = torch.autograd.grad(expected, x, torch.ones(COUNT))
    torch.manual_seed(0)
    result, *saved = thunder.last_traces(compiled)[-1].python_callable()(x)
    torch.testing.assert_close(result, expected.detach(), rtol=0, atol=0)
    (again,) = thunder.last_backward_traces(compiled)[-1].python_callable()(*saved, torch.ones(COUNT))
    torch.testing.assert_close(again, gradient, rtol=0, atol=0)


@pytest.mark.parametrize("p", [0.0, 1e-12, 0.5, 1 - 1e-12, 1.0])
@pytest.mark.parametrize("count", [0, 1, 311, 312, 313, 100_000])
@pytest.mark.parametrize("drawn", [0, 1, 623])
def test_blocks_of_numbers_are_what_bernoulli_draws(p: float, count: int, drawn: int) -> None:
    ours = torch.Generator().manual_seed(7)
    torch.randint(10, (drawn,), generator=ours)
    state = ours.get_state()
    theirs = torch.Generator()
    theirs.set_state(state)
    mask, kept = torch.ops.thunder.bernoulli_with_state([count], [1], torch.bool, torch.device("cpu"), p, ours)
    assert torch.equal(mask, torch.empty(count, dtype=torch.bool).bernoulli_(p, generator=theirs))
    assert torch.equal(kept, state)
    assert torch.equal(ours.get_state(), theirs.get_state())
    again = torch.ops.thunder.bernoulli_from_state(kept, [count], [1], torch.float16, torch.device("cpu"), p)
    assert torch.equal(again, mask.half())
