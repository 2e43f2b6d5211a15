"""The base class of plugins."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from thunder._names import warn_of_misspelt_methods

if TYPE_CHECKING:
    from thunder.extend import Executor
    from thunder.transforms import Transform

__all__ = ["Plugin", "PluginPolicy"]


class PluginPolicy(enum.Enum):
    """Whether a plugin's executors and transforms stand before or behind those of the recipe."""

    PRE = "before the recipe"
    POST = "behind the recipe"


class Plugin:
    """Something that is added to a recipe: `thunder.compile(model, plugins=[MyPlugin()])`.

    Each method adds public options of `thunder.jit`; what is not overridden adds nothing.

    Attributes:
        policy: where its executors and transforms stand among those of the recipe.
    """

    policy: PluginPolicy = PluginPolicy.PRE

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        warn_of_misspelt_methods(cls, Plugin, ("setup_",))

    @property
    def name(self) -> str:
        """The name of its class, for messages."""
        return type(self).__name__

    def setup_model(self, model: Any) -> Any:
        """Return the callable to compile in the place of `model`: itself, or one that wraps it."""
        return model

    def setup_executors(self) -> Iterable[str | Executor] | None:
        """Return executors to add to the option `executors`."""
        return None

    def setup_transforms(self) -> Iterable[Transform] | None:
        """Return transforms to add to the option `transforms`."""
        return None

    def setup_config(self) -> Mapping[str, Any] | None:
        """Return other options of `thunder.jit`, by name."""
        return None
