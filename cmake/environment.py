"""Print, as `set(...)` lines for CMake, where the running Python's packages keep what the build needs.

torch is located without importing it, and not by `find_package(Torch)`: that asks for a CUDA toolkit when torch was
built with CUDA, while thunder links libtorch's CPU-visible libraries only.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import runpy
import sys
import sysconfig
from pathlib import Path

from metadata import require_supported


def torch_variables() -> dict[str, str]:
    """Return torch's folder and version; fails with the command that installs it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        sys.exit(f"torch is not installed for {sys.executable}: pip install torch==2.13.0")
    root = Path(spec.origin).parent
    version = runpy.run_path(str(root / "version.py"))["__version__"]
    try:
        require_supported(version)
    except ValueError as error:
        sys.exit(str(error))
    return {"THUNDER_TORCH_ROOT": str(root), "THUNDER_TORCH_VERSION": version}


def installed_file(distribution: str, suffix: str) -> Path:
    """Return the path of the file of `distribution` whose name ends in `suffix`."""
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        sys.exit(f"{distribution} is not installed for {sys.executable}: pip install {distribution}")
    for file in files:
        if file.as_posix().endswith(suffix):
            return Path(os.path.normpath(str(file.locate())))
    sys.exit(f"{distribution} holds no {suffix}: pip install --force-reinstall {distribution}")


def tbb_variables() -> dict[str, str]:
    """Return oneTBB's include folder and library."""
    header = installed_file("tbb-devel", "include/oneapi/tbb.h")
    return {
        "THUNDER_TBB_INCLUDE": str(header.parent.parent),
        "THUNDER_TBB_LIBRARY": str(installed_file("tbb", "/libtbb.so.12")),
    }


def main() -> None:
    """Print one line per variable."""
    variables = torch_variables() | tbb_variables()
    # Under pip's build isolation the two above lie in a temporary folder; these two are where the result will run.
    variables["THUNDER_TARGET_SITE"] = sysconfig.get_path("platlib")
    variables["THUNDER_TARGET_LIB"] = str(Path(sys.prefix) / "lib")
    for name, value in variables.items():
        print(f'set({name} "{value}")')


if __name__ == "__main__":
    main()
