"""Kernels of the executor `cuda`: compiled beside calls, and kept on disk. Tests in C++ need no GPU for the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import thunder

pytestmark = pytest.mark.gpu

# Prints whether the first call and one with the kernel agree with eager.
PROGRAM = """
import torch
import thunder

def f(x, weight):
    return torch.softmax(torch.nn.functional.gelu(x * weight), -1)

x, weight = torch.randn(64, 512, device="cuda"), torch.randn(512, device="cuda")
compiled = thunder.jit(f, executors=["cuda"])
for _ in range(2):
    torch.testing.assert_close(compiled(x, weight), f(x, weight))
    thunder.wait_until_compiled(compiled)
print("right")
"""

# Ends while its kernels are compiled.
ENDING = """
import torch
import thunder

x = torch.randn(64, 512, device="cuda")
for i in range(30):
    thunder.jit(lambda x, i=i: torch.exp(torch.sin(x) * i) + torch.tanh(x) ** i, executors=["cuda"])(x)
print("right")
"""


def run(program: str, cache: Path, **variables: str) -> None:
    environment = os.environ | {"THUNDER_CACHE_DIR": str(cache)} | variables
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "right\n", done.stderr
    assert done.returncode == 0, done.stderr


def files(cache: Path) -> dict[str, int]:
    """Return the files of a cache with their inodes, which change where one is written again."""
    return {path.name: path.stat().st_ino for path in cache.glob("cuda/*")}


def test_the_next_process_compiles_nothing(tmp_path: Path) -> None:
    run(PROGRAM, tmp_path)
    before = files(tmp_path)
    assert before
    run(PROGRAM, tmp_path)
    assert files(tmp_path) == before


def test_damaged_files_are_compiled_again(tmp_path: Path) -> None:
    run(PROGRAM, tmp_path)
    for path in tmp_path.glob("cuda/*"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    before = files(tmp_path)
    run(PROGRAM, tmp_path)
    assert all(files(tmp_path)[name] != inode for name, inode in before.items())


def test_nothing_is_kept_where_the_size_is_zero(tmp_path: Path) -> None:
    run(PROGRAM, tmp_path, THUNDER_CACHE_SIZE="0")
    assert not files(tmp_path)


def test_a_process_ends_while_kernels_are_compiled(tmp_path: Path) -> None:
    run(ENDING, tmp_path)


def test_calls_of_other_layouts_agree_with_eager() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(torch.sin(x) * 2)

    compiled = thunder.jit(f, executors=["cuda"])
    x = torch.randn(64, 96, device="cuda")
    memory = torch.randn(64 * 96 + 1, device="cuda")
    for _ in range(3):
        for given in (x, memory[1:].view(64, 96), x.t().contiguous().t()):
            torch.testing.assert_close(compiled(given), f(given))
        thunder.wait_until_compiled(compiled)


def test_the_first_call_may_wait() -> None:
    compiled = thunder.jit(lambda x: torch.exp(torch.sin(x) * 2), executors=["cuda"], compile="eager")
    x = torch.randn(64, 96, device="cuda")
    torch.testing.assert_close(compiled(x), torch.exp(torch.sin(x) * 2))
    gradients = thunder.jit(lambda x: torch.exp(torch.sin(x) * 2).sum(), executors=["cuda"], compile="eager")
    x.requires_grad_()
    (got,) = torch.autograd.grad(gradients(x), x)
    (expected,) = torch.autograd.grad(torch.exp(torch.sin(x) * 2).sum(), x)
    torch.testing.assert_close(got, expected)
