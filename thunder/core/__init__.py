"""Names of Lightning Thunder's `thunder.core` that mean the same here. See docs/migration.md."""

import importlib
from typing import Any

from thunder._elsewhere import missing_attribute


def __getattr__(name: str) -> Any:
    if name in ("options", "transforms", "transform_common"):
        return importlib.import_module(f"thunder.core.{name}")
    raise missing_attribute(__name__, name)
