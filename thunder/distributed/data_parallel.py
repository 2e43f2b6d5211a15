"""Data parallel training: each process has the whole model and a part of each batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from thunder.distributed.arguments import require_flags, require_floating_point, require_rank, require_size
from thunder.distributed.compiling import compile_with
from thunder.distributed.groups import Group, broadcast, group_of, require_alike
from thunder.distributed.parallel_transform import ParallelTransform
from thunder.distributed.synchronization import Synchronization, is_guarded, synchronization_of
from thunder.trace import Trace, TraceEdit, Value
from thunder.transforms.overrides import require_programs

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["DataParallel", "ddp"]


class DataParallel(ParallelTransform):
    """Averages the gradients of parameters over the processes of a group, in the trace of the backward.

    Made by `ddp`, which has the arguments.
    """

    def __init__(
        self,
        group: Group,
        broadcast_from: int | None,
        bucket_bytes: int,
        broadcast_buffers: bool,
        communication_dtype: torch.dtype | None,
        find_unused_parameters: bool,
    ) -> None:
        super().__init__(group)
        self.agreement.warns = True
        self.broadcast_from = broadcast_from
        self.bucket_bytes = bucket_bytes
        self.broadcast_buffers = broadcast_buffers
        self.communication_dtype = communication_dtype
        self.find_unused_parameters = find_unused_parameters

    def __repr__(self) -> str:
        return f"ddp({self.group.size} processes)"

    def transform_module(self, model: Any) -> None:
        """Give all processes the parameters and buffers of one of them."""
        if synchronization_of(model) is not None:
            raise ValueError("thunder.distributed.ddp: the module is parallel already")
        parameters = [each for each in model.parameters() if each.requires_grad]
        if not parameters:
            raise ValueError("thunder.distributed.ddp: expected a module with parameters that require grad")
        require_alike("ddp", self.group, model)
        self.agreement.begin()
        if self.broadcast_from is not None:
            broadcast(self.group, [*model.parameters(), *model.buffers()], self.broadcast_from)
        Synchronization(_places_of(model) if self.find_unused_parameters else ()).attach(model)
        if self.group.size > 1:
            require_programs(model)

    def transform_traces_pre_prologue(
        self, prologue_trace: Trace, computation_trace: Trace, epilogue_trace: Trace, **kwargs: Any
    ) -> tuple[Trace, Trace, Trace]:
        """Mark the parameters whose gradients are averaged, and begin with buffers of one process."""
        state = synchronization_of(epilogue_trace.module)
        if state is None or self.group.size == 1:
            return prologue_trace, computation_trace, epilogue_trace
        edit = computation_trace.edit(repr(self))
        names = {value: name for name, value in computation_trace.parameters.items()}
        parameters = [value for value in names if _is_parameter(epilogue_trace.module, names[value])]
        buffers = [value for value in names if value not in parameters]
        if self.broadcast_buffers and buffers and state.shares_buffers and is_guarded(prologue_trace):
            self._share(computation_trace, edit, buffers)
        marked = [value for value in parameters if value.requires_grad]
        _require_unwritten(computation_trace, {value: names[value] for value in marked})
        # `model.forward`, called by itself, does not read the state.
        accumulates = (not state.syncs or state.has_kept) and is_guarded(prologue_trace)
        self.note_parameters(())
        if marked and (state.syncs or not accumulates):
            mark = self._mark
            if self.find_unused_parameters:
                marked, mark = _in_order(marked, names, state.places), self._mark_together
            self.note_parameters(names[value] for value in marked)
            for value, other in zip(marked, edit.insert_first(mark, marked, accumulates), strict=True):
                edit.substitute(value, other)
        return prologue_trace, edit.finish(), epilogue_trace

    def _mark(self, parameters: list[torch.Tensor], adds_kept: bool) -> list[torch.Tensor]:
        ops = torch.ops.thunder
        dtype = self.communication_dtype
        options = self.group.name, self.group.size, self.bucket_bytes
        marked = [ops.replicated(each, *options, None if dtype == each.dtype else dtype) for each in parameters]
        if adds_kept:
            marked = [ops.adds_gradient_of(*pair) for pair in zip(marked, parameters, strict=True)]
        return marked

    def _mark_together(self, parameters: list[torch.Tensor], adds_kept: bool) -> list[torch.Tensor]:
        """Mark all parameters, so that programs which use others of them send the same."""
        options = self.group.name, self.group.size, self.bucket_bytes, self.communication_dtype
        marked: list[torch.Tensor] = torch.ops.thunder.replicated_together(parameters[::-1], *options, adds_kept)
        return marked[::-1]

    def _share(self, trace: Trace, edit: TraceEdit, buffers: list[Value]) -> None:
        """Let the program read the buffers of one process, and leave them in the module."""
        shared = dict(zip(buffers, edit.insert_first(self._broadcast, buffers), strict=True))
        left = dict(shared)
        for symbol in reversed(trace.bound_symbols):  # writes to inputs come last
            if symbol.name != "aten.copy_.default":
                break
            if symbol.args[0] in left:
                edit.remove(symbol)
                left[symbol.args[0]] = symbol.args[1]
        for buffer, value in shared.items():
            edit.substitute(buffer, value)
        edit.insert_last(_write, list(left), list(left.values()))

    def _broadcast(self, buffers: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the buffers of the first process: one collective for each dtype and device."""
        ops = torch.ops._c10d_functional
        result = list(buffers)
        kinds = dict.fromkeys((each.dtype, each.device) for each in buffers)
        for kind in kinds:
            places = [i for i, each in enumerate(buffers) if (each.dtype, each.device) == kind]
            row = torch.cat([buffers[i].reshape(-1) for i in places])
            row = ops.wait_tensor(ops.broadcast(row, self.broadcast_from or 0, self.group.name))
            begin = 0
            for i in places:
                end = begin + buffers[i].numel()
                result[i] = row[begin:end].view(buffers[i].shape)
                begin = end
        return result


