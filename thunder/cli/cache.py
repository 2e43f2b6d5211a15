"""`thunder cache`: what thunder keeps on disk."""

from __future__ import annotations

import os
import pathlib
import shutil

__all__ = ["PARTS", "clear", "describe", "folder"]

#: The folders in it that thunder writes to: kernels for GPUs.
PARTS = ("cuda",)


def folder() -> pathlib.Path:
    """Return the folder of thunder's caches, which csrc/base/disk_cache.cpp chooses by the same rules."""
    chosen = os.environ.get("THUNDER_CACHE_DIR")
    if chosen:
        return pathlib.Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG Base Directory Specification ignores relative paths
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "thunder"


def describe() -> str:
    """Return the folder, and what each part of it holds."""
    lines = []
    for part in _parts():
        files = [file for file in part.rglob("*") if file.is_file()]
        lines.append(f"  {part.name}: {len(files)} files, {sum(file.stat().st_size for file in files) / 2**20:.3g} MiB")
    return "\n".join([str(folder()), *lines]) if lines else f"{folder()}: empty"


def clear() -> str:
    """Delete what thunder keeps there, and say so. Programs that run keep what they have loaded."""
    parts = _parts()
    for part in parts:
        shutil.rmtree(part)
    return f"{folder()}: deleted {', '.join(part.name for part in parts) or 'nothing'}"


def _parts() -> list[pathlib.Path]:
    return [folder() / name for name in PARTS if (folder() / name).is_dir()]
