"""Kernels that wait to be launched together, on the processor: what comes between sees what they write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import kernels_on_host

ROOT = Path(__file__).parents[2]
PROGRAM = """
from tests.fuzz import kernels_on_host
kernels_on_host.choose()
import torch, thunder

def many_kernels(x):
    for i in range(8):
        x = torch.tanh(x - x.mean(i % 2, keepdim=True) + 0.1 * (i % 3))
    return x

def view(x): return many_kernels(many_kernels(x)[:, ::2].t().unsqueeze(0).expand(2, -1, -1)[1])
def copying_view(x): return many_kernels(torch.ops.thunder.restride(many_kernels(x), [1, 300]))
def reshape(x): return many_kernels(many_kernels(x).t().reshape(100, 192))
def operation(x): return many_kernels(many_kernels(x).sort(0).values)
def write(x):
    y = many_kernels(x)
    y[::2] = 0
    return many_kernels(y)

for function in (view, copying_view, reshape, operation, write):
    compiled = thunder.jit(function, compile="eager", executors=["cuda_on_host"])
    for _ in range(3):
        x = torch.randn(300, 64)
        torch.testing.assert_close(compiled(x), function(x), msg=lambda text: function.__name__ + ": " + text)
    assert thunder.compile_stats(compiled)["eager_calls"] == 0
"""


@pytest.mark.slow
@pytest.mark.skipif(not kernels_on_host.EXTENSION.exists(), reason="the extension of the tests has not been built")
def test_what_comes_between_kernels_sees_what_they_write() -> None:
    environment = {**os.environ, "THUNDER_QUEUE_ON_HOST": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
