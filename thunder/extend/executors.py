"""Executors that are written in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from thunder._arguments import shown
from thunder._check import load_extension
from thunder.extend.gradients import derivatives, differentiable, driver, undifferentiable
from thunder.extend.library import (
    define,
    kernel_of,
    key_of,
    library,
    named,
    require_call,
    require_free,
    require_tensor_results,
    schema_like,
    tags_like,
)
from thunder.extend.operations import name_of, overload_of, overloads_of, schema_of
from thunder.trace import BoundSymbol, Trace

__all__ = ["BUILT_IN", "Executor", "FusionExecutor", "OperatorExecutor"]

_extend = load_extension().extend

BUILT_IN = tuple(_extend.executor_names())


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
        """This executor for the extension module: its name, or an object of that module."""
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __reduce__(self) -> Any:
        from thunder.extend.registry import get_executor

        return get_executor, (self.name,)


class _PythonExecutor(Executor):
    def __init__(self, name: str, *, version: object = None) -> None:
        super().__init__(name, version=version)
        if name in BUILT_IN:
            raise ValueError(f"thunder.extend: expected another name than one of thunder's own executors, got {name!r}")
        self._native = _extend.make_executor(name)

    @property
    def native(self) -> Any:
        return self._native


class OperatorExecutor(_PythonExecutor):
    """An executor that runs operations one by one, each by a function.

    Example:
        >>> import torch, thunder
        >>> from thunder.extend import OperatorExecutor
        >>> example = OperatorExecutor("example")
        >>> def times_rows(x, y):
        ...     return torch.stack([row @ y for row in x])
        >>> mm = example.register_operator("mm", like=torch.mm, fn=times_rows)
        >>> example.register_implementation(torch.mm, mm)
        >>> f = thunder.jit(lambda x, y: torch.mm(x, y), executors=[example])
        >>> f(torch.ones(1, 2), torch.ones(2, 1))
        tensor([[2.]])
        >>> [symbol.name for symbol in thunder.last_traces(f)[-1].bound_symbols]
        ['example.mm.default']
    """

    def register_operator(
        self,
        name: str,
        *,
        like: Any = None,
        meta: Callable[..., Any] | None = None,
        fn: Callable[..., Any],
        tags: Sequence[torch.Tag] = (),
        replaces: Any = None,
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
            fn: computes the results from tensors with data. It runs without gradients and autocast, writes to none of
                its arguments, and returns tensors with memory of their own.
            tags: `torch.Tag.nondeterministic_seeded` for operators that draw random numbers. Default: as `like`.
            replaces: an operation of PyTorch, or a tuple of them, that the operator runs in the place of wherever this
                executor has its turn: `register_implementation(operation, operator)`.

        Raises:
            ValueError, TypeError: the operator cannot be made of what is given: `fn` does not take the arguments, there
                is an operator of that name which no executor registered, …
        """
        what = f"executor {self.name!r}: register_operator {name!r}"
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"{what}: expected a name that is a Python identifier")
        if (like is None) == (meta is None):
            raise TypeError(f"{what}: expected one of like and meta, got {'neither' if like is None else 'both'}")
        for argument, function in (("fn", fn), ("meta", meta)):
            if not (callable(function) or (argument == "meta" and meta is None)):
                raise TypeError(f"{what}: {argument}: expected a function, got {shown(function)}")
        prototype = None if like is None else overload_of(like, what)
        shapes: Any = meta or prototype
        schema = schema_like(shapes, what) if meta is None else schema_of(meta, what)
        require_tensor_results(schema, what)
        require_free(self.name, name, what)
        require_call(fn, schema, f"{what}: fn", complete=prototype is None)
        op = define(self.name, name, schema, tags or tags_like(prototype))
        key = key_of(op)
        library(self.name).impl(key, kernel_of(fn), "CompositeExplicitAutograd")
        library(self.name).impl(key, named(shapes, f"{what}: meta"), "Meta")
        library(self.name).impl(key, differentiable(op), "Autograd")
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
        for operation in replaces if isinstance(replaces, tuple) else () if replaces is None else (replaces,):
            self.register_implementation(operation, op)
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
            op: an operator, mostly of this executor, that is called in its place. A plain function is an
                `execution_transform`: it is called once, while the program is traced. A function that is to run at each
                call, on real tensors, is made an operator by `register_operator`.
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
                raise TypeError(f"{what}: expected functions, got {shown(given)}")
        if op is not None and execution_transform is not None:
            raise TypeError(f"{what}: expected one of op and execution_transform, got both")
        if op is None and execution_transform is None and grad_transform is None:
            raise TypeError(f"{what}: expected op, execution_transform or grad_transform")
        for overload in overloads_of(operation, what):
            is_own = name_of(overload)[0].startswith(f"{self.name}::") and op in (None, overload)
            if is_own and execution_transform is None:
                if checker is not None:
                    raise ValueError(f"{what}: {overload}: expected no checker for an operator that nobody else runs")
                self._set_derivative(overload, grad_transform)
                continue
            rule = None if grad_transform is None else driver(grad_transform)
            transform = execution_transform or op or overload
            is_operator = isinstance(transform, OpOverload)
            _extend.add_implementation(self._native, *name_of(overload), transform, is_operator, checker, rule)

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
        for overload in overloads_of(operation, f"executor {self.name!r}: register_supported"):
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
