"""Fully sharded training: each process keeps a part of each parameter, of its gradient and of the optimizer's state."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from thunder.distributed.arguments import require_device, require_flags, require_floating_point, require_rank
from thunder.distributed.compiling import compile_with
from thunder.distributed.groups import broadcast, require_alike
from thunder.distributed.parallel_transform import ParallelTransform
from thunder.distributed.parameter_gathers import GatheredParameter, ParameterGathers
from thunder.distributed.replaced_parameters import note_replaced
from thunder.distributed.shard_layout import ShardLayout, full_tensor, is_shard, layout_of
from thunder.distributed.state_dicts import require_shards_when_loading
from thunder.distributed.synchronization import Synchronization, is_guarded, synchronization_of
from thunder.trace import Trace, TraceEdit, Value
from thunder.transforms.overrides import override_parameter, overrides_of, replace_stored, see_on

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["FSDPBucketingStrategy", "FSDPType", "FullySharded", "fsdp"]


class FSDPType(enum.Enum):
    """Whether gathered parameters are kept from the forward to the backward.

    ZERO2 keeps them; ZERO3 gathers them again in the backward.
    """

    ZERO2 = "zero2"
    ZERO3 = "zero3"


class FSDPBucketingStrategy(enum.Enum):
    """Which parameters are gathered together, and whose gradients are scattered together.

    NONE: each by itself; LAYER: those of a submodule; BLOCK: those below a numbered submodule (`layers.3`).
    """

    NONE = "none"
    LAYER = "layer"
    BLOCK = "block"


class FullySharded(ParallelTransform):
    """Keeps of each parameter the rows of this process, and gathers them where programs use the parameter.

    Made by `fsdp`, which has the arguments. The shard of process `r` of `n` are the rows `[r * k, (r + 1) * k)` with
    `k = ceil(rows / n)`, so that the last ones may have fewer, or none; each process has a scalar.
    """

    def __init__(
        self,
        layout: ShardLayout,
        sharding_strategy: FSDPType,
        bucketing_strategy: FSDPBucketingStrategy,
        broadcast_from: int | None,
        device: torch.device | None,
        param_dtype: torch.dtype | None,
        reduce_dtype: torch.dtype | None,
        cpu_offload: bool,
    ) -> None:
        super().__init__(layout.everyone, [each for each in (layout.shards, layout.replicas) if each is not None])
        self.layout = layout
        self.sharding_strategy = sharding_strategy
        self.bucketing_strategy = bucketing_strategy
        self.broadcast_from = broadcast_from
        self.device = device
        self.param_dtype = param_dtype
        self.reduce_dtype = reduce_dtype
        self.cpu_offload = cpu_offload

    def __repr__(self) -> str:
        strategy, bucketing = self.sharding_strategy.value, self.bucketing_strategy.value
        copies = "" if self.layout.replicas is None else f" of which {self.layout.replicas.size} have the same shard"
        return f"fsdp({self.group.size} processes{copies}, {strategy}, buckets: {bucketing})"

    # --- the module

    def transform_module(self, model: Any) -> None:
        """Put shards in the places of the parameters, submodule by submodule."""
        if synchronization_of(model) is not None:
            raise ValueError("thunder.distributed.fsdp: the module is parallel already")
        self._require_own_parts(model)
        require_alike("fsdp", self.group, model)
        self.agreement.begin()
        self.layout.enter_parts(model.parameters())
        names: dict[int, list[str]] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            names.setdefault(id(parameter), []).append(name)
        if not names:
            raise ValueError("thunder.distributed.fsdp: expected a module with parameters")
        tied = {name: [other for other in same if other != name] for same in names.values() for name in same}
        for path, module in list(model.named_modules()):
            self._shard_submodule(model, path, module, tied)
        Synchronization().attach(model)
        require_shards_when_loading(model)

    def _require_own_parts(self, model: Any) -> None:
        """Require that DTensors are those of `tensor_parallel`, which knows how to compute with them."""
        for name, parameter in model.named_parameters():
            entry = overrides_of(model).get(name)
            if is_shard(parameter) and (entry is None or not entry.owner):
                raise ValueError(
                    f"thunder.distributed.fsdp: {name} is a DTensor, which thunder.distributed.tensor_parallel has not "
                    "made; give fsdp a module of plain parameters, or what tensor_parallel returned"
                )

    def _shard_submodule(self, model: Any, path: str, module: torch.nn.Module, tied: Mapping[str, list[str]]) -> None:
        self._materialize(path, module)
        own = {f"{path}.{name}" if path else name: each for name, each in module.named_parameters(recurse=False)}
        state = [*own.values(), *module.buffers(recurse=False)]
        if self.broadcast_from is not None:
            broadcast(self.group, [each for each in state if not self.layout.holds(each)], self.broadcast_from)
        for name, parameter in own.items():
            if name in overrides_of(model):
                self._shard_part(model, name, parameter)
                continue
            for other in tied[name]:  # those of a module that was on the meta device are apart now
                owner, _, local = other.rpartition(".")
                model.get_submodule(owner)._parameters[local] = parameter
            if self.layout.shards.size > 1 and parameter.numel() > 0:
                shard = self.layout.shard_of(parameter.detach(), self.cpu_offload)
                override_parameter(model, name, torch.nn.Parameter(shard, requires_grad=parameter.requires_grad))
                note_replaced(parameter, "fsdp")
                if self.cpu_offload:
                    see_on(model, name, parameter.device)

    def _shard_part(self, model: Any, name: str, parameter: torch.Tensor) -> None:
        """Shard the part that `tensor_parallel` left to this process; a parameter of several names is, once."""
        if self.layout.shards.size > 1 and is_shard(parameter) and not self.layout.holds(parameter):
            shard = self.layout.shard_of(parameter.detach(), self.cpu_offload)
            replace_stored(model, name, torch.nn.Parameter(shard, requires_grad=parameter.requires_grad))
            if self.cpu_offload:
                see_on(model, name, parameter.device)

    def _materialize(self, path: str, module: torch.nn.Module) -> None:
        """Initialize a submodule that is on the meta device."""
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if not any(each.is_meta for each in own):
            return
        where = f"thunder.distributed.fsdp: {path or 'the module'} ({type(module).__name__}) is on the meta device"
        if not callable(getattr(module, "reset_parameters", None)):
            raise ValueError(
                f"{where} and has no reset_parameters(), which would initialize it; give it one, or make it on a device"
            )
        if not all(each.is_meta for each in own):
            raise ValueError(f"{where} only in part, or shares a parameter with another submodule; make it on a device")
        module.to_empty(device=self.device or _default_device(), recurse=False)
        module.reset_parameters()

    # --- traces

    def transform_traces_pre_prologue(
        self, prologue_trace: Trace, computation_trace: Trace, epilogue_trace: Trace, **kwargs: Any
    ) -> tuple[Trace, Trace, Trace]:
        """Gather parameters in front of the program; passes move that to where they are used."""
        module = epilogue_trace.module
        state = synchronization_of(module)
        names = dict(_sharded_values(computation_trace, module, repr(self)))
        self.note_parameters(names.values())
        if state is None or not names:
            return prologue_trace, computation_trace, epilogue_trace
        prologue, edit = prologue_trace.edit(repr(self)), computation_trace.edit(repr(self))
        gathered = self.gather(module, prologue, edit, names, is_guarded(prologue_trace))
        for value, full in zip(names, gathered, strict=True):
            edit.substitute(value, full)
        return prologue.finish(), edit.finish(), epilogue_trace

    def gather(
        self, module: Any, prologue: TraceEdit, edit: TraceEdit, names: Mapping[Value, str], is_guarded: bool
    ) -> list[Value]:
        """Insert gathers of parameters, given as inputs of a program with their names; return what is gathered.

        Of a layer that `tensor_parallel` split, that is the part of this process. `is_guarded`: the program is one for
        the state of the module, which a part of it that is called by itself does not read.
        """
        state = synchronization_of(module)
        assert state is not None
        parameters = []
        for value, name in names.items():
            self._require_rows(module, name)
            size, stride = self.layout.size_within(module.get_parameter(name)), value.stride()
            if size != tuple(value.shape):
                stride = torch.empty(size, device="meta").stride()
            bucket, requires_grad = self._bucket_of(name), value.requires_grad
            gathered = GatheredParameter(name, size, stride, value.dtype, requires_grad, bucket, value.device)
            parameters.append((value, gathered))
        accumulates = (not state.syncs or state.has_kept) and is_guarded
        is_kept = self.sharding_strategy is FSDPType.ZERO2
        gathers = ParameterGathers(self.layout, is_kept, self.param_dtype, self.reduce_dtype)
        return gathers.insert(prologue, edit, state, accumulates, parameters)

    def _require_rows(self, module: Any, name: str) -> None:
        """Require that nobody has put something else in the place of a shard."""
        stored = module.get_parameter(name)
        if not self.layout.holds(stored):
            found = f"a DTensor with placements {stored.placements}" if is_shard(stored) else "a plain tensor"
            raise ValueError(
                f"thunder.distributed.fsdp: {name}: expected a DTensor that is sharded by rows, Shard(0), got {found}"
            )

    def _bucket_of(self, name: str) -> str:
        """Return the name of the bucket of a parameter; empty where it is by itself."""
        if self.bucketing_strategy is FSDPBucketingStrategy.NONE:
            return ""
        path = name.split(".")[:-1]
        numbers = [i for i, part in enumerate(path) if part.isdigit()]
        if self.bucketing_strategy is FSDPBucketingStrategy.BLOCK and numbers:
            path = path[: numbers[0] + 1]
        return ".".join(path) or "(the module)"

    def check_collectives(self, kind: str, collectives: str) -> None:
        """Compare the collectives, but for those between copies of a shard: other shards may have fewer rows."""
        replicas = self.layout.replicas
        if replicas is not None:
            between_copies = f'"{replicas.name}"'
            collectives = "".join(
                line
                for line in collectives.splitlines(keepends=True)
                if not line.startswith("wait_tensor") and not line.split("  # ")[0].endswith(between_copies)
            )
        super().check_collectives(kind, collectives)

    # --- state dicts

    def transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Return shards of full parameters."""
        entries = dict(state_dict)
        for name, size in self._sizes(model, submodule_name):
            if name not in entries:
                continue
            if is_shard(entries[name]) or entries[name].shape != size:
                found = "a shard of it" if is_shard(entries[name]) else list(entries[name].shape)
                raise ValueError(
                    f"thunder.distributed: {submodule_name}.{name}: expected the full parameter, {list(size)}, got "
                    f"{found}; shards are loaded by load_state_dict"
                )
            entries[name] = self.layout.shard_of(entries[name], self.cpu_offload)
        return entries

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Return full parameters of shards, which all processes have to ask for."""
        return {name: full_tensor(entry) for name, entry in state_dict.items()}

    def _sizes(self, model: Any, submodule_name: str) -> Iterator[tuple[str, torch.Size]]:
        for name, entry in overrides_of(model).items():
            path, _, local = name.rpartition(".")
            if path == submodule_name and entry.owner == repr(self) and entry.shape is not None:
                yield local, entry.shape


def fsdp(
    model: Any,
    *,
    sharding_strategy: FSDPType = FSDPType.ZERO2,
    bucketing_strategy: FSDPBucketingStrategy = FSDPBucketingStrategy.NONE,
    broadcast_from: int | None = 0,
    device: torch.device | str | None = None,
    process_group: ProcessGroup | None = None,
    param_dtype: torch.dtype | None = None,
    reduce_dtype: torch.dtype | None = None,
    device_mesh: DeviceMesh | None = None,
    cpu_offload: bool = False,
) -> Any:
    """Return a compiled module whose parameters are shards; each process has its own.

    The result is what `thunder.jit` returns; `thunder.jit(fsdp(model), …)` compiles it with other options, and
    `fsdp(thunder.jit(model, …))` keeps those of the compiled module. Programs gather parameters where they use them,
    and give each process its part of the gradients' mean. `parameters()` and `state_dict()` are the shards, as
    DTensors: make the optimizer of the result; `torch.nn.utils.clip_grad_norm_` and `torch.distributed.checkpoint` take
    them. `thunder.distributed.full_state_dict` gives full parameters. `model` keeps its own, for as long as it lives.

    Args:
        model: a module, or what `thunder.jit` made of one. Submodules on the meta device are initialized one after the
            other, by their `reset_parameters()`, so that no process has the whole model.
        sharding_strategy: ZERO2 keeps parameters from the forward to the backward, ZERO3 gathers them again.
        bucketing_strategy: which parameters are gathered together: NONE, LAYER or BLOCK.
        broadcast_from: the rank in the group whose parameters and buffers all processes begin with; None: each process
            has set the same ones.
        device: for what is on the meta device; None: the current GPU, or the CPU where there is none.
        process_group: the processes that work together, by default all.
        param_dtype: that parameters are gathered in, and lose precision by; programs see them in their own dtype.
            Their gradients are rounded to it, too. None: their own.
        reduce_dtype: that gradients are summed in; None: `param_dtype`.
        device_mesh: in the place of `process_group`: parameters are sharded over its only dimension, or over the second
            of two. Processes along the first one have copies of the same shards (hybrid sharding).
        cpu_offload: whether shards lie in the memory of the CPU, with their gradients, and so with the optimizer's
            state. Programs copy them to where the parameters were, and gradients back. Buffers stay. The process group
            needs a backend for CPUs, too: `init_process_group("cpu:gloo,cuda:nccl")`.

    Raises:
        RuntimeError: there is no torch.distributed, or no process group; parameters have other shapes in other
            processes.
        TypeError: `model` is no module, or an argument is of another type.
        ValueError: the module has no parameters, or is parallel already; a submodule on the meta device cannot be
            initialized; a dtype is not a floating-point one; the mesh is for another device, or has three dimensions.
    """
    layout = layout_of("fsdp", process_group, device_mesh)
    require_floating_point("thunder.distributed.fsdp: param_dtype", param_dtype)
    require_floating_point("thunder.distributed.fsdp: reduce_dtype", reduce_dtype)
    require_flags("fsdp", cpu_offload=cpu_offload)
    where = require_device("thunder.distributed.fsdp: device", device)
    for name, value, kind in (
        ("sharding_strategy", sharding_strategy, FSDPType),
        ("bucketing_strategy", bucketing_strategy, FSDPBucketingStrategy),
    ):
        if not isinstance(value, kind):
            choices = ", ".join(f"{kind.__name__}.{each.name}" for each in kind)
            raise TypeError(f"thunder.distributed.fsdp: {name}: expected one of {choices}, got {value!r}")
    require_rank("thunder.distributed.fsdp: broadcast_from", broadcast_from, layout.everyone.size)
    if cpu_offload and torch.device("cpu") not in layout.everyone.process_group._device_types:
        raise ValueError(
            "thunder.distributed.fsdp: cpu_offload: expected a process group that has a backend for CPUs, too: "
            'torch.distributed.init_process_group("cpu:gloo,cuda:nccl")'
        )
    transform = FullySharded(
        layout, sharding_strategy, bucketing_strategy, broadcast_from, where, param_dtype, reduce_dtype, cpu_offload
    )
    return compile_with(transform, model, "fsdp")


def _sharded_values(trace: Trace, module: Any, owner: str) -> Iterator[tuple[Value, str]]:
    """Return the parameters that are shards, each with the first of its names."""
    seen = set()
    sharded = {name for name, entry in overrides_of(module).items() if entry.owner == owner}
    for name, value in trace.parameters.items():
        if name in sharded and value not in seen:
            seen.add(value)
            yield value, name


def _default_device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
