"""Markers and fixtures of all tests. torch is imported only where a test needs it: tests/interpreter runs without."""

from __future__ import annotations

import importlib.util
import os
import shlex

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


def reproduction_command(nodeid: str) -> str:
    """Return the command that runs one test alone, with the environment that thunder and its tests look at."""
    names = sorted(name for name in os.environ if name.startswith("THUNDER_"))
    settings = (f"{name}={shlex.quote(os.environ[name])}" for name in names)
    return " ".join([*settings, "python -m pytest", shlex.quote(nodeid)])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    if reports:
        terminalreporter.section("reproduce")
    for nodeid in dict.fromkeys(report.nodeid for report in reports):
        terminalreporter.write_line(reproduction_command(nodeid))
