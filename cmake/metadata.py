"""Metadata of the package that depends on the build: the torch that the extension is built against, and runs with."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any

__all__ = ["OLDEST_TORCH", "dynamic_metadata", "require_supported"]

OLDEST_TORCH = (2, 11)


def require_supported(version: str) -> None:
    """Raise ValueError unless thunder can be built against a version of torch."""
    release = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    if release < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise ValueError(f"thunder needs torch {oldest} or newer, got {version}: pip install 'torch>={oldest}'")


def dynamic_metadata(field: str, settings: Mapping[str, Any] | None = None) -> list[str]:
    """Return what the package depends on, for scikit-build-core: the very torch of the build."""
    if field != "dependencies":
        raise ValueError(f"expected the field 'dependencies', got {field!r}")
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise ValueError(
            "thunder is built against the torch that is installed, and there is none: pip install torch==2.13.0, or "
            "leave out --no-build-isolation"
        ) from None
    require_supported(version)
    return [f"torch=={version.split('+')[0]}", "tbb>=2022.0"]
