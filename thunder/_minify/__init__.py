"""`thunder.minify`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

from thunder._arguments import require_callable, require_writable, shown
from thunder._minify.capture import captured
from thunder._minify.compare import difference, eager_error
from thunder._minify.script import write_script
from thunder._minify.shrink import Case, shrink
from thunder.options import Options

__all__ = ["Minified", "minify"]


@dataclasses.dataclass(frozen=True)
class Minified:
    """A small program that fails as a larger one did.

    Attributes:
        program: the text of a function `program`: a few calls of PyTorch, and the names that it returns, in a tuple.
        arguments: what to call it with.
        reason: how compiled and eager differ, or the exception; with a `fails` of the user's: "".
        script: path of a Python file that runs the program in eager and compiled.
    """

    program: str
    arguments: tuple[Any, ...]
    reason: str
    script: str
    _case: Case = dataclasses.field(repr=False, compare=False)

    @property
    def function(self) -> Callable[..., Any]:
        """The program as a function."""
        return self._case.program.function()

    def __str__(self) -> str:
        return f"{self.program}\n# {self.reason}\n# python {self.script}"


def minify(
    fn: Callable[..., Any],
    *args: Any,
    fails: Callable[..., bool] | None = None,
    seconds: float = 60.0,
    path: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Minified:
    """Return a small program that fails as `fn(*args)` does, and write a script that shows it.

    What `fn` does to tensors is taken as a program without control flow: the trace that thunder records or, where that
    does not fail, the calls of PyTorch that eager makes. From it, calls are taken out or replaced by inputs that hold
    what they gave; results and inputs are dropped, made smaller and simpler, as long as the failure stays. (Delta
    debugging: Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002.)

    Args:
        fn: a function or an `nn.Module`.
        *args: its arguments. They and the module are left as they are.
        fails: `fails(program, *args)` says whether a candidate shows the failure; it may change the arguments. Without
            it, a program fails that eager runs, and that compiled raises an exception of the same type as at first or,
            if there was none, gives other results, gradients or written arguments.
        seconds: at most so long.
        path: of the script; a file of the temporary folder without it.
        **options: of `thunder.jit`, with which programs are compiled.

    Raises:
        ValueError: `fn(*args)` does not fail, or what was taken from it does not.
        TypeError: `fn` or `fails` is not callable; an unknown option.
        OSError: the script cannot be written.

    Example:
        >>> import torch, thunder
        >>> def uses_tanh(program, *args):
        ...     compiled = thunder.jit(program)
        ...     compiled(*args)
        ...     return "tanh" in str(thunder.last_traces(compiled)[-1])
        >>> print(thunder.minify(lambda x: (x.sin() * 2).tanh() + 1, torch.ones(3), fails=uses_tanh).program)
        def program(t2):
            t3 = torch.ops.aten.tanh.default(t2)
            return (t3, )
        <BLANKLINE>
    """
    require_callable("thunder.minify", fn)
    _require_settings(fails, seconds, path)
    Options.of(options, "thunder.minify", ("fails", "seconds", "path"))
    failure = "" if fails is not None else difference(fn, args, options)
    if failure is None:
        name = getattr(fn, "__qualname__", type(fn).__qualname__)
        error = eager_error(fn, args)
        why = "whose results equal eager's" if error is None else f"which fails in eager too: {error}"
        raise ValueError(f"thunder.minify: expected a function that fails compiled alone, got {name}, {why}")
    kind = failure.split(":")[0] if failure.partition(":")[0].isidentifier() else ""

    def reason_of(case: Case) -> str | None:
        if fails is not None:
            return "" if _says_failure(fails, case) else None
        found = difference(case.program.function(), case.arguments, options)
        return found if found is not None and (found.startswith(f"{kind}:") or not kind) else None

    for case in captured(fn, args, options):
        if reason_of(case) is None:
            continue
        small = shrink(case, lambda candidate: reason_of(candidate) is not None, seconds)
        reason = reason_of(small) or ""
        script = write_script(small, reason, options, None if path is None else os.fspath(path))
        return Minified(small.program.text(), small.arguments, reason, script, small)
    raise ValueError(
        "thunder.minify: expected a failure in operations on tensors, got one that the operations alone do not show"
        + (f": {failure}" if failure else "")
    )


def _require_settings(fails: Any, seconds: Any, path: Any) -> None:
    if fails is not None:
        require_callable("thunder.minify: fails", fails)
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise TypeError(f"thunder.minify: seconds: expected a number, got {shown(seconds)}")
    if not seconds > 0:
        raise ValueError(f"thunder.minify: seconds: expected a positive number, got {seconds}")
    if path is not None:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"thunder.minify: path: expected the path of a file, got {shown(path)}")
        require_writable(path)


def _says_failure(fails: Callable[..., bool], case: Case) -> bool:
    from thunder._minify.shrink import cloned

    try:
        return bool(fails(case.program.function(), *cloned(case.arguments)))
    except Exception:
        return False
