"""Which sizes of tensors may change between calls of a jitted function."""

from __future__ import annotations

import torch

__all__ = ["mark_dynamic", "mark_static"]

_MARKS = "_thunder_sizes"


def mark_dynamic(tensor: torch.Tensor, dim: int, *, min: int | None = None, max: int | None = None) -> None:
    """Let the size of dimension `dim` change between calls that `tensor` is an argument of, without a new trace.

    The first call with the tensor is traced for all sizes from `min` (at least two) to `max`. Where the program needs
    the size as a number, it is traced for that number, as without the mark. A call that is traced with a size below
    `min` or above `max` raises ValueError. See docs/dynamic-shapes.md.

    Raises:
        TypeError: it is no tensor, or `dim`, `min` or `max` no int.
        IndexError: the tensor has no such dimension.
        ValueError: `min` is larger than `max`, or one of them negative.

    Example:
        >>> import torch, thunder
        >>> f = thunder.jit(lambda x: torch.softmax(x, -1))
        >>> x = torch.ones(4, 5)
        >>> thunder.mark_dynamic(x, 0)
        >>> f(x).shape, f(torch.ones(9, 5)).shape, thunder.cache_misses(f)
        (torch.Size([4, 5]), torch.Size([9, 5]), 1)
    """
    for name, bound in (("min", min), ("max", max)):
        if bound is None:
            continue
        _require_int(f"thunder.mark_dynamic: {name}", bound)
        if bound < 0:
            raise ValueError(f"thunder.mark_dynamic: {name}: expected a size, got {bound}")
    if min is not None and max is not None and min > max:
        raise ValueError(f"thunder.mark_dynamic: expected min <= max, got {min} and {max}")
    dimension = _dimension("mark_dynamic", tensor, dim)
    _marks(tensor)[dimension] = (min, max)


def mark_static(tensor: torch.Tensor, dim: int) -> None:
    """Trace programs for the size of dimension `dim` of `tensor`, also with `thunder.jit(…, dynamic=True)`.

    Args:
        tensor: an argument of the next call that is traced.
        dim: from `-tensor.ndim` to `tensor.ndim - 1`.

    Raises:
        TypeError: it is no tensor, or `dim` no int.
        IndexError: the tensor has no such dimension.

    Example:
        >>> import torch, thunder
        >>> f = thunder.jit(lambda x: x * 2, dynamic=True)
        >>> x = torch.ones(4, 5)
        >>> thunder.mark_static(x, 1)
        >>> y = f(x)
        >>> thunder.explain_shapes(f)[0].symbols
        ('s0: x.shape[0]',)
    """
    dimension = _dimension("mark_static", tensor, dim)
    _marks(tensor)[dimension] = None


def _dimension(function: str, tensor: torch.Tensor, dim: int) -> int:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"thunder.{function}: expected a tensor, got {tensor!r}")
    _require_int(f"thunder.{function}: dim", dim)
    rank: int = tensor.dim()
    if not -rank <= dim < rank:
        raise IndexError(f"thunder.{function}: expected a dimension of a tensor of {rank}, got {dim}")
    return dim % rank


def _require_int(where: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{where}: expected an int, got {value!r}")


def _marks(tensor: torch.Tensor) -> dict[int, tuple[int | None, int | None] | None]:
    marks: dict[int, tuple[int | None, int | None] | None] | None = getattr(tensor, _MARKS, None)
    if marks is None:
        marks = {}
        setattr(tensor, _MARKS, marks)
    return marks
