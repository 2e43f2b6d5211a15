"""Gradient modes inside and around a program, and what is refused inside."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager
from programs import Function, named, parametrize, x
from torch.nn import functional as F

import thunder


def mode_no_grad_inside(a: torch.Tensor) -> Any:
    with torch.no_grad():
        b = a * 2
    return b, a * b


def mode_no_grad_decorated(a: torch.Tensor) -> Any:
    @torch.no_grad()
    def inner(t: torch.Tensor) -> torch.Tensor:
        return t * 2

    return inner(a) * a


def mode_enable_grad_inside_no_grad(a: torch.Tensor) -> Any:
    with torch.no_grad():
        with torch.enable_grad():
            b = a * 2
        c = b * 2
    return b, c


def mode_set_grad_enabled(a: torch.Tensor) -> Any:
    with torch.set_grad_enabled(False):
        b = a * 2
    return b + a, torch.is_grad_enabled()


def mode_inference_mode_inside(a: torch.Tensor) -> Any:
    with torch.inference_mode():
        b = (a * 2).sum()
    return b, b.is_inference(), a * 3


def mode_detach(a: torch.Tensor) -> Any:
    return a.detach() * a, a.detach()


def mode_requires_grad_inside(a: torch.Tensor) -> Any:
    b = (a.detach() * 2).requires_grad_()
    return b * 3 + a, b.requires_grad


def mode_new_leaf_returned(a: torch.Tensor) -> Any:
    return (a.detach() * 2).requires_grad_()


def mode_stop_gradient_trick(a: torch.Tensor) -> Any:
    return a + (a.round() - a).detach()


def mode_branch_on_requires_grad(a: torch.Tensor) -> Any:
    b = a * 2
    return b + 1 if b.requires_grad and b.grad_fn is not None and not b.is_leaf and a.is_leaf else b - 1


def mode_autocast_inside(a: torch.Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        b = a @ a.t()
        c = b.softmax(-1)
        with torch.autocast("cpu", enabled=False):
            d = a @ a.t()
    return b, c, d, b + d


def mode_saved_tensor_hooks(a: torch.Tensor) -> Any:
    with contextlib.suppress(ValueError):
        b = a.sin()
        raise ValueError
    return b


def mode_view_looked_at_without_gradients(a: torch.Tensor) -> Any:
    b = a * 1
    first, flat = b[0], b.view(-1)
    with torch.no_grad():
        b.add_(1)
        looked = first * 2 + flat.sum()
    return first * 2, flat * 3, looked, b


def mode_leaf_made_in_inference_mode(a: torch.Tensor) -> Any:
    with torch.inference_mode():
        b = torch.zeros(3, requires_grad=True)
        c = (a * 2).detach().requires_grad_()
    return b, b.requires_grad, b.is_leaf, c


def mode_view_looked_at_in_inference_mode(a: torch.Tensor) -> Any:
    b = a * 1
    first = b[0]
    with torch.inference_mode():
        b.mul_(2)
        _ = first + 1
    return first * 2, b


MODES = [f for name, f in sorted(globals().items()) if name.startswith("mode_")]


@parametrize([named(f) for f in MODES])
def test_grad_mode_inside(program: Function) -> None:
    assert_as_eager(program, x())


def test_tensor_made_in_inference_mode_is_refused_by_autograd() -> None:
    def f(a: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return a * 2

    compiled = thunder.jit(f)
    for _ in range(2):
        made = compiled(x())
        assert made.is_inference()
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            x() * made


@pytest.mark.parametrize(
    "context",
    [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16), torch.enable_grad],
    ids=["no_grad", "inference_mode", "autocast", "enable_grad"],
)
@parametrize([("linear", lambda a: F.linear(a, a).softmax(-1)), ("product", lambda a: a * a), ("input", lambda a: a)])
def test_grad_mode_around(program: Function, context: Callable[[], Any]) -> None:
    compiled, a = thunder.jit(program), x()
    for _ in range(2):
        with context():
            got, expected = compiled(a), program(a)
        torch.testing.assert_close(got, expected)
        assert got.requires_grad == expected.requires_grad
        assert got.is_inference() == expected.is_inference()


@pytest.mark.filterwarnings("error::thunder.EagerFallbackWarning")
def test_results_from_before_gradients_are_switched_off_have_a_history() -> None:
    def program(a: torch.Tensor) -> Any:
        b = a + 3
        torch.set_grad_enabled(False)
        c = torch.func.jacfwd(lambda t: t * 2)(a[0])
        return b, c

    compiled = thunder.jit(program)
    for _ in range(2):
        with torch.enable_grad():
            b, c = compiled(x())
        assert (b.requires_grad, c.requires_grad) == (True, False)


def test_gradients_that_are_enabled_in_inference_mode() -> None:
    linear = torch.nn.Linear(3, 3)

    def program(a: torch.Tensor) -> Any:
        with torch.enable_grad():
            b = linear(a)
        return b, b.requires_grad, linear(a) * b

    compiled = thunder.jit(program, fullgraph=True)
    for _ in range(2):
        with torch.inference_mode():
            got, expected = compiled(torch.ones(2, 3)), program(torch.ones(2, 3))
        torch.testing.assert_close(got, expected)
        assert [each.is_inference() for each in got[::2]] == [each.is_inference() for each in expected[::2]]


@pytest.mark.filterwarnings("error::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("view", [lambda a: a[0], lambda a: a.t()[1].view(-1), lambda a: a.detach()[0]])
def test_views_that_are_made_without_gradients_tell_whether_they_require_grad(view: Function) -> None:
    def program(a: torch.Tensor) -> Any:
        with torch.no_grad():
            part = view(a)
            return part.requires_grad, part.is_leaf, part.grad_fn, repr(part), f"{part[0]}"

    compiled = thunder.jit(program)
    for a in (torch.ones(2, 2), torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)):
        assert compiled(a) == program(a)
        assert compiled(a * 1) == program(a * 1)
