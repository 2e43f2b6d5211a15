"""Markers and fixtures of all tests. torch is imported only where a test needs it: tests/interpreter runs without."""

from __future__ import annotations

import importlib.util
import os
import shlex
from collections.abc import Generator

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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        switches = [f"{name}={shlex.quote(os.environ[name])}" for name in os.environ if name.startswith("THUNDER_")]
        command = [*switches, "python -m pytest", shlex.quote(item.nodeid)]
        report.sections.append(("repeat it with", " ".join(command)))
    return report
