"""Recipes by name."""

from __future__ import annotations

from typing import Any

import torch

from thunder._arguments import shown
from thunder._names import suggestion
from thunder.recipes.libraries import HFTransformers, LightningModules, LitGPT, Timm
from thunder.recipes.recipe import BaseRecipe

__all__ = ["get_recipe_class", "get_recipes", "register_recipe", "resolve_recipe"]

_recipes: dict[str, type[BaseRecipe]] = {
    recipe.name: recipe for recipe in (BaseRecipe, HFTransformers, LightningModules, LitGPT, Timm)
}


def get_recipes() -> list[str]:
    """Return the names of all recipes."""
    return list(_recipes)


def get_recipe_class(name: str) -> type[BaseRecipe] | None:
    """Return the class of a recipe, None where there is none of that name."""
    return _recipes.get(name)


def register_recipe(name: str, cls: type[BaseRecipe]) -> None:
    """Make `cls`, a recipe, known by a name. `recipe="auto"` asks those that were registered last first.

    Raises:
        ValueError: the name is "auto".
        TypeError: `name` is no string, or `cls` no subclass of `BaseRecipe`.

    Example:
        >>> import torch, thunder
        >>> class ForTanh(thunder.Recipe):
        ...     name = "for-tanh"
        ...     reasons = {"dynamic": "sizes differ from call to call"}
        ...     @classmethod
        ...     def recognizes(cls, model):
        ...         return isinstance(model, torch.nn.Tanh)
        ...     def setup_config(self):
        ...         return {"dynamic": True}
        >>> thunder.recipes.register_recipe("for-tanh", ForTanh)
        >>> thunder.explain_recipe(torch.nn.Tanh())
        recipe for-tanh:
          thunder.jit(
              model,
              dynamic=True,  # for-tanh: sizes differ from call to call
          )
    """
    if not isinstance(name, str):
        raise TypeError(f"thunder.recipes: expected a name, got {name!r}")
    if name == "auto":
        raise ValueError("thunder.recipes: the name 'auto' is reserved")
    if not (isinstance(cls, type) and issubclass(cls, BaseRecipe)):
        raise TypeError(f"thunder.recipes: expected a subclass of thunder.recipes.BaseRecipe, got {cls!r}")
    _recipes.pop(name, None)
    _recipes[name] = cls


def resolve_recipe(model: object, recipe: Any) -> BaseRecipe:
    """Return the recipe that is meant: a recipe, its class or name, or "auto".

    Raises:
        ValueError: there is no recipe of that name.
        TypeError: something else is given.
    """
    if isinstance(recipe, str) and recipe == "auto":
        recipe = next((cls for cls in reversed(_recipes.values()) if cls.recognizes(model)), BaseRecipe)
    if isinstance(recipe, str):
        if recipe not in _recipes:
            raise ValueError(
                f"thunder.compile: recipe: expected one of {', '.join(('auto', *_recipes))}, got {recipe!r}"
                f"{suggestion(recipe, _recipes)}"
            )
        recipe = _recipes[recipe]
    if isinstance(recipe, type):
        recipe = recipe()
    if not isinstance(recipe, BaseRecipe):
        called = "; what thunder.compile returns is called with arguments: thunder.compile(model)(…)"
        raise TypeError(
            f"thunder.compile: recipe: expected thunder.recipes.BaseRecipe or a name, got {shown(recipe)}"
            f"{called if isinstance(recipe, torch.Tensor) else ''}"
        )
    return recipe
