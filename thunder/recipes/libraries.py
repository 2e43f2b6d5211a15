"""Recipes for models of well-known libraries, which are recognized by names: nothing is imported for that."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from thunder.module import ThunderModule
from thunder.options import require_bool
from thunder.recipes.recipe import BaseRecipe, Setting, Settings

__all__ = ["HFTransformers", "LightningModules", "LitGPT", "Timm"]

_LITGPT_LOOKS_FOR = "ThunderModule"


def _is_of(model: object, packages: tuple[str, ...], names: tuple[str, ...] = ()) -> bool:
    """Return whether the class of a model, or one that it derives from, is of a package, and has one of these names."""
    return any(
        cls.__module__.partition(".")[0] in packages and (not names or cls.__name__ in names)
        for cls in type(model).__mro__
    )


class HFTransformers(BaseRecipe):
    """Hugging Face models: `generate` keeps keys and values in a cache of fixed size.

    With the cache that `generate` takes by default each token gives tensors of other sizes. With one of fixed size
    there are two programs, one for the prompt and one for all tokens after it. The model and its `generation_config`
    stay as they are, as do calls of `generate` that name a cache, or that work with none of fixed size
    (`use_cache=False`, assisted generation).

    Args:
        static_cache: False leaves the cache as it is.
        **options: see `BaseRecipe`.
    """

    name = "hf-transformers"
    reasons: Mapping[str, str] = {
        "cache_implementation": "tokens after the prompt share one program",
        "disable_compile": "thunder compiles the decoding step, not torch.compile",
    }

    def __init__(self, *, static_cache: bool = True, **options: Any) -> None:
        super().__init__(**options)
        require_bool("static_cache", static_cache, function=f"recipe {self.name}")
        self.static_cache = static_cache

    @classmethod
    def recognizes(cls, model: object) -> bool:
        """Return whether a model derives from `transformers.PreTrainedModel`."""
        return _is_of(model, ("transformers",), ("PreTrainedModel",))

    def validate(self, model: Any) -> None:
        """Require a Hugging Face model."""
        if not self.recognizes(model):
            raise ValueError(
                f"recipe {self.name}: expected a transformers.PreTrainedModel, got {type(model).__qualname__}"
            )

    def settings(self, model: Any) -> Settings:
        """Return the options, and the keywords that calls of `generate` get."""
        settings = super().settings(model)
        if not self._has_static_cache(model):
            return settings
        keywords = (
            Setting(name, value, self.name, self.reasons[name], method="generate")
            for name, value in _STATIC_CACHE.items()
        )
        return dataclasses.replace(settings, settings=(*keywords, *settings.settings))

    def compile(self, model: Any, options: dict[str, Any]) -> Any:
        """Return the compiled model, whose class, made for it alone, has a `generate` of its own."""
        compiled = super().compile(model, options)
        if self._has_static_cache(model) and isinstance(compiled, ThunderModule):
            type(compiled).generate = _with_static_cache(type(model).generate)  # type: ignore[attr-defined]
        return compiled

    def _has_static_cache(self, model: Any) -> bool:
        """Return whether `generate` is to take a cache of fixed size: for models that can, with no other one chosen."""
        config = getattr(model, "generation_config", None)
        return (
            self.static_cache
            and self.interpreter == "thunder.jit"
            and config is not None
            and getattr(model, "can_generate", lambda: False)()
            and getattr(model, "_can_compile_fullgraph", False)
            and config.cache_implementation is None
        )


_STATIC_CACHE = {"cache_implementation": "static", "disable_compile": True}
# Arguments of `generate` that go with a cache of their own, or with none of fixed size.
_OTHER_CACHES = (
    "assistant_early_exit",
    "assistant_model",
    "cache_implementation",
    "custom_generate",
    "past_key_values",
    "prompt_lookup_num_tokens",
)


def _with_static_cache(generate: Callable[..., Any]) -> Callable[..., Any]:
    """Return `generate` of Transformers with a cache of fixed size for calls that do not name another one."""
    signature = inspect.signature(generate)

    @functools.wraps(generate)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = signature.bind_partial(self, *args, **kwargs)
        config = call.arguments.get("generation_config")
        chosen = {**(config or self.generation_config).to_dict(), **call.arguments, **call.arguments.get("kwargs", {})}
        if chosen.get("use_cache") is False or any(chosen.get(name) is not None for name in _OTHER_CACHES):
            return generate(self, *args, **kwargs)
        if config is None:
            return generate(self, *args, **{**_STATIC_CACHE, **kwargs})
        call.arguments["generation_config"] = config = copy.deepcopy(config)
        config.update(**_STATIC_CACHE)
        return generate(*call.args, **call.kwargs)

    return wrapper


class LitGPT(BaseRecipe):
    """LitGPT's models: `generate` gives positions as tensors; as Python numbers each would be another program."""

    name = "litgpt"

    @classmethod
    def recognizes(cls, model: object) -> bool:
        """Return whether the class of a model comes from LitGPT."""
        return _is_of(model, ("litgpt",))

    def settings(self, model: Any) -> Settings:
        """Return the options, and the name that the class of the compiled model gets."""
        settings = super().settings(model)
        if self.interpreter != "thunder.jit":
            return settings
        reason = "LitGPT's generate then gives positions as tensors, so that all tokens share one program"
        named = Setting("__class__.__name__", _LITGPT_LOOKS_FOR, self.name, reason, of_model=True)
        return dataclasses.replace(settings, settings=(named, *settings.settings))

    def compile(self, model: Any, options: dict[str, Any]) -> Any:
        """Return the compiled model, whose class, made for it alone, has the name that LitGPT looks for."""
        compiled = super().compile(model, options)
        if self.interpreter == "thunder.jit" and isinstance(compiled, ThunderModule):
            type(compiled).__name__ = _LITGPT_LOOKS_FOR
        return compiled


