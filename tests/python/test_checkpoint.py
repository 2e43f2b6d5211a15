"""`torch.utils.checkpoint` inside compiled programs: eager's numbers, and a backward that computes again."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager
from programs import Function, named, parametrize, x
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import thunder

again = functools.partial(checkpoint, use_reentrant=False)


def checkpointed_once(a: torch.Tensor) -> Any:
    return again(lambda t: (t.sin() * t).exp().tanh(), a).sum()


def checkpointed_reentrant(a: torch.Tensor) -> Any:
    return checkpoint(lambda t: (t.sin() * t).exp().tanh(), a, use_reentrant=True)


def checkpointed_reentrant_without_gradient(a: torch.Tensor) -> Any:
    return checkpoint(lambda t: t.sin() * a, a.detach(), use_reentrant=True) + a


def checkpointed_with_dropout(a: torch.Tensor) -> Any:
    return again(lambda t: F.dropout(t.sin(), 0.5).exp(), a) * 2


def checkpointed_closure_and_keywords(a: torch.Tensor) -> Any:
    scale = a.exp()
    return again(lambda t, *, shift: (t * scale).sin() + shift, a * 2, shift=a.cos())


def checkpointed_results(a: torch.Tensor) -> Any:
    first, rest = again(lambda t: (t.sin().exp(), {"cos": t.cos(), "plain": t.detach(), "same": t}), a)
    return first, rest["cos"] * first, rest["plain"], rest["same"]


def checkpointed_twice_over(a: torch.Tensor) -> Any:
    def inner(t: torch.Tensor) -> torch.Tensor:
        return t.sin().exp()

    return again(lambda t: again(inner, t.cos()).tanh() * t, a)


def checkpointed_writes(a: torch.Tensor) -> Any:
    def inner(t: torch.Tensor) -> torch.Tensor:
        b = t.sin()
        b[0] = t[1].exp()
        return b * b

    return again(inner, a)


def checkpointed_split(a: torch.Tensor) -> Any:
    return again(lambda t: [part.exp() * part for part in t.sin().split(1)], a)


def checkpointed_under_no_grad(a: torch.Tensor) -> Any:
    with torch.no_grad():
        b = again(torch.sin, a)
    return b * a


PROGRAMS = [f for name, f in sorted(globals().items()) if name.startswith("checkpointed_")]


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@parametrize([named(f) for f in PROGRAMS])
def test_checkpoint_is_as_in_eager(program: Function) -> None:
    assert_as_eager(program, x())


class Blocks(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 8)) for _ in range(3)
        )
        self.reentrant = reentrant

    def forward(self, a: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            a = a + checkpoint(block, a, use_reentrant=self.reentrant)
        return a


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_blocks_are_as_in_eager(reentrant: bool) -> None:
    assert_as_eager(Blocks(reentrant), torch.randn(16, 8, requires_grad=True), misses=None)


def test_checkpoint_sequential_is_as_in_eager() -> None:
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4)])
    assert_as_eager(lambda a: checkpoint_sequential(layers, 2, a, use_reentrant=False), x())


def chain(a: torch.Tensor) -> torch.Tensor:
    for _ in range(8):
        a = (a @ a).tanh()
    return a


def test_backward_computes_checkpointed_part_again() -> None:
    compiled = thunder.jit(lambda a: again(chain, a).sum(), rematerialize=False)
    a = torch.randn(16, 16, dtype=torch.float64, requires_grad=True)  # eight times tanh(a @ a): last bits grow
    result = compiled(a)
    forward, backward = thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1]
    assert str(backward).count("computed again: torch.utils.checkpoint") >= 8
    assert str(backward).count("aten.tanh.default") >= 7
    saved = len(str(forward).rsplit("return", 1)[1].split(","))
    assert saved <= 3
    result.backward()
    expected = a.detach().clone().requires_grad_()
    chain(expected).sum().backward()
    torch.testing.assert_close(a.grad, expected.grad)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_parts_in_a_row_keep_their_inputs_alone(count: int, reentrant: bool) -> None:
    blocks = Blocks(reentrant).blocks

    def program(a: torch.Tensor) -> torch.Tensor:
        for i in range(count):
            a = checkpoint(blocks[i % 3], a, use_reentrant=reentrant)
        return a.sin().sum()

    a = torch.randn(16, 8, requires_grad=True)
    compiled = assert_as_eager(program, a)
    compiled(a)
    forward = thunder.last_traces(compiled)[-1]
    kept = [tuple(value.shape) for value in set(forward.saved) - set(forward.inputs) if value is not None]
    assert len(kept) == count
    assert set(kept) == {(16, 8)}


SEEN: list[int] = []


def refused_statistics(a: torch.Tensor) -> Any:
    return again(nn.BatchNorm1d(4), a)


def refused_effects(a: torch.Tensor) -> Any:
    return again(lambda t: (SEEN.append(1), t.sin())[1], a)


def refused_prints(a: torch.Tensor) -> Any:
    return again(lambda t: (print("part"), t.sin())[1], a)


def refused_writes(a: torch.Tensor) -> Any:
    total = torch.zeros(3, 4)
    return again(lambda t: (total.add_(t.detach()), t.sin())[1], a) * total


def refused_context(a: torch.Tensor) -> Any:
    return again(torch.sin, a, context_fn=lambda: (contextlib.nullcontext(), contextlib.nullcontext()))


def refused_other_random_numbers(a: torch.Tensor) -> Any:
    return again(lambda t: F.dropout(t, 0.5), a, preserve_rng_state=False)


def refused_backward_as_python(a: torch.Tensor) -> Any:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: torch.Tensor) -> torch.Tensor:
            return t * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return gradient * gradient.sum().item()

    return again(Scaled.apply, a)


REFUSED = [f for name, f in sorted(globals().items()) if name.startswith("refused_")]


@parametrize([named(f) for f in REFUSED])
def test_part_that_a_backward_would_not_just_compute_again_is_refused(program: Function) -> None:
    with pytest.raises(NotImplementedError):
        thunder.jit(program, fullgraph=True)(x())
    assert not SEEN


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_first_call_of_a_jitted_module_may_be_under_checkpoint(reentrant: bool, dropout: float) -> None:
    def run(jit: Any) -> list[torch.Tensor | None]:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 4))
        compiled, noted = jit(module), []
        for _ in range(3):
            a = torch.randn(2, 4, requires_grad=True)
            b = checkpoint(lambda t: checkpoint(compiled, t, use_reentrant=reentrant).sin(), a, use_reentrant=reentrant)
            torch.rand(3)
            b.sum().backward()
            noted += [b.detach(), a.grad, *(p.grad for p in module.parameters())]
        return noted

    torch.testing.assert_close(run(thunder.jit), run(lambda module: module))


@pytest.mark.parametrize("hook", [lambda gradient: SEEN.append(2), lambda gradient: gradient * 3, lambda: None])
def test_hook_on_a_leaf_that_a_part_captures_runs_in_the_backward_alone(hook: Any) -> None:
    def program(a: torch.Tensor) -> Any:
        a.register_hook(hook)
        try:
            return again(lambda t: t * a, torch.ones(3, 4))
        except TypeError:
            return a * 5

    if hook.__code__.co_argcount == 1:
        assert_as_eager(program, x())
    SEEN.clear()
    result = thunder.jit(program)(x())
    assert not SEEN
    assert result.tolist() == x().tolist()


PARTS: dict[str, Any] = {
    "group norm": lambda t: F.group_norm(t, 2),
    "weight norm": lambda t: torch._weight_norm(t, t[:, :1, :1], 0),
    "pairs as complex numbers": lambda t: torch.view_as_real(torch.view_as_complex(t) * (1 + 2j)),
    "lstm": lambda t: torch.lstm(t, (torch.ones(1, 4, 3),) * 2, LSTM, True, 1, 0.0, True, False, False)[0],
}
LSTM = [torch.linspace(-1, 1, 12 * columns).reshape(12, columns) for columns in (2, 3)] + [torch.ones(12)] * 2
READERS: dict[str, Any] = {
    "sum": lambda t: t.sum(),
    "transposed": lambda t: (t.transpose(1, 2) * torch.arange(float(t.numel())).reshape(t.transpose(1, 2).shape)).sum(),
    "half of a cat": lambda t: (torch.cat([t, t.detach()], 1) * torch.arange(t.shape[1] * 2.0)[:, None]).sum(),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("part", PARTS)
def test_gradients_of_a_part_come_in_any_layout(part: str, reader: str) -> None:
    assert_as_eager(lambda a: READERS[reader](again(PARTS[part], a)), torch.randn(3, 4, 2, requires_grad=True))
