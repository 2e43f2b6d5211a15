"""Tensor parallel training: each process of a group has a part of the features of linear layers and embeddings."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from thunder._parts import kept_transforms
from thunder.distributed.activation_parts import ActivationParts, operator_of
from thunder.distributed.arguments import require_flags, require_names, require_rank
from thunder.distributed.compiling import compile_with
from thunder.distributed.groups import Group, broadcast, group_of, require_alike
from thunder.distributed.parallel_transform import ParallelTransform
from thunder.distributed.replaced_parameters import note_replaced
from thunder.distributed.shard_layout import full_tensor, is_shard
from thunder.distributed.sharding import FullySharded
from thunder.distributed.state_dicts import require_shards_when_loading
from thunder.distributed.synchronization import is_guarded, synchronization_of
from thunder.trace import BoundSymbol, Trace, TraceEdit, Value
from thunder.transforms.overrides import override_parameter, overrides_of

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

__all__ = ["TensorParallel", "column_parallel", "row_parallel", "tensor_parallel"]

_LAYERS = (torch.nn.Linear, torch.nn.Embedding)
_CASTS = ("aten.to.dtype", "aten._to_copy.default")  # by autocast


class TensorParallel(ParallelTransform):
    """Keeps of layers' parameters the part of this process, and lets programs compute with parts of activations.

    Made by `tensor_parallel`, which has the arguments.
    """

    def __init__(
        self,
        group: Group,
        column: Sequence[str],
        row: Sequence[str],
        broadcast_from: int | None,
        sequence_parallel: bool,
    ) -> None:
        super().__init__(group)
        self.sequence_parallel = sequence_parallel
        self.column = tuple(column)
        self.row = tuple(row)
        self.broadcast_from = broadcast_from

    def __repr__(self) -> str:
        sequences = ", parts of sequences" if self.sequence_parallel else ""
        return f"tensor_parallel({self.group.size} processes, column: {self.column}, row: {self.row}{sequences})"

    # --- the module

    def transform_module(self, model: Any) -> None:
        """Put parts in the places of parameters."""
        if synchronization_of(model) is not None or any(is_shard(each) for each in model.parameters()):
            raise ValueError(
                "thunder.distributed.tensor_parallel: the module is parallel already; give all names at once, and "
                "apply ddp to what is returned"
            )
        require_alike("tensor_parallel", self.group, model)
        self.agreement.begin()
        column, row = self._layers(model, self.column, "column"), self._layers(model, self.row, "row")
        layers = {**column, **row}
        if twice := sorted(column.keys() & row.keys()):
            raise ValueError(f"thunder.distributed.tensor_parallel: {twice[0]}: expected in column or row, got in both")
        if self.broadcast_from is not None:
            broadcast(self.group, [*model.parameters(), *model.buffers()], self.broadcast_from)
        if self.group.size == 1:
            return
        for path, kind in layers.items():
            layer = model.get_submodule(path)
            is_embedding = isinstance(layer, torch.nn.Embedding)
            self._shard(model, path, "weight", int((kind == "column") == is_embedding))
            if kind == "column" and not is_embedding and layer.bias is not None:
                self._shard(model, path, "bias", 0)
        require_shards_when_loading(model)

    def _layers(self, model: Any, patterns: Sequence[str], kind: str) -> dict[str, str]:
        modules = dict(model.named_modules())
        found: dict[str, str] = {}
        for pattern in patterns:
            paths = fnmatch.filter(modules, pattern)
            if not paths:
                raise ValueError(f"thunder.distributed.tensor_parallel: {kind}: the module has no {pattern}")
            for path in paths:
                if not isinstance(modules[path], _LAYERS):
                    raise TypeError(
                        f"thunder.distributed.tensor_parallel: {kind}: expected a Linear or an Embedding, got {path}, "
                        f"a {type(modules[path]).__name__}"
                    )
                found[path] = kind
        return found

    def _shard(self, model: Any, path: str, name: str, dim: int) -> None:
        where = f"{path}.{name}"
        parameter = model.get_parameter(where)
        if where in overrides_of(model):
            if is_shard(parameter) and parameter.placements[0].is_shard(dim):
                return  # the same tensor as that of a layer before
            raise ValueError(
                f"thunder.distributed.tensor_parallel: {where} is shared by layers that split it otherwise"
            )
        if parameter.shape[dim] % self.group.size:
            raise ValueError(
                f"thunder.distributed.tensor_parallel: {where}: expected a size that {self.group.size} processes "
                f"share, got {parameter.shape[dim]} in dimension {dim}"
            )
        part = self._part_of(parameter.detach(), dim)
        override_parameter(model, where, torch.nn.Parameter(part, requires_grad=parameter.requires_grad))
        note_replaced(parameter, "tensor_parallel")

    def _part_of(self, full: torch.Tensor, dim: int) -> torch.Tensor:
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.tensor import DTensor, Shard

        own = full.chunk(self.group.size, dim)[self.group.rank].clone(memory_format=torch.contiguous_format)
        mesh = DeviceMesh.from_group(self.group.process_group, full.device.type)
        return DTensor.from_local(own, mesh, [Shard(dim)], run_check=False)

    # --- traces

    def transform_traces_pre_prologue(
        self, prologue_trace: Trace, computation_trace: Trace, epilogue_trace: Trace, **kwargs: Any
    ) -> tuple[Trace, Trace, Trace]:
        """Let layers compute with their parts, and what lies between them, too."""
        module = epilogue_trace.module
        mine = {name for name, entry in overrides_of(module).items() if entry.owner == repr(self)}
        names: dict[Value, str] = {}
        for name, value in computation_trace.parameters.items():
            if name in mine:
                names.setdefault(value, name)
        self.note_parameters(names.values())
        if not names:
            return prologue_trace, computation_trace, epilogue_trace
        prologue, edit = prologue_trace.edit(repr(self)), computation_trace.edit(repr(self))
        parts = self._take(module, prologue, edit, names, is_guarded(prologue_trace))
        stored = {
            value: (part, module.get_parameter(name).placements[0].dim, name)
            for (value, name), part in zip(names.items(), parts, strict=True)
        }
        activations = ActivationParts(computation_trace, edit, self.group, self.sequence_parallel)
        for symbol in computation_trace.bound_symbols:
            read = [each for each in pytree.tree_leaves((symbol.args, symbol.kwargs)) if isinstance(each, Value)]
            weights = [stored[each] for each in read if each in stored]
            if not weights:
                activations.follow(symbol)
            elif symbol.name == "aten.linear.default" and symbol.args[1] in stored:
                self._linear(activations, symbol, stored)
            elif symbol.name in _CASTS:
                op = operator_of(symbol)
                part = edit.insert_before(symbol, op, weights[0][0], *symbol.args[1:], **symbol.kwargs)
                stored[symbol.results[0]] = part, *weights[0][1:]
                edit.remove(symbol)
            elif symbol.name == "aten.embedding.default" and symbol.args[0] in stored:
                self._embedding(activations, symbol, weights[0])
            else:
                raise ValueError(
                    f"thunder.distributed.tensor_parallel: {weights[0][2]}: expected to be read by a linear layer or "
                    f"an embedding, got {symbol.name} in {symbol.file}, line {symbol.line}"
                )
        return prologue.finish(), activations.finish(), epilogue_trace

    def _take(
        self, module: Any, prologue: TraceEdit, edit: TraceEdit, names: Mapping[Value, str], is_guarded: bool
    ) -> list[Value]:
        """Return the parts of this process, gathered where `fsdp` keeps shards of them."""
        around = _sharding_around(module)
        if around is None or around.layout.shards.size == 1:
            return [edit.take_stored(value) for value in names]
        return around.gather(module, prologue, edit, names, is_guarded)

    def _linear(
        self, activations: ActivationParts, symbol: BoundSymbol, stored: dict[Value, tuple[Value, int, str]]
    ) -> None:
        x, weight, *rest = symbol.args
        bias = rest[0] if rest else symbol.kwargs.get("bias")
        part, dim, _ = stored[weight]
        insert = activations.edit.insert_before
        if dim == 0:
            own_bias = stored[bias][0] if bias in stored else bias
            y = insert(symbol, F.linear, activations.summing(symbol, x), part, own_bias)
            activations.set_part(symbol, y, symbol.results[0].ndim - 1)
        else:
            own = activations.take(symbol, x, x.ndim - 1)
            activations.set_sum(symbol, F.linear, own, part, bias=bias)

    def _embedding(self, activations: ActivationParts, symbol: BoundSymbol, stored: tuple[Value, int, str]) -> None:
        weight, indices, *options = symbol.args
        defaults: list[Any] = [-1, False, False]
        padding, by_frequency, is_sparse = [*options, *defaults[len(options) :]]
        if by_frequency or is_sparse:
            raise ValueError(
                f"thunder.distributed.tensor_parallel: {stored[2]}: scale_grad_by_freq and sparse are not supported"
            )
        part, dim, _ = stored
        indices = activations.full(symbol, indices)
        insert = activations.edit.insert_before
        if dim == 1:
            y = insert(symbol, torch.ops.aten.embedding.default, part, indices, padding)
            activations.set_part(symbol, y, symbol.results[0].ndim - 1)
        else:
            first = self.group.rank * (weight.shape[0] // self.group.size)
            activations.set_sum(symbol, _own_embedding, part, indices, padding, first)

    # --- state dicts

    def transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Return parts of full parameters."""
        around = _sharding_around(model)
        entries = dict(state_dict)
        for name, entry in entries.items():
            held = dict(model.get_submodule(submodule_name).named_parameters(recurse=False)).get(name)
            if held is None or not is_shard(held) or is_shard(entry) or not held.placements[0].is_shard():
                continue
            where = f"{submodule_name}.{name}" if submodule_name else name
            if overrides_of(model)[where].owner != repr(self):
                continue
            entries[name] = self._part_of(entry, held.placements[0].dim)
            if around is not None and around.layout.holds(held):
                entries[name] = around.layout.shard_of(entries[name], around.cpu_offload)
        return entries

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Return full parameters, which all processes have to ask for."""
        return {name: full_tensor(entry) for name, entry in state_dict.items()}


def _sharding_around(model: Any) -> FullySharded | None:
    """Return the `fsdp` that was applied to a module afterwards."""
    return next((each for each in kept_transforms(model) if isinstance(each, FullySharded)), None)


def _own_embedding(weight: torch.Tensor, indices: torch.Tensor, padding: int, first: int) -> torch.Tensor:
    """Look up those of the indices that are rows of this process, which begin with `first`; zeros for the others."""
    rows = weight.shape[0]
    is_other = (indices < first) | (indices >= first + rows)
    own_padding = padding - first if first <= padding < first + rows else -1
    y = torch.ops.aten.embedding.default(weight, (indices - first).masked_fill(is_other, 0), own_padding)
    return y.masked_fill(is_other.unsqueeze(-1), 0.0)


def tensor_parallel(
    model: Any,
    *,
    column: Sequence[str] = (),
    row: Sequence[str] = (),
    sequence_parallel: bool = False,
    process_group: ProcessGroup | None = None,
    broadcast_from: int | None = 0,
) -> Any:
    """Return a compiled module that computes with a part of the features of some layers in each process.

    All processes of the group are given the same batch. A column-parallel linear layer gives a part of its outputs, a
    row-parallel one takes a part of its inputs, and adds what the processes have. Pointwise operations, views and
    attention between the two work on parts; what needs full tensors gets them. `parameters()` and `state_dict()` have
    DTensors for these layers. `model` keeps its own parameters.

    Args:
        model: a module, or what `thunder.jit` made of one.
        column: names of linear layers, or patterns (`layers.*.gate`), whose weights are split by rows (outputs), and of
            embeddings that are split by features.
        row: those of linear layers whose weights are split by columns (inputs), and of embeddings that are split by
            rows, which are words.
        sequence_parallel: whether what row-parallel layers give is left in parts along the sequence, the last dimension
            but one, so that norms and residuals between them and column-parallel layers are computed on parts, too.
            Sums over processes become a reduce-scatter, and a gather in front of column-parallel layers. Where the
            sequence is no multiple of the number of processes, it is not split.
        process_group: the processes that work together, by default all: of a mesh, `mesh["tp"].get_group()`.
        broadcast_from: the rank in the group whose parameters and buffers all processes begin with; None: each process
            has set the same ones.

    Raises:
        RuntimeError: there is no torch.distributed, or no process group; parameters have other shapes in other
            processes.
        TypeError: `model` is no module; a name is that of another layer; an argument is of another type.
        ValueError: there is no module of a name, or no name; a name is in `column` and in `row`; a size is no multiple
            of the number of processes; the module is parallel already. When it is called: a parameter is read by
            another operation than its layer's.
    """
    group = group_of("tensor_parallel", process_group)
    require_rank("thunder.distributed.tensor_parallel: broadcast_from", broadcast_from, group.size)
    require_names("thunder.distributed.tensor_parallel: column", column)
    require_names("thunder.distributed.tensor_parallel: row", row)
    require_flags("tensor_parallel", sequence_parallel=sequence_parallel)
    if not column and not row:
        raise ValueError("thunder.distributed.tensor_parallel: expected names of layers in column or row, got none")
    transform = TensorParallel(group, column, row, broadcast_from, sequence_parallel)
    return compile_with(transform, model, "tensor_parallel")


def column_parallel(model: Any, modules: Sequence[str], process_group: ProcessGroup | None = None) -> Any:
    """Return `tensor_parallel(model, column=modules)`, for the processes of `process_group`.

    Args:
        model: a module.
        modules: names of linear layers, or patterns of them, whose outputs are split.
        process_group: the processes that work together, by default all.

    Raises:
        RuntimeError, TypeError, ValueError: as `tensor_parallel` does.
    """
    return tensor_parallel(model, column=modules, process_group=process_group)


def row_parallel(model: Any, modules: Sequence[str], process_group: ProcessGroup | None = None) -> Any:
    """Return `tensor_parallel(model, row=modules)`, for the processes of `process_group`.

    Args:
        model: a module.
        modules: names of linear layers, or patterns of them, whose inputs are split.
        process_group: the processes that work together, by default all.

    Raises:
        RuntimeError, TypeError, ValueError: as `tensor_parallel` does.
    """
    return tensor_parallel(model, row=modules, process_group=process_group)
