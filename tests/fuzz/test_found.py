"""What the fuzzer found: each program went wrong once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager
from programs import parametrize, x

import thunder


def write_to_split(a: torch.Tensor) -> Any:
    first, _ = a.split([1, 2])
    first.unsqueeze(1).fill_(7)
    return a.sum()


def write_to_chunk(a: torch.Tensor) -> Any:
    a.chunk(2, 1)[1][0, 1:] = 7
    return a * 2


def write_to_unbound(a: torch.Tensor) -> Any:
    rows = a.unbind()
    rows[1].zero_()
    return rows[1], a + 1


WRITES = [
    ("split", write_to_split),
    ("chunk", write_to_chunk),
    ("unbind", write_to_unbound),
    ("tensor_split", lambda a: (a.tensor_split(2, 1)[0].neg_(), a * 1)[1]),
    ("number_copied", lambda a: a[0].copy_(1.5)),
]


@parametrize(WRITES)
def test_write_to_one_of_several_views(program: Any) -> None:
    assert_as_eager(program, x(3, 4, grad=False))
    assert_as_eager(program, torch.arange(12).reshape(3, 4))
    assert_as_eager(lambda a: program(a * 1), x(3, 4, grad=False))


def test_written_view_shares_memory_with_what_it_shows() -> None:
    def program(a: torch.Tensor) -> Any:
        b = a * 2
        row = b[0]
        row.neg_()
        return b, row

    b, row = thunder.jit(program)(x(grad=False))
    assert b.data_ptr() == row.data_ptr()


def test_write_through_detach_leaves_no_gradient_below() -> None:
    def program(a: torch.Tensor) -> Any:
        a.detach().mul_(a)
        return a * 1

    assert_as_eager(program, x())


PLACES = [
    ("diagonal", lambda a: a.fill_diagonal_(0.5)),
    ("diagonal_by_itself", lambda a: a.as_strided((3,), (5,)).add_(a[:, 0].exp())),
    ("unfold", lambda a: a.unfold(0, 1, 2).mul_(3)),
]


@parametrize(PLACES)
def test_gradient_of_what_is_written_at_places_in_memory(program: Any) -> None:
    def of_a_value(a: torch.Tensor) -> Any:
        b = a.sin()
        program(b)
        return b * 2

    assert_as_eager(of_a_value, x())


METADATA = [
    ("dense_dim", lambda a: (a.dense_dim(), a.sparse_dim())),
    ("is_set_to", lambda a: (a.is_set_to(a), a.is_set_to(a[0]))),
]


@parametrize(METADATA)
def test_questions_about_metadata(program: Any) -> None:
    assert_as_eager(lambda a: (program(a), a + 1), x())


def test_operator_that_gives_no_tensor_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="call it outside"):
        thunder.jit(lambda a: a.is_pinned())(x())


def read_in_grad(a: torch.Tensor) -> torch.Tensor:
    return (a * a.sum().item()).sum()


@pytest.mark.parametrize("transform", [thunder.grad, lambda f: thunder.jit(torch.func.grad(f))], ids=["own", "func"])
def test_number_read_in_a_differentiated_function(transform: Any) -> None:
    a = x(grad=False)
    gradient = transform(read_in_grad)
    for argument in (a, a * 2):
        torch.testing.assert_close(gradient(argument), torch.func.grad(read_in_grad)(argument))


def test_number_of_an_outer_tensor_read_in_nested_transforms() -> None:
    def program(module: Any, i: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        inner = module.grad(lambda v: v[i] * v.sum() * i.item())
        return module.grad(lambda v: inner(v).sum())(a)

    i, a = torch.tensor(1), torch.arange(3.0)
    torch.testing.assert_close(thunder.jit(program)(thunder, i, a), program(torch.func, i, a))


def test_input_that_no_cotangent_reaches_gets_no_gradient() -> None:
    f = thunder.jit(lambda a, b: (a * 2, b * 3, a * b))
    for position in range(3):
        a, b = x(), x()
        f(a, b)[position].sum().backward()
        assert (a.grad is None) == (position == 1)
        assert (b.grad is None) == (position == 0)


SECOND_DERIVATIVES = [
    ("slogdet", lambda a: torch.linalg.slogdet(a)[1]),
    ("det", lambda a: torch.linalg.det(a)),
    ("logit", lambda a: a.sigmoid().logit().square().sum()),
    ("mish", lambda a: torch.nn.functional.mish(a).sum()),
]


@parametrize(SECOND_DERIVATIVES)
def test_second_derivative_follows_factors_of_the_forward(program: Any) -> None:
    a = x(3, 3, grad=False) + torch.eye(3)

    def second(module: Any) -> Any:
        return lambda a: module.grad(lambda b: module.grad(program)(b).square().sum())(a)

    for got in (second(thunder)(a), thunder.jit(second(torch.func))(a)):
        torch.testing.assert_close(got, second(torch.func)(a), rtol=1e-4, atol=1e-4)

    def inside(a: torch.Tensor) -> torch.Tensor:
        (gradient,) = torch.autograd.grad(program(a), a, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), a)[0]

    got = thunder.jit(inside)(a.clone().requires_grad_())
    torch.testing.assert_close(got, second(torch.func)(a), rtol=1e-4, atol=1e-4)


def test_number_among_tensors() -> None:
    assert_as_eager(lambda a: (torch.isin(1.0, a), a != torch.isin(1.0, a, invert=True)), x(grad=False))


@pytest.mark.parametrize("index", [slice(-1, None), slice(2, 0), slice(-5, 2), slice(-1, None, 2)])
def test_write_to_a_slice_under_vmap(index: slice) -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        b = a * 1
        b[index] = 0.5
        return b

    a = x(3, 4, grad=False)
    torch.testing.assert_close(thunder.vmap(program)(a), torch.stack([program(row) for row in a]))


def test_trace_with_a_custom_gradient_runs() -> None:
    f = thunder.jit(torch.nn.functional.cosine_similarity)
    a, b = x(), x()
    expected = f(a, b)
    (result, *_) = thunder.last_traces(f)[-1].python_callable()(a, b)
    torch.testing.assert_close(result, expected.detach())


def test_trace_of_a_copied_number_runs() -> None:
    f = thunder.jit(lambda a: (a * 1).copy_(1.5))
    f(x(grad=False))
    torch.testing.assert_close(thunder.last_traces(f)[0].python_callable()(x(grad=False))[0], torch.full((3, 4), 1.5))
