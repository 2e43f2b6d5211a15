"""Tensors made of sequences of numbers and tensors hold what eager's hold, at each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager

import thunder

FACTOR = torch.tensor(3.0)
OUTSIDE = [FACTOR, 2.0]

# a: float32, b: int64, v: float32[2].
PROGRAMS: dict[str, Callable[..., Any]] = {
    "numbers": lambda a, b, v: torch.tensor([a, 1.0, a]),
    "integers": lambda a, b, v: torch.tensor([b, 2]),
    "integers_and_real": lambda a, b, v: torch.tensor([b, 1.5]),
    "several_types": lambda a, b, v: torch.tensor((a, b, True)),
    "nested": lambda a, b, v: torch.tensor([[a, 1], (b, 2)]),
    "deep": lambda a, b, v: torch.tensor([[[a], [b]], [[1], [2]]]),
    "given_type": lambda a, b, v: torch.tensor([a, b], dtype=torch.float64),
    "doubles": lambda a, b, v: torch.tensor([a.double(), a]),
    "halves": lambda a, b, v: torch.tensor([a.half(), a.bfloat16()]),
    "truth": lambda a, b, v: torch.tensor([a > 1, True]),
    "complex": lambda a, b, v: torch.tensor([a, 1j]),
    "requires_grad": lambda a, b, v: (torch.tensor([a, 1.0], requires_grad=True) * v).sum(),
    "is_detached": lambda a, b, v: torch.tensor([(v.requires_grad_() * a).sum().detach(), 2.0]),
    "device": lambda a, b, v: torch.tensor([a, 1.0], device="cpu"),
    "reductions": lambda a, b, v: torch.tensor([v.sum(), v.mean()]) * 2,
    "iterated": lambda a, b, v: torch.tensor([element * 2 for element in v]),
    "as_index": lambda a, b, v: v[torch.tensor([b - b, 1])],
    "as_tensor": lambda a, b, v: torch.as_tensor([a, 1.0], dtype=torch.float64),
    "asarray": lambda a, b, v: torch.asarray([a, 1.0]),
    "new_tensor": lambda a, b, v: v.new_tensor([a, b]),
    "long_type": lambda a, b, v: torch.LongTensor([b, 1]),
    "float_type": lambda a, b, v: torch.FloatTensor([[a], [b]]),
    "bool_type": lambda a, b, v: torch.BoolTensor([a > 1, b > 7]),
    "items": lambda a, b, v: torch.tensor([a.item(), 1, b.item()]),
    "list_from_outside": lambda a, b, v: torch.tensor(OUTSIDE) * v,
    "tensor_from_outside": lambda a, b, v: torch.tensor([FACTOR, a]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_tensor_of_a_sequence_with_tensors(name: str) -> None:
    program = PROGRAMS[name]
    compiled = assert_as_eager(program, torch.tensor(2.5), torch.tensor(3), torch.tensor([1.5, 2.5]))
    other = torch.tensor(0.5), torch.tensor(9), torch.tensor([-1.0, 4.0])
    torch.testing.assert_close(compiled(*other), program(*other))
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("name", ["numbers", "nested", "deep", "device", "as_tensor", "new_tensor", "float_type"])
def test_tensor_of_a_sequence_is_no_view(name: str) -> None:
    made = thunder.jit(PROGRAMS[name])(torch.tensor(2.5), torch.tensor(3), torch.tensor([1.5, 2.5]))
    assert not made._is_view()
    assert made._base is None


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize(
    "program",
    [
        lambda a, v: torch.tensor([v, v]),
        lambda a, v: torch.tensor([v[:1], 2.0]),
        lambda a, v: torch.tensor([[a], [a, 1]]),
        lambda a, v: torch.tensor([a, None]),
        lambda a, v: torch.tensor([a, 2.0], dtype=torch.int32),
        lambda a, v: torch.LongTensor([a]),
    ],
    ids=["rows", "one_element", "ragged", "none", "real_as_integer", "real_as_long_type"],
)
def test_sequence_that_is_not_of_numbers_is_eagers_business(program: Any) -> None:
    assert_as_eager(program, torch.tensor(2.5), torch.tensor([1.5, 2.5]), misses=None)
