"""Indexing, views, memory formats: values, strides and shared memory are as in eager."""

from __future__ import annotations

import contextlib
import functools
import math
import random
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager
from programs import Function, parametrize, x
from torch.nn import functional as F

import thunder

INDEXING = [
    ("int", lambda a: a[1]),
    ("negative", lambda a: a[-1, -2]),
    ("slice", lambda a: a[1:, ::2]),
    ("ellipsis", lambda a: a[..., 0]),
    ("none", lambda a: a[None, :, None]),
    ("list", lambda a: a[[0, 2, 2]]),
    ("two_lists", lambda a: a[[0, 2], [1, 3]]),
    ("list_and_slice", lambda a: a[:, [3, 0]]),
    ("tensor", lambda a: a[torch.tensor([2, 0])]),
    ("two_tensors", lambda a: a[torch.arange(3)[:, None], torch.tensor([[0, 3]])]),
    ("bool_list", lambda a: a[[True, False, True]]),
    ("true", lambda a: a[True]),
    ("python_range", lambda a: a[range(2)]),
    ("zero_dim_tensor", lambda a: a[torch.tensor(1)]),
    ("numbers_of_shape", lambda a: a[: a.shape[0] - 1, a.size(1) // 2 :]),
    ("narrow", lambda a: a.narrow(1, 1, 2)),
    ("select", lambda a: a.select(0, 1)),
    ("unbind", lambda a: a.unbind(1)),
    ("iterate", lambda a: [row * 2 for row in a]),
    ("unpack", lambda a: (lambda p, q, r: p + q * r)(*a)),
    ("take_along_dim", lambda a: a.take_along_dim(a.argsort(1), 1)),
    ("gather", lambda a: a.gather(1, torch.tensor([[3, 0], [1, 1], [2, 0]]))),
    ("index_select", lambda a: a.index_select(1, torch.tensor([3, 3]))),
    ("where", lambda a: torch.where(a > 0, a, 0.0)),
    ("where_tensors", lambda a: torch.where(a > 0, a * 2, -a)),
    ("masked_fill", lambda a: a.masked_fill(a > 0, -math.inf)),
    ("scatter_add", lambda a: torch.zeros(3, 4).scatter_add(1, torch.zeros(3, 4, dtype=torch.long), a)),
    ("scatter_reduce", lambda a: torch.ones(4).scatter_reduce(0, torch.tensor([0, 1, 1, 3]), a[0], "amax")),
    ("index_add", lambda a: a.index_add(0, torch.tensor([1, 1]), a[:2])),
    ("index_put", lambda a: a.index_put((torch.tensor([0]), torch.tensor([1])), torch.tensor(5.0))),
    ("topk", lambda a: a.topk(2, dim=1)),
    ("sort", lambda a: a.sort(dim=1, descending=True)),
    ("max_dim", lambda a: a.max(dim=1)),
    ("diagonal", lambda a: a.diagonal()),
    ("tril", lambda a: a.tril() + a.triu(1)),
    ("roll", lambda a: a.roll((1, 1), (0, 1))),
    ("flip", lambda a: a.flip(0)),
    ("unfold", lambda a: a.unfold(1, 2, 1)),
]


@parametrize(INDEXING)
def test_indexing(program: Function) -> None:
    assert_as_eager(program, x())


# ------------------------------------------------------------------------------------------------- views

VIEWS = [
    ("transpose", lambda a: a.t()),
    ("permute", lambda a: a.view(1, 3, 4).permute(2, 0, 1)),
    ("reshape", lambda a: a.reshape(2, -1)),
    ("reshape_of_transposed", lambda a: a.t().reshape(-1)),
    ("flatten", lambda a: a.flatten()),
    ("expand", lambda a: a[:, None].expand(3, 5, 4)),
    ("split", lambda a: a.split([1, 3], dim=1)),
    ("chunk", lambda a: a.chunk(2, 1)),
    ("as_strided", lambda a: a.as_strided((2, 2), (4, 1), 1)),
    ("unsqueeze_squeeze", lambda a: a.unsqueeze(1).squeeze(1)),
    ("view_as", lambda a: a.view_as(a)),
    ("contiguous", lambda a: a.t().contiguous()),
    ("mT", lambda a: a.mT),
    ("T", lambda a: a.T),
    ("movedim", lambda a: a.movedim(0, 1)),
    ("view_dtype", lambda a: a.detach().view(torch.int32)),
    ("to_same", lambda a: a.to(torch.float32)),
    ("to_copy", lambda a: a.to(torch.float32, copy=True)),
    ("to_double", lambda a: a.double()),
    ("type_as", lambda a: a.type_as(torch.ones(1, dtype=torch.float64))),
    ("broadcast_tensors", lambda a: torch.broadcast_tensors(a, torch.ones(1, 4))),
    ("input_and_its_view", lambda a: (a, a[0])),
    ("data", lambda a: a.data * 2),
]


@parametrize(VIEWS)
def test_view_returned(program: Function) -> None:
    assert_as_eager(program, x())


def test_returned_view_shares_memory_with_the_input() -> None:
    a = x(grad=False)
    view = thunder.jit(lambda a: a.view(-1)[2:])(a)
    view.zero_()
    assert a.flatten()[2:].eq(0).all()


def test_two_returned_views_share_memory() -> None:
    def program(a: torch.Tensor) -> Any:
        b = a * 2
        return b, b.t()

    b, transposed = thunder.jit(program)(x(grad=False))
    b.zero_()
    assert transposed.eq(0).all()


@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
@parametrize(
    [
        ("pointwise", lambda a: a * 2 + 1),
        ("conv", lambda a: F.conv2d(a, torch.ones(2, 3, 3, 3), padding=1)),
        ("pool", lambda a: F.max_pool2d(a, 2)),
        ("clone", lambda a: a.clone()),
        ("ones_like", lambda a: torch.ones_like(a) * a),
        ("interpolate", lambda a: F.interpolate(a, scale_factor=2, mode="bilinear")),
        ("softmax", lambda a: a.softmax(1)),
        ("is_contiguous", lambda a: a if a.is_contiguous() else a * 2),
        ("stride", lambda a: a * a.stride(1)),
    ]
)
def test_memory_format(program: Function, memory_format: torch.memory_format) -> None:
    assert_as_eager(program, x(2, 3, 4, 4, grad=False).to(memory_format=memory_format).requires_grad_())


RESHAPES = [
    ("heads_split", lambda a: (a + 1).transpose(1, 2).reshape(2, a.shape[2], 12).view(2, a.shape[2], 3, 4)),
    ("heads_to_rows", lambda a: (a + 1).transpose(1, 2).reshape(2, a.shape[2], 12).view(2 * a.shape[2], 12)),
    ("flat_between", lambda a: (a * 2).transpose(0, 3).flatten().view(4, 3, a.shape[2], 2)),
    ("strided", lambda a: (a * 2)[:, ::2].reshape(2, -1).view(2, 2, -1, 4)),
    ("expanded", lambda a: a.sum(1, keepdim=True).expand(2, 3, -1, 4).reshape(2, -1).view(2, 3, -1, 4)),
    ("of_the_input", lambda a: a.transpose(1, 2).reshape(2, -1).view(2, a.shape[2], 3, 4)),
    ("then_a_view", lambda a: (a + 1).transpose(1, 2).reshape(2, a.shape[2], 12).view(2, a.shape[2], 3, 4).view(-1)),
    ("written", lambda a: (a + 1).transpose(1, 2).reshape(2, -1).view(2, a.shape[2], 3, 4).mul_(2)),
    (
        "strides_read",
        lambda a: torch.as_strided(
            (a + 1).transpose(1, 2).reshape(2, -1).view(2, -1, 3, 4).sigmoid(), (2, a.shape[2], 3, 4), (2, 3, 4, 1)
        ),
    ),
]


@pytest.mark.parametrize("grad", [True, False])
@parametrize(RESHAPES)
def test_views_of_a_reshape_that_copies(program: Function, grad: bool) -> None:
    jitted = thunder.jit(program)
    for size in (4, 5, 6, 7, 1):
        torch.manual_seed(size)
        a = torch.randn(2, 3, size, 4, requires_grad=grad)
        want, got = program(a), jitted(a)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
        assert (got.data_ptr() == a.data_ptr()) == (want.data_ptr() == a.data_ptr())
    assert thunder.compile_stats(jitted)["eager_calls"] == 0
    assert thunder.compile_stats(jitted)["specializations"] <= 3


def _divided(draw: random.Random, elements: int) -> list[int]:
    """Draw sizes of a tensor with so many elements."""
    sizes = []
    while elements > 1 or draw.random() < 0.3:
        sizes.append(draw.choice([size for size in range(1, elements + 1) if elements % size == 0]))
        elements //= sizes[-1]
    return sizes


def _random_reshapes(seed: int) -> Function:
    """Return a program of transpositions, slices and reshapes, each of which eager accepts."""
    draw = random.Random(seed)
    steps: list[tuple[str, tuple[Any, ...]]] = []
    a = torch.arange(48.0).view(2, 4, 1, 6)
    for _ in range(8):
        dim = draw.randrange(a.dim()) if a.dim() > 0 else 0
        step: tuple[str, tuple[Any, ...]]
        match draw.choice(["transpose", "narrow", "reshape", "reshape", "view", "view", "add", "unsqueeze"]):
            case "transpose":
                step = ("transpose", (dim, -1))
            case "narrow":
                step = ("narrow", (dim, 0, max(a.shape[dim] - 1, 1) if a.dim() > 0 else 1))
            case "add":
                step = ("add", (1,))
            case "unsqueeze":
                step = ("unsqueeze", (dim,))
            case kind:
                step = (kind, (_divided(draw, a.numel()),))
        with contextlib.suppress(RuntimeError, IndexError):
            a = getattr(a, step[0])(*step[1])
            steps.append(step)
    return lambda a: functools.reduce(lambda value, step: getattr(value, step[0])(*step[1]), steps, a)


@pytest.mark.parametrize("seed", range(12))
def test_random_reshapes_have_the_strides_of_eager(seed: int) -> None:
    for number in range(5):
        program = _random_reshapes(5 * seed + number)
        a = torch.arange(48.0).view(2, 4, 1, 6)
        with torch.no_grad():
            want, got = program(a), thunder.jit(program, fullgraph=True)(a)
        assert torch.equal(got, want)
        assert got.stride() == want.stride()
        assert (got.data_ptr() == a.data_ptr()) == (want.data_ptr() == a.data_ptr())
