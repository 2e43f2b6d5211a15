"""Recipes: the options that a model is compiled with, and why."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from thunder._names import warn_of_misspelt_methods
from thunder.options import OF_COMPILE, Options, require_bool, require_choice
from thunder.plugins.plugin import Plugin, PluginPolicy
from thunder.plugins.registry import resolve_plugins

if TYPE_CHECKING:
    from thunder.extend import Executor
    from thunder.transforms import Transform

__all__ = ["BaseRecipe", "Setting", "Settings"]

INTERPRETERS = ("thunder.jit", "thunder.fx")
FUSERS: dict[str, tuple[str, ...]] = {"thunder": (), "torch.compile": ("torchcompile",)}


@dataclasses.dataclass(frozen=True)
class Setting:
    """One thing that a recipe chooses.

    Attributes:
        name: an option of `thunder.jit`, an attribute of the model, or a keyword of one of its methods.
        value: its value.
        origin: the recipe or plugin that chose it.
        reason: why; may be empty.
        of_model: True for an attribute of the model.
        method: the method of the model that gets the keyword where a call leaves it open; empty for all else.
    """

    name: str
    value: Any
    origin: str
    reason: str = ""
    of_model: bool = False
    method: str = ""

    @property
    def is_option(self) -> bool:
        """Whether it is an option of `thunder.jit`."""
        return not self.of_model and not self.method

    def __str__(self) -> str:
        setting = f"{self.name}={self.value!r}"
        if self.method:
            setting = f"model.{self.method}(…, {setting})"
        elif self.of_model:
            setting = f"model.{setting}"
        reason = f"  # {self.origin}: {self.reason}" if self.reason else f"  # {self.origin}"
        return setting + reason


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything that a recipe and its plugins choose for a model."""

    recipe: str
    interpreter: str
    settings: tuple[Setting, ...]

    @property
    def options(self) -> dict[str, Any]:
        """The keywords of `thunder.jit` (or `thunder.dynamo.thunderfx`)."""
        return {setting.name: setting.value for setting in self.settings if setting.is_option}

    def __str__(self) -> str:
        function = "thunder.jit" if self.interpreter == "thunder.jit" else "thunder.dynamo.thunderfx"
        lines = [f"recipe {self.recipe}:", *(f"  {setting}" for setting in self.settings if not setting.is_option)]
        lines += [f"  {function}(", "      model,"]
        lines += [f"      {_with_comma(setting)}" for setting in self.settings if setting.is_option]
        return "\n".join([*lines, "  )"])


def _with_comma(setting: Setting) -> str:
    assignment, comment = str(setting).split("  #", 1)
    return f"{assignment},  #{comment}"


