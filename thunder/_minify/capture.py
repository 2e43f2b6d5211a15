"""Takes a straight-line program from a function and its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from thunder._minify.shrink import Case, cloned, fresh
from thunder._minify.straight_line import Line, StraightLine

__all__ = ["captured"]


def captured(fn: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Iterator[Case]:
    """Yield the trace that thunder records of a call, if it does, and the calls of PyTorch that eager makes."""
    try:
        recorded = _recorded(fresh(fn), cloned(arguments), options)
    except Exception:
        recorded = None  # it is tracing that fails
    if recorded is not None:
        yield recorded
    yield _logged(fresh(fn), cloned(arguments))


def _recorded(fn: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Case | None:
    from thunder._jit import jit
    from thunder.inspect import last_prologue_traces, last_traces

    compiled = jit(fn, **options)
    before = cloned(arguments)
    compiled(*arguments)
    stages = last_traces(compiled)
    if not stages or any(stage.name not in ("computation", "forward") for stage in stages):
        return None  # in segments, as data was read
    prologue = last_prologue_traces(compiled)[-1].python_callable()
    inputs = tuple(value for value in prologue(before, {}) if isinstance(value, torch.Tensor))
    program = StraightLine.parse(str(stages[0]), stages[0]._native.context())
    return Case(program, inputs) if len(inputs) == len(program.parameters) else None


def _logged(fn: Callable[..., Any], arguments: tuple[Any, ...]) -> Case:
    log = _Log()
    before = {id(leaf): cloned((leaf,))[0] for leaf in torch.utils._pytree.tree_leaves(arguments)}
    torch.manual_seed(0)
    with log:
        results = fn(*arguments)
    names = [log.names[id(leaf)] for leaf in torch.utils._pytree.tree_leaves(results) if id(leaf) in log.names]
    program = StraightLine(tuple(log.inputs), tuple(log.lines), tuple(dict.fromkeys(names)), log.constants)
    values = tuple(before.get(id(value), value) for value in log.inputs.values())
    return Case(program, values)


class _Log(TorchFunctionMode):  # type: ignore[misc]
    """Notes calls as statements. Tensors that no call made are inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[int, str] = {}
        self.inputs: dict[str, torch.Tensor] = {}
        self.lines: list[Line] = []
        self.constants: dict[str, Any] = {}
        self._alive: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        parts = [*map(self._text, args), *(f"{name}={self._text(value)}" for name, value in kwargs.items())]
        result = func(*args, **kwargs)
        call = f"{self._callable(func)}({', '.join(parts)})"
        items = result if isinstance(result, tuple | list) else [result]
        is_new = items and all(isinstance(item, torch.Tensor) and id(item) not in self.names for item in items)
        if is_new:
            targets = ", ".join(self._bind(item) for item in items)
            call = f"{targets}{',' if items is result and len(items) == 1 else ''} = {call}"
        self.lines.append(Line.of(call))
        return result

    def _bind(self, tensor: torch.Tensor) -> str:
        self._alive.append(tensor)
        return self.names.setdefault(id(tensor), f"t{len(self.names)}")

    def _callable(self, func: Any) -> str:
        name = resolve_name(func)
        return name if isinstance(name, str) and name.startswith("torch.") else self._constant(func)

    def _constant(self, value: Any) -> str:
        name = f"object{len(self.constants)}"
        self.constants[name] = value
        return name

    def _text(self, value: Any) -> str:
        if isinstance(value, torch.Tensor):
            if id(value) not in self.names:
                self.inputs[self._bind(value)] = value
            return self.names[id(value)]
        if isinstance(value, tuple | list) and type(value) in (tuple, list, torch.Size):
            items = "".join(f"{self._text(item)}, " for item in value)
            return f"[{items}]" if isinstance(value, list) else f"({items})"
        if isinstance(value, dict) and type(value) is dict:
            return "{" + ", ".join(f"{self._text(key)}: {self._text(item)}" for key, item in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({self._text(value.start)}, {self._text(value.stop)}, {self._text(value.step)})"
        if isinstance(value, float):
            return f"float({str(value)!r})" if value != value or value in (float("inf"), -float("inf")) else repr(value)
        if isinstance(value, torch.device):
            return f"torch.{value!r}"
        literals = (bool, int, complex, str, bytes, torch.dtype, torch.layout, torch.memory_format)
        if value is None or value is Ellipsis or type(value) in literals:
            return repr(value)
        return self._constant(value)
