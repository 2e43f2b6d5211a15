"""Options of `thunder.jit`."""

from __future__ import annotations

import dataclasses
import difflib
import enum
import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from thunder._arguments import shown, shown_instance
from thunder._elsewhere import OPTIONS, TORCH_COMPILE_OPTIONS
from thunder._names import listed, suggestion
from thunder.transforms.transform import Transform, hooks_of

if TYPE_CHECKING:
    from thunder.extend import Executor

__all__ = ["CACHE", "COMPILE", "OF_COMPILE", "SHARP_EDGES", "Options"]

CACHE = ("constant values", "symbolic values", "same input", "no caching")
SHARP_EDGES = ("exact", "allow", "warn", "error")
COMPILE = ("background", "eager")
REMATERIALIZE = (True, False, "memory")

#: Keywords of `thunder.compile` beside the options of `thunder.jit`.
OF_COMPILE = ("recipe", "plugins")


def _with_known_names(cls: type[Any]) -> type[Any]:
    """Let a dataclass of options name the fields that there are where it is given another one."""
    initialize = cls.__init__

    @functools.wraps(initialize)
    def initialize_checked(self: Any, *values: Any, **keywords: Any) -> None:
        _require_known(f"thunder.{cls.__name__}", keywords, [field.name for field in dataclasses.fields(cls)])
        initialize(self, *values, **keywords)

    cls.__init__ = initialize_checked
    return cls


