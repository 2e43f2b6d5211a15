"""Observes everything of a program that its user can see, and compares two outcomes."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder._minify.straight_line import Line, StraightLine

_WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}
_TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 2e-6, torch.complex64: 2e-6}
_FACTOR = 10.0  # ours may be this much further from the fp64 run than eager is


class Difference(AssertionError):
    """Two outcomes differ; `kind` is "numbers", "metadata" or "memory"."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclasses.dataclass
class Outcome:
    """The outcome of a program: tensors and facts by name, or the exception, and the step in which it was raised."""

    tensors: dict[str, torch.Tensor]
    facts: dict[str, Any]
    error: Exception | None = None
    step: str = "forward"


def weights_like(tensor: torch.Tensor) -> torch.Tensor:
    """Return fixed numbers that no derivative is likely to cancel."""
    return torch.arange(tensor.numel(), dtype=torch.float64).cos().reshape(tensor.shape).to(tensor.device, tensor.dtype)


def observe(function: Callable[..., Any], arguments: Sequence[Any], seed: int, noise: float = 0.0) -> Outcome:
    """Call a program once, differentiate what can be, and return what was seen. `noise`: of the cotangents."""
    torch.manual_seed(seed)
    outcome = Outcome({}, {})
    try:
        results = function(*arguments)
        results = list(results) if isinstance(results, tuple | list) else [results]
        outcome.facts["memory"] = _memory([*arguments, *results])
        _see(outcome, "result", results)
        outcome.step = "backward"
        outputs = [result for result in results if isinstance(result, torch.Tensor) and result.grad_fn is not None]
        if outputs:
            weights = [weights_like(output) for output in outputs]
            if noise:
                weights = [weight * (1 + noise * torch.rand(weight.shape)).to(weight) for weight in weights]
            torch.autograd.backward(outputs, weights)
        _see(outcome, "input", [argument.detach() if torch.is_tensor(argument) else argument for argument in arguments])
        leaves = [argument if torch.is_tensor(argument) and argument.is_leaf else None for argument in arguments]
        _see(outcome, "gradient", [None if leaf is None else leaf.grad for leaf in leaves])
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # a kernel's error is this function's, and not the next one's
    except Exception as error:
        outcome.error = error
        return outcome
    outcome.facts["random state"] = random_state()
    return outcome


def random_state() -> int:
    """Return a number that changes when random numbers are drawn, on the CPU or on a GPU that is in use."""
    states = [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [])]
    return sum(int(state.sum()) for state in states)


def _see(outcome: Outcome, name: str, values: Sequence[Any]) -> None:
    for i, value in enumerate(values):
        if not isinstance(value, torch.Tensor):
            outcome.facts[f"{name} {i}"] = value
            continue
        outcome.tensors[f"{name} {i}"] = value.detach().clone()
        facts = {"dtype": value.dtype, "shape": tuple(value.shape), "requires_grad": value.requires_grad}
        facts |= {"is_leaf": value.is_leaf, "class": type(value), "device": value.device}
        if value.numel() and name != "gradient":
            facts["stride"] = tuple(
                stride for stride, size in zip(value.stride(), value.shape, strict=True) if size != 1
            )
        outcome.facts |= {f"{name} {i} {what}": fact for what, fact in facts.items()}


def _memory(values: list[Any]) -> list[int]:
    """Return for each tensor the position of the first one that lies in the same memory."""
    seen: dict[int, int] = {}
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return [
        seen.setdefault(value.untyped_storage().data_ptr(), i) if value.numel() else -1
        for i, value in enumerate(tensors)
    ]


# --- fp64


def widened(program: StraightLine) -> StraightLine:
    """Return the program computing in fp64 what it computes in a shorter format."""

    def text(line: Line) -> str:
        text = re.sub(r"torch\.(float16|bfloat16|float32)\b", "torch.float64", line.text)
        return text.replace("torch.complex64", "torch.complex128")

    return program.with_lines(Line.of(text(line)) for line in program.lines)


def widened_argument(argument: Any, noise: float = 0.0) -> Any:
    """Return a tensor in fp64, with the strides that it had; with `noise`, in its dtype and off by that much."""
    if not isinstance(argument, torch.Tensor) or not (argument.is_floating_point() or argument.is_complex()):
        return argument
    dtype = argument.dtype if noise else _WIDER.get(argument.dtype, argument.dtype)
    result = argument.detach().to(dtype)
    if noise:
        result = result * (1 + noise * torch.rand(argument.shape, dtype=torch.float64)).to(result)
    strided = torch.empty_strided(argument.shape, argument.stride(), dtype=dtype, device=argument.device)
    if 0 not in argument.stride():
        result = strided.copy_(result)
    return result.detach().requires_grad_(argument.requires_grad)


