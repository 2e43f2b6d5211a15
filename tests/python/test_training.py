"""Training scripts as users write them, beside eager."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import thunder

STEPS = 20


class Transformer(nn.Module):
    """A small language model in plain PyTorch: embeddings, attention, normalization, tied output."""

    def __init__(self, vocabulary: int = 50, width: int = 32, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(16, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.position[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return nn.functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class Block(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        # A bias of the keys has no gradient but rounding, from which AdamW makes full steps.
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, -1)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


def train(model: nn.Module, steps: int = STEPS) -> list[float]:
    """Train with AdamW, gradient clipping and a warm-up and cosine schedule; return the losses."""
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps),
        ],
        milestones=[5],
    )
    losses = []
    for _ in range(steps):
        tokens = torch.randint(0, 50, (4, 17))
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


@pytest.fixture(scope="module")
def trained() -> tuple[nn.Module, nn.Module, list[float], list[float]]:
    """An eager and a compiled model after the same training, and their losses."""
    torch.manual_seed(0)
    eager = Transformer()
    compiled = thunder.jit(copy.deepcopy(eager))
    return eager, compiled, train(eager), train(compiled)


def test_losses_equal_eager_for_twenty_steps(trained) -> None:
    _, _, expected, got = trained
    assert len(got) == STEPS
    torch.testing.assert_close(torch.tensor(got), torch.tensor(expected), rtol=1e-4, atol=1e-5)


def test_one_specialization_serves_all_steps(trained) -> None:
    _, compiled, _, _ = trained
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (1, STEPS - 1)


def test_parameters_after_training_equal_eager(trained) -> None:
    eager, compiled, _, _ = trained
    for (name, expected), got in zip(eager.named_parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4, msg=name)


def test_state_dict_of_the_trained_model_loads_into_an_uncompiled_one(trained, tmp_path) -> None:
    _, compiled, _, _ = trained
    torch.save(compiled.state_dict(), tmp_path / "model.pt")
    fresh = Transformer()
    fresh.load_state_dict(torch.load(tmp_path / "model.pt"))
    tokens = torch.randint(0, 50, (2, 9))
    with torch.no_grad():
        torch.testing.assert_close(
            compiled(tokens[:, :-1], tokens[:, 1:]), fresh(tokens[:, :-1], tokens[:, 1:]), rtol=1e-5, atol=1e-6
        )


def test_dropout_after_the_same_seed_equals_eager() -> None:
    eager = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Linear(8, 8), nn.Dropout(0.3))
    compiled = thunder.jit(copy.deepcopy(eager))
    x = torch.randn(4, 8)
    for seed in range(3):
        gradients = []
        for model in (eager, compiled):
            torch.manual_seed(seed)
            model.zero_grad()
            model(x).square().sum().backward()
            gradients.append([parameter.grad.clone() for parameter in model.parameters()])
        for got, expected in zip(gradients[1], gradients[0], strict=True):
            torch.testing.assert_close(got, expected)


def test_gradient_accumulation_over_microbatches_equals_eager() -> None:
    eager = Transformer()
    compiled = thunder.jit(copy.deepcopy(eager))
    batches = [torch.randint(0, 50, (2, 9)) for _ in range(3)]
    for model in (eager, compiled):
        for tokens in batches:
            (model(tokens[:, :-1], tokens[:, 1:]) / len(batches)).backward()
    for expected, got in zip(eager.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(got.grad, expected.grad, rtol=1e-4, atol=1e-6)
