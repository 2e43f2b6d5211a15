"""Failures that are known and not mended yet: docs/status.md lists them."""

from __future__ import annotations

import re
from typing import Any

# (kind, what the message and the smallest program match, why)
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        "error",
        r"a leaf Variable that requires grad is being used in an in-place operation",
        "operators that are not differentiable may write to a leaf in eager",
    ),
    (
        "error|refused",
        r"does not read the data of tensors.*differs between examples",
        "vmap refuses what reads data, also where torch.func knows a way (0-dim indices)",
    ),
    (
        "metadata",
        r"requires_grad: expected True, got False.*\.\w+_\(",
        "what is written over by something that needs no gradient keeps requires_grad in eager; its gradient is zero",
    ),
    ("error", r"Autograd not support dtype", "what requires grad is written to a part of an integer tensor"),
    ("metadata", r"stride: .*(conj|adjoint|mH|out=)", "lazy conjugates, and `out=` that is resized, are laid out anew"),
    (
        "numbers",
        r"gradient.*\.(lt|le|gt|ge|eq|ne|less|greater|less_equal|greater_equal|not_equal|logical_\w+)_\(",
        "autograd in eager does not know of writes by operators without a derivative",
    ),
    ("numbers", r"linalg\.lstsq", "its last bits follow the address of the data, in eager too"),
    ("memory", r".", "results that share memory in eager: lazy conjugates, views of what was written with gradients"),
    ("refused", r"forward AD with aten::copy that does not", "jvp of a write to a tensor that is not contiguous"),
    (
        "error",
        r"does not support automatic differentiation for outputs with complex dtype",
        "writes through views of complex tensors that require grad",
    ),
    (
        "refused",
        r"this in-place operation cannot be traced; use one that returns its result.*out=",
        "`out=` of functions that make tensors from sizes",
    ),
    (
        "internal",
        r"derivative for aten::\w+ is not implemented",
        "operators without a derivative fail where they are called, not in backward",
    ),
    (
        "refused",
        r"got a torch.autograd.Function",
        "vjp, vmap and jvp of what writes under no_grad to a value that requires grad (cosine_similarity)",
    ),
    (
        "error|refused",
        r"cannot use C\+\+ torch::autograd::Function with functorch transforms",
        "forward mode of strides that are restored (as_strided)",
    ),
    (
        "error",
        r"view_as_real doesn't work on unresolved conjugated",
        "ihfft gives lazy conjugates; meta kernels do not",
    ),
    ("error", r"Subtraction, the `-` operator, with a bool tensor", "jvp of a derivative that computes with masks"),
    ("error", r"not implemented for", "kernels without a dtype, for tensors without elements"),
    (
        "internal",
        r"ZeroDivisionError.*group_norm",
        "PyTorch's decomposition of group_norm's derivative divides by the number of elements",
    ),
)


def reason(found: Any) -> str:
    """Return why a failure is known, or an empty text."""
    for kind, pattern, why in _KNOWN:
        if re.fullmatch(kind, found.kind) and re.search(pattern, f"{found.message}\n{found.program}", re.DOTALL):
            return why
    return ""
