"""`copy.copy` and `copy.deepcopy` of tensors and modules inside of a program."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager
from torch import nn

import thunder


def deepcopy_then_write(x: torch.Tensor) -> Any:
    copied = copy.deepcopy(x)
    with torch.no_grad():
        copied.add_(1)
    return copied * 2, x * 3


def deepcopy_of_views_shares_memory(x: torch.Tensor) -> Any:
    y = x.detach() * 1
    copied = copy.deepcopy([y, y, y[1:], {"transposed": y.t()}])
    copied[0].mul_(2)
    return copied[0] is copied[1], copied[1:], y


def deepcopies_apart_share_nothing(x: torch.Tensor) -> Any:
    y = x.detach() * 1
    first, second = copy.deepcopy(y), copy.deepcopy(y[1:])
    first.zero_()
    return first, second, y


def deepcopy_keeps_gradient_and_attributes(x: torch.Tensor) -> Any:
    y = torch.ones(2).requires_grad_()
    (y * 3).sum().backward()
    y.label = "mine"
    copied = copy.deepcopy(y)
    copied.grad.add_(1)
    return copied.grad * x.sum(), y.grad * 1, copied.label, copied.requires_grad


def deepcopy_of_what_has_a_history(x: torch.Tensor) -> Any:
    return copy.deepcopy(x.clone().requires_grad_() * 2)


def copy_shares_memory(x: torch.Tensor) -> Any:
    y = x.detach() * 1
    copied = copy.copy(y)
    copied.add_(1)
    return copied * 1, y, copied is y


def copy_is_a_leaf(x: torch.Tensor) -> Any:
    copied = copy.copy(x * 2)
    return copied.is_leaf, copied.requires_grad, copied.detach() * 1


PROGRAMS = [
    deepcopy_then_write,
    deepcopy_of_views_shares_memory,
    deepcopies_apart_share_nothing,
    deepcopy_keeps_gradient_and_attributes,
    deepcopy_of_what_has_a_history,
    copy_shares_memory,
    copy_is_a_leaf,
]


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_copies_are_as_in_eager(program: Callable[..., Any], requires_grad: bool) -> None:
    assert_as_eager(program, torch.randn(3, 3, requires_grad=requires_grad))


@pytest.mark.parametrize("copies", [copy.copy, copy.deepcopy])
def test_copies_of_meta_tensors_share_memory_as_in_eager(copies: Callable[[Any], Any]) -> None:
    def shared(program: Callable[[Any], Any]) -> list[Any]:
        x = torch.ones(3, 2, device="meta")[:, :1]
        copied = program(x)
        return [copied.stride(), copied.requires_grad, copied.untyped_storage()._cdata == x.untyped_storage()._cdata]

    assert shared(thunder.jit(lambda x: copies(x))) == shared(copies)


class Teacher(nn.Module):
    """Steps a copy of its student, as methods with a momentum encoder do."""

    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        teacher = copy.deepcopy(self.student)
        with torch.no_grad():
            for parameter in teacher.parameters():
                parameter.mul_(0.5)
        return self.student(x) - teacher(x).detach()


def test_deepcopy_of_a_module_leaves_the_module_alone() -> None:
    assert_as_eager(Teacher(), torch.randn(4, 3, requires_grad=True), misses=None)


def test_deepcopy_of_inputs_that_share_memory_is_refused() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        return copy.deepcopy([x, y])

    x = torch.randn(4)
    with pytest.raises(NotImplementedError, match="copies of inputs that share memory"):
        thunder.jit(program, fullgraph=True)(x, x[1:])


def test_pickle_of_a_tensor_inside_is_refused() -> None:
    with pytest.raises(Exception, match="pickling"):
        thunder.jit(lambda x: pickle.loads(pickle.dumps(x)) + 1, fullgraph=True)(torch.randn(3))


def test_write_to_an_attribute_that_cannot_be_written_is_no_effect() -> None:
    def program(x: torch.Tensor) -> Any:
        caught = 0
        for owner, name in ((set, "attribute"), (slice(1), "start"), (program, "__closure__")):
            try:
                setattr(owner, name, 1)
            except (TypeError, AttributeError):
                caught += 1
        return x + caught

    assert_as_eager(program, torch.randn(3))
