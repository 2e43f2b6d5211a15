"""`thunder.jit`. The file is not named `jit.py`, as a submodule `thunder.jit` would hide the function."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, overload

import torch

import thunder._copying
import thunder._tensor_data  # noqa: F401  likewise
from thunder._arguments import shown, shown_instance
from thunder._check import load_extension
from thunder._parts import attach_parts, compile_part, inherit, whole_of
from thunder.module import ThunderModule, compile_inside, compile_module, with_own_structure
from thunder.options import Options
from thunder.transforms.overrides import owned_by
from thunder.transforms.transform import overrides

if TYPE_CHECKING:
    from thunder.extend import Executor
    from thunder.transforms.transform import Transform

__all__ = ["CompiledFunction", "jit"]

CompiledFunction = load_extension().CompiledFunction

F = TypeVar("F", bound=Callable[..., Any])


@overload
def jit(
    fn: F,
    /,
    *,
    options: Options | None = ...,
    executors: Iterable[str | Executor] | None = ...,
    transforms: Iterable[Transform] | None = ...,
    passes: Iterable[str] | None = ...,
    rematerialize: bool | str = ...,
    prepack_weights: bool = ...,
    cache: str = ...,
    sharp_edges: str = ...,
    compile: str = ...,
    cuda_graphs: bool | None = ...,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
) -> F: ...


@overload
def jit(
    fn: None = None,
    /,
    *,
    options: Options | None = ...,
    executors: Iterable[str | Executor] | None = ...,
    transforms: Iterable[Transform] | None = ...,
    passes: Iterable[str] | None = ...,
    rematerialize: bool | str = ...,
    prepack_weights: bool = ...,
    cache: str = ...,
    sharp_edges: str = ...,
    compile: str = ...,
    cuda_graphs: bool | None = ...,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
) -> Callable[[F], F]: ...


def jit(fn: Any = None, /, *arguments: Any, options: Any = None, **keywords: Any) -> Any:  # noqa: D417
    """Return `fn`, a callable or an `nn.Module`, compiled; without `fn`, a decorator.

    The first call with arguments of a new kind traces `fn` and compiles the trace; later calls whose guards hold run it
    without executing Python. Values, gradients, side effects and random numbers are those of `fn` itself.

    A module stays a module: the result is of the module's own class and shares its parameters, buffers, submodules,
    hooks and attributes, so `state_dict()`, `train()`, `to()`, optimizers and methods such as `generate` work on it.

    Args:
        fn: a function, method, callable object or `nn.Module`. Other than tensors, its arguments may be Python objects
            of any kind; numbers and strings are constants of the compiled program, guarded at each call.
        options: options as one object, in the place of the defaults of all others.
        **keywords: the attributes of `thunder.Options`.

    Returns:
        For a function, a callable with the same signature; for a module, a module (a `thunder.ThunderModule`).

    Raises:
        TypeError: `fn` is not callable, or is a class or a scripted module; an unknown option.
        ValueError: an option's value is not among those listed.

    Example:
        >>> import torch, thunder
        >>> @thunder.jit
        ... def f(x, y):
        ...     return torch.sin(x) + y
        >>> f(torch.zeros(2), 1)
        tensor([1., 1.])
    """
    if arguments:
        raise _more_than_a_function(fn, arguments)
    if options is not None and not isinstance(options, Options):
        hint = "; write thunder.jit(fn, **options)" if isinstance(options, dict) else ""
        raise TypeError(f"thunder.jit: options: expected thunder.Options, got {shown_instance(options)}{hint}")
    chosen = Options.of(keywords) if options is None else options.updated(keywords)
    if fn is None:
        return functools.partial(compile_callable, options=chosen)
    return compile_callable(fn, chosen)


def _more_than_a_function(fn: Any, arguments: tuple[Any, ...]) -> TypeError:
    name = getattr(fn, "__name__", "model")
    hint = f"what it returns is called with arguments: thunder.jit({name})(…)"
    if isinstance(arguments[0], Options):
        hint = f"write thunder.jit({name}, options=options)"
    return TypeError(f"thunder.jit: expected one function or module, got {shown(arguments[0])} too; {hint}")


def _describe_options() -> None:
    """Give `jit` the signature that its options make, and their description, for `help(thunder.jit)`."""
    annotations = Options.__annotations__
    parameters = [inspect.Parameter("fn", inspect.Parameter.POSITIONAL_ONLY, default=None)]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, default, annotation in (
            ("options", None, "Options | None"),
            *((field.name, field.default, annotations[field.name]) for field in dataclasses.fields(Options)),
        )
    ]
    signed: Any = jit
    signed.__signature__ = inspect.Signature(parameters)
    descriptions = inspect.cleandoc(Options.__doc__ or "").partition("Attributes:\n")[2].partition("\nExample:")[0]
    if jit.__doc__ is not None:
        indented = "".join(f"    {line}\n" if line else "\n" for line in descriptions.splitlines())
        place = "        **keywords: the attributes of `thunder.Options`.\n"
        jit.__doc__ = jit.__doc__.replace(place, indented.rstrip("\n") + "\n")


def compile_callable(fn: Any, options: Options) -> Any:
    """Return `fn` compiled, as `jit` does."""
    fn = _without_torch_compile(fn)
    if isinstance(fn, ThunderModule):
        fn = fn.__wrapped__
    if isinstance(fn, CompiledFunction):
        fn = fn.__wrapped__
    if isinstance(fn, staticmethod | classmethod):  # beneath a decorator, in the body of a class
        return type(fn)(compile_callable(fn.__func__, options))
    _require_compilable(fn)
    whole = whole_of(fn)
    changing = [transform for transform in options.transforms if overrides(transform, "transform_module")]
    if whole is not None:
        if changing and fn is not whole:
            raise ValueError(
                f"thunder.jit: transforms: {changing[0]!r} changes modules, and this is a part or a method of a module "
                "whose parameters transforms replaced; give it to thunder.jit of the module"
            )
        options = inherit(whole, options)
    if _is_data_parallel(fn):
        if changing:
            raise ValueError(
                f"thunder.jit: transforms: {changing[0]!r} changes parameters, which DistributedDataParallel holds "
                "already: DistributedDataParallel(thunder.jit(model, transforms=[...]))"
            )
        return _compile_inside(fn, options)
    if isinstance(fn, torch.nn.Module):
        _warn_without_forward(fn)
        module = with_own_structure(fn) if changing else fn
        result = _compile_module(module, options)
        for transform in changing:
            with owned_by(transform):
                transform.transform_module(result)
        if changing:
            attach_parts(module, options)
        return result
    if whole is not None:
        return compile_part(fn, whole, options)
    compiled = CompiledFunction(fn, options.as_dict())
    functools.update_wrapper(compiled, fn)
    compiled.options = options
    return compiled


def _without_torch_compile(fn: Any) -> Any:
    """Return what `torch.compile` was given, or `fn`."""
    optimized = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", ())
    while True:
        if isinstance(fn, optimized):
            fn = fn._orig_mod
        elif isinstance(fn, types.FunctionType) and "_torchdynamo_orig_callable" in vars(fn):
            fn = vars(fn)["_torchdynamo_orig_callable"]
        else:
            return fn


def _has_forward(module: torch.nn.Module) -> bool:
    """Whether a module has a forward that does something; that of `LightningModule` hands on to `nn.Module`'s."""
    if "forward" in vars(module):
        return True
    for cls in type(module).__mro__:
        forward = vars(cls).get("forward")
        hands_on = isinstance(forward, types.FunctionType) and set(forward.__code__.co_names) == {"super", "forward"}
        if forward is not None and not hands_on:
            return forward is not torch.nn.Module.forward
    return True


