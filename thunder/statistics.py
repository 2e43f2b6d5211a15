"""Statistics and options of a compiled callable."""

from __future__ import annotations

import dataclasses
import html
from typing import TYPE_CHECKING, Any

from thunder._elsewhere import missing_member
from thunder._html import table
from thunder._names import listed
from thunder.choices import CACHE_OPTIONS, SHARP_EDGES_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from thunder.options import Options
    from thunder.trace import Trace

__all__ = ["CompileData", "CompileStats"]

_COUNTS = (
    *("calls", "cache_hits", "cache_misses", "eager_calls"),
    *("specializations", "programs", "guards", "shared_guards", "full_guard_passes"),
)


class CompileStats(dict[str, Any]):
    """Counts, times and traces of a compiled callable: a dict whose entries are attributes too.

    `print` and notebooks show it as a table. The traces are those of the last compilation, as `thunder.last_traces` and
    its like return them.
    """

    def __init__(self, values: dict[str, Any], traces: Mapping[str, Callable[[], list[Trace]]]) -> None:
        super().__init__(values)
        self._traces_of = traces

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise missing_member("CompileStats", name, (*self, *vars(self).get("_traces_of", ())))

    def __missing__(self, name: object) -> Any:
        raise KeyError(f"{name!r}{listed(str(name), self, 'the entries')}")

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    @property
    def last_traces(self) -> list[Trace]:
        """See `thunder.last_traces`."""
        return self._traces_of["last_traces"]()

    @property
    def last_backward_traces(self) -> list[Trace]:
        """See `thunder.last_backward_traces`."""
        return self._traces_of["last_backward_traces"]()

    @property
    def last_prologue_traces(self) -> list[Trace]:
        """See `thunder.last_prologue_traces`."""
        return self._traces_of["last_prologue_traces"]()

    @property
    def last_epilogue_traces(self) -> list[Trace]:
        """See `thunder.last_epilogue_traces`."""
        return self._traces_of["last_epilogue_traces"]()

    def _rows(self) -> list[tuple[str, str]]:
        rows = [(name.replace("_", " "), str(self[name])) for name in _COUNTS if name in self]
        slowest = sorted(self.get("seconds", {}).items(), key=lambda item: -item[1])
        rows += [(f"seconds: {name}", f"{seconds:.6f}") for name, seconds in slowest[:5]]
        memory = self.get("pool_bytes", {})
        return rows + [(f"pool: {name}", f"{count / 2**20:.3g} MiB") for name, count in memory.items()]

    def __str__(self) -> str:
        width = max((len(name) for name, _ in self._rows()), default=0)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in self._rows())

    def _repr_html_(self) -> str:
        return table(("", ""), self._rows(), "last compilation")


@dataclasses.dataclass(frozen=True)
class CompileData:
    """The options with which a callable was compiled.

    Attributes:
        fn: the callable itself.
        options: its options.
        executors_list: all executors that run its operations, by priority.
        cache_option: the option `cache`.
        sharp_edges: the option `sharp_edges`.
        transforms: the transforms that were given.
        compile_options: the options that are not the default ones, by name.
    """

    fn: Callable[..., Any]
    options: Options
    executors_list: tuple[Any, ...]
    cache_option: CACHE_OPTIONS
    sharp_edges: SHARP_EDGES_OPTIONS
    transforms: list[Any]
    compile_options: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        raise missing_member("CompileData", name, (field.name for field in dataclasses.fields(self)))

    def __str__(self) -> str:
        return f"{getattr(self.fn, '__qualname__', type(self.fn).__qualname__)}, compiled with\n{self.options}"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"
