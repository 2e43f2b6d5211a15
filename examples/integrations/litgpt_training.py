"""LitGPT: some steps of training, then generation, beside eager, on a tiny model with random weights.

python examples/integrations/litgpt_training.py
"""

from __future__ import annotations

import copy

import litgpt
import torch
from litgpt.generate.base import generate
from litgpt.utils import chunked_cross_entropy

import thunder


def train(model: torch.nn.Module) -> list[float]:
    """Return the losses of some steps."""
    tokens = torch.randint(0, 64, (4, 17), generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = chunked_cross_entropy(model(tokens[:, :-1]), tokens[:, 1:], chunk_size=0)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def continue_text(model: torch.nn.Module) -> torch.Tensor:
    """Return a prompt with what the model puts behind it."""
    model.eval()
    model.set_kv_cache(1)
    with torch.inference_mode():
        return generate(model, torch.arange(4), 24, temperature=0.0, top_k=None)


if __name__ == "__main__":
    torch.manual_seed(0)
    config = litgpt.Config.from_name(
        "pythia-14m", padded_vocab_size=64, n_layer=2, n_embd=32, n_head=4, intermediate_size=64, block_size=32
    )
    model = litgpt.GPT(config)
    compiled = thunder.compile(copy.deepcopy(model))
    losses = train(model), train(compiled)
    print("losses, eager and compiled:", losses[0][-1], losses[1][-1])
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-4)
    before = thunder.cache_misses(compiled)
    texts = continue_text(model), continue_text(compiled)
    print("calls traced for 20 tokens:", thunder.cache_misses(compiled) - before)
    assert torch.equal(*texts)
