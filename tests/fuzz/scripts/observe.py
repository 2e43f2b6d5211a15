"""Observes a script after each of its steps: every object that it can reach, by the path that leads there."""

from __future__ import annotations

import collections
import dataclasses
import functools
import inspect
import io
import random
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy
import torch

_PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, torch.layout, slice, range)


@dataclasses.dataclass
class Seen:
    """One step of a script: facts and numbers by path, and what it raised."""

    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    tensors: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)
    error: BaseException | None = None
    line: int = 0


class Observer:
    """Looks at the objects of a script's module after each step (`with seen():`)."""

    def __init__(self, namespace: dict[str, Any], hidden: set[str]) -> None:
        self._namespace = namespace
        self._hidden = hidden
        self._versions: dict[int, int] = {}
        self._alive: list[Any] = []  # so that an id stays that of one object
        self.steps: list[Seen] = []

    def look(self, error: BaseException | None, line: int) -> None:
        """Record what can be seen now."""
        walk = _Walk(self._namespace["__name__"], self._versions, Seen(error=error, line=line))
        with torch.no_grad(), torch.utils._python_dispatch._disable_current_modes():
            for name in sorted(self._namespace.keys() - self._hidden):
                walk.see(name, self._namespace[name])
        walk.seen.facts.update(_process_state())
        self._versions = walk.versions
        self._alive.append(walk.alive)
        self.steps.append(walk.seen)


class _Walk:
    def __init__(self, module: str, before: dict[int, int], seen: Seen) -> None:
        self.module = module
        self.before = before
        self.seen = seen
        self.versions: dict[int, int] = {}
        self.alive: list[Any] = []
        self._first: dict[int, str] = {}
        self._memory: dict[int, tuple[str, int]] = {}

    def see(self, path: str, value: Any) -> None:
        facts = self.seen.facts
        if isinstance(value, types.ModuleType):
            return
        facts[f"{path} type"] = type(value).__name__
        if type(value) in _PLAIN or isinstance(value, numpy.generic):
            facts[f"{path} value"] = value.item() if isinstance(value, numpy.generic) else value
            return
        if id(value) in self._first:
            facts[f"{path} is"] = self._first[id(value)]
            return
        if isinstance(value, type) and value.__module__ != self.module:
            facts[f"{path} value"] = value.__name__
            return
        self._first[id(value)] = path
        self.alive.append(value)
        if isinstance(value, torch.Tensor):
            self._see_tensor(path, value)
        elif isinstance(value, numpy.ndarray):
            facts[f"{path} array"] = (value.dtype.str, value.shape)
            self.seen.tensors[path] = torch.from_numpy(value.copy())
        for name, item in self._parts(path, value):
            self.see(f"{path}{name}", item)

    def _see_tensor(self, path: str, tensor: torch.Tensor) -> None:
        facts = self.seen.facts
        facts[f"{path} dtype"] = tensor.dtype
        facts[f"{path} shape"] = tuple(tensor.shape)
        facts[f"{path} device"] = tensor.device.type
        facts[f"{path} requires_grad"] = tensor.requires_grad
        facts[f"{path} is_leaf"] = tensor.is_leaf
        facts[f"{path} is_inference"] = tensor.is_inference()
        if tensor.layout != torch.strided or tensor.is_nested:
            facts[f"{path} layout"] = str(tensor.layout)
            return
        if torch._is_functional_tensor(tensor):  # left over from torch.func.functionalize: reading it crashes
            facts[f"{path} functional"] = True
            return
        if tensor.numel():
            sizes = zip(tensor.stride(), tensor.shape, strict=True)
            stride = tuple(stride for stride, size in sizes if size != 1)
            if 0 not in stride:  # the gradient of a sum is one number, expanded, or is not: nobody promises which
                facts[f"{path} stride"] = stride
            storage = tensor.untyped_storage()
            memory = storage.data_ptr() or storage._cdata  # arrays of NumPy have a storage for each tensor over them
            first, offset = self._memory.setdefault(memory, (path, tensor.storage_offset()))
            facts[f"{path} memory"] = (first, tensor.storage_offset() - offset)
        if tensor.numel() and not tensor.is_inference():
            version = tensor._version
            self.versions[id(tensor)] = version
            facts[f"{path} written"] = self.before.get(id(tensor), version) != version
        if tensor.device.type != "meta":
            plain = tensor.detach().as_subclass(torch.Tensor)  # the script's own class is another one in each run
            self.seen.tensors[path] = plain.resolve_conj().resolve_neg().clone()

    def _parts(self, path: str, value: Any) -> Iterator[tuple[str, Any]]:
        """Yield what is below an object, by the text that leads there."""
        if isinstance(value, torch.Tensor):
            if (value.is_leaf or value.retains_grad) and value.grad is not None:
                yield ".grad", value.grad
        elif isinstance(value, Mapping):
            self.seen.facts[f"{path} keys"] = [key if type(key) in _PLAIN else type(key).__name__ for key in value]
            yield from ((f"[{_text(key)}]", item) for key, item in value.items())
        elif isinstance(value, list | tuple | collections.deque):
            self.seen.facts[f"{path} length"] = len(value)
            yield from ((f"[{i}]", item) for i, item in enumerate(value))
        elif isinstance(value, set | frozenset):
            self.seen.facts[f"{path} items"] = sorted(map(_text, value))
        elif isinstance(value, types.FunctionType):
            yield ".defaults", value.__defaults__
            cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
            yield from ((f".{name}", cell.cell_contents) for name, cell in cells if not _is_empty(cell))
        elif isinstance(value, functools.partial):
            yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
        elif isinstance(value, torch.Generator):
            self.seen.facts[f"{path} state"] = value.get_state().sum().item()
        elif isinstance(value, types.GeneratorType):
            self.seen.facts[f"{path} state"] = inspect.getgeneratorstate(value)
        elif hasattr(type(value), "__length_hint__"):
            self.seen.facts[f"{path} left"] = value.__length_hint__()
        elif isinstance(value, io.StringIO):
            self.seen.facts[f"{path} text"] = (value.getvalue(), value.tell())
            yield ".__dict__", value.__dict__
        elif isinstance(value, bytearray):
            self.seen.facts[f"{path} bytes"] = bytes(value)
        elif isinstance(value, types.MethodType):
            yield ".self", value.__self__
            return
        yield from self._attributes(value)

    def _attributes(self, value: Any) -> Iterator[tuple[str, Any]]:
        own = getattr(value, "__dict__", None)
        if own is not None:
            for name in list(own):
                if not name.startswith("__") and not isinstance(own[name], property | staticmethod | classmethod):
                    yield f".{name}", own[name]
        if type(value).__module__ == self.module:
            for name in getattr(type(value), "__slots__", ()):
                if hasattr(value, name):
                    yield f".{name}", getattr(value, name)


def _text(key: Any) -> str:
    return repr(key) if type(key) in _PLAIN or isinstance(key, tuple) else type(key).__name__


def _is_empty(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False


def _process_state() -> dict[str, Any]:
    python_state = random.getstate()
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "autocast dtype": str(torch.get_autocast_dtype("cpu")),
        "default dtype": str(torch.get_default_dtype()),
        "default device": str(torch.get_default_device()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "random state": int(torch.get_rng_state().long().sum()),
        "random state of Python": hash(python_state),
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
    }
