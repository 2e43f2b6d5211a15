"""Loads the extension module, and explains why when that fails."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

_PACKAGE = os.path.dirname(os.path.abspath(__file__))

# Folders that Lightning Thunder has in its package `thunder` and this package has not.
FOREIGN_FOLDERS = ("clang", "numpy", "torch")


def require_own_package() -> None:
    """Raise ImportError when `lightning-thunder`, which also installs a package `thunder`, was installed over this one.

    Reads the file system only: importing `importlib.metadata` would cost more than all else in `import thunder`.
    """
    if all(os.path.isdir(os.path.join(_PACKAGE, folder)) for folder in FOREIGN_FOLDERS):
        raise ImportError(
            f"import thunder: the files of lightning-thunder and thunder-compiler are mixed in {_PACKAGE}, as both "
            "install a package named 'thunder'. Keep one:\n"
            "    pip uninstall -y lightning-thunder thunder-compiler && pip install thunder-compiler"
        )


def load_extension() -> ModuleType:
    """Return the extension module `thunder._C`.

    Raises ImportError, with the command that mends it, when torch is missing or another one than the extension was
    built against, when the extension has not been built, or when oneTBB's library is not found.
    """
    loaded = sys.modules.get("thunder._C")
    if loaded is not None:
        return loaded
    try:
        # Loads libtorch before the extension, which then finds its libraries wherever they lie.
        torch = importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError("import thunder: torch is not installed: pip install torch==2.13.0") from error
    try:
        built_for = importlib.import_module("thunder._built_for").TORCH
    except ModuleNotFoundError as error:
        raise _not_built() from error
    require_torch(running=torch.__version__, built_for=built_for)
    try:
        return importlib.import_module("thunder._C")
    except ModuleNotFoundError as error:
        raise _not_built() from error
    except ImportError as error:
        raise explained(error) from error


def require_torch(*, running: str, built_for: str) -> None:
    """Raise ImportError unless the running torch is the one that the extension was built against."""
    if running != built_for:
        release = built_for.split("+")[0]
        raise ImportError(
            f"import thunder: built against torch {built_for}, but torch {running} is running. Either install the "
            f"former:\n    pip install torch=={release}\n"
            "or build thunder against the latter, in its source folder:\n"
            "    pip install --no-build-isolation --no-deps --force-reinstall ."
        )


def _not_built() -> ImportError:
    return ImportError(
        f"import thunder: the extension module thunder._C for {sys.implementation.cache_tag} is not in {_PACKAGE}. "
        "Build it, in the source folder:\n    make build"
    )


def explained(error: ImportError) -> ImportError:
    """Return `error` with what to do, where the cause is known."""
    if "libtbb" in str(error):
        return ImportError(
            f"import thunder: oneTBB was not found ({error}). Install it:\n    pip install 'tbb>=2022.0'"
        )
    return ImportError(
        f"import thunder: thunder._C cannot be loaded: {error}. Rebuild it, in the source folder:\n    make clean build"
    )
