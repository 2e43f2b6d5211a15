"""Executors, and the list of those that compile by default."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from thunder._check import load_extension
from thunder.extend.gradients import derivatives, differentiable, driver, undifferentiable
from thunder.extend.operations import name_of, overload_of, overloads_of, schema_of
from thunder.trace import BoundSymbol, Trace

__all__ = [
    "Executor",
    "FusionExecutor",
    "OperatorExecutor",
    "add_default_executor",
    "deregister_executor",
    "get_all_executors",
    "get_default_executors",
    "get_executor",
    "register_executor",
    "remove_default_executor",
    "set_default_executors",
]

_extend = load_extension().extend


class Executor:
    """Something that runs operations, chosen with `thunder.jit(…, executors=[…])`.

    Attributes:
        name: also the namespace of its operators in printed traces: `torch.ops.<name>.<operator>`.
        version: anything; for its users.
    """

    def __init__(self, name: str, *, version: object = None) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"thunder.extend: expected a name that is a Python identifier, got {name!r}")
        self.name = name
        self.version = version

    @property
    def native(self) -> Any:
        """What the extension module takes for this executor."""
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __reduce__(self) -> Any:
        return get_executor, (self.name,)


class _PythonExecutor(Executor):
    def __init__(self, name: str, *, version: object = None) -> None:
        super().__init__(name, version=version)
        if name in _BUILT_IN:
            raise ValueError(f"thunder.extend: expected another name than one of thunder's own executors, got {name!r}")
        self._native = _extend.make_executor(name)

    @property
    def native(self) -> Any:
        return self._native


class OperatorExecutor(_PythonExecutor):
    """An executor that runs operations one by one, each by a function.

    Example:
        >>> mine = OperatorExecutor("mine")
        >>> linear = mine.register_operator("linear", like=torch.nn.functional.linear, fn=my_linear)
        >>> mine.register_implementation(torch.nn.functional.linear, linear)
        >>> thunder.jit(model, executors=[mine])
    """

    def register_operator(
        self,
        name: str,
        *,
        like: Any = None,
        meta: Callable[..., Any] | None = None,
        fn: Callable[..., Any],
        tags: Sequence[torch.Tag] = (),
    ) -> OpOverload:
        """Return a new operator, `torch.ops.<executor>.<name>`.

        It may be called in jitted functions, in eager, and by implementations and rules. Registered again under the
        same name, it gets another overload name; programs that were compiled keep the first one.

        Args:
            name: a Python identifier.
            like: an operation of PyTorch (see `operations.overloads_of`) that takes and gives the same: the operator
                has its parameters, the metadata of its results and, unless `register_implementation` says otherwise,
                its derivative.
            meta: in the place of `like`: a function of the operator's arguments, without data, that returns tensors
                with the shapes, dtypes and strides of the results (`torch.empty_like(a)`, `a.new_empty(…)`). Its
                annotations are those of the operator's parameters and results; parameters without one are tensors, or
                have the type of their default.
            fn: computes the results from tensors with data. It runs without gradients, writes to none of its arguments,
                and returns tensors with memory of their own.
            tags: `torch.Tag.nondeterministic_seeded` for operators that draw random numbers.

        Raises:
            ValueError, TypeError: the operator cannot be made of what is given.
        """
        what = f"executor {self.name!r}: register_operator {name!r}"
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"{what}: expected a name that is a Python identifier")
        if (like is None) == (meta is None):
            raise TypeError(f"{what}: expected one of like and meta, got {'neither' if like is None else 'both'}")
        if not callable(fn) or not (meta is None or callable(meta)):
            raise TypeError(f"{what}: expected functions for fn and meta, got {fn!r} and {meta!r}")
        prototype = None if like is None else overload_of(like)
        shapes: Any = meta or prototype
        schema = _schema_like(shapes, what) if meta is None else schema_of(meta, what)
        _require_tensor_results(schema, what)
        op = _define(self.name, name, schema, tags)
        key = _key(op)
        _library(self.name).impl(key, fn, "CompositeExplicitAutograd")
        _library(self.name).impl(key, _named(shapes, f"{what}: meta"), "Meta")
        _library(self.name).impl(key, differentiable(op), "Autograd")
        _extend.add_operator(self._native, *name_of(op), fn)
        if prototype is not None:
            _extend.set_derivative(self.name, *name_of(op), None, *name_of(prototype))
            derivatives[op] = (prototype, None)
        else:
            self._set_derivative(
                op,
                undifferentiable(
                    op,
                    f"executor {self.name!r}: {op} has no derivative; give it one with "
                    "register_implementation(operator, grad_transform=…), or like=… instead of meta=…",
                ),
            )
        return op

    def register_implementation(
        self,
        operation: Any,
        op: Callable[..., Any] | None = None,
        *,
        checker: Callable[..., bool] | None = None,
        execution_transform: Callable[..., Any] | None = None,
        grad_transform: Callable[..., Any] | None = None,
    ) -> None:
        """Run an operation of PyTorch in another way wherever this executor has its turn.

        All functions are called with the arguments of the operation as printed traces show them.

        Args:
            operation: a torch function such as `torch.nn.functional.linear`, a `torch.ops` operator or overload, its
                name ("aten::linear"), or an operator that an executor registered.
            op: an operator, mostly of this executor, that is called in its place.
            checker: says, from arguments that have a shape, dtype and device but no data, whether the executor takes
                this call; otherwise the next executor is asked. None: always.
            execution_transform: in the place of `op`: a function of torch operations that computes the same.
            grad_transform: computes the results and, with `get_grad` and `put_grad`, the gradients. Without it, the
                gradient is that of the operation itself. For an operator of an executor, this alone is enough.

        Raises:
            ValueError, TypeError: there is no such operation; nothing to do for it.
        """
        what = f"executor {self.name!r}: register_implementation"
        for given in (op, checker, execution_transform, grad_transform):
            if given is not None and not callable(given):
                raise TypeError(f"{what}: expected functions, got {given!r}")
        if op is not None and execution_transform is not None:
            raise TypeError(f"{what}: expected one of op and execution_transform, got both")
        if op is None and execution_transform is None and grad_transform is None:
            raise TypeError(f"{what}: expected op, execution_transform or grad_transform")
        for overload in overloads_of(operation):
            is_own = name_of(overload)[0].startswith(f"{self.name}::") and op in (None, overload)
            if is_own and execution_transform is None:
                if checker is not None:
                    raise ValueError(f"{what}: {overload}: expected no checker for an operator that nobody else runs")
                self._set_derivative(overload, grad_transform)
                continue
            rule = None if grad_transform is None else driver(grad_transform)
            transform = execution_transform or op or overload
            _extend.add_implementation(self._native, *name_of(overload), transform, checker, rule)

    def _set_derivative(self, op: OpOverload, transform: Callable[..., Any] | None) -> None:
        if transform is None:
            return
        _extend.set_derivative(self.name, *name_of(op), driver(transform), "", "")
        derivatives[op] = (None, transform)


class FusionExecutor(_PythonExecutor):
    """An executor that makes one operation of several.

    Subclasses implement `fuse`, and say with `register_supported` what they take; or `fusion_pass` as a whole. It runs
    on each trace after the operator executors, forward and backward apart.
    """

    def __init__(self, name: str, *, version: object = None) -> None:
        super().__init__(name, version=version)
        self._supported: dict[str, Callable[..., bool] | None] = {}
        _extend.set_fusion_pass(self._native, lambda native: self.fusion_pass(Trace(native)).native)

    def register_supported(self, operation: Any, checker: Callable[..., bool] | None = None) -> None:
        """Take an operation (as `OperatorExecutor.register_implementation` has it) where `checker` agrees."""
        for overload in overloads_of(operation):
            self._supported[".".join(name_of(overload)[0].split("::")) + f".{overload._overloadname}"] = checker

    def can_fuse(self, symbol: BoundSymbol) -> bool:
        """Return whether a symbol is supported."""
        if symbol.name not in self._supported:
            return False
        checker = self._supported[symbol.name]
        return checker is None or bool(checker(*symbol.args, **symbol.kwargs))

    def fuse(self, region: Trace) -> Callable[..., Any]:
        """Return a function that computes a region: takes its inputs, returns its outputs (a tensor, or a tuple)."""
        raise NotImplementedError(f"executor {self.name!r}: expected an implementation of fuse or fusion_pass")

    def fusion_pass(self, trace: Trace) -> Trace:
        """Return `trace` with symbols fused: here, two or more supported ones that stand next to each other."""
        edit = trace.edit(f"fusion by {self.name}")
        count = 0
        for group in _neighbours(trace.bound_symbols, self.can_fuse):
            if len(group) > 1:
                edit.fuse(group, f"{self.name}.fusion{count}", self.fuse)
                count += 1
        return edit.finish() if count else trace


def _neighbours(symbols: Sequence[BoundSymbol], accepts: Callable[[BoundSymbol], bool]) -> list[list[BoundSymbol]]:
    groups: list[list[BoundSymbol]] = [[]]
    for symbol in symbols:
        if accepts(symbol):
            groups[-1].append(symbol)
        elif groups[-1]:
            groups.append([])
    return groups


# --- the list of executors

_BUILT_IN = tuple(_extend.executor_names())
_known: dict[str, Executor] = {name: Executor(name) for name in _BUILT_IN}


def register_executor(executor: Executor) -> Executor:
    """Make an executor known by its name, in the place of one of that name; return it."""
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
    """Return the executor of a name. Raises ValueError when there is none."""
    if isinstance(name, Executor):
        return name
    if name not in _known:
        raise ValueError(f"thunder.extend: expected an executor among {', '.join(_known)}, got {name!r}")
    return _known[name]


def get_all_executors() -> tuple[Executor, ...]:
    """Return thunder's executors and the registered ones."""
    return tuple(_known.values())


