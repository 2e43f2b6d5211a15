"""A source-to-source compiler for PyTorch: `thunder.jit(model_or_function)`."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from thunder._backend import announce
from thunder._check import require_own_package
from thunder._elsewhere import ForeignModules, missing_attribute

if TYPE_CHECKING:
    from thunder._compile import compile, explain_recipe
    from thunder._jit import jit
    from thunder._minify import Minified, minify
    from thunder.choices import CACHE_OPTIONS, SHARP_EDGES_OPTIONS
    from thunder.errors import EagerFallbackWarning, InternalError, SharpEdgeError, SharpEdgeWarning
    from thunder.extend import (
        Executor,
        add_default_executor,
        get_all_executors,
        get_default_executors,
        get_executor,
        resolve_executors,
    )
    from thunder.inspect import (
        FailedGuard,
        Fusion,
        Fusions,
        Miss,
        Misses,
        cache_hits,
        cache_misses,
        cache_option,
        compile_data,
        compile_stats,
        explain_misses,
        explain_shapes,
        fusions,
        last_backward_traces,
        last_compile_options,
        last_epilogue_traces,
        last_prologue_traces,
        last_traces,
        list_transforms,
        rules,
        wait_until_compiled,
    )
    from thunder.kernels import Kernel, Kernels, last_kernels
    from thunder.module import ThunderModule
    from thunder.options import Options
    from thunder.plugins import Plugin
    from thunder.profiling import Profile, profile
    from thunder.recipes import Recipe
    from thunder.sizes import mark_dynamic, mark_static
    from thunder.statistics import CompileData, CompileStats
    from thunder.trace import Trace
    from thunder.transforms.functional import (
        autocast,
        grad,
        hessian,
        jacfwd,
        jacrev,
        jvp,
        value_and_grad,
        vjp,
        vmap,
    )
    from thunder.transforms.transform import Transform
    from thunder.viewing import View, view

__version__ = "0.1.0"

__all__ = [
    "CACHE_OPTIONS",
    "SHARP_EDGES_OPTIONS",
    "CompileData",
    "CompileStats",
    "EagerFallbackWarning",
    "Executor",
    "FailedGuard",
    "Fusion",
    "Fusions",
    "InternalError",
    "Kernel",
    "Kernels",
    "Minified",
    "Miss",
    "Misses",
    "Options",
    "Plugin",
    "Profile",
    "Recipe",
    "SharpEdgeError",
    "SharpEdgeWarning",
    "ThunderModule",
    "Trace",
    "Transform",
    "View",
    "add_default_executor",
    "autocast",
    "cache_hits",
    "cache_misses",
    "cache_option",
    "compile",
    "compile_data",
    "compile_stats",
    "explain_misses",
    "explain_recipe",
    "explain_shapes",
    "fusions",
    "get_all_executors",
    "get_default_executors",
    "get_executor",
    "grad",
    "hessian",
    "jacfwd",
    "jacrev",
    "jit",
    "jvp",
    "last_backward_traces",
    "last_compile_options",
    "last_epilogue_traces",
    "last_kernels",
    "last_prologue_traces",
    "last_traces",
    "list_transforms",
    "mark_dynamic",
    "mark_static",
    "minify",
    "profile",
    "resolve_executors",
    "rules",
    "value_and_grad",
    "view",
    "vjp",
    "vmap",
    "wait_until_compiled",
]

# Public name -> module. Loaded when first used: `import thunder` itself needs no torch.
_ORIGIN = {
    "CACHE_OPTIONS": "choices",
    "SHARP_EDGES_OPTIONS": "choices",
    "CompileData": "statistics",
    "CompileStats": "statistics",
    "EagerFallbackWarning": "errors",
    "Executor": "extend",
    "FailedGuard": "inspect",
    "Fusion": "inspect",
    "Fusions": "inspect",
    "Kernel": "kernels",
    "Kernels": "kernels",
    "InternalError": "errors",
    "Minified": "_minify",
    "Miss": "inspect",
    "Misses": "inspect",
    "Options": "options",
    "Plugin": "plugins",
    "Profile": "profiling",
    "Recipe": "recipes",
    "SharpEdgeError": "errors",
    "SharpEdgeWarning": "errors",
    "ThunderModule": "module",
    "Trace": "trace",
    "Transform": "transforms.transform",
    "View": "viewing",
    "autocast": "transforms.functional",
    "cache_hits": "inspect",
    "cache_misses": "inspect",
    "cache_option": "inspect",
    "compile": "_compile",
    "compile_data": "inspect",
    "compile_stats": "inspect",
    "explain_misses": "inspect",
    "explain_recipe": "_compile",
    "explain_shapes": "inspect",
    "fusions": "inspect",
    "get_all_executors": "extend",
    "add_default_executor": "extend",
    "get_default_executors": "extend",
    "get_executor": "extend",
    "grad": "transforms.functional",
    "hessian": "transforms.functional",
    "jacfwd": "transforms.functional",
    "jacrev": "transforms.functional",
    "jit": "_jit",
    "jvp": "transforms.functional",
    "last_backward_traces": "inspect",
    "last_compile_options": "inspect",
    "last_epilogue_traces": "inspect",
    "last_kernels": "kernels",
    "last_prologue_traces": "inspect",
    "last_traces": "inspect",
    "list_transforms": "inspect",
    "mark_dynamic": "sizes",
    "mark_static": "sizes",
    "minify": "_minify",
    "profile": "profiling",
    "resolve_executors": "extend",
    "rules": "inspect",
    "value_and_grad": "transforms.functional",
    "view": "viewing",
    "vjp": "transforms.functional",
    "vmap": "transforms.functional",
    "wait_until_compiled": "inspect",
}

_MODULES = ("core", "distributed", "dynamo", "examine", "executors", "extend", "plugins", "recipes", "transforms")

require_own_package()
announce()
sys.meta_path.append(ForeignModules())


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"thunder.{name}")
    if name not in _ORIGIN:
        raise missing_attribute("thunder", name)
    value = getattr(importlib.import_module(f"thunder.{_ORIGIN[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_ORIGIN, *_MODULES})
