"""How tests list small programs that are run beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

Function = Callable[..., Any]


def x(*shape: int, grad: bool = True) -> torch.Tensor:
    """Return random numbers, the same at each start."""
    return torch.randn(*(shape or (3, 4)), generator=torch.Generator().manual_seed(7)).requires_grad_(grad)


def parametrize(programs: list[tuple[str, Function]], known: dict[str, str] | None = None) -> Any:
    """Parametrize by programs; `known`: why some of them do not work yet."""
    marks = {name: [pytest.mark.xfail(strict=True, reason=reason)] for name, reason in (known or {}).items()}
    assert marks.keys() <= {name for name, _ in programs}
    return pytest.mark.parametrize(
        "program", [pytest.param(f, id=name, marks=marks.get(name, [])) for name, f in programs]
    )


def named(f: Function) -> tuple[str, Function]:
    return f.__name__, f


def value_and_gradient(function: Function, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the value of a function of one tensor, and the gradient of its sum."""
    x = x.clone().requires_grad_()
    result = function(x)
    result.sum().backward()
    return result.detach(), x.grad