def ddp(
    model: Any,
    *,
    broadcast_from: int | None = 0,
    bucket_size_in_mb: float = 25.0,
    process_group: ProcessGroup | None = None,
    broadcast_buffers: bool = True,
    communication_dtype: torch.dtype | None = None,
    find_unused_parameters: bool = False,
) -> Any:
    """Return a compiled module whose backwards average the gradients of all processes.

    The result is what `thunder.jit` returns; `thunder.jit(ddp(model), …)` compiles it with other options, and
    `ddp(thunder.jit(model, …))` keeps those of the compiled module. It shares parameters and buffers with `model`,
    which itself stays as it was. Gradients are averaged in buckets while the backward runs, and `.grad` are views of
    these. A parameter that no process uses gets no gradient, as in one process.

    Args:
        model: a module, or what `thunder.jit` made of one. Its parameters have the same shapes in all processes.
        broadcast_from: the rank in the group whose parameters and buffers all processes begin with; None: each process
            has set the same ones.
        bucket_size_in_mb: of the gradients that are sent as one tensor, in MiB; the first bucket has at most one.
        process_group: the processes that work together, by default all.
        broadcast_buffers: whether calls begin with the buffers of process `broadcast_from` (of process 0 for None), as
            in PyTorch's DistributedDataParallel.
        communication_dtype: that gradients are sent in, a floating-point one; None: their own.
        find_unused_parameters: whether processes may use different parameters, by taking different branches. All of
            them send a gradient for each parameter then. One that this process does not use gets the mean of what
            others give; one that no process uses gets none.

    Raises:
        RuntimeError: there is no torch.distributed, or no process group; parameters have other shapes in other
            processes.
        TypeError: `model` is no module, or PyTorch's DistributedDataParallel; an argument is of another type.
        ValueError: the module has no parameter that requires grad, or is parallel already; an argument is out of range.
    """
    group = group_of("ddp", process_group)
    require_size("thunder.distributed.ddp: bucket_size_in_mb", bucket_size_in_mb)
    require_rank("thunder.distributed.ddp: broadcast_from", broadcast_from, group.size)
    require_floating_point("thunder.distributed.ddp: communication_dtype", communication_dtype)
    require_flags("ddp", broadcast_buffers=broadcast_buffers, find_unused_parameters=find_unused_parameters)
    bucket_bytes = int(bucket_size_in_mb * (1 << 20))
    transform = DataParallel(
        group, broadcast_from, bucket_bytes, broadcast_buffers, communication_dtype, find_unused_parameters
    )
    return compile_with(transform, model, "ddp")


def _write(targets: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    for target, value in zip(targets, values, strict=True):
        target.copy_(value)
    return []


def _is_parameter(module: Any, name: str) -> bool:
    path, _, local = name.rpartition(".")
    return local in module.get_submodule(path)._parameters


def _require_unwritten(trace: Trace, parameters: dict[Value, str]) -> None:
    for symbol in reversed(trace.bound_symbols):
        if symbol.name != "aten.copy_.default":
            return
        if symbol.args[0] in parameters:
            raise ValueError(
                f"thunder.distributed.ddp: the program writes to the parameter {parameters[symbol.args[0]]}, which all "
                "processes share; write to it outside of the module's forward"
            )


def _in_order(parameters: list[Value], names: Mapping[Value, str], places: Sequence[tuple[str, ...]]) -> list[Value]:
    """Return the parameters in the order that all processes have."""
    found = {names[value]: value for value in parameters}
    ordered = [found[name] for place in places if (name := ".".join(place)) in found]
    if len(ordered) != len(parameters):
        raise ValueError(
            "thunder.distributed.ddp: find_unused_parameters: expected the parameters that the module had when ddp was "
            f"called, got {sorted(set(found) - {'.'.join(place) for place in places})} besides"
        )
    return ordered


def _places_of(module: Any) -> tuple[tuple[str, ...], ...]:
    """Return where the parameters stand whose gradients are averaged."""
    return tuple(tuple(name.split(".")) for name, each in module.named_parameters() if each.requires_grad)
