"""Recipes, for `thunder.compile(model, recipe=…)`. See docs/recipes.md."""

from thunder.recipes.libraries import HFTransformers, LightningModules, LitGPT, Timm
from thunder.recipes.recipe import BaseRecipe, Setting, Settings
from thunder.recipes.registry import get_recipe_class, get_recipes, register_recipe

# As Lightning Thunder calls it.
Recipe = BaseRecipe

__all__ = [
    "BaseRecipe",
    "HFTransformers",
    "LightningModules",
    "LitGPT",
    "Recipe",
    "Setting",
    "Settings",
    "Timm",
    "get_recipe_class",
    "get_recipes",
    "register_recipe",
]
