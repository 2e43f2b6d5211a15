"""`thunder.examine(fn, *args)`: a module that can be called; it has Lightning Thunder's functions of that name too."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from thunder._arguments import shown
from thunder._elsewhere import attribute_of
from thunder.examine.examination import Examination, is_fusion
from thunder.examine.examination import examine as _examine
from thunder.trace import BoundSymbol, Trace, part_of

__all__ = ["Examination", "examine", "get_fusion_symbols", "get_fusions"]


def examine(fn: Any, *args: Any, **kwargs: Any) -> None:
    """Print what `thunder.examine` returns."""
    print(_examine(fn, *args, **kwargs))


def get_fusion_symbols(trace: Trace) -> list[BoundSymbol]:
    """Return the fusions of a trace, in order."""
    return [symbol for symbol in trace.bound_symbols if is_fusion(symbol)]


def get_fusions(trace: Trace) -> list[tuple[str, Callable[..., Any]]]:
    """Return the fusions of a trace, in order: a name, and a function that runs what it computes with PyTorch.

    Raises:
        TypeError: `trace` is no `thunder.Trace`.

    Example:
        >>> import torch, thunder
        >>> f = thunder.jit(lambda x: torch.sin(x) * 2)
        >>> y = f(torch.zeros(2))
        >>> [(name, run)] = thunder.examine.get_fusions(thunder.last_traces(f)[-1])
        >>> name, run(torch.zeros(2))
        ('cpu_fusion0', (tensor([0., 0.]),))
    """
    if not isinstance(trace, Trace):
        raise TypeError(
            f"thunder.examine.get_fusions: expected a thunder.Trace, got {shown(trace)}; "
            "thunder.last_traces(fn)[-1] is one"
        )
    found = []
    for number, symbol in enumerate(get_fusion_symbols(trace)):
        owner = str(symbol.args[0]) if symbol.name == "prims.fused" else symbol.comment.replace(".", "_")
        name = f"{owner}_fusion{number}"
        found.append((name, part_of(trace, [symbol], name).python_callable()))
    return found


__getattr__ = attribute_of(__name__)


class _Callable(types.ModuleType):
    def __call__(self, fn: Any, *args: Any, **kwargs: Any) -> Examination:
        return _examine(fn, *args, **kwargs)


_Callable.__call__.__doc__ = _examine.__doc__
sys.modules[__name__].__class__ = _Callable
