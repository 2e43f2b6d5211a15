"""Plugins of thunder's own.

An engine that this version lacks is noticed when the plugin is used, not when it is imported or made.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from thunder._names import listed
from thunder.extend import Executor, get_all_executors
from thunder.options import Options
from thunder.plugins.plugin import Plugin, PluginPolicy

__all__ = ["DDP", "FP8", "FSDP", "Profile", "ReduceOverhead"]


def _missing(plugin: Plugin, engine: str, instead: str) -> NotImplementedError:
    return NotImplementedError(
        f"thunder.plugins.{plugin.name}: this version of thunder has no {engine}; instead: {instead}"
    )


def _has_option(name: str) -> bool:
    return name in {field.name for field in dataclasses.fields(Options)}


def _distributed(name: str) -> Any:
    """Return a function of `thunder.distributed`, None where this version has none."""
    if importlib.util.find_spec("thunder.distributed") is None:
        return None
    return getattr(importlib.import_module("thunder.distributed"), name, None)


class ReduceOverhead(Plugin):
    """Replays calls on a GPU as CUDA graphs: the option `cuda_graphs=True` of `thunder.jit`.

    Raises:
        NotImplementedError: when used, where `thunder.jit` has no such option.
    """

    policy = PluginPolicy.POST

    def setup_config(self) -> Mapping[str, Any]:
        """Return the option."""
        if not _has_option("cuda_graphs"):
            raise _missing(
                self,
                "CUDA graphs (the option cuda_graphs of thunder.jit)",
                "torch.cuda.make_graphed_callables(thunder.jit(model), examples), or "
                'torch.compile(model, mode="reduce-overhead")',
            )
        return {"cuda_graphs": True}


class Profile(Plugin):
    """Lightning Thunder's ranges of a trace, for its profiler: compiled programs always give theirs to PyTorch's.

    Raises:
        NotImplementedError: when used.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        del args, options

    def setup_config(self) -> Mapping[str, Any]:
        """Name what serves instead."""
        raise _missing(self, "profiler of its own", "thunder.profile(fn, *args), or torch.profiler around any calls")


class _DataParallel(Plugin):
    """A plugin whose engine is a function of `thunder.distributed` that takes the model."""

    engine: str
    instead: str

    def __init__(self, **options: Any) -> None:
        function = _distributed(self.engine)
        if function is not None:
            _, *parameters = inspect.signature(function).parameters.values()  # the first one is the model
            names = [parameter.name for parameter in parameters]
            takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
            for name in () if takes_all else options:
                if name not in names:
                    raise TypeError(
                        f"thunder.plugins.{self.name}: unknown option {name!r}"
                        f"{listed(name, names, f'the options of thunder.distributed.{self.engine}')}"
                    )
        self.options = options

    def setup_model(self, model: Any) -> Any:
        """Return what the engine makes of the model."""
        function = _distributed(self.engine)
        if function is None:
            raise _missing(self, f"thunder.distributed.{self.engine}", self.instead)
        return function(model, **self.options)


class DDP(_DataParallel):
    """Data-parallel training: `thunder.distributed.ddp(model, **options)`.

    Raises:
        NotImplementedError: when used, where this version has no `thunder.distributed.ddp`.
    """

    engine = "ddp"
    instead = "torch.nn.parallel.DistributedDataParallel(thunder.jit(model))"


class FSDP(_DataParallel):
    """Training with sharded parameters: `thunder.distributed.fsdp(model, **options)`.

    Raises:
        NotImplementedError: when used, where this version has no `thunder.distributed.fsdp`.
    """

    engine = "fsdp"
    instead = (
        "torch.distributed.fsdp.fully_shard(model) in eager, or a transform like that of "
        "examples/extending/sharded_parameters.py"
    )


class _ByExecutor(Plugin):
    """A plugin whose engine is an executor of a given name."""

    engine: str
    instead: str

    def setup_executors(self) -> Iterable[Executor]:
        """Return the executor."""
        found = [executor for executor in get_all_executors() if executor.name == self.engine]
        if not found:
            raise _missing(self, f"executor {self.engine!r}", self.instead)
        return found


class FP8(_ByExecutor):
    """Matmuls in 8-bit floats, by the executor that is registered as "fp8".

    Raises:
        NotImplementedError: when used, where no such executor is registered.
    """

    engine = "fp8"
    instead = (
        "torch.autocast with bfloat16, or an executor of your own, registered as 'fp8', whose linear calls "
        "torch._scaled_mm (thunder.extend.OperatorExecutor.register_implementation)"
    )
