"""`thunder env`: what a report of a problem needs to say."""

from __future__ import annotations

import os
import platform
import sys

__all__ = ["describe"]


def describe() -> str:
    """Return versions, processors, executors and settings, one a line."""
    import torch

    import thunder

    lines = {
        "thunder": f"{thunder.__version__} in {os.path.dirname(os.path.abspath(thunder.__file__))}",
        "python": f"{platform.python_version()} ({sys.executable})",
        "torch": torch.__version__,
        "system": platform.platform(),
        "processor": f"{_processor()}, {os.cpu_count()} CPUs, {torch.backends.cpu.get_cpu_capability()}, "
        f"{torch.get_num_threads()} threads",
        "gpu": _gpus(),
        "executors": _executors(),
    }
    for name in ("transformers", "litgpt", "lightning", "timm", "numpy", "tbb"):
        lines[name] = _version(name)
    settings = {name: value for name, value in sorted(os.environ.items()) if name.startswith("THUNDER_")}
    lines["settings"] = ", ".join(f"{name}={value}" for name, value in settings.items()) or "none"
    return "\n".join(f"{name + ':':14}{value}" for name, value in lines.items())


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf8") as file:
            return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown")
    except OSError:
        return platform.processor() or "unknown"


def _gpus() -> str:
    import torch

    if not torch.cuda.is_available():
        return "none"
    return ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))


def _executors() -> str:
    """The default executors, or why the extension cannot be loaded."""
    try:
        import thunder

        return ", ".join(executor.name for executor in thunder.get_default_executors())
    except ImportError as error:
        return f"cannot be loaded: {error}"


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