def get_default_executors() -> tuple[Executor, ...]:
    """Return the executors of functions that are jitted without `executors=`, by priority."""
    return tuple(_known[name] for name in _extend.default_executor_names())


def set_default_executors(executors: Iterable[Executor | str]) -> None:
    """Set the executors of functions that are jitted from now on; those not known yet are registered."""
    chosen = [get_executor(executor) for executor in executors]
    for executor in chosen:
        if _known.get(executor.name) is not executor:
            register_executor(executor)
    _extend.set_default_executors([executor.native for executor in chosen])


def add_default_executor(executor: Executor | str) -> None:
    """Put an executor in front of the defaults."""
    added = get_executor(executor)
    set_default_executors([added, *(each for each in get_default_executors() if each.name != added.name)])


def remove_default_executor(executor: Executor | str) -> None:
    """Take an executor out of the defaults; it stays registered."""
    removed = get_executor(executor)
    set_default_executors([each for each in get_default_executors() if each.name != removed.name])


def _require_executor(executor: object) -> None:
    if not isinstance(executor, Executor):
        raise TypeError(f"thunder.extend: expected an executor, got {executor!r}")
    if executor.name in _BUILT_IN:
        raise ValueError(
            f"thunder.extend: expected another name than that of one of thunder's own, got {executor.name!r}"
        )


