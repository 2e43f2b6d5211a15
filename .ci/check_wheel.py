"""Check a wheel of thunder: tags, content, metadata, and the libraries that its extension needs.

python .ci/check_wheel.py WHEEL
"""

from __future__ import annotations

import email.parser
import re
import subprocess
import sys
import tempfile
import zipfile
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 40 * 2**20  # bytes
ENTRY_POINTS = ("[console_scripts]\nthunder = thunder.cli:main", "[torch_dynamo_backends]\nthunder = thunder.dynamo:")
# What each module takes from the packages of torch and oneTBB.
LIBRARIES = {"_C": {"libtorch_cpu.so", "libtorch_python.so", "libc10.so", "libtbb.so.12"}, "_interpreter": set()}
SYSTEM = {"libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6", "ld-linux-x86-64.so.2", "libpthread.so.0"}
RUNPATH = ["$ORIGIN/../torch/lib", "$ORIGIN/../../.."]


def metadata_of(wheel: zipfile.ZipFile) -> Message:
    """Return the metadata of a wheel."""
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.parser.Parser().parsestr(wheel.read(name).decode())


def wrong_content(wheel: zipfile.ZipFile) -> list[str]:
    """Return what is missing in a wheel or should not be there; built files are left out of account."""
    names = {name for name in wheel.namelist() if ".dist-info/" not in name and not name.endswith("/")}
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "thunder").rglob("*") if path.is_file()}
    expected = {name for name in sources if "__pycache__" not in name and not is_built(name)}
    found = {name for name in names if not is_built(name)}
    return [
        *(f"{name} is missing" for name in sorted(expected - found)),
        *(f"{name} should not be there" for name in sorted(found - expected)),
    ]


def is_built(name: str) -> bool:
    """Return whether a file of the package is made by the build."""
    return name == "thunder/_built_for.py" or name.endswith(".so")


def wrong_metadata(wheel: zipfile.ZipFile) -> list[str]:
    """Return what a wheel's metadata lacks."""
    found = metadata_of(wheel)
    required = " ".join(found.get_all("Requires-Dist") or [])
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    entry_points = re.sub(r"\s*=\s*", " = ", wheel.read(name).decode())
    checks = {
        "Name": found["Name"] == "thunder-compiler",
        "Requires-Python has both bounds": found["Requires-Python"] == "<3.14,>=3.10",
        "License-Expression": found["License-Expression"] == "Apache-2.0",
        "the license": any(name.endswith("/licenses/LICENSE") for name in wheel.namelist()),
        "the README": "source-to-source" in (found["Summary"] or "") and "thunder.jit" in found.get_payload(),
        "torch in exactly one version": re.search(r"\btorch==\d+\.\d+\.\d+( |$)", required) is not None,
        "oneTBB": "tbb>=" in required,
        **{each: each in entry_points for each in ENTRY_POINTS},
    }
    return [f"metadata: {what}" for what, holds in checks.items() if not holds]


def dynamic_section(library: Path) -> tuple[set[str], list[str]]:
    """Return the libraries that a library needs, and the folders in which it looks for them."""
    text = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", text))
    folders = [folder for found in re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", text) for folder in found.split(":")]
    return needed, folders


def wrong_extensions(wheel: zipfile.ZipFile, tag: str) -> list[str]:
    """Return what is wrong with the extension modules of a wheel for the Python of `tag` ("cp311")."""
    names = {f"thunder/{name}.cpython-{tag[2:]}-x86_64-linux-gnu.so": name for name in LIBRARIES}
    built = {name for name in wheel.namelist() if is_built(name)}
    if built != {*names, "thunder/_built_for.py"}:
        return [f"expected {', '.join(names)} and thunder/_built_for.py to be built, got {', '.join(sorted(built))}"]
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        for path, name in names.items():
            needed, folders = dynamic_section(Path(wheel.extract(path, folder)))
            if needed - SYSTEM != LIBRARIES[name]:
                problems.append(f"{path}: expected to need {sorted(LIBRARIES[name])}, got {sorted(needed - SYSTEM)}")
            if folders != (RUNPATH if LIBRARIES[name] else []):
                problems.append(f"{path}: looks for libraries in {folders}")
    return problems


def wrong_name(path: Path) -> list[str]:
    """Return what is wrong with the name of a wheel."""
    match = re.fullmatch(r"thunder_compiler-(.+?)-(cp3\d\d)-(cp3\d\d)-(.+)\.whl", path.name)
    if match is None or match[2] != match[3] or not re.fullmatch(r"manylinux_2_\d+_x86_64", match[4]):
        return [f"expected thunder_compiler-VERSION-cp3XX-cp3XX-manylinux_2_NN_x86_64.whl, got {path.name}"]
    return []


def main() -> int:
    """Print what is wrong with a wheel, and return whether anything is."""
    path = Path(sys.argv[1])
    problems = wrong_name(path)
    if path.stat().st_size > LARGEST:
        problems.append(f"{path.stat().st_size / 2**20:.0f} MiB, at most {LARGEST / 2**20:.0f} are expected")
    with zipfile.ZipFile(path) as wheel:
        problems += wrong_content(wheel) + wrong_metadata(wheel)
        if not problems:
            problems += wrong_extensions(wheel, path.name.split("-")[2])
        required = metadata_of(wheel).get_all("Requires-Dist")
    for problem in problems:
        print(f"{path.name}: {problem}", file=sys.stderr)
    if not problems:
        print(f"{path.name}: {path.stat().st_size / 2**20:.1f} MiB, requires {required}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
