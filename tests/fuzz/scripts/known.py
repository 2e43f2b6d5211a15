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
