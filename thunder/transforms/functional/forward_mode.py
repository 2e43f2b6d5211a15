"""`jvp`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder.transforms.functional.structures import by_identity, compiled, is_called_in_a_trace

__all__ = ["jvp"]


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """Return `(func(*primals), tangents of the output)`; with `has_aux`, `(output, tangents, aux)`.

    Args:
        func: returns tensors, or containers of them.
        primals: a tuple of tensors, or of containers of them.
        tangents: of the structure and the shapes of `primals`.
        strict: raise RuntimeError where a result does not depend on the primals.
        has_aux: `func` returns a pair: what is differentiated, and other tensors.

    Example:
        >>> import torch, thunder
        >>> thunder.jvp(torch.square, (torch.tensor(3.0),), (torch.tensor(1.0),))
        (tensor(9.), tensor(6.))
    """
    if is_called_in_a_trace():
        return torch.func.jvp(func, primals, tangents, strict=strict, has_aux=has_aux)
    return _compiled_jvp(func, strict, has_aux)(primals, tangents)


@by_identity
def _compiled_jvp(func: Callable[..., Any], strict: bool, has_aux: bool) -> Callable[..., Any]:
    def pushed(primals: Any, tangents: Any) -> Any:
        return torch.func.jvp(func, primals, tangents, strict=strict, has_aux=has_aux)

    return compiled("jvp", pushed, func)
