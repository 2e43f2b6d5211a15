"""Markers and fixtures of all tests. torch is imported only where a test needs it: tests/interpreter runs without."""

from __future__ import annotations

import importlib.util

import pytest


def missing_for_gpu() -> str | None:
    """Return why tests marked `gpu` cannot run here, or None."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    return None if torch.cuda.is_available() else "no CUDA GPU"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = missing_for_gpu() if marked else None
    if reason:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))
