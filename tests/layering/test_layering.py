"""Which headers a layer sees: `probe.cpp` is compiled with the flags that the build uses for that layer."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "dev"


def layer_command(layer: str) -> list[str]:
    """Return the compiler and the flags with which the build compiles a source of `layer`."""
    root = f"-I{BUILD / 'include' / layer}"
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        if root in words and "/tests/" not in entry["file"]:
            compiler = next(word for word in words if re.search(r"/(c\+\+|g\+\+|clang\+\+)[^/]*$", word))
            flags, index = [], 0
            while index < len(words):
                if words[index] == "-isystem":
                    flags += words[index : index + 2]
                elif words[index].startswith(("-I", "-std", "-D")):
                    flags.append(words[index])
                index += 1
            return [compiler, *flags]
    raise AssertionError(f"no source of layer {layer} in compile_commands.json")


def compile_probe(layer: str, header: str) -> subprocess.CompletedProcess[str]:
    command = [*layer_command(layer), f'-DTHUNDER_PROBE_HEADER="{header}"', "-fsyntax-only"]
    return subprocess.run([*command, str(ROOT / "tests/layering/probe.cpp")], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("layer", "header"),
    [("passes", "ir/trace.h"), ("interpreter", "interpreter/loop/interpret.h"), ("ir", "base/error.h")],
)
def test_declared_layer_is_seen(layer: str, header: str) -> None:
    result = compile_probe(layer, header)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("layer", "header"),
    [
        ("base", "ir/trace.h"),
        ("passes", "compile/compiler.h"),
        ("interpreter", "bridge/convert.h"),
        ("base", "Python.h"),
        ("ir", "ATen/ATen.h"),
        ("passes", "ATen/ATen.h"),
        ("interpreter", "ATen/ATen.h"),
    ],
)
def test_undeclared_header_does_not_compile(layer: str, header: str) -> None:
    result = compile_probe(layer, header)
    assert result.returncode != 0
    assert f"{header}: No such file or directory" in result.stderr


def included_headers(folder: Path) -> dict[Path, list[str]]:
    sources = [*folder.rglob("*.h"), *folder.rglob("*.cpp")]
    return {source: re.findall(r'#include\s+["<]([^">]+)[">]', source.read_text()) for source in sources}


def test_includes_start_at_csrc() -> None:
    folders = tuple(f"{folder.name}/" for folder in (ROOT / "csrc").iterdir() if folder.is_dir())
    wrong = [
        f"{source.relative_to(ROOT)}: {header}"
        for source, headers in included_headers(ROOT / "csrc").items()
        for header in headers
        if header.startswith(".") or ((source.parent / header).exists() and not header.startswith(folders))
    ]
    assert wrong == []


def test_pybind11_is_used_in_bindings_only() -> None:
    users = {
        source.relative_to(ROOT / "csrc").parts[0]
        for source, headers in included_headers(ROOT / "csrc").items()
        if any(header.startswith("pybind11/") or header == "torch/extension.h" for header in headers)
    }
    assert users <= {"bindings"}
