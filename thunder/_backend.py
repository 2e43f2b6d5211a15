"""Tells torch.compile of the back end "thunder", where no entry point does: a source tree that is not installed.

TorchDynamo is imported when torch.compile is first used. Its registry is written to as soon as it is there.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["announce"]

_REGISTRY = "torch._dynamo.backends.registry"
_NAME = "thunder"


def announce() -> None:
    """Add the back end to TorchDynamo's registry, now or when that is imported."""
    registry = sys.modules.get(_REGISTRY)
    if registry is not None:
        _add(registry)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _add(registry: ModuleType) -> None:
    from importlib.metadata import EntryPoint

    entry = EntryPoint(_NAME, "thunder.dynamo:thunder_backend", "torch_dynamo_backends")
    registry._BACKENDS.setdefault(_NAME, entry)


class _Finder:
    """Finds the registry where the others do, once, and adds the back end when it has been loaded."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        if fullname != _REGISTRY:
            return None
        sys.meta_path.remove(self)
        import importlib.machinery

        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
        return spec


class _Loader:
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = module.__loader__ = self._loader  # type: ignore[union-attr]
        self._loader.exec_module(module)
        _add(module)
