"""Programs that Lightning Thunder fixed around PyTorch 2.7, one named test each (see test_reproduction.py too)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager
from programs import x
from torch.nn import functional as F

import thunder

Program = Callable[..., Any]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_decomposition(reduction: str, smoothing: float) -> None:
    target = torch.tensor([1, -100, 3])
    assert_as_eager(
        lambda a, t, w: F.cross_entropy(a, t, w, reduction=reduction, label_smoothing=smoothing),
        x(),
        target,
        torch.rand(4),
    )
    assert_as_eager(lambda a, t: F.cross_entropy(a, t.softmax(1), reduction=reduction), x(), x(grad=False))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dim", [0, -1])
def test_topk(largest: bool, dim: int) -> None:
    assert_as_eager(lambda a: a.topk(2, dim, largest), x())
    assert_as_eager(lambda a: torch.topk(a, k=3, dim=dim, largest=largest, sorted=True)[0].sum(), x(4, 4))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_bitwise_shifts(dtype: torch.dtype) -> None:
    def program(a: torch.Tensor, b: torch.Tensor) -> Any:
        c = a.clone()
        c <<= 1
        return a << b, a >> b, a << 2, 2 << b, torch.bitwise_left_shift(a, b), torch.bitwise_right_shift(a, 1), c

    assert_as_eager(program, torch.tensor([1, 7, 100], dtype=dtype), torch.tensor([0, 1, 3], dtype=dtype))


def test_in_place_data_flow_inside_of_higher_order_functions() -> None:
    def body(a: torch.Tensor) -> torch.Tensor:
        b = a * a
        b[0] = 0
        b[1:].add_(a[1:])
        return b.mul_(2)

    assert_as_eager(lambda a: torch.utils.checkpoint.checkpoint(body, a, use_reentrant=False), x())
    assert_as_eager(lambda a: torch.func.vmap(body)(a), x(2, 3, 4))
    assert_as_eager(lambda a: torch.func.grad(lambda t: body(t).sum())(a), x())
    assert_as_eager(lambda a: torch.cond(a.sum() > 0, body, lambda t: t.neg(), (a,)), x(grad=False))


def test_shape_dtype_and_device_are_checked_when_traced_and_again_at_each_call() -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        if a.dtype == torch.float64 or a.shape[0] > 3 or a.device.type == "meta":
            return a * 2
        return a + 1

    compiled = thunder.jit(program)
    arguments = [
        torch.ones(3),
        torch.ones(4),
        torch.ones(3, dtype=torch.float64),
        torch.ones(3, device="meta"),
        torch.ones(3, dtype=torch.int64),
    ]
    for expected_misses in (len(arguments), len(arguments)):
        for argument in arguments:
            got, expected = compiled(argument), program(argument)
            assert (got.dtype, got.shape, got.device) == (expected.dtype, expected.shape, expected.device)
            if not got.is_meta:
                torch.testing.assert_close(got, expected)
        assert thunder.cache_misses(compiled) == expected_misses
    prologue = str(thunder.last_prologue_traces(compiled)[-1])
    assert "check_tensor" in prologue
    assert "program" not in str(thunder.last_traces(compiled)[-1]).split("def ")[0]


@pytest.mark.parametrize("dtype", [None, torch.float64, torch.bfloat16])
def test_empty_like_and_rand_like(dtype: torch.dtype | None) -> None:
    assert_as_eager(lambda a: (torch.rand_like(a, dtype=dtype), torch.randn_like(a) * a), x())
    assert_as_eager(lambda a: torch.empty_like(a, dtype=dtype).fill_(2), x(grad=False).t())
    assert_as_eager(lambda a: torch.rand_like(a, memory_format=torch.preserve_format), x(4, 3, grad=False).t())


def test_repeat_interleave() -> None:
    assert_as_eager(lambda a: (a.repeat_interleave(2), torch.repeat_interleave(a, 3, dim=1)), x())
    assert_as_eager(lambda a, n: a.repeat_interleave(n, dim=0), x(), torch.tensor([0, 2, 1]))
    assert_as_eager(lambda a, n: a.repeat_interleave(n, dim=0, output_size=3), x(), torch.tensor([0, 2, 1]))


INDEXING: dict[str, Program] = {
    "basic": lambda a, i, m: (a[1], a[-1, 2], a[..., None, 1:], a[::2, :-1], a[None, 1]),
    "advanced": lambda a, i, m: (a[i], a[i, i], a[[0, 2]], a[m], a[i[:, None], torch.tensor([[0, 3]])]),
    "mixed": lambda a, i, m: (a[1:, i], a[i, 1:], a[i, None, ..., 2], a[None, i, :2], a[:, [1, 3]][1]),
    "basic_write": lambda a, i, m: (b := a * 1, b.__setitem__((slice(1, None), 0), 5.0), b)[2],
    "advanced_write": lambda a, i, m: (b := a * 1, b.__setitem__((i, i), 5.0), b.__setitem__(m, 0.0), b)[3],
    "mixed_write": lambda a, i, m: (b := a * 1, b.__setitem__((slice(None), i), a[:, :2] * 2), b)[2],
}


@pytest.mark.parametrize("name", INDEXING)
def test_indexing(name: str) -> None:
    assert_as_eager(INDEXING[name], x(), torch.tensor([2, 0]), torch.tensor([True, False, True]))


class Scaled:
    """Methods made by partialmethod."""

    def scale(self, a: torch.Tensor, factor: float, *, shift: float = 0.0) -> torch.Tensor:
        return a * factor + shift

    double = functools.partialmethod(scale, factor=2.0)
    shifted = functools.partialmethod(scale, shift=1.0)


def test_partial_and_partialmethod() -> None:
    assert_as_eager(lambda a: functools.partial(torch.add, a, alpha=2)(a.sin()), x())
    assert_as_eager(functools.partial(Scaled().scale, factor=3.0), x())
    assert_as_eager(lambda a: Scaled().double(a) + Scaled().shifted(a, 4.0), x())


def test_keyword_arguments_of_gather() -> None:
    index = torch.tensor([[3, 0], [1, 1], [2, 0]])
    assert_as_eager(lambda a, i: torch.gather(input=a, dim=1, index=i), x(), index)
    assert_as_eager(lambda a, i: torch.gather(a, index=i, dim=-1, sparse_grad=False), x(), index)


def test_cache_is_valid_for_one_grad_mode_autocast_state_and_dtype() -> None:
    compiled = thunder.jit(lambda a, b: a @ b)
    a, b = x(3, 4), x(4, 2)
    contexts: list[Program] = [
        torch.enable_grad,
        torch.no_grad,
        functools.partial(torch.autocast, "cpu", torch.bfloat16),
        functools.partial(torch.autocast, "cpu", torch.float16),
    ]
    for _ in range(2):
        for context in contexts:
            with context():
                got, expected = compiled(a, b), a @ b
            assert (got.dtype, got.requires_grad) == (expected.dtype, expected.requires_grad)
            torch.testing.assert_close(got, expected)
        assert compiled(a.double(), b.double()).dtype == torch.float64
        assert thunder.cache_misses(compiled) == len(contexts) + 1
