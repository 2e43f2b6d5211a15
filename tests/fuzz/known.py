"""Failures that are known and not mended yet: docs/status.md lists them."""

from __future__ import annotations

import re
from typing import Any

# (kind, what the message and the smallest program match, why)
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        "error|refused",
        r"does not read the data of tensors.*differs between examples.*\w\[",
        "vmap refuses a batched 0-dim tensor as an index: Python's indexing reads it",
    ),
    ("numbers", r"linalg\.lstsq", "its last bits follow the address of the data, in eager too"),
    ("refused", r"expected a dense \(strided\) tensor.*(sparse\w*=True|embedding)", "sparse gradients"),
    (
        "error",
        r"nan_to_num does not support automatic differentiation for outputs with complex dtype",
        "`nan_to_num_` of complex numbers: its derivative is that of the variant that eager refuses",
    ),
    (
        "refused|error",
        r"expected an out= of the result's shape where it requires grad"
        r"|expected a result of shape .*out=|\(aten::resize_\) that would mutate",
        "`out=` that is resized, where gradients are taken, or after `t_`",
    ),
    ("metadata", r"stride: .*(conj|adjoint|\.m?H\b)", "lazy conjugates are laid out as what they show"),
    (
        "error",
        r"more than one element of the written-to tensor",
        "writes to memory that overlaps itself, where eager does not look (`triu_`)",
    ),
    ("error|text", r"[Nn]amed tensors are|with named tensors", "`flatten` with a name makes a named tensor"),
    ("metadata", r"stride: .*(tri[lu]_|out=)", "strides of a resized `out=`, or of a transposed result"),
    ("error|internal", r"setStorage: sizes.*fft", "PyTorch 2.11: strides of `fft` over several dimensions"),
    (
        "memory",
        r"conj|fft\.ih?fft|out=|adjoint|\.m?H\b|requires_grad_.*(\w_\(|\w .?= )",
        "results that share memory in eager: lazy conjugates, resized `out=`, views of what was written with gradients",
    ),
)


def reason(found: Any) -> str:
    """Return why a failure is known, or an empty text."""
    text = f"{found.message}\n{found.arguments}\n{found.program}"
    for kind, pattern, why in _KNOWN:
        if re.fullmatch(kind, found.kind) and re.search(pattern, text, re.DOTALL):
            return why
    return ""
