"""Writes a case as a Python program that shows the failure."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any

import torch

from thunder._minify.shrink import Case

__all__ = ["expression", "write_script"]

_MANY = 64


def expression(value: Any) -> str | None:
    """Return an expression for an argument of a program; None for tensors of many elements and for other objects."""
    if value is None or isinstance(value, bool | int | float | complex | str):
        return repr(value)
    if not isinstance(value, torch.Tensor) or value.numel() > _MANY or value.layout != torch.strided:
        return None
    plain = value.detach().resolve_conj().resolve_neg()
    text = f"torch.tensor({plain.tolist()}, dtype={value.dtype})"
    if "nan" in text or "inf" in text:
        text = text.replace("nan", "float('nan')").replace("inf", "float('inf')")
    if value.numel() == 0:
        text = f"torch.empty({tuple(value.shape)}, dtype={value.dtype})"
    if not value.is_contiguous():
        layout = f"{tuple(value.shape)}, {value.stride()}, dtype={value.dtype}"
        # Elements that share memory cannot be copied to one by one.
        whole = f"torch.empty_strided({layout})"
        text = f"{text}.as_strided({tuple(value.shape)}, {value.stride()})" if 0 in value.stride() else f"{whole}.copy_({text})"
    if value.device.type != "cpu":
        text += f".to({str(value.device)!r})"
    return text + (".requires_grad_()" if value.requires_grad else "")


def write_script(case: Case, reason: str, options: Mapping[str, Any], path: str | None) -> str:
    """Write the script and return its path; arguments that no text stands for lie beside it, in a file of torch.save."""
    if path is None:
        handle, path = tempfile.mkstemp(prefix="thunder_minified_", suffix=".py")
        os.close(handle)
    saved: dict[str, Any] = {}
    lines = []
    for name, value in zip(case.program.parameters, case.arguments, strict=True):
        text = expression(value)
        if text is None:
            saved[name] = value
            text = f"saved[{name!r}]"
        lines.append(f"        {text},  # {name}")
    data = os.path.splitext(path)[0] + ".pt"
    if saved:
        torch.save(saved, data)
        lines.insert(0, f"    saved = torch.load({data!r}, weights_only=False)")
        lines.insert(1, "    return (")
    else:
        lines.insert(0, "    return (")
    used = case.program.used()
    objects = [
        f"object_missing = None  # {name}: {value!r}" for name, value in case.program.constants.items() if name in used
    ]
    text = "\n".join(
        [
            *(f"# {line}" for line in reason.splitlines()),
            "import torch",
            "",
            "import thunder",
            *(["from thunder import prims"] if "prims" in used else []),
            *(line.replace("object_missing", line.split("# ")[1].split(":")[0]) for line in objects),
            "",
            "",
            case.program.text(),
            "",
            "def arguments():",
            "    torch.manual_seed(0)",
            *lines,
            "    )",
            "",
            "",
            "def show(function):",
            "    inputs = arguments()",
            "    results = function(*inputs)",
            "    outputs = [result for result in results if result.grad_fn is not None]",
            "    torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])",
            "    print('results:  ', results)",
            "    print('arguments:', inputs)",
            "    print('gradients:', [getattr(value, 'grad', None) for value in inputs])",
            "",
            "",
            'if __name__ == "__main__":',
            "    print('eager')",
            "    show(program)",
            "    print('compiled')",
            f"    show(thunder.jit(program{''.join(f', {name}={value!r}' for name, value in options.items())}))",
            "",
        ]
    )
    with open(path, "w") as file:
        file.write(text)
    return path
