"""`thunder.compile`, and what its recipes choose. Named as `_jit.py` is, for the same reason."""

from __future__ import annotations

import copy
import functools
from typing import Any

from thunder._arguments import require_callable
from thunder.recipes.recipe import BaseRecipe
from thunder.recipes.registry import resolve_recipe

__all__ = ["compile", "explain_recipe"]


def compile(fn: Any = None, /, recipe: Any = "auto", plugins: Any = None, **options: Any) -> Any:
    """Return `fn`, a callable or an `nn.Module`, compiled with the options of a recipe; without `fn`, a decorator.

    Args:
        fn: what `thunder.jit` takes.
        recipe: "auto", which recognizes Hugging Face, LitGPT, Lightning and timm; another name among
            `thunder.recipes.get_recipes()`; or a `thunder.recipes.BaseRecipe`.
        plugins: a plugin (`thunder.plugins`) or a list of plugins, their classes or names: "reduce-overhead", "ddp",
            "fsdp", "fp8", "quantize-int4".
        **options: options of `thunder.jit`, which win over those of the recipe and the plugins.

    Returns:
        What `thunder.jit` returns for `fn` with those options, which `thunder.explain_recipe` prints.

    Raises:
        TypeError: there is no such option, or `fn` is nothing that `thunder.jit` takes.
        ValueError: there is no such recipe or plugin, or it does not fit the model.
        NotImplementedError: a plugin's engine is not in this version; the message says what to use.

    Example:
        >>> import torch, thunder
        >>> model = thunder.compile(torch.nn.Linear(4, 3))
        >>> model(torch.ones(2, 4)).shape
        torch.Size([2, 3])
    """
    if fn is None:
        return functools.partial(compile, recipe=recipe, plugins=plugins, **options)
    return _recipe_for(fn, recipe, plugins, options).apply(fn)


def explain_recipe(fn: Any, /, recipe: Any = "auto", plugins: Any = None, **options: Any) -> None:
    """Print what `thunder.compile` with the same arguments chooses, as a call of `thunder.jit`. Nothing is changed.

    Args:
        fn: a callable or an `nn.Module`.
        recipe: see `thunder.compile`, as for the others.
        plugins: plugins, their classes or names.
        **options: options of `thunder.jit`.

    Raises:
        TypeError, ValueError, NotImplementedError: as `thunder.compile` does.

    Example:
        >>> import torch, thunder
        >>> thunder.explain_recipe(torch.nn.Linear(4, 3), dynamic=True)
        recipe default:
          thunder.jit(
              model,
              dynamic=True,  # the caller
          )
    """
    require_callable("thunder.explain_recipe", fn)
    print(_recipe_for(fn, recipe, plugins, options).settings(fn))


def _recipe_for(fn: Any, recipe: Any, plugins: Any, options: dict[str, Any]) -> BaseRecipe:
    # A copy: a recipe that the caller made may be used for several models, each with plugins and options of its own.
    resolved = copy.copy(resolve_recipe(fn, recipe))
    resolved.plugins = list(resolved.plugins)
    resolved.add_plugins(plugins)
    resolved.given = {**resolved.given, **options}
    return resolved
