"""Failures that are known and not fixed yet: docs/maintainers/status.md lists them."""

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
    (
        "numbers",
        r"gradient .* got nan.*elu_?\(.*",
        "eager's derivative of elu for NaN is that of positive numbers on a GPU, and NaN on the CPU, as ours on both",
    ),
    ("numbers", r"linalg\.lstsq", "its last bits follow the address of the data, in eager too"),
    (
        "refused",
        r"expected a dense \(strided\) tensor.*(sparse\w*=True|embedding)|follows from data.*sparse=True",
        "sparse gradients",
    ),
    (
        "error",
        r"nan_to_num does not support automatic differentiation for outputs with complex dtype",
        "`nan_to_num_` of complex numbers: its derivative is that of the variant that eager refuses",
    ),
    (
        "refused|error",
        r"expected an out= of the result's shape where it requires grad"
        r"|expected a result of shape .*out=|The expanded size of the tensor.*out=|\(aten::resize_\) that would mutate"
        r"|the number of sizes provided.*out=",
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
    (
        "metadata",
        r"stride: .*requires_grad_.*\.(view\(torch\.|(logical_\w+|eq|ne|lt|le|gt|ge|less|greater)_\()",
        "strides of a leaf that requires grad, after a write without a derivative through a view",
    ),
    (
        "metadata",
        r"requires_grad: expected True, got False.*\.(logical_\w+|eq|ne|lt|le|gt|ge|less|greater)_\(",
        "what was written without a derivative requires no grad where the program is cut in segments",
    ),
    (
        "metadata",
        r"gradient \d+ \w+: expected \S+, got nothing.*(\] = |copy_\()",
        "what is overwritten whole has no gradient; eager gives zeros",
    ),
    ("error", r"self\.stride\(-?\d+\) must be .* to view", "writes through `view(dtype)` of an empty tensor"),
    (
        "error",
        r"expected a floating-point or complex dtype, but got dtype=torch\.\w*(int|bool).*randn?_like",
        "empty tensors of random integers, which eager makes",
    ),
    ("error", r"aten::copy_\) that would mutate.*torch\.cov\(", "`cov` with weights under `jvp`"),
    ("numbers", r"(\b\w+)\.(mul|multiply)_\(\1\)", "eager's tangent of `x.mul_(x)`, which reads what it writes to"),
    ("error|internal", r"setStorage: sizes.*fft", "PyTorch 2.11: strides of `fft` over several dimensions"),
    (
        "memory",
        r"conj|fft\.ih?fft|out=|adjoint|\.m?H\b|requires_grad_.*(\w_\(|\w .?= )"
        r"|(torch\.where\(\w+\)|nonzero).*(\w_\(|\] .?= )",
        "results that share memory in eager: lazy conjugates, resized `out=`, views of what was written with gradients "
        "or of what `where(x)` gives",
    ),
    ("error", r"Invalid interpolation mode", "an interpolation that is none: eager gives memory that nobody filled"),
    ("numbers", r"gradient.*j\).*cumprod\(.*dtype=torch\.float", "eager's derivative of a product of real parts"),
    ("numbers", r"(\w+) = (\w+)\[.*\2 [*+/-]?= \1\b", "eager reads a part of what it writes to"),
    ("numbers", r"float16.*corrcoef\(", "second derivatives that cancel, in float16: eager's are rounded to zero"),
    ("text", r"eigvalsh\(.*(inv|solve)\(", "last bits of eigenvalues, which vectors beside them change, in an inverse"),
    ("text", r"rrelu\(", "the noise of an evaluation is memory that nobody filled"),
    ("crash", r"lu_unpack\(.*False", "PyTorch's `lu_unpack` without data frees memory that is not its own"),
)


def _shares_less(message: str) -> bool:
    """Return whether what shares memory with another tensor does so in eager, too."""
    expected, got = (list(map(int, numbers.split(","))) for numbers in re.findall(r"\[([^\]]*)\]", message)[:2])
    return all(expected[i] == expected[first] for i, first in enumerate(got) if first >= 0)


def reason(found: Any) -> str:
    """Return why a failure is known, or an empty text."""
    text = f"{found.message}\n{found.arguments}\n{found.program}"
    if found.kind == "memory" and not _shares_less(found.message) and "resolve_conj(" not in found.program:
        return ""
    for kind, pattern, why in _KNOWN:
        if re.fullmatch(kind, found.kind) and re.search(pattern, text, re.DOTALL):
            return why
    return ""
