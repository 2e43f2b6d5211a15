"""Language models small enough to be trained in several processes within a second."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from processes import device
from torch import nn

VOCABULARY, WIDTH = 31, 16


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (WIDTH,), self.weight, 1e-5)


class LlamaBlock(nn.Module):
    """Attention without biases and a gated MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.first_norm, self.second_norm = Norm(), Norm()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, 24, bias=False), nn.Linear(WIDTH, 24, bias=False)
        self.down = nn.Linear(24, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.first_norm(x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        y = self.second_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList([LlamaBlock() for _ in range(2)])
        self.norm = Norm()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Tied(nn.Module):
    """As GPT2: positions, layer norms, biases, and one weight for embedding and head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(12, WIDTH)
        self.layers = nn.ModuleList(
            [nn.TransformerEncoderLayer(WIDTH, 2, 33, dropout=0.0, batch_first=True, norm_first=True)]
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        mask = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool, device=tokens.device).triu(1)
        for layer in self.layers:
            x = layer(x, src_mask=mask)
        return self.head(self.norm(x))


class Experts(nn.Module):
    """As Mixtral: each token goes to some of the experts, by weights of its own; all experts compute."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.router = nn.Linear(WIDTH, 3, bias=False)
        self.up = nn.Parameter(torch.randn(3, WIDTH, 20) * 0.1)
        self.down = nn.Parameter(torch.randn(3, 20, WIDTH) * 0.1)
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        weights = self.router(x).softmax(-1)
        chosen = torch.zeros_like(weights).scatter(-1, weights.topk(2).indices, 1.0)
        y = torch.einsum("bse,bsew->bsw", weights * chosen, self.experts(x))
        return self.head(x + self.scale * y)

    def experts(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("bseh,ehw->bsew", F.silu(torch.einsum("bsw,ewh->bseh", x, self.up)), self.down)


MODELS: dict[str, type[nn.Module]] = {"llama": Llama, "tied": Tied, "experts": Experts}


def language_loss(model: Any, rank: int, step: int) -> torch.Tensor:
    """Return the loss on the tokens of a process at a step."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    tokens = torch.randint(VOCABULARY, (2, 9), generator=generator).to(device())
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
