"""Failures that are known and not fixed: docs/fuzzing.md lists them."""

from __future__ import annotations

import re

# (kind, what the message and the smallest script match, why)
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        "requires_grad",
        r"^step[^\n]*(\.grad|second\[\d+\]) requires_grad: expected False, got True\n.*create_graph=True",
        "gradients under create_graph require grad",
    ),
    (
        "number",
        r"^step[^\n]*\.grad: [^\n]*\n.*first\(r\d+\)\.(retain_grad|register_hook)\(",
        "the gradient of a view of an input by way of another result is left out",
    ),
    (
        "stride",
        r"^step[^\n]* (second\[\d+\]|r\d+(\[1\])?|[^\n]*\.grad) stride: [^\n]*\n"
        r".*(\.t\(\)|::2\]).*(autograd\.grad|vjp)\(",
        "gradients by inputs that are not contiguous",
    ),
    (
        "stride",
        r"^step[^\n]* stride: [^\n]*\n.*(requires_grad_|Parameter)\(.*\w\[\w+ > 0\] = ",
        "what is filled by a mask and requires grad is laid out in order",
    ),
    (
        "raises",
        r"modified by an inplace operation.*, where eager raises nothing\n",
        "an input is saved for the backward where eager saves what is computed of it",
    ),
    (
        "raises nothing",
        r"in eager RuntimeError: Trying to backward through the graph a second time",
        "eager saves a constant, which is none of a compiled function's saved values",
    ),
    ("written", r" written: expected False, got True\n.*copy\.copy\(", "copy.copy of an input shares its counter"),
    ("number", r"\.grad: .*\.data\.", "data changed behind autograd's back between a call and its backward"),
    (
        "raises",
        r"backward through the graph a second time.*\.backward\(",
        "a backward inside released what it went through",
    ),
    (
        "raises",
        r"the gradient of a result of a compiled function is asked for",
        "gradients between results are refused",
    ),
    ("number", r"expected nan, got -?inf.*gelu", "oneDNN's gelu of infinity is NaN"),
    ("number|value", r"^step[^\n]*: at \(.*resize_\(", "resize_ of an input that is not contiguous"),
    (
        "written",
        r"^step[^\n]* written: expected True, got False\n.*(\.t_\(\)|inference_mode)",
        "t_, and writes to buffers in inference mode, do not move the version counter",
    ),
    ("raises nothing", r"function that returns multiple views.*func\.", "results of transforms are no views"),
)


def reason(kind: str, message: str, text: str) -> str:
    """Return why a failure is known, or nothing."""
    everything = f"{message}\n{text}"
    for kinds, pattern, why in _KNOWN:
        if re.fullmatch(kinds, kind) and re.search(pattern, everything, re.DOTALL):
            return why
    return ""