@_with_known_names
@dataclasses.dataclass(frozen=True)
class Options:
    """How a callable is compiled; the keywords of `thunder.jit`, which also takes them as one: `options=Options(…)`.

    Attributes:
        executors: executors (`thunder.extend`) or their names, the first that can run an operation runs it. None: the
            default ones. Thunder's own executors come after those that are given, for what is left.
        transforms: trace transforms (`thunder.Transform`), in the order in which they are applied.
        passes: names of the optimization passes that run; docs/maintainers/passes.md lists them. None: all.
        rematerialize: what a backward recomputes instead of having the forward save it. True: what is cheap; on a GPU,
            what matmuls, convolutions and attention read is saved all the same, which is faster, unless more than a
            fifth of its memory would be saved. "memory": that is recomputed, too, in any case. False: nothing.
        prepack_weights: True keeps a copy of the weights of matmuls and convolutions in the layout of the CPU library
            that computes them, where that is faster (docs/maintainers/cpu-executor.md). You promise that weights change
            only in ways that move their version counter: not through `.data` or NumPy.
        cache: when a compiled program is used again. "constant values": when its guards hold. "symbolic values": the
            same, with `dynamic=True`. "same input": at all later calls, whose arguments must be like those of the first
            (else ValueError); everything else, parameters included, is the very objects of the first call. "no
            caching": never, each call is traced.
        sharp_edges: what becomes of print, warnings, logging, Python's and NumPy's random numbers, clocks, files and
            threads (docs/guards.md has a table). "exact": what eager does, at each call: prints, warnings and log
            records come after the computation; a call that does anything else of this kind runs in eager, with a
            `thunder.EagerFallbackWarning`. "allow": they happen only while the program is traced; later calls use the
            same values again. "warn": the same, with a `thunder.SharpEdgeWarning`. "error": a `thunder.SharpEdgeError`.
        compile: "background": until its kernel for a GPU is compiled, a fusion runs operation by operation, by PyTorch.
            "eager": the first call waits for kernels. The CPU's kernels need no compiler.
        cuda_graphs: which programs run as CUDA graphs, one launch for all of their kernels (docs/maintainers/cuda.md).
            None: small ones. True: all that can. False: none. `compile_stats(f)["cuda_graph"]` says whether the last
            one does, or why not.
        fullgraph: True raises an error where the program would otherwise run in eager, or be cut into several compiled
            segments because Python depends on the data of tensors.
        dynamic: which sizes of the tensors among the arguments are symbols, so that other values need no new trace
            (docs/dynamic-shapes.md). None: those that `thunder.mark_dynamic` names, and each size once it has had a
            second value. True: all except those of parameters and those that `thunder.mark_static` names. False: none.

    Example:
        >>> import torch, thunder
        >>> options = thunder.Options(dynamic=False, fullgraph=True)
        >>> f = thunder.jit(torch.sin, options=options)
        >>> thunder.compile_data(f).compile_options
        {'fullgraph': True, 'dynamic': False}
    """

    executors: tuple[str | Executor, ...] | None = None
    transforms: tuple[Any, ...] = ()
    passes: tuple[str, ...] | None = None
    rematerialize: bool | str = True
    prepack_weights: bool = False
    cache: str = "constant values"
    sharp_edges: str = "exact"
    compile: str = "background"
    cuda_graphs: bool | None = None
    fullgraph: bool = False
    dynamic: bool | None = None

    def __post_init__(self) -> None:
        for name, value in self._normalized().items():
            object.__setattr__(self, name, value)
        require_choice("cache", self.cache, CACHE)
        require_choice("sharp_edges", self.sharp_edges, SHARP_EDGES)
        require_choice("compile", self.compile, COMPILE)
        require_bool("fullgraph", self.fullgraph)
        require_bool("cuda_graphs", self.cuda_graphs, or_none=True)
        require_bool("dynamic", self.dynamic, or_none=True)
        if not isinstance(self.rematerialize, bool):
            require_choice("rematerialize", self.rematerialize, REMATERIALIZE)
        require_bool("prepack_weights", self.prepack_weights)
        for transform in self.transforms:
            if not isinstance(transform, Transform):
                raise TypeError(
                    f"thunder.jit: transforms: expected thunder.transforms.Transform, got {shown_instance(transform)}"
                )

    def _normalized(self) -> dict[str, Any]:
        """Return the options that may be given in several ways, each in the one that is compared and printed."""
        values: dict[str, Any] = {
            "executors": _executors(self.executors),
            "transforms": _sequence("transforms", self.transforms),
            "passes": _names("passes", self.passes),
        }
        for field in dataclasses.fields(self):
            if field.name in ("cache", "sharp_edges"):
                values[field.name] = _choice(getattr(self, field.name), field.default)
        return values

    @classmethod
    def of(cls, keywords: Mapping[str, Any], function: str = "thunder.jit", others: Iterable[str] = ()) -> Options:
        """Return the options that `keywords` of a function stand for, which has `others` beside those of `thunder.jit`.

        Raises TypeError for an unknown name or a value of a wrong type, ValueError for a value that is not a choice.
        """
        _require_known(function, keywords, [*others, *(field.name for field in dataclasses.fields(cls))])
        try:
            return cls(**keywords)
        except (TypeError, ValueError) as error:
            raise type(error)(str(error).replace("thunder.jit:", f"{function}:", 1)) from None

    def updated(self, keywords: Mapping[str, Any]) -> Options:
        """Return these options with those that `keywords` of `thunder.jit` name in their place."""
        given = Options.of(keywords)
        return dataclasses.replace(self, **{name: getattr(given, name) for name in keywords})

    def __str__(self) -> str:
        return "\n".join(f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> Options:
        return self  # a copy of a module is transformed by the same transforms

    def as_dict(self) -> dict[str, Any]:
        """Return the options as the extension module takes them."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if self.executors is not None:
            values["executors"] = [getattr(executor, "native", executor) for executor in self.executors]
        values["transforms"] = [hooks_of(transform) for transform in self.transforms]
        return values


def _require_known(function: str, keywords: Iterable[str], names: list[str]) -> None:
    """Raise TypeError for a keyword of a function that is not one of `names`, with what is meant or serves instead."""
    for name in keywords:
        if name in names:
            continue
        if name in OPTIONS:
            raise TypeError(f"{function}: option {name!r} of Lightning Thunder: {OPTIONS[name]}")
        if name in TORCH_COMPILE_OPTIONS:
            raise TypeError(f"{function}: option {name!r} of torch.compile: {TORCH_COMPILE_OPTIONS[name]}")
        for other in () if suggestion(name, names) else difflib.get_close_matches(name, OF_COMPILE, n=1):
            raise TypeError(
                f"{function}: unknown option {name!r}; thunder.compile has {'it' if other == name else repr(other)}: "
                f"thunder.compile(model, {other}=…)"
            )
        raise TypeError(f"{function}: unknown option {name!r}{listed(name, names, 'the options')}")


def require_choice(name: str, value: object, choices: tuple[object, ...], function: str = "thunder.jit") -> None:
    """Raise ValueError, or TypeError when it is no string, unless `value` is one of `choices`."""
    if not isinstance(value, str):
        raise TypeError(f"{function}: {name}: expected one of {', '.join(map(repr, choices))}, got {shown(value)}")
    if value not in choices:
        close = suggestion(value, [choice for choice in choices if isinstance(choice, str)])
        raise ValueError(f"{function}: {name}: expected one of {', '.join(map(repr, choices))}, got {value!r}{close}")


def require_bool(name: str, value: object, *, or_none: bool = False, function: str = "thunder.jit") -> None:
    """Raise TypeError unless `value` is a bool, or None where that is allowed."""
    if not isinstance(value, bool) and not (or_none and value is None):
        raise TypeError(f"{function}: {name}: expected a bool{' or None' if or_none else ''}, got {shown(value)}")


def _choice(value: Any, default: Any) -> Any:
    if value is None:
        return default
    return value.value if isinstance(value, enum.Enum) else value


def _executors(value: object) -> tuple[str | Executor, ...] | None:
    if value is None:
        return None
    executors = _sequence("executors", value)
    for executor in executors:
        if isinstance(executor, str):
            _require_executor(executor)
        elif isinstance(executor, type) or not hasattr(executor, "native"):
            raise TypeError(
                f"thunder.jit: executors: expected executors or their names, got {shown_instance(executor)}"
            )
    return executors


def _require_executor(name: str) -> None:
    from thunder.extend.registry import get_executor  # loads what executors in Python need

    try:
        get_executor(name)
    except ValueError as error:
        raise ValueError(str(error).replace("thunder.extend:", "thunder.jit: executors:", 1)) from None


def _names(option: str, value: object) -> tuple[str, ...] | None:
    """Return `value` as names; that each is a known one is checked by the extension, which knows them."""
    if value is None:
        return None
    names = _sequence(option, value)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"thunder.jit: {option}: expected names, got {name!r}")
    return names


def _sequence(name: str, value: object) -> tuple[Any, ...]:
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"thunder.jit: {name}: expected a list, got {value!r}")
    return tuple(value)
