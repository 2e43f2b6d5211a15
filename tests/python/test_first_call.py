"""What the first call of a process imports: seconds that a network's first answer would wait for."""

from __future__ import annotations

import subprocess
import sys

import pytest

NETWORKS = {
    "perceptron": "nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), torch.randn(4, 8)",
    "convolutions": (
        "nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),"
        " nn.Conv2d(8, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),"
        " nn.Linear(8, 4), nn.Softmax(-1)),"
        " torch.randn(2, 3, 96, 96)"
    ),
    "transformer": "nn.TransformerEncoderLayer(32, 4, 64, norm_first=True), torch.randn(5, 2, 32)",
    "embedding": "nn.Sequential(nn.Embedding(9, 8), nn.LayerNorm(8), nn.GELU()), torch.randint(9, (2, 5))",
}

PROGRAM = """
import sys, torch, thunder
from torch import nn
module, x = {network}
module.eval()
with torch.no_grad():
    compiled = thunder.jit(module)
    compiled(x)
assert thunder.last_traces(compiled)
print([name for name in ("sympy", "torch._dynamo") if name in sys.modules])
"""


@pytest.mark.parametrize("name", NETWORKS)
def test_an_answer_waits_for_no_compiler_of_others(name: str) -> None:
    program = PROGRAM.format(network=NETWORKS[name])
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"
