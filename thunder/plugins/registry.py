"""Plugins by name, for `thunder.compile(model, plugins="reduce-overhead")`."""

from __future__ import annotations

from collections.abc import Callable

from thunder._arguments import missing_arguments, shown
from thunder._names import suggestion
from thunder.plugins.engines import DDP, FP8, FSDP, Profile, ReduceOverhead
from thunder.plugins.int4 import QuantizeInt4
from thunder.plugins.plugin import Plugin
from thunder.transforms.transform import Transform

__all__ = ["get_plugin", "get_plugin_names", "register_plugin", "resolve_plugins"]

_plugins: dict[str, Callable[[], Plugin]] = {
    "ddp": DDP,
    "fp8": FP8,
    "fsdp": FSDP,
    "profile": Profile,
    "quantize-int4": QuantizeInt4,
    "reduce-overhead": ReduceOverhead,
}


def get_plugin(name: str) -> Callable[[], Plugin] | None:
    """Return the class of a plugin, None where there is none of that name."""
    return _plugins.get(name)


def get_plugin_names() -> list[str]:
    """Return the names of all plugins."""
    return list(_plugins)


def register_plugin(name: str, plugin: Callable[[], Plugin]) -> None:
    """Make a plugin known by a name, in the place of one of that name. `plugin()` makes it.

    Raises:
        TypeError: `plugin` is not callable.

    Example:
        >>> import torch, thunder
        >>> class WithoutFusions(thunder.Plugin):
        ...     def setup_executors(self):
        ...         return ["aten"]
        >>> thunder.plugins.register_plugin("without-fusions", WithoutFusions)
        >>> thunder.explain_recipe(torch.nn.Tanh(), plugins="without-fusions")
        recipe default:
          thunder.jit(
              model,
              executors=['aten'],  # WithoutFusions
          )
    """
    if not isinstance(name, str):
        raise TypeError(f"thunder.plugins: expected a name, got {shown(name)}")
    if not callable(plugin):
        raise TypeError(f"thunder.plugins: expected a class of plugins, got {shown(plugin)}")
    _plugins[name] = plugin


def resolve_plugins(plugins: object) -> list[Plugin]:
    """Return plugins that are given as one or a list of plugins, their classes or names.

    Raises:
        ValueError: there is no plugin of that name.
        TypeError: something else is given.
    """
    if plugins is None:
        return []
    given = list(plugins) if isinstance(plugins, list | tuple) else [plugins]
    return [_resolve(plugin) for plugin in given]


def _made(cls: type[Plugin]) -> Plugin:
    if (missing := missing_arguments(cls)) is not None:
        raise TypeError(f"thunder.compile: plugins: {cls.__qualname__}: {missing}; give an instance: {cls.__name__}(…)")
    return cls()


def _resolve(plugin: object) -> Plugin:
    if isinstance(plugin, str):
        if plugin not in _plugins:
            raise ValueError(
                f"thunder.compile: plugins: expected one of {', '.join(_plugins)}, got {plugin!r}"
                f"{suggestion(plugin, _plugins)}"
            )
        registered = _plugins[plugin]
        plugin = registered if isinstance(registered, type) else registered()
    if isinstance(plugin, type) and issubclass(plugin, Plugin):
        plugin = _made(plugin)
    if not isinstance(plugin, Plugin):
        cls = plugin if isinstance(plugin, type) else type(plugin)
        hint = f"; transforms=[{cls.__name__}(…)] takes it" if issubclass(cls, Transform) else ""
        raise TypeError(
            f"thunder.compile: plugins: expected thunder.plugins.Plugin or a name, got {shown(plugin)}{hint}"
        )
    if hasattr(plugin, "setup_lookasides"):
        raise NotImplementedError(
            f"thunder.compile: plugin {plugin.name}: setup_lookasides: thunder has no lookasides; run a function in "
            "another way with an executor (thunder.extend.OperatorExecutor.register_implementation)"
        )
    return plugin