# --- comparison


class Exact:
    """Outcomes of the program in fp64, and with its inputs off by a rounding error: run when first asked for."""

    def __init__(self, run_wide: Callable[[], Outcome], run_nudged: Callable[[], Outcome]) -> None:
        self._runs = (run_wide, run_nudged)
        self._outcomes: list[Outcome] | None = None

    def tensors(self, name: str) -> list[torch.Tensor]:
        if self._outcomes is None:
            self._outcomes = [run() for run in self._runs]
        return [outcome.tensors[name] for outcome in self._outcomes if name in outcome.tensors]


def rounding_of(program: StraightLine, arguments: Sequence[Any]) -> float:
    """Return the rounding of the shortest format that a program computes in."""
    names = {str(argument.dtype) for argument in arguments if isinstance(argument, torch.Tensor)}
    names.update(re.findall(r"torch\.\w+", program.text()))
    return max((rounding for dtype, rounding in _TOLERANCE.items() if str(dtype) in names), default=0.0)


def require_same(
    got: Outcome, expected: Outcome, exact: Exact | None, numbers_only: bool, rounding: float = 0.0
) -> None:
    """Raise Difference unless `got` is as good as `expected`, which is eager's.

    With `numbers_only`, strides, memory and the state of autograd may differ. `rounding` is that of the whole program.
    """
    for name in expected.tensors.keys() & got.tensors.keys():
        require_close(name, got.tensors[name], expected.tensors[name], exact, rounding)
    for name, value in sorted(expected.facts.items(), key=lambda fact: fact[0] == "memory"):
        if numbers_only and not name.endswith(("dtype", "shape")):
            continue
        other = got.facts.get(name, "nothing")
        if other != value and not (_both_numbers(other, value) and _is_close_number(other, value)):
            raise Difference("memory" if name == "memory" else "metadata", f"{name}: expected {value}, got {other}")


def _both_numbers(a: Any, b: Any) -> bool:
    return isinstance(a, float | int | bool) and type(a) is type(b)


def _is_close_number(a: Any, b: Any) -> bool:
    return a == b or (a != a and b != b) or math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6)


def require_close(
    name: str, got: torch.Tensor, expected: torch.Tensor, exact: Exact | None, rounding: float = 0.0
) -> None:
    """Raise Difference unless `got` is within the dtype's tolerance, or as near to the fp64 run as eager is."""
    if got.shape != expected.shape:
        raise Difference("metadata", f"{name}: expected shape {tuple(expected.shape)}, got {tuple(got.shape)}")
    tolerance = _TOLERANCE.get(expected.dtype, 1e-9)
    if not expected.dtype.is_floating_point and not expected.dtype.is_complex:
        tolerance = 0.0
    else:
        tolerance = max(tolerance, rounding)
    got, expected = _wide(got), _wide(expected)
    if torch.allclose(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True):
        return
    allowed = torch.full(expected.shape, tolerance, dtype=torch.float64) * (1 + _finite(expected).abs())
    near = torch.zeros(expected.shape, dtype=torch.bool)
    for reference in exact.tensors(name) if exact else []:
        if reference.shape != expected.shape:
            return  # the program's way depends on rounding
        error = (expected - _wide(reference)).abs()
        near |= (got - _wide(reference)).abs() <= allowed
        # Where the reference is not finite and eager's result is, or the other way round, nothing can be said.
        scale = _finite(error, otherwise=math.inf)
        allowed = allowed + _FACTOR * torch.maximum(scale, scale.max() * 1e-1 if scale.numel() else scale)
    difference = _finite((got - expected).abs(), otherwise=math.inf)
    same = near | (got == expected) | (got.isnan() & expected.isnan())
    if name.startswith("gradient"):
        same |= expected.isnan()  # zero times infinity, where a program that leaves out what is dead has zero
    wrong = ~same & ~(difference <= allowed)
    if bool(wrong.any()):
        at = tuple(wrong.nonzero()[0].tolist())
        raise Difference("numbers", f"{name}: at {at} expected {expected[at].item()}, got {got[at].item()}")


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg().to("cpu", torch.complex128 if tensor.is_complex() else torch.float64)


def _finite(tensor: torch.Tensor, otherwise: float = 0.0) -> torch.Tensor:
    return torch.where(tensor.isfinite(), tensor.abs(), otherwise)
