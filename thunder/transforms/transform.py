"""Transforms of modules and traces, for `thunder.jit(…, transforms=[…])`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from thunder._arguments import shown
from thunder._names import warn_of_misspelt_methods
from thunder.trace import Trace, TraceEdit

if TYPE_CHECKING:
    from thunder.module import ThunderModule

__all__ = ["Transform", "hooks_of", "overrides"]


class Transform:
    """Base class of transforms. Each method is a place to change something; what is not overridden costs nothing.

    `repr(transform)` is its entry in the headers of printed traces.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        warn_of_misspelt_methods(cls, Transform, ("transform_", "reverse_transform_", "check_", "note_"))

    def transform_module(self, model: ThunderModule) -> None:
        """Change a jitted module, once, before it is first called.

        `model` has submodules of its own, with the parameters and buffers of the original: those that are replaced here
        (`setattr`, `register_parameter`) stay as they were in the original module, and programs see what is there
        instead. `override_parameter` replaces one that programs go on seeing as it was, `add_parameter` adds one.
        """

    def transform_traces_pre_prologue(
        self, prologue_trace: Trace, computation_trace: Trace, epilogue_trace: Trace, **kwargs: Any
    ) -> tuple[Trace, Trace, Trace]:
        """Return the traces as they shall be; called once for each specialization, before it is differentiated.

        The prologue (guards and inputs) returns, one by one, what the computation takes: where one is edited, the other
        must be too. Tensors that the module holds under names are in `computation_trace.parameters`. The computation
        gives the same as before, and may give more (`TraceEdit.add_output`) for the epilogue to store in buffers
        (`TraceEdit.store`). The epilogue makes the writes to Python objects, which may be removed, and the result.

        ValueError, naming the transform and the input, when the traces do not agree, or when a parameter that this
        transform replaced or added is not used.
        """
        return prologue_trace, computation_trace, epilogue_trace

    def transform_trace_post_optimization(self, computation_trace: Trace, **kwargs: Any) -> Trace:
        """Return a trace as it shall be; called for each trace after optimization, the forward before the backward.

        The trace takes and gives the same afterwards, but for what the forward saves for the backward
        (`computation_trace.saved`): the two must agree on that.
        """
        return computation_trace

    def check_collectives(self, kind: str, collectives: str) -> None:
        """Raise where processes must not run a trace; called for each that communicates, as it will run.

        Args:
            kind: "computation", "forward" or "backward".
            collectives: a line for each collective, with the user's line from `  # ` on.
        """

    def note_failure(self, error: BaseException) -> None:
        """Do something where a call could not be compiled, for whatever reason; `error` is raised afterwards."""

    def transform_state_dict_for_submodule(
        self, model: ThunderModule, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the entries of one submodule as the transformed module has them, from those of the original.

        Names are relative to the submodule. Called by `load_original_state_dict`.
        """
        return state_dict

    def reverse_transform_state_dict_for_submodule(
        self, model: ThunderModule, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the entries of one submodule as the original has them. Called by `original_state_dict`."""
        return state_dict

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


Hook = Callable[..., Any]


def overrides(transform: Transform, method: str) -> bool:
    """Return whether a transform has a method of its own."""
    return getattr(type(transform), method) is not getattr(Transform, method)


def hooks_of(transform: Transform) -> tuple[str, Hook | None, Hook | None, Hook | None, Hook | None]:
    """Return what the extension module takes for a transform: name, two functions of native traces, and two others."""

    def pre_prologue(prologue: Any, computation: Any, epilogue: Any, stored: list[Any], module: Any) -> Any:
        given = Trace(prologue), Trace(computation, stored=stored), Trace(epilogue, module=module)
        returned = transform.transform_traces_pre_prologue(*given)
        if not isinstance(returned, tuple) or len(returned) != 3:
            raise TypeError(
                f"transform {transform!r}: transform_traces_pre_prologue: expected a tuple of three traces, got "
                f"{shown(returned)}"
            )
        made = [*returned[:2], given[2] if returned[2] is None else returned[2]]
        kinds = ("prologue", "computation", "epilogue")
        natives = tuple(_native(transform, trace, f" as the {kind}") for trace, kind in zip(made, kinds, strict=True))
        _check_stores(transform, given[1], made[1], made[2])
        return natives

    def post_optimization(native: Any, saved_begin: int, saved_end: int) -> Any:
        trace = Trace(native, (saved_begin, saved_end))
        return _native(transform, transform.transform_trace_post_optimization(trace))

    return (
        repr(transform),
        pre_prologue if overrides(transform, "transform_traces_pre_prologue") else None,
        post_optimization if overrides(transform, "transform_trace_post_optimization") else None,
        transform.check_collectives if overrides(transform, "check_collectives") else None,
        transform.note_failure if overrides(transform, "note_failure") else None,
    )


def _check_stores(transform: Transform, before: Trace, computation: Trace, epilogue: Trace) -> None:
    """Require that the epilogue stores outputs that were added, which are like the buffers."""
    count = len(before.outputs)
    for name, (index, buffer) in epilogue.stores.items():
        if not count <= index < len(computation.outputs):
            raise ValueError(f"transform {transform!r}: {name}: expected an output that was added, got output {index}")
        value = computation.outputs[index]
        found = tuple(value.shape), value.dtype, value.device
        expected = tuple(buffer.shape), buffer.dtype, buffer.device
        if found != expected:
            raise ValueError(f"transform {transform!r}: {name}: expected a value like {expected}, got {found}")
    stored = {index for index, _ in epilogue.stores.values()}
    if not set(range(count, len(computation.outputs))) <= stored:
        raise ValueError(
            f"transform {transform!r}: trace {computation.name}: expected {count} outputs, got "
            f"{len(computation.outputs)}; the epilogue has to store what is added (TraceEdit.store)"
        )


def _native(transform: Transform, trace: object, which: str = "") -> Any:
    if not isinstance(trace, Trace):
        hint = "; its method finish() returns the trace" if isinstance(trace, TraceEdit) else ""
        raise TypeError(f"transform {transform!r}: expected a trace{which}, got {shown(trace)}{hint}")
    return trace.native
