"""Run a program twice, in eager and compiled, and compare everything that its user can see."""

from __future__ import annotations

import copy
import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

import thunder

Make = Callable[[], Any]


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Return what a structure consists of, by path; containers appear as their type."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        items: Any = vars(value).items()
    elif isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        items = enumerate(value)
    else:
        return {path: value}
    found = {f"{path}:type": type(value)}
    for key, item in items:
        found.update(leaves(item, f"{path}[{key!r}]"))
    return found


def assert_same(got: Any, expected: Any, what: str, **tolerance: float) -> None:
    """Check that two structures are equal: types, values, dtypes, shapes, strides, requires_grad, grad_fn."""
    got, expected = leaves(got), leaves(expected)
    assert got.keys() == expected.keys(), what
    for path, value in expected.items():
        name, other = f"{what}{path}", got[path]
        if not isinstance(value, torch.Tensor):
            assert type(other) is type(value), name
            assert other == value or other is value or value != value, name
            continue
        assert type(other) is type(value), name
        torch.testing.assert_close(
            other, value, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}", **tolerance
        )
        assert other.requires_grad == value.requires_grad, f"{name}: requires_grad"
        assert (other.grad_fn is None) == (value.grad_fn is None), f"{name}: grad_fn"
        assert other.is_leaf == value.is_leaf, f"{name}: is_leaf"
        assert other.is_inference() == value.is_inference(), f"{name}: is_inference"
        if value.layout == torch.strided and value.numel():
            assert other.stride() == value.stride(), f"{name}: stride"


def clone(value: Any) -> Any:
    """Return a deep copy that keeps strides, requires_grad and sharing; leaves of autograd only."""
    return copy.deepcopy(value)


def differentiable(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a structure that take part in autograd."""
    return [leaf for leaf in leaves(value).values() if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def run(
    function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any], seed: int
) -> dict[str, Any]:
    """Call and differentiate once; return what was seen, an exception included."""
    torch.manual_seed(seed)
    try:
        result = function(*arguments, **keywords)
    except Exception as error:
        return {"exception": (type(error), str(error).split("\n")[0])}
    outputs = [leaf for leaf in differentiable(result) if leaf.grad_fn is not None]
    if outputs:
        weights = [
            torch.arange(out.numel(), dtype=torch.float64).cos().reshape(out.shape).to(out.dtype) for out in outputs
        ]
        torch.autograd.backward(outputs, weights)
    inputs = [leaf for leaf in leaves((arguments, keywords)).values() if isinstance(leaf, torch.Tensor)]
    return {
        "result": result,
        "input": inputs,
        "version": [tensor._version > 0 for tensor in inputs if not tensor.is_inference()],
        "gradient": [tensor.grad for tensor in inputs if tensor.is_leaf],
        "random state": int(torch.get_rng_state().sum()),
    }


def assert_as_eager(
    program: Any, *arguments: Any, calls: int = 2, misses: int | None = 1, options: Any = None, **keywords: Any
) -> Any:
    """Check that a function or module compiled behaves as in eager over several calls; return it compiled.

    Each call gets fresh copies of the arguments. `misses`: how often it may be traced (None: any number of times).
    """
    eager = copy.deepcopy(program) if isinstance(program, nn.Module) else program
    compiled = thunder.jit(program, **(options or {}))
    for call in range(calls):
        expected = run(eager, *clone((arguments, keywords)), seed=call)
        got = run(compiled, *clone((arguments, keywords)), seed=call)
        assert got.keys() == expected.keys(), (got, expected)
        for what, value in expected.items():
            assert_same(got[what], value, f"call {call}: {what}")
        if isinstance(program, nn.Module):
            assert_module_as_eager(program, eager, f"call {call}: ")
    if misses is not None and "exception" not in expected:
        assert thunder.cache_misses(compiled) == misses
    return compiled


def assert_module_as_eager(module: nn.Module, eager: nn.Module, what: str = "") -> None:
    """Check that two modules have equal parameters, buffers and gradients."""
    assert_same(dict(module.state_dict()), dict(eager.state_dict()), f"{what}state")
    gradients = [{name: p.grad for name, p in each.named_parameters()} for each in (module, eager)]
    assert_same(*gradients, f"{what}gradient")


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work(number)` in `count` threads at once; raise what one of them raised."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