class Timm(BaseRecipe):
    """Models of timm: the options of any model.

    What such models gain from (images laid out channels last, batch norms that fuse) thunder's passes do by themselves.
    """

    name = "timm"

    @classmethod
    def recognizes(cls, model: object) -> bool:
        """Return whether the class of a model comes from timm."""
        return _is_of(model, ("timm",))


class LightningModules(BaseRecipe):
    """Lightning's modules: what their steps call is compiled, the steps themselves run as they are.

    A `LightningModule` is trained by `training_step`, which the trainer calls and which logs; it calls submodules. Each
    of these is compiled and takes the place of the original. The result is the module itself.
    """

    name = "lightning"

    @classmethod
    def recognizes(cls, model: object) -> bool:
        """Return whether a model derives from `LightningModule`."""
        return _is_of(model, ("lightning", "pytorch_lightning"), ("LightningModule",))

    def validate(self, model: Any) -> None:
        """Require a Lightning module with submodules."""
        if not self.recognizes(model):
            raise ValueError(f"recipe {self.name}: expected a LightningModule, got {type(model).__qualname__}")
        if not _compilable_children(model):
            raise ValueError(
                f"recipe {self.name}: {type(model).__qualname__} has no submodule that could be compiled; compile what "
                "its steps call: module.training_step = thunder.jit(module.training_step)"
            )

    def compile(self, model: Any, options: dict[str, Any]) -> Any:
        """Compile the submodules in place, and return the module."""
        for owner, name, child in _compilable_children(model):
            owner._modules[name] = super().compile(child, options)
        return model


def _compilable_children(module: Any) -> list[tuple[Any, str, Any]]:
    """Return the uppermost submodules that have a forward, with their owners; not metrics, which keep state."""
    from torch import nn

    found = []
    for name, child in module.named_children():
        if _is_of(child, ("torchmetrics",)):
            continue
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            found += _compilable_children(child)
        else:
            found.append((module, name, child))
    return found
