"""Lightning Fabric sets a compiled model up: a training loop, beside eager.

python examples/integrations/fabric_loop.py
"""

from __future__ import annotations

import copy

import torch
from lightning.fabric import Fabric
from torch import nn

import thunder


def train(model: nn.Module) -> list[float]:
    """Return the losses of some steps."""
    fabric = Fabric(accelerator="cpu", devices=1)
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    torch.manual_seed(1)
    inputs, labels = torch.randn(32, 16), torch.randint(0, 4, (32,))
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        fabric.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4))
    compiled = thunder.compile(copy.deepcopy(model))
    losses = train(model), train(compiled)
    print("losses, eager and compiled:", losses[0][-1], losses[1][-1])
    print("calls traced:", thunder.cache_misses(compiled), "of", thunder.compile_stats(compiled).calls)
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-4)
