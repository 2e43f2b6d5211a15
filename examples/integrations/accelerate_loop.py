"""Hugging Face Accelerate prepares a compiled model: a training loop with accumulation and clipping, beside eager.

python examples/integrations/accelerate_loop.py
"""

from __future__ import annotations

import copy

import torch
from accelerate import Accelerator
from torch import nn

import thunder


def train(model: nn.Module) -> list[float]:
    """Return the losses of some steps."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(1)
    examples = torch.utils.data.TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))
    loader = torch.utils.data.DataLoader(examples, batch_size=8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for inputs, labels in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
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