# --- operators in PyTorch's dispatcher


@functools.cache
def _library(namespace: str) -> torch.library.Library:
    return torch.library.Library(namespace, "FRAGMENT")


def _define(namespace: str, name: str, schema: str, tags: Sequence[torch.Tag]) -> OpOverload:
    packet = getattr(torch.ops, namespace)
    overload = "default"
    if hasattr(packet, name):
        overload = f"v{len(getattr(packet, name).overloads()) + 1}"
    full_name = name if overload == "default" else f"{name}.{overload}"
    _library(namespace).define(full_name + schema, tags=tuple(tags))
    if hasattr(packet, name):
        # The packet lists the overloads that there were when it was made.
        delattr(packet, name)
    return getattr(getattr(packet, name), overload)


def _key(op: OpOverload) -> str:
    _, overload = name_of(op)
    name = name_of(op)[0].split("::")[1]
    return f"{name}.{overload}" if overload else name


def _schema_like(prototype: OpOverload, what: str) -> str:
    schema = prototype._schema
    if schema.is_mutable or any(result.alias_info is not None for result in schema.returns):
        raise ValueError(f"{what}: expected an operation that gives new tensors, got {prototype}")
    text = str(schema)
    return text[text.index("(") :]


def _require_tensor_results(schema: str, what: str) -> None:
    returns = torch._C.parse_schema(f"thunder_extend::check{schema}").returns
    kinds = [str(result.type) for result in returns]
    if not kinds or not all(kind in ("Tensor", "List[Tensor]") for kind in kinds):
        raise ValueError(f"{what}: expected results that are tensors, got {schema.split('->')[-1].strip()}")


def _named(function: Callable[..., Any], what: str) -> Callable[..., Any]:
    """Return `function`; what it raises says who called it."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise RuntimeError(f"{what}: {type(error).__name__}: {error}") from error

    return call
