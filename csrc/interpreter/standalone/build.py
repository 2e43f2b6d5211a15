"""Build the interpreter alone, for the Python that runs this script: no torch, nothing but a C++20 compiler.

python csrc/interpreter/standalone/build.py                 # thunder/_interpreter.cpython-*.so
python csrc/interpreter/standalone/build.py --output DIR    # DIR/thunder/…, to be put on PYTHONPATH
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
CSRC = FOLDER.parents[1]
REPOSITORY = CSRC.parent
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def sources() -> list[Path]:
    """The module's source and, for each header that it needs, `NAME.cpp` and `NAME_*.cpp`."""
    found = [FOLDER / "module.cpp"]
    pending, seen = list(found), set(found)
    while pending:
        for name in INCLUDE.findall(pending.pop().read_text()):
            header = CSRC / name
            layer = header.parent
            implementing = sorted({*layer.glob(f"{header.stem}.cpp"), *layer.glob(f"{header.stem}_*.cpp")})
            new = [path for path in (header, *implementing) if path not in seen]
            seen.update(new)
            pending += new
            found += [path for path in new if path.suffix == ".cpp"]
    return found


def newest_header() -> float:
    """Time of the last change of a header of the layer."""
    return max(path.stat().st_mtime for path in FOLDER.parent.rglob("*.h"))


def compile_source(source: Path, objects: Path, options: argparse.Namespace) -> Path:
    """Compile one source unless its object is up to date."""
    target = objects / f"{source.stem}.o"
    if target.exists() and target.stat().st_mtime > max(source.stat().st_mtime, newest_header()):
        return target
    include = sysconfig.get_paths()["include"]
    flags = f"-std=c++20 -fPIC -fvisibility=hidden -Wall -Wextra -Werror {options.flags}"
    command = [*compiler(), *shlex.split(flags), f"-I{CSRC}", "-isystem", include, "-c", str(source), "-o", str(target)]
    print(f"compiling {source.name}", flush=True)
    subprocess.run(command, check=True)
    return target


def compiler() -> list[str]:
    return shlex.split(os.environ.get("CXX", "g++"))


def build(options: argparse.Namespace) -> Path:
    """Compile and link; returns the module's path."""
    # Objects made with other flags are not up to date.
    flags = re.sub(r"[^\w-]+", "", options.flags)
    objects = options.objects or REPOSITORY / "build" / "interpreter" / f"{sysconfig.get_config_var('SOABI')}{flags}"
    objects.mkdir(parents=True, exist_ok=True)
    package = options.output / "thunder" if options.output else REPOSITORY / "thunder"
    package.mkdir(parents=True, exist_ok=True)
    target = package / f"_interpreter{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiled = [compile_source(source, objects, options) for source in sources()]
    link = [*compiler(), "-shared", *shlex.split(options.flags), *map(str, compiled), "-o", str(target)]
    subprocess.run(link, check=True)
    if options.output:
        shutil.copy(REPOSITORY / "thunder" / "interpreter.py", package)
        (package / "__init__.py").touch()
    return target


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="folder of a small `thunder` package (default: the repository's)")
    parser.add_argument("--objects", type=Path, help="folder of the object files (default: under build/interpreter)")
    parser.add_argument("--flags", default="-O2 -DNDEBUG", help="compiler flags (default: %(default)s)")
    print(build(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
