"""The list of executors, and those that compile by default."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from thunder._arguments import shown, shown_instance
from thunder._check import load_extension
from thunder._names import suggestion
from thunder.extend.executors import BUILT_IN, Executor

__all__ = [
    "add_default_executor",
    "deregister_executor",
    "get_all_executors",
    "get_default_executors",
    "get_executor",
    "register_executor",
    "remove_default_executor",
    "resolve_executors",
    "set_default_executors",
]

_extend = load_extension().extend

_known: dict[str, Executor] = {name: Executor(name) for name in BUILT_IN}

# Name -> module with a function `make_default`: executors in Python, registered when they are first asked for.
_LOADED_WHEN_ASKED = {"torchcompile": "thunder.executors.torch_compile"}

# Executors of Lightning Thunder, and what does their work here.
_INSTEAD = {
    "apex": "cross entropies are differentiated by a rule of thunder's own",
    "cudnn": "attention runs through PyTorch's kernels, cuDNN's among them (torch.nn.attention.sdpa_kernel chooses)",
    "fa3": "attention runs through PyTorch's kernels (torch.nn.attention.activate_flash_attention_impl)",
    "nvfuser": "'cuda' fuses on GPUs, 'cpu' on CPUs; both are among the defaults",
    "python": "Python's values are computed while a program is traced",
    "sdpa": "attention runs through PyTorch's kernels by 'aten' (torch.nn.attention.sdpa_kernel chooses)",
    "torch": "'aten' runs operations by PyTorch's kernels",
    "torchcompile_cat": "'torchcompile' hands regions to torch.compile; 'cpu' and 'cuda' fuse concatenations",
    "torchcompile_xentropy": "'torchcompile' hands regions to torch.compile; 'cpu' and 'cuda' fuse cross entropies",
    "transformer_engine": "thunder.plugins.FP8 uses an executor that is registered as 'fp8'",
    "triton": "'cuda' fuses cross entropies",
    "bitsandbytes": "thunder.plugins.QuantizeInt4 keeps weights in 4 bits",
}


def register_executor(executor: Executor) -> Executor:
    """Make an executor known by its name, in the place of one of that name; return it.

    Raises:
        TypeError: it is no executor.
    """
    _require_executor(executor)
    _extend.register_executor(executor.native)
    _known[executor.name] = executor
    return executor


def deregister_executor(executor: Executor | str) -> None:
    """Forget an executor, among the defaults too. Compiled functions keep it."""
    name = get_executor(executor if isinstance(executor, str) else executor.name).name
    _extend.deregister_executor(name)
    del _known[name]


def get_executor(name: Executor | str) -> Executor:
    """Return the executor of a name; an executor is returned as it is.

    Raises:
        TypeError: it is neither a name nor an executor.
        ValueError: there is no executor of that name; the message lists those that there are.

    Example:
        >>> import thunder
        >>> thunder.get_executor("cpu").name
        'cpu'
    """
    if isinstance(name, Executor):
        return name
    if not isinstance(name, str):
        raise TypeError(f"thunder.extend: expected an executor or its name, got {shown_instance(name)}")
    if name in _LOADED_WHEN_ASKED and name not in _known:
        register_executor(importlib.import_module(_LOADED_WHEN_ASKED[name]).make_default())
    if name not in _known:
        names = list(dict.fromkeys((*_known, *_LOADED_WHEN_ASKED)))
        instead = suggestion(name, names)
        if name in _INSTEAD:
            instead = f"; of Lightning Thunder's {name!r}: {_INSTEAD[name]}"
        raise ValueError(f"thunder.extend: expected an executor among {', '.join(names)}, got {name!r}{instead}")
    return _known[name]


def get_all_executors() -> tuple[Executor, ...]:
    """Return thunder's executors and the registered ones; "torchcompile" is among them once it was asked for.

    Example:
        >>> import thunder
        >>> "aten" in [executor.name for executor in thunder.get_all_executors()]
        True
    """
    return tuple(_known.values())


def get_default_executors() -> tuple[Executor, ...]:
    """Return the executors of functions that are jitted without `executors=`, by priority.

    Example:
        >>> import thunder
        >>> thunder.get_default_executors()[-1].name  # it runs every operation that no other one claims
        'aten'
    """
    return tuple(_known[name] for name in _extend.default_executor_names())


def resolve_executors(executors: Iterable[Executor | str] | None) -> tuple[Executor, ...]:
    """Return the executors that run a function which is jitted with the option `executors`, by priority.

    Args:
        executors: executors or their names; None stands for the defaults. Thunder's own come after them, unless "aten",
            which runs every operation, is among them.

    Raises:
        ValueError: there is no executor of a name.

    Example:
        >>> import thunder
        >>> [executor.name for executor in thunder.resolve_executors(["cpu", "aten"])]
        ['cpu', 'aten']
    """
    if executors is None:
        return get_default_executors()
    if isinstance(executors, Executor | str) or not isinstance(executors, Iterable):
        raise TypeError(f"thunder.extend: expected a list of executors or their names, got {shown(executors)}")
    chosen = [get_executor(executor) for executor in executors]
    names = {executor.name for executor in chosen}
    if "aten" not in names:  # it runs every operation
        left_out = names | {"cublaslt", "reference"}
        chosen += [executor for executor in map(get_executor, BUILT_IN) if executor.name not in left_out]
    return tuple(chosen)


def set_default_executors(executors: Iterable[Executor | str]) -> None:
    """Set the executors of functions that are jitted from now on; those not known yet are registered."""
    chosen = [get_executor(executor) for executor in executors]
    for executor in chosen:
        if _known.get(executor.name) is not executor:
            register_executor(executor)
    _extend.set_default_executors([executor.native for executor in chosen])


def add_default_executor(executor: Executor | str) -> None:
    """Put an executor in front of those that run functions which are jitted from now on without `executors=`.

    Args:
        executor: an executor, which is registered where it is not yet, or the name of one that is registered.

    Raises:
        ValueError: there is no executor of that name.

    Example:
        >>> import thunder
        >>> mine = thunder.extend.OperatorExecutor("mine")
        >>> thunder.add_default_executor(mine)
        >>> thunder.get_default_executors()[0].name
        'mine'
        >>> thunder.extend.deregister_executor(mine)
    """
    added = get_executor(executor)
    set_default_executors([added, *(each for each in get_default_executors() if each.name != added.name)])


def remove_default_executor(executor: Executor | str) -> None:
    """Take an executor, or that of a name, out of the defaults; it stays registered.

    Raises:
        ValueError: there is no executor of that name.
    """
    removed = get_executor(executor)
    set_default_executors([each for each in get_default_executors() if each.name != removed.name])


def _require_executor(executor: object) -> None:
    if not isinstance(executor, Executor):
        raise TypeError(f"thunder.extend: expected an executor, got {shown_instance(executor)}")
    if executor.name in BUILT_IN:
        raise ValueError(
            f"thunder.extend: expected another name than that of one of thunder's own, got {executor.name!r}"
        )
