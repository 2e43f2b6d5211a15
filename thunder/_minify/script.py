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

_SCRIPT = """\
{reason}
import torch

import thunder
{imports}

{program}

def arguments():
    torch.manual_seed(0)
{saved}    return ({arguments}
    )


def show(function):
    inputs = arguments()
    results = function(*inputs)
    outputs = [result for result in results if getattr(result, "grad_fn", None) is not None]
    torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
    print("results:  ", results)
    print("arguments:", inputs)
    print("gradients:", [getattr(value, "grad", None) for value in inputs])


if __name__ == "__main__":
    print("eager")
    show(program)
    print("compiled")
    show(thunder.jit(program{options}))
"""


def expression(value: Any) -> str | None:
    """Return an expression for an argument; None for tensors of many elements, and for objects that have none."""
    if value is None or isinstance(value, bool | int | float | complex | str):
        return repr(value)
    if not isinstance(value, torch.Tensor) or value.numel() > _MANY or value.layout != torch.strided:
        return None
    shape, strides = tuple(value.shape), value.stride()
    numbers = str(value.detach().resolve_conj().resolve_neg().tolist())
    numbers = numbers.replace("nan", "float('nan')").replace("inf", "float('inf')")
    text = f"torch.tensor({numbers}, dtype={value.dtype})"
    if value.numel() == 0:
        text = f"torch.empty({shape}, dtype={value.dtype})"
    if 0 in strides and value.numel():
        text += f".as_strided({shape}, {strides})"  # elements that share memory cannot be copied to
    elif not value.is_contiguous():
        text = f"torch.empty_strided({shape}, {strides}, dtype={value.dtype}).copy_({text})"
    if value.device.type != "cpu":
        text += f".to({str(value.device)!r})"
    return text + (".requires_grad_()" if value.requires_grad else "")


def write_script(case: Case, reason: str, options: Mapping[str, Any], path: str | None) -> str:
    """Write the script and return its path. Arguments that no text stands for lie beside it, saved by torch.save."""
    if path is None:
        handle, path = tempfile.mkstemp(prefix="thunder_minified_", suffix=".py")
        os.close(handle)
    used = case.program.used()
    arguments = dict(zip(case.program.parameters, case.arguments, strict=True))
    texts = {name: expression(value) for name, value in arguments.items()}
    saved = {name: arguments[name] for name, text in texts.items() if text is None}
    data = os.path.splitext(path)[0] + ".pt"
    if saved:
        torch.save(saved, data)
    objects = {name: value for name, value in case.program.constants.items() if name in used}
    imports = ["from thunder import prims"] if "prims" in used else []
    imports += [f"{name} = None  # {' '.join(repr(value).split())}" for name, value in objects.items()]
    items = (f"\n        {text or f'saved[{name!r}]'},  # {name}" for name, text in texts.items())
    script = _SCRIPT.format(
        reason="\n".join(f"# {line}" for line in (reason or "As found by thunder.minify.").splitlines()),
        imports="\n".join([*imports, ""]),
        program=case.program.text(),
        saved=f"    saved = torch.load({data!r}, weights_only=False)\n" if saved else "",
        arguments="".join(items),
        options="".join(f", {name}={value!r}" for name, value in options.items()),
    )
    with open(path, "w", encoding="utf8") as file:
        file.write(script)
    return path