class BaseRecipe:
    """The options that any model is compiled with; the base class of recipes.

    Args:
        plugins: plugins, their classes or names.
        interpreter: "thunder.jit", or "thunder.fx" to let torch.compile's TorchDynamo read the Python.
        fuser: "thunder", or "torch.compile" to hand fusions to TorchInductor (the executor "torchcompile").
        show_progress: accepted for Lightning Thunder's recipes; True raises NotImplementedError.
        **options: options of `thunder.jit` that go before those of the recipe.

    Subclasses override `recognizes`, `validate`, and the `setup_` methods. What they choose is public options of
    `thunder.jit`, and attributes of the model.
    """

    #: What `thunder.explain_recipe` calls it.
    name: str = "default"
    #: Why a setting is chosen, by name.
    reasons: Mapping[str, str] = {}

    def __init__(
        self,
        *,
        plugins: Any = None,
        interpreter: str = "thunder.jit",
        fuser: str = "thunder",
        show_progress: bool = False,
        **options: Any,
    ) -> None:
        what = f"recipe {self.name}"
        require_choice("interpreter", interpreter, INTERPRETERS, what)
        if fuser == "nvfuser":
            raise ValueError(f"{what}: fuser: thunder has no nvfuser; 'thunder' fuses on CPUs and GPUs")
        require_choice("fuser", fuser, tuple(FUSERS), what)
        require_bool("show_progress", show_progress, function=what)
        if interpreter == "thunder.jit":
            Options.of(options, what, _keywords_of(type(self)))
        if show_progress:
            raise NotImplementedError(f"recipe {self.name}: show_progress: a trace takes well under a second")
        self.plugins: list[Plugin] = resolve_plugins(plugins)
        self.interpreter = interpreter
        self.fuser = fuser
        self.given = options

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        warn_of_misspelt_methods(cls, BaseRecipe, ("setup_", "recogn", "valid"))

    @classmethod
    def recognizes(cls, model: object) -> bool:
        """Return whether `recipe="auto"` takes this recipe for a model."""
        return False

    def validate(self, model: Any) -> None:
        """Raise ValueError when a model cannot be compiled with this recipe."""

    def add_plugins(self, plugins: Any) -> None:
        """Add plugins behind those that are there."""
        self.plugins.extend(resolve_plugins(plugins))

    def setup_model(self, model: Any) -> Any:
        """Return the callable that is compiled: `model`, or one that takes its place."""
        return model

    def setup_attributes(self, model: Any) -> Mapping[str, Any] | None:
        """Return attributes that the model gets, by dotted name."""
        return None

    def setup_executors(self) -> Iterable[str | Executor] | None:
        """Return executors to go before those of thunder."""
        return FUSERS[self.fuser]

    def setup_transforms(self) -> Iterable[Transform] | None:
        """Return transforms."""
        return None

    def setup_config(self) -> Mapping[str, Any] | None:
        """Return other options of `thunder.jit`, by name."""
        return None

    def settings(self, model: Any) -> Settings:
        """Return what the recipe chooses for a model, without changing anything.

        Raises:
            TypeError: there is no such option of `thunder.jit`.
            ValueError: the recipe does not fit the model; two choose different values of an option.
            NotImplementedError: a plugin's engine is not there.
        """
        self.validate(model)
        found = [
            Setting(name, value, self.name, self.reasons.get(name, ""), of_model=True)
            for name, value in _mapped(self, "setup_attributes", model).items()
        ]
        givers = self._in_order()
        for option, method in (("executors", "setup_executors"), ("transforms", "setup_transforms")):
            items: list[Any] = list(self.given.get(option) or ())
            origins = ["the caller"] if items else []
            for giver in givers:
                added = _listed(giver, method)
                items += added
                origins += [giver.name] if added else []
            if items:
                found.append(Setting(option, items, " and ".join(dict.fromkeys(origins)), self.reasons.get(option, "")))
        found += self._other_options(givers)
        settings = Settings(self.name, self.interpreter, tuple(found))
        if self.interpreter == "thunder.jit":  # that of TorchDynamo takes options of torch.compile, too
            for setting in found:
                _require_option(setting)
        return settings

    def apply(self, model: Any) -> Any:
        """Return the model, compiled with the options that `settings` gives."""
        settings = self.settings(model)
        for name, value in _mapped(self, "setup_attributes", model).items():
            self._set(model, name, value)
        model = self.setup_model(model)
        for plugin in self.plugins:
            model = plugin.setup_model(model)
        return self.compile(model, settings.options)

    def compile(self, model: Any, options: dict[str, Any]) -> Any:
        """Return `model`, compiled with options."""
        if self.interpreter == "thunder.fx":
            from thunder.dynamo import thunderfx

            return thunderfx(model, **options)
        from thunder._jit import jit

        return jit(model, **options)

    def _in_order(self) -> list[Any]:
        before = [plugin for plugin in self.plugins if plugin.policy is PluginPolicy.PRE]
        behind = [plugin for plugin in self.plugins if plugin.policy is not PluginPolicy.PRE]
        return [*before, self, *behind]

    def _other_options(self, givers: list[Any]) -> list[Setting]:
        chosen: dict[str, Setting] = {}
        for giver in givers:
            for name, value in _mapped(giver, "setup_config").items():
                known = chosen.get(name)
                if known is not None and known.value != value and name not in self.given:
                    raise ValueError(
                        f"thunder.compile: {name}: {known.origin} chooses {known.value!r}, {giver.name} chooses "
                        f"{value!r}; give it to the recipe: {type(self).__name__}({name}=…)"
                    )
                chosen[name] = Setting(name, value, giver.name, self.reasons.get(name, "") if giver is self else "")
        for name, value in self.given.items():
            if name not in ("executors", "transforms"):
                chosen[name] = Setting(name, value, "the caller")
        return list(chosen.values())

    def _set(self, model: Any, name: str, value: Any) -> None:
        *path, last = name.split(".")
        owner = model
        for part in path:
            if not hasattr(owner, part):
                kind = type(owner).__qualname__
                raise ValueError(f"recipe {self.name}: setup_attributes: {name}: {kind} has no attribute {part!r}")
            owner = getattr(owner, part)
        setattr(owner, last, value)


def _keywords_of(cls: type[BaseRecipe]) -> list[str]:
    """Return the keywords that a class of recipes takes, without those that it hands on."""
    initializers = (vars(each)["__init__"] for each in cls.__mro__[:-1] if "__init__" in vars(each))
    parameters = (p for each in initializers for p in inspect.signature(each).parameters.values())
    return list(dict.fromkeys(p.name for p in parameters if p.kind is p.KEYWORD_ONLY))


def _require_option(setting: Setting) -> None:
    """Raise TypeError or ValueError, with who chose it, for a setting that is no option of `thunder.jit`."""
    if setting.is_option:
        by_caller = setting.origin == "the caller"
        function = "thunder.compile" if by_caller else f"thunder.compile: {setting.origin}"
        Options.of({setting.name: setting.value}, function, OF_COMPILE if by_caller else ())


def _listed(giver: Any, method: str) -> list[Any]:
    """Return the list that a method of a recipe or plugin gives."""
    found = getattr(giver, method)()
    if isinstance(found, str) or not isinstance(found, Iterable | None):
        raise TypeError(f"{giver.name}: {method}: expected a list, got {found!r}")
    return list(found or ())


def _mapped(giver: Any, method: str, *args: Any) -> Mapping[str, Any]:
    """Return the values by name that a method of a recipe or plugin gives."""
    found = getattr(giver, method)(*args)
    if not isinstance(found, Mapping | None):
        raise TypeError(f"{giver.name}: {method}: expected values by name, got {found!r}")
    return found or {}
