"""Fully sharded training: each process keeps a part of each parameter, of its gradient and of the optimizer's state."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from thunder.distributed.compiling import compile_with, kept_transforms
from thunder.distributed.groups import Group, broadcast, group_of, require_alike
from thunder.distributed.parallel_transform import ParallelTransform
from thunder.distributed.synchronization import Synchronization, is_guarded, synchronization_of
from thunder.trace import Trace, Value
from thunder.transforms.overrides import override_parameter, overrides_of

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["FSDPBucketingStrategy", "FSDPType", "FullySharded", "fsdp"]


class FSDPType(enum.Enum):
    """Whether parameters are kept from the forward to the backward.

    ZERO2 keeps them whole; ZERO3 gathers them again in the backward.
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
    `k = ceil(rows / n)`, filled up with zeros; a scalar has one row.
    """

    def __init__(
        self,
        group: Group,
        sharding_strategy: FSDPType,
        bucketing_strategy: FSDPBucketingStrategy,
        broadcast_from: int | None,
        device: torch.device | None,
    ) -> None:
        super().__init__(group)
        self.sharding_strategy = sharding_strategy
        self.bucketing_strategy = bucketing_strategy
        self.broadcast_from = broadcast_from
        self.device = device

    def __repr__(self) -> str:
        strategy, bucketing = self.sharding_strategy.value, self.bucketing_strategy.value
        return f"fsdp({self.group.size} processes, {strategy}, buckets: {bucketing})"

    # --- the module

    def transform_module(self, model: Any) -> None:
        """Put shards in the places of the parameters, submodule by submodule."""
        if synchronization_of(model) is not None:
            raise ValueError("thunder.distributed.fsdp: the module is parallel already")
        require_alike("fsdp", self.group, model)
        self.agreement.begin()
        names: dict[int, list[str]] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            names.setdefault(id(parameter), []).append(name)
        if not names:
            raise ValueError("thunder.distributed.fsdp: expected a module with parameters")
        tied = {name: [other for other in same if other != name] for same in names.values() for name in same}
        for path, module in list(model.named_modules()):
            self._shard_submodule(model, path, module, tied)
        Synchronization().attach(model)

    def _shard_submodule(self, model: Any, path: str, module: torch.nn.Module, tied: Mapping[str, list[str]]) -> None:
        self._materialize(path, module)
        own = {f"{path}.{name}" if path else name: each for name, each in module.named_parameters(recurse=False)}
        state = [*own.values(), *module.buffers(recurse=False)]
        sharded = overrides_of(model)
        if self.broadcast_from is not None:
            whole = [each for each in state if id(each) not in {id(own[name]) for name in own if name in sharded}]
            broadcast(self.group, whole, self.broadcast_from)
        for name, parameter in own.items():
            if name in overrides_of(model):
                continue
            for other in tied[name]:  # those of a module that was on the meta device are apart now
                owner, _, local = other.rpartition(".")
                model.get_submodule(owner)._parameters[local] = parameter
            if self.group.size > 1 and parameter.numel() > 0:
                shard = _shard_of(parameter.detach(), self.group)
                override_parameter(model, name, torch.nn.Parameter(shard, requires_grad=parameter.requires_grad))

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
        if state is None or not names:
            return prologue_trace, computation_trace, epilogue_trace
        prologue, edit = prologue_trace.edit(repr(self)), computation_trace.edit(repr(self))
        # A part of the module that is called by itself does not read the state.
        accumulates = (not state.syncs or state.has_kept) and is_guarded(prologue_trace)
        shards, owners, places = [], [], []
        for value, name in names.items():
            shards.append(edit.take_stored(value))
            places.append((list(value.shape), value.stride(), self._bucket_of(name)))
            owner = state.owner_of(name, value) if accumulates and value.requires_grad else None
            if owner is not None:
                prologue.add_tensor(owner)
            owners.append(None if owner is None else edit.add_input(owner))
        gathered = edit.insert_first(self._gather, shards, owners, places, keeps=not state.syncs)
        for value, whole in zip(names, gathered, strict=True):
            edit.substitute(value, whole)
        return prologue.finish(), edit.finish(), epilogue_trace

    def _gather(
        self,
        shards: Sequence[torch.Tensor],
        owners: Sequence[torch.Tensor | None],
        places: Sequence[tuple[list[int], tuple[int, ...], str]],
        keeps: bool,
    ) -> list[torch.Tensor]:
        ops = torch.ops.thunder
        is_zero2 = self.sharding_strategy is FSDPType.ZERO2
        gather = ops.gather_shards.kept if is_zero2 else ops.gather_shards.default
        result = []
        for shard, owner, (size, strides, bucket) in zip(shards, owners, places, strict=True):
            whole = gather(shard, size, self.group.name, self.group.size, bucket)
            if whole.stride() != strides:
                whole = ops.restride(whole, strides)
            if owner is not None:
                whole = (ops.with_gradient_for if keeps else ops.adds_gradient_of)(whole, owner)
            result.append(whole)
        return result

    def _bucket_of(self, name: str) -> str:
        """Return the name of the bucket of a parameter; empty where it is by itself."""
        if self.bucketing_strategy is FSDPBucketingStrategy.NONE:
            return ""
        path = name.split(".")[:-1]
        numbers = [i for i, part in enumerate(path) if part.isdigit()]
        if self.bucketing_strategy is FSDPBucketingStrategy.BLOCK and numbers:
            path = path[: numbers[0] + 1]
        return ".".join(path) or "(the module)"

    # --- state dicts

    def transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Return shards of whole parameters."""
        entries = dict(state_dict)
        for name, size in self._sizes(model, submodule_name):
            if name not in entries:
                continue
            if entries[name].shape != size:
                raise ValueError(
                    f"thunder.distributed: {submodule_name}.{name}: expected the whole parameter, {list(size)}, got "
                    f"{list(entries[name].shape)}; shards are loaded by load_state_dict"
                )
            entries[name] = _shard_of(entries[name], self.group)
        return entries

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Return whole parameters of shards, which all processes have to ask for."""
        entries = dict(state_dict)
        for name, size in self._sizes(model, submodule_name):
            if name in entries:
                entries[name] = whole_of_shard(entries[name], size, self.group)
        return entries

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
) -> Any:
    """Return a compiled module whose parameters are shards; each process has its own.

    The result is what `thunder.jit` returns; `thunder.jit(fsdp(model), …)` compiles it with other options, and
    `fsdp(thunder.jit(model, …))` keeps those of the compiled module. Programs gather whole parameters where they use
    them, and give each process its part of the gradients' mean. `parameters()` and `state_dict()` are the shards, plain
    tensors: make the optimizer of the result, clip by `thunder.distributed.clip_grad_norm_`, and get whole parameters
    by `thunder.distributed.full_state_dict`. `model` keeps its whole parameters, for as long as it lives.

    Args:
        model: a module, or what `thunder.jit` made of one. Submodules on the meta device are initialized one after the
            other, by their `reset_parameters()`, so that no process has the whole model.
        sharding_strategy: ZERO2 keeps whole parameters from the forward to the backward, ZERO3 gathers them again.
        bucketing_strategy: which parameters are gathered together: NONE, LAYER or BLOCK.
        broadcast_from: the rank in the group whose parameters and buffers all processes begin with; None: each process
            has set the same ones.
        device: for what is on the meta device; None: the current GPU, or the CPU where there is none.
        process_group: the processes that work together, by default all.

    Raises:
        RuntimeError: there is no torch.distributed, or no process group; parameters have other shapes in other
            processes.
        TypeError: `model` is no module, or an argument is of another type.
        ValueError: the module has no parameters, or is parallel already; a submodule on the meta device cannot be
            initialized.
    """
    group = group_of("fsdp", process_group)
    for name, value, kind in (
        ("sharding_strategy", sharding_strategy, FSDPType),
        ("bucketing_strategy", bucketing_strategy, FSDPBucketingStrategy),
    ):
        if not isinstance(value, kind):
            choices = ", ".join(f"{kind.__name__}.{each.name}" for each in kind)
            raise TypeError(f"thunder.distributed.fsdp: {name}: expected one of {choices}, got {value!r}")
    if broadcast_from is not None and not 0 <= broadcast_from < group.size:
        raise ValueError(
            f"thunder.distributed.fsdp: broadcast_from: expected a rank below {group.size}, got {broadcast_from}"
        )
    where = None if device is None else torch.device(device)
    transform = FullySharded(group, sharding_strategy, bucketing_strategy, broadcast_from, where)
    return compile_with(transform, model, "fsdp")


def group_of_shards(model: Any) -> Group | None:
    """Return the processes that have the shards of a module; None where `fsdp` did not make it."""
    groups = (each.group for each in _transforms(model) if isinstance(each, FullySharded))
    return next(groups, None)


def sharded_names(model: Any) -> dict[str, torch.Size]:
    """Return the sizes of the whole parameters behind the shards of a module, by name."""
    owners = {repr(each) for each in _transforms(model) if isinstance(each, FullySharded)}
    entries = overrides_of(model).items()
    return {name: entry.shape for name, entry in entries if entry.owner in owners and entry.shape is not None}


def whole_of_shard(shard: torch.Tensor, size: torch.Size, group: Group) -> torch.Tensor:
    """Return the whole tensor; all processes of the group have to ask."""
    import torch.distributed._functional_collectives

    ops = torch.ops._c10d_functional
    gathered = ops.wait_tensor(ops.all_gather_into_tensor(shard.detach().contiguous(), group.size, group.name))
    return gathered[: size[0]] if size else gathered[0]


def _transforms(model: Any) -> tuple[Any, ...]:
    options = getattr(model, "__options__", None)
    return () if options is None else (*options.transforms, *kept_transforms(model))


def _shard_of(whole: torch.Tensor, group: Group) -> torch.Tensor:
    whole = whole if whole.dim() > 0 else whole.reshape(1)
    rows = -(-whole.shape[0] // group.size)
    shard = whole.new_zeros(rows, *whole.shape[1:])
    part = whole[group.rank * rows : (group.rank + 1) * rows]
    shard[: part.shape[0]] = part
    return shard


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
