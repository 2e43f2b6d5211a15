"""Compares what a trace says of results, dtypes and strides, with what PyTorch's kernels give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

import thunder
from thunder.trace import BoundSymbol, Trace, Value

Tensor = torch.Tensor


def tensors_in(structure: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(structure) if isinstance(leaf, Tensor)]


def _with_values(argument: Any, known: Mapping[str, Any]) -> Any:
    return pytree.tree_map(lambda leaf: known[leaf.name] if isinstance(leaf, Value) else leaf, argument)


def _run(symbol: BoundSymbol, known: dict[str, Any]) -> Iterator[tuple[Value, Any]]:
    """Run an operation; yield its results, each with what the trace says of it."""
    if symbol.name == "prims.tensor_constant":
        yield symbol.results[0], symbol.args[0]
        return
    library, *name, overload = symbol.name.split(".")
    operator = getattr(getattr(getattr(torch.ops, library), ".".join(name)), overload)
    with torch.no_grad():
        given = operator(*_with_values(tuple(symbol.args), known), **_with_values(symbol.kwargs, known))
    given = [given] if len(operator._schema.returns) == 1 else given or []
    for result, value in zip(symbol.results, given, strict=False):
        pairs = zip(result, value, strict=True) if isinstance(result, list | tuple) else [(result, value)]
        yield from ((said, made) for said, made in pairs if isinstance(said, Value))


def _differences(trace: Trace, known: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Run a trace; yield operations whose results are not as the trace says, with what differs."""
    for symbol in trace.bound_symbols:
        for said, made in _run(symbol, known):
            known[said.name] = made
            if not said.is_tensor or not isinstance(made, Tensor):
                continue
            name = symbol.name.removeprefix("aten.").split(".")[0]
            if made.dtype != said.dtype:
                yield name, f"dtype {made.dtype}, said {said.dtype}"
            steps = zip(made.shape, made.stride(), said.stride(), strict=True)
            if tuple(made.shape) != tuple(said.shape):
                yield name, f"shape {tuple(made.shape)}, said {said.shape}"
            elif made.numel() and any(size > 1 and one != other for size, one, other in steps):
                yield name, f"strides {made.stride()} of {tuple(made.shape)}, said {said.stride()}"


def _inputs(trace: Trace, given: list[Tensor]) -> dict[str, Any]:
    left, known = list(given), {}
    for said in trace.inputs:
        like = (tuple(said.shape), tuple(said.stride()), said.dtype)
        place = next(i for i, x in enumerate(left) if (tuple(x.shape), x.stride(), x.dtype) == like)
        known[said.name] = left.pop(place).detach()
    return known


def differences(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the operations of a program, and of its derivative, of which the traces say something wrong."""
    compiled = thunder.jit(function, fullgraph=True)
    results = [x for x in tensors_in(compiled(*args, **kwargs)) if x.requires_grad]
    given = tensors_in((args, kwargs))
    traces = thunder.last_traces(compiled)
    found = list(_differences(traces[0], _inputs(traces[0], given)))
    forward = next((trace for trace in traces if trace.kind == "forward"), None)
    if not results or forward is None:
        return found
    leaves = [x for x in given if x.requires_grad]
    torch.autograd.grad(results, leaves, [torch.ones_like(x) for x in results], allow_unused=True)
    known = _inputs(forward, given)
    found += _differences(forward, known)
    for backward in thunder.last_backward_traces(compiled)[:1]:
        values = [known[saved.name] for saved in forward.saved]
        cotangents = backward.inputs[len(values) :]
        values += [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).fill_(1) for x in cotangents]
        found += _differences(backward, {said.name: x for said, x in zip(backward.inputs, values, strict=True)})
    return found
