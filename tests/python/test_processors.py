"""The extension runs on every x86-64: what newer processors have is only in kernels that are chosen at run time."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from thunder._check import load_extension

FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
# AVX and what came after it is spelled with a `v`; of what came between SSE2 and it, what compilers use. `tzcnt` is
# `bsf` where it is unknown.
INSTRUCTION = re.compile(
    r"^\s+[0-9a-f]+:\s+(v(?!err|erw)[a-z]\w*|popcnt|lzcnt|andn|bextr|mulx|s[ah][lr]x|rorx|pdep|pext|blsr|pshufb|ptest|"
    r"round[sp][sd]|pmulld|pblend\w*|blendv\w*|pinsr[bdq]|pextr[bdq]|pmov[sz]x\w*|haddp\w|palignr)\s"
)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="not an x86-64")
@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed")
def test_only_kernels_of_newer_processors_have_their_instructions() -> None:
    library = load_extension().__file__
    assert library is not None
    command = ["objdump", "-d", "--no-show-raw-insn", str(Path(library))]
    function, newer = "", set()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listing:
        assert listing.stdout is not None
        for line in listing.stdout:
            if named := FUNCTION.match(line):
                function = named.group(1)
            elif INSTRUCTION.match(line):
                newer.add(function)
    of_capabilities = {name for name in newer if "capability_avx" in name}
    assert newer == of_capabilities
    assert of_capabilities