def _warn_without_forward(module: torch.nn.Module) -> None:
    if _has_forward(module) or type(module).__call__ is not torch.nn.Module.__call__:
        return
    warnings.warn(
        f"thunder.jit: {type(module).__name__} has no forward, so that nothing of it is compiled. Jit the modules that "
        "its methods call (self.model = thunder.jit(self.model)), or a method "
        "(module.training_step = thunder.jit(module.training_step))",
        stacklevel=_outside_of_thunder(),
    )


def _outside_of_thunder() -> int:
    level = 1
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("thunder."):
        frame, level = frame.f_back, level + 1
    return level


def _require_compilable(fn: object) -> None:
    if isinstance(fn, type):
        raise TypeError(
            f"thunder.jit: expected a function or a module, got the class {fn.__qualname__}; jit an instance"
        )
    if isinstance(fn, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise TypeError("thunder.jit: expected a function or a module, got TorchScript; jit what was scripted")
    if not callable(fn):
        hint = "; jit each of them" if isinstance(fn, list | tuple | dict) else ""
        if isinstance(fn, torch.Tensor):
            hint = "; jit what computes with it (thunder.jit(None) is a decorator: was None given for a model?)"
        raise TypeError(f"thunder.jit: expected a function or a module, got {shown(fn)}, which is not callable{hint}")


def rebuild(fn: Any, options: Options) -> Any:
    """Compile what was pickled or copied, and transformed before: the compiled code itself does not travel."""
    if _is_data_parallel(fn):
        return _compile_inside(fn, options)
    if isinstance(fn, torch.nn.Module):
        result = _compile_module(fn, options)
        attach_parts(fn, options)
        return result
    return compile_callable(fn, options)


def _compile_module(module: torch.nn.Module, options: Options) -> Any:
    return compile_module(module, CompiledFunction(module, options.as_dict(), whole_of(module)), options)


def _is_data_parallel(fn: object) -> bool:
    return isinstance(fn, torch.nn.parallel.DistributedDataParallel)


def _compile_inside(wrapper: Any, options: Options) -> Any:
    """Compile the module that PyTorch's wrapper calls; the wrapper itself talks to other processes, in eager."""
    return compile_inside(wrapper, "module", compile_callable(wrapper.module, options), options)


_describe_options()
