"""A source-to-source compiler for PyTorch: `thunder.jit(model_or_function)`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from thunder._backend import announce
from thunder._check import require_own_package

if TYPE_CHECKING:
    from thunder._compile import compile, explain_recipe
    from thunder._jit import jit
    from thunder._minify import Minified, minify
    from thunder.errors import EagerFallbackWarning, InternalError, SharpEdgeError, SharpEdgeWarning
    from thunder.inspect import (
        FailedGuard,
        Fusion,
        Miss,
        Misses,
        cache_hits,
        cache_misses,
        compile_stats,
        explain_misses,
        fusions,
        last_backward_traces,
        last_epilogue_traces,
        last_prologue_traces,
        last_traces,
        rules,
        wait_until_compiled,
    )
    from thunder.module import ThunderModule
    from thunder.options import Options
    from thunder.sizes import mark_dynamic, mark_static
    from thunder.trace import Trace
    from thunder.transforms.functional import autocast, grad, hessian, jacfwd, jacrev, jvp, value_and_grad, vjp, vmap

__version__ = "0.1.0"

__all__ = [
    "EagerFallbackWarning",
    "FailedGuard",
    "Fusion",
    "InternalError",
    "Minified",
    "Miss",
    "Misses",
    "Options",
    "SharpEdgeError",
    "SharpEdgeWarning",
    "ThunderModule",
    "Trace",
    "autocast",
    "cache_hits",
    "cache_misses",
    "compile",
    "compile_stats",
    "explain_misses",
    "explain_recipe",
    "fusions",
    "grad",
    "hessian",
    "jacfwd",
    "jacrev",
    "jit",
    "jvp",
    "last_backward_traces",
    "last_epilogue_traces",
    "last_prologue_traces",
    "last_traces",
    "mark_dynamic",
    "mark_static",
    "minify",
    "rules",
    "value_and_grad",
    "vjp",
    "vmap",
    "wait_until_compiled",
]

# Public name -> module. Loaded when first used: `import thunder` itself needs no torch.
_ORIGIN = {
    "EagerFallbackWarning": "errors",
    "FailedGuard": "inspect",
    "Fusion": "inspect",
    "InternalError": "errors",
    "Minified": "_minify",
    "Miss": "inspect",
    "Misses": "inspect",
    "Options": "options",
    "SharpEdgeError": "errors",
    "SharpEdgeWarning": "errors",
    "ThunderModule": "module",
    "Trace": "trace",
    "autocast": "transforms.functional",
    "cache_hits": "inspect",
    "cache_misses": "inspect",
    "compile": "_compile",
    "compile_stats": "inspect",
    "explain_misses": "inspect",
    "explain_recipe": "_compile",
    "fusions": "inspect",
    "grad": "transforms.functional",
    "hessian": "transforms.functional",
    "jacfwd": "transforms.functional",
    "jacrev": "transforms.functional",
    "jit": "_jit",
    "jvp": "transforms.functional",
    "last_backward_traces": "inspect",
    "last_epilogue_traces": "inspect",
    "last_prologue_traces": "inspect",
    "last_traces": "inspect",
    "mark_dynamic": "sizes",
    "mark_static": "sizes",
    "minify": "_minify",
    "rules": "inspect",
    "value_and_grad": "transforms.functional",
    "vjp": "transforms.functional",
    "vmap": "transforms.functional",
    "wait_until_compiled": "inspect",
}

_MODULES = ("dynamo", "executors", "extend", "plugins", "recipes", "transforms")

require_own_package()
announce()


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"thunder.{name}")
    if name not in _ORIGIN:
        raise AttributeError(f"module 'thunder' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"thunder.{_ORIGIN[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_ORIGIN, *_MODULES})
