"""The operators that programs are made of, derived from the schemas of PyTorch's dispatcher."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any

import torch

# Functions that are no operations on tensors, give undefined contents or other kinds of tensors, or read beyond
# their arguments when these make no sense.
_LEFT_OUT = re.compile(
    r"^(_|empty|unsafe_|new_empty|resize|set_|native_|embedding_bag|embedding_renorm|batch_norm_|q_|qscheme|choose_|get_|"
    r"linalg__|(Generator|Size|device|tensor|as_tensor|wait|range|random|seed|initial_seed|manual_seed|retains_grad|"
    r"broadcast_shapes|element_size|data|from_file|requires_grad_|scalar_tensor|hash_tensor|to_padded_tensor|"
    r"slice_inverse|is_pinned|pin_memory|is_set_to|grid_sampler_[23]d|max_pool1d_with_indices|norm_except_dim|cpu|nonzero_static|"
    r"rrelu_with_noise|pdist)$)"
    r"|backward|cudnn|miopen|mkl|fbgemm|quant|sparse|nested|cuda|_indices|^indices|^values|lstm|gru|rnn|_cell$"
)


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter of an operator: its name, schema type ("Tensor", "int[]", …) and whether it may be left out."""

    name: str
    type: str
    optional: bool
    keyword_only: bool


@dataclasses.dataclass(frozen=True)
class Operator:
    """One overload, as a program spells it.

    Attributes:
        name: name in the schema, without namespace.
        kind: "pure", "view", "write" (in place) or "out".
        spellings: callables' texts; one that starts with "." is a method.
        parameters: in order; for kind "out" without the tensors that are written, which `outputs` names.
        random: draws random numbers.
    """

    name: str
    kind: str
    spellings: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    outputs: tuple[str, ...]
    random: bool


def _parameter(argument: Any) -> Parameter:
    text = str(argument.real_type)
    optional = argument.has_default_value() or text.startswith("Optional[")
    text = re.sub(r"^Optional\[(.*)\]$", r"\1", text)
    return Parameter(argument.name, text, optional, argument.kwarg_only)


def _spellings(name: str, takes_self: bool) -> tuple[str, ...]:
    found = []
    if takes_self and hasattr(torch.Tensor, name):
        found.append(f".{name}")
    for module in ("special", "linalg", "fft"):
        if name.startswith(f"{module}_") and hasattr(getattr(torch, module), name[len(module) + 1 :]):
            found.append(f"torch.{module}.{name[len(module) + 1 :]}")
    if hasattr(torch, name):
        found.append(f"torch.{name}")
    return tuple(found)


def _operator(schema: Any, random: bool) -> Operator | None:
    arguments = schema.arguments
    if not arguments or not schema.returns or any("Dimname" in str(argument.real_type) for argument in arguments):
        return None
    written = [argument for argument in arguments if argument.alias_info is not None and argument.alias_info.is_write]
    aliased = any(argument.alias_info is not None for argument in arguments)
    name = schema.name.split("::")[1]
    first = arguments[0]
    takes_self = first.name == "self" and str(first.real_type) == "Tensor"
    kind = "pure"
    if written and written[0].name == "self":
        kind = "write"
    elif written:
        kind = "out"
    elif aliased:
        kind = "view"
    spellings = _spellings(name, takes_self)
    if kind == "out":
        spellings = tuple(spelling for spelling in spellings if not spelling.startswith("."))
    if not spellings:
        return None
    outputs = tuple(argument.name for argument in written) if kind == "out" else ()
    parameters = tuple(_parameter(argument) for argument in arguments if argument.name not in outputs)
    return Operator(name, kind, spellings, parameters, outputs, random)


@functools.cache
def operators() -> dict[str, dict[str, tuple[Operator, ...]]]:
    """Return the table: kind -> name -> overloads. The same in each process that runs the same PyTorch."""
    table: dict[str, dict[str, list[Operator]]] = {"pure": {}, "view": {}, "write": {}, "out": {}}
    for schema in sorted(torch._C._jit_get_all_schemas(), key=str):
        namespace, name = schema.name.split("::")
        if namespace != "aten" or _LEFT_OUT.search(name):
            continue
        try:
            packet = getattr(torch.ops.aten, name)
            tags = getattr(packet, schema.overload_name or "default").tags
        except (AttributeError, RuntimeError):
            continue
        operator = _operator(schema, torch.Tag.nondeterministic_seeded in tags)
        if operator is not None:
            table[operator.kind].setdefault(name, []).append(operator)
    return {kind: {name: tuple(rows) for name, rows in names.items()} for kind, names in table.items()}
