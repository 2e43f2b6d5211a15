"""Whether a script behaves through thunder as in eager, and if not, how."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy
import torch

from tests.fuzz.scripts.execute import Run, execute
from tests.fuzz.scripts.observe import Seen

_ROUNDING = {"float16": 4e-3, "half()": 4e-3, "bfloat16": 3e-2, "autocast": 3e-2}
_FACTOR = 10.0  # ours may be this much further from the fp64 run than eager is
_REFUSED = "refused"
_REFUSALS = (NotImplementedError,)


@dataclasses.dataclass
class Outcome:
    """The outcome of a script.

    `kind` is "same", "refused", "unstable" (eager differs from itself), "skipped" (it crashes or hangs) or a failure's.
    """

    kind: str
    message: str = ""
    calls: int = 0
    fallbacks: int = 0
    misses: int = 0
    refusals: tuple[str, ...] = ()  # what thunder said where it left a call to eager, or refused it

    @property
    def is_failure(self) -> bool:
        """Whether something is wrong."""
        return self.kind not in ("same", _REFUSED, "unstable", "skipped")


def check(text: str) -> Outcome:
    """Run a script in eager and through thunder, and compare what both show."""
    eager = execute(text, compiles=False)
    compiled = execute(text, compiles=True)
    kind, message = _difference(text, eager, compiled, None)
    if kind == "number":
        wide = execute(_widened(text), compiles=False, dtype=torch.float64)
        kind, message = _difference(text, eager, compiled, wide)
    if kind not in ("same", _REFUSED):
        with _filled_memory():
            again = execute(text, compiles=False)
        if _difference(text, _until(eager, message), _until(again, message), None)[0] != "same":
            kind = "unstable"
    refusals = (*compiled.fallbacks, message.partition(": ")[2]) if kind == _REFUSED else compiled.fallbacks
    short = tuple(re.sub(r"[0-9]+", "N", reason)[:120] for reason in refusals)
    return Outcome(kind, message, compiled.calls, len(compiled.fallbacks), compiled.misses, short)


@contextlib.contextmanager
def _filled_memory() -> Iterator[None]:
    """Fill new memory, where the C library can: what eager reads of memory that nobody wrote to is another number."""
    parameter, byte = -6, 0x81  # M_PERTURB
    set_option = getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)
    set_option(parameter, byte)
    for size in range(1, 1024):  # the memory that NumPy keeps for small arrays
        blocks = [numpy.full(size, byte, numpy.uint8) for _ in range(8)]
        del blocks
    try:
        yield
    finally:
        set_option(parameter, 0)


def _until(run: Run, message: str) -> Run:
    """Return a run up to the step that a message is about."""
    found = re.match(r"step ([0-9]+),", message)
    return dataclasses.replace(run, steps=run.steps[: int(found[1]) + 1]) if found else run


def _widened(text: str) -> str:
    text = re.sub(r"torch\.(float16|bfloat16|float32)\b", "torch.float64", text)
    text = re.sub(r"\.(half|bfloat16|float)\(\)", ".double()", text)
    return text.replace("torch.complex64", "torch.complex128").replace("np.float32", "np.float64")


def _difference(text: str, expected: Run, got: Run, wide: Run | None) -> tuple[str, str]:
    if type(expected.error) is not type(got.error):
        return "script", f"the script itself raised {_text(got.error)} for {_text(expected.error)}"
    rounding = max((value for name, value in _ROUNDING.items() if name in text), default=2e-5)
    for number, (one, other) in enumerate(zip(expected.steps, got.steps, strict=False)):
        where = f"step {number}, line {one.line}"
        kind, message = _error_difference(one, other)
        if kind == "same":
            reference = wide.steps[number] if wide is not None and number < len(wide.steps) else None
            kind, message = _seen_difference(one, other, reference, rounding)
        if kind != "same":
            return kind, f"{where}: {message}"
    if len(expected.steps) != len(got.steps):
        return "script", f"{len(got.steps)} steps in the place of {len(expected.steps)}"
    return "same", ""


def _error_difference(expected: Seen, got: Seen) -> tuple[str, str]:
    import thunder

    one, other = expected.error, got.error
    if isinstance(other, thunder.InternalError):
        return "internal", _text(other)
    if other is not None and isinstance(other, _REFUSALS) and not isinstance(one, _REFUSALS):
        return _REFUSED, _text(other)
    if one is None and other is not None:
        return "raises", f"{_text(other)}, where eager raises nothing"
    if one is not None and other is None:
        return "raises nothing", f"nothing was raised, and in eager {_text(one)}"
    if type(one).__name__ != type(other).__name__:
        return "raises other", f"{_text(other)}, in eager {_text(one)}"
    if one is not None and str(one).startswith("user:") and str(one) != str(other):
        return "raises other", f"{_text(other)}, in eager {_text(one)}"
    return "same", ""


def _text(error: BaseException | None) -> str:
    return "nothing" if error is None else f"{type(error).__name__}: {str(error)[:400]}"


def _seen_difference(expected: Seen, got: Seen, wide: Seen | None, rounding: float) -> tuple[str, str]:
    identities = {path for path in expected.facts.keys() | got.facts.keys() if path.endswith(" is")}
    for path in sorted(identities):
        one, other = expected.facts.get(path, "another"), got.facts.get(path, "another")
        if one != other:
            return "is", f"{path} {other!r}, where it is {one!r} in eager"
    for path, value in expected.facts.items():
        if path not in got.facts and path.endswith(" stride"):
            continue
        if path not in got.facts:
            return "missing", f"{path} is missing; it was {value!r}"
        other = got.facts[path]
        if not _is_same_plain(value, other, rounding):
            kind = "number" if isinstance(value, float | complex) else path.rsplit(" ", 1)[-1]
            return kind, f"{path}: expected {value!r}, got {other!r}"
    if extra := {path for path in got.facts.keys() - expected.facts.keys() if not path.endswith(" stride")}:
        path = min(extra)
        return "more", f"{path} is {got.facts[path]!r}, which eager has not"
    for path, tensor in expected.tensors.items():
        reference = wide.tensors.get(path) if wide is not None else None
        if message := _tensor_difference(got.tensors[path], tensor, reference, rounding):
            is_rounded = tensor.is_floating_point() or tensor.is_complex()
            return "number" if is_rounded else "value", f"{path}: {message}"
    return "same", ""


def _is_same_plain(value: Any, other: Any, rounding: float) -> bool:
    if type(value) is not type(other):
        return False
    if isinstance(value, float | complex):
        if value != value or other != other:
            return (value != value) == (other != other)
        if value == other:
            return math.copysign(1, value.real) == math.copysign(1, other.real)
        return abs(value - other) <= rounding * (1 + abs(value)) * _FACTOR
    return bool(value == other)


def _tensor_difference(got: torch.Tensor, expected: torch.Tensor, wide: torch.Tensor | None, rounding: float) -> str:
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"expected {expected.dtype} {tuple(expected.shape)}, got {got.dtype} {tuple(got.shape)}"
    if not expected.numel():
        return ""
    if not (expected.is_floating_point() or expected.is_complex()):
        return "" if torch.equal(got, expected) else _at(got, expected, got != expected)
    dtype = torch.complex128 if expected.is_complex() else torch.float64
    if expected.dtype in (torch.float64, torch.complex128) and rounding < 1e-3:
        rounding = 1e-9 if rounding == 2e-5 else rounding
    one, other = expected.to(dtype), got.to(dtype)
    finite = one.abs()[one.isfinite()]
    scale = 1 + (float(finite.max()) if finite.numel() else 0.0)
    allowed = torch.full(one.shape, rounding * scale, dtype=torch.float64)
    same = (one == other) | (one.isnan() & other.isnan())
    near = same | ((one - other).abs() <= allowed)
    if wide is not None and wide.shape == one.shape:
        reference = wide.to(dtype)
        error = (one - reference).abs().nan_to_num(nan=math.inf, posinf=math.inf)
        worst = error.max()
        near |= (other - reference).abs() <= allowed + _FACTOR * torch.maximum(error, worst * 0.1)
    return "" if bool(near.all()) else _at(got, expected, ~near)


def _at(got: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> str:
    at = tuple(wrong.nonzero()[0].tolist())
    return f"at {at} expected {expected[at].item()!r}, got {got[at].item()!r}"
