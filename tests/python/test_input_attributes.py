"""Attributes that a program sets on tensors from outside stay there, as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder


def read_and_delete(x: Any) -> torch.Tensor:
    x.extra = 3
    del x.extra
    return x * (2 + hasattr(x, "extra"))


def count(x: Any) -> torch.Tensor:
    x.count = getattr(x, "count", 0) + 1
    return x * x.count


def keep(x: Any) -> torch.Tensor:
    x.kept = x + 1
    return x.kept * 1


def item_of_dict(x: Any) -> torch.Tensor:
    x.__dict__["count"] = x.__dict__.get("count", 0) + 1
    return x * x.count


def update_of_dict(x: Any) -> torch.Tensor:
    vars(x).update(count=len(vars(x)) + 1)
    return x * x.count


def default_of_dict(x: Any) -> torch.Tensor:
    vars(x).setdefault("calls", []).append(1)
    return x * len(x.calls)


def missing(x: Any) -> torch.Tensor:
    try:
        del x.missing
    except AttributeError:
        return x * 5
    return x


PROGRAMS = [read_and_delete, count, keep, item_of_dict, update_of_dict, default_of_dict, missing]


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("program", PROGRAMS)
def test_attribute_of_an_input_is_eagers(program: Callable[[Any], torch.Tensor]) -> None:
    compiled = thunder.jit(program)
    left, right = torch.ones(2), torch.ones(2)
    for _ in range(3):
        assert repr(compiled(left)) == repr(program(right))
        assert repr(vars(left)) == repr(vars(right))


@pytest.mark.parametrize("program", [count, item_of_dict, update_of_dict, default_of_dict])
def test_attribute_that_is_set_on_an_input_is_refused(program: Callable[[Any], torch.Tensor]) -> None:
    x = torch.ones(2)
    with pytest.raises(NotImplementedError, match="attribute"):
        thunder.jit(program, fullgraph=True)(x)
    assert not vars(x)


def test_attribute_of_a_result_is_made_at_each_call() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y: Any = x + 1
        y.tag = [x]
        return y

    compiled = thunder.jit(program, fullgraph=True)
    for _ in range(2):
        x = torch.ones(2)
        assert compiled(x).tag[0] is x
