"""thunder as a back end of torch.compile."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from thunder import inspect as reports
from thunder._arguments import require_callable
from thunder.dynamo.regions import Region, Report, prepare
from thunder.options import Options
from thunder.trace import Trace

__all__ = ["SubgraphInfo", "ThunderCompiler", "ThunderFXCompiledObject", "thunder_backend", "thunderfx"]

_OF_TORCH_COMPILE = tuple(set(inspect.signature(torch.compile).parameters) - {"model", "backend"})
_MODES: dict[str, dict[str, Any]] = {"default": {}, "reduce-overhead": {"cuda_graphs": True}}


@dataclasses.dataclass(frozen=True)
class SubgraphInfo:
    """A graph that TorchDynamo made, and who runs its parts.

    Attributes:
        original_graph_module: the graph.
    """

    original_graph_module: GraphModule
    region: Region

    @property
    def thunder_compiled_fns(self) -> list[Any]:
        """The results of `thunder.jit` for the parts that it compiles, for `thunder.last_traces` and its like."""
        return self.region.compiled_functions()

    @property
    def reports(self) -> list[Report]:
        """Who runs what, in the order of the graph. Known after the first call."""
        return self.region.reports()

    @property
    def split_reasons(self) -> list[str]:
        """Why some parts run in eager."""
        return [report.reason for report in self.reports if report.executor == "eager"]


class ThunderCompiler:
    """A back end of `torch.compile` that remembers what it compiled.

    Args:
        **options: options of `thunder.jit`.

    Example:
        >>> import torch
        >>> from thunder.dynamo import ThunderCompiler
        >>> backend = ThunderCompiler()
        >>> compiled = torch.compile(lambda x: torch.sin(x) + 1, backend=backend)
        >>> compiled(torch.zeros(2))
        tensor([1., 1.])
        >>> print(backend.report())
        graph 0:
          thunder: 2 operations

    Attributes:
        options: those given.
        subgraph_infos: a `SubgraphInfo` for each graph, in the order in which TorchDynamo made them.
    """

    def __init__(self, **options: Any) -> None:
        Options.of(options, "thunder.dynamo")
        self.options = options
        self.subgraph_infos: list[SubgraphInfo] = []

    def __call__(self, module: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """Return the graph, compiled when it is first called."""
        region = Region(prepare(module), self.options)
        self.subgraph_infos.append(SubgraphInfo(module, region))
        return region

    def report(self) -> str:
        """Return, as text, what thunder takes of each graph, and what runs in eager and why."""
        lines = []
        for number, info in enumerate(self.subgraph_infos):
            lines.append(f"graph {number}:")
            lines += [f"  {line}" for report in info.reports for line in str(report).splitlines()]
        return "\n".join(lines) if lines else "no graph was compiled"


class ThunderFXCompiledObject:
    """The result of `thunderfx`: it is called as the callable is, and has the attributes of what torch.compile gave.

    Attributes:
        backend: the `ThunderCompiler`.
    """

    def __init__(self, backend: ThunderCompiler, function: Any) -> None:
        self.backend = backend
        self._func = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled callable."""
        return self._func(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_func":
            raise AttributeError(name)
        return getattr(self._func, name)

    @property
    def last_traces(self) -> list[Trace]:
        """The forward traces, as executed, of all parts that thunder compiles."""
        return self._last(reports.last_traces)

    @property
    def last_backward_traces(self) -> list[Trace]:
        """The backward traces, as executed, of all parts that thunder compiles."""
        return self._last(reports.last_backward_traces)

    def report(self) -> str:
        """Return, as text, what thunder takes of each graph, and what runs in eager and why."""
        return self.backend.report()

    def _last(self, traces_of: Callable[[Any], list[Trace]]) -> list[Trace]:
        found = [traces_of(fn) for info in self.backend.subgraph_infos for fn in info.thunder_compiled_fns]
        return [traces[-1] for traces in found if traces]


def thunderfx(fn: Callable[..., Any], /, **options: Any) -> ThunderFXCompiledObject:
    """Return `fn` compiled by torch.compile, whose TorchDynamo reads the Python, with thunder as its back end.

    Args:
        fn: a function or an `nn.Module`.
        **options: those of `torch.compile` (`fullgraph`, `dynamic`, `mode`, `options`, `disable`), and the others of
            `thunder.jit`.

    Raises:
        TypeError: `fn` is not callable, or neither has an option of that name.

    Example:
        >>> import torch
        >>> from thunder.dynamo import thunderfx
        >>> compiled = thunderfx(lambda x: torch.sin(x) + 1)
        >>> compiled(torch.zeros(2))
        tensor([1., 1.])
        >>> print(compiled.report())
        graph 0:
          thunder: 2 operations
    """
    require_callable("thunder.dynamo.thunderfx", fn)
    of_torch_compile = {name: value for name, value in options.items() if name in _OF_TORCH_COMPILE}
    for_thunder = {name: value for name, value in options.items() if name not in _OF_TORCH_COMPILE}
    mode = of_torch_compile.pop("mode", None)
    given = of_torch_compile.pop("options", None) or {}
    backend = ThunderCompiler(**_options(mode, {**given, **for_thunder}))
    return ThunderFXCompiledObject(backend, torch.compile(fn, backend=backend, **of_torch_compile))


def thunder_backend(
    module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph: what `torch.compile(model, backend="thunder", options={…})` calls.

    Args:
        module: the graph of TorchDynamo.
        example_inputs: what it will be called with.
        mode: "default", or "reduce-overhead" where `thunder.jit` has the option `cuda_graphs`.
        options: options of `thunder.jit`.
    """
    return ThunderCompiler(**_options(mode, options or {}))(module, example_inputs)


def _options(mode: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    if mode is None:
        return dict(options)
    if mode not in _MODES:
        raise ValueError(f"thunder.dynamo: mode: expected one of {', '.join(map(repr, _MODES))}, got {mode!r}")
    if mode == "reduce-overhead":
        from thunder.plugins import ReduceOverhead

        ReduceOverhead().setup_config()
    return {**_MODES[mode], **options}
