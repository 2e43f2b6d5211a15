"""Imports of the first call of a process: seconds that a network's first answer would wait for."""

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

TRAINED = {
    **NETWORKS,
    "convolutions": (
        "nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 8, 3), nn.GroupNorm(2, 8),"
        " nn.SiLU(), nn.ConvTranspose2d(8, 4, 2, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2),"
        " nn.Linear(4, 4)),"
        " torch.randn(2, 3, 32, 32)"
    ),
    "decoder": "nn.Transformer(32, 4, 1, 1, 64), *[torch.randn(5, 2, 32)] * 2",
    "recurrent": "nn.Sequential(nn.Embedding(9, 8), nn.LSTM(8, 8)), torch.randint(9, (2, 5))",
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


TRAINING = """
import sys, torch, thunder
from torch import nn
from torch.nn import functional as F
module, *inputs = {network}
compiled = thunder.jit(module)
out = compiled(*inputs)
out = out[0] if isinstance(out, tuple) else out
F.cross_entropy(out.flatten(0, -2), torch.zeros(out.flatten(0, -2).shape[0], dtype=torch.long)).backward()
F.mse_loss(thunder.jit(F.mse_loss)(torch.randn(3, requires_grad=True), torch.randn(3)), torch.zeros(())).backward()
assert thunder.last_backward_traces(compiled)
print([name for name in ("sympy", "torch._dynamo") if name in sys.modules])
"""


def output_of(program: str) -> str:
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.mark.parametrize("name", NETWORKS)
def test_an_answer_waits_for_no_compiler_of_others(name: str) -> None:
    assert output_of(PROGRAM.format(network=NETWORKS[name])) == "[]"


@pytest.mark.parametrize("name", TRAINED)
def test_a_step_waits_for_no_compiler_of_others(name: str) -> None:
    assert output_of(TRAINING.format(network=TRAINED[name])) == "[]"


OPTIMIZED = """
import torch, thunder
optimizer = torch.optim.SGD([torch.ones(3, requires_grad=True)], 0.1)

def program(x):
    optimizer.zero_grad()
    with torch.profiler.record_function("scale"):
        return x * 2

compiled = thunder.jit(program)
for _ in range(3):
    compiled(torch.ones(3))
print(thunder.cache_misses(compiled))
"""


def test_what_pytorch_makes_when_it_is_first_called_is_not_traced() -> None:
    assert output_of(OPTIMIZED) == "1"
