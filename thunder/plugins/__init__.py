"""Plugins of recipes, for `thunder.compile(model, plugins=[…])`. See docs/recipes.md."""

from thunder.plugins.engines import DDP, FP8, FSDP, Profile, ReduceOverhead
from thunder.plugins.int4 import Int4Weights, QuantizeInt4
from thunder.plugins.plugin import Plugin, PluginPolicy
from thunder.plugins.registry import get_plugin, get_plugin_names, register_plugin

__all__ = [
    "DDP",
    "FP8",
    "FSDP",
    "Int4Weights",
    "Plugin",
    "PluginPolicy",
    "Profile",
    "QuantizeInt4",
    "ReduceOverhead",
    "get_plugin",
    "get_plugin_names",
    "register_plugin",
]
