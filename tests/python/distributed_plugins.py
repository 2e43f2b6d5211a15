"""Plugins of `thunder.compile` in several processes, beside one process with the whole batch."""

from __future__ import annotations

import torch
from processes import device
from torch import nn

import thunder


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(device())


def batch() -> torch.Tensor:
    return torch.randn(8, 8, generator=torch.Generator().manual_seed(1)).to(device())


def losses(model: nn.Module, part: torch.Tensor) -> list[torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    found = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(part).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return found


def train_all(rank: int) -> dict[str, list[float]]:
    """Return the mean losses of each plugin, and those of eager with the whole batch."""
    results = {"eager": [loss.item() for loss in losses(model(), batch())]}
    part = batch().chunk(2)[rank]
    for name in ("ddp", "fsdp"):
        compiled = thunder.compile(model(), plugins=name)
        assert isinstance(compiled, thunder.ThunderModule)
        mean = torch.stack(losses(compiled, part))
        torch.distributed.all_reduce(mean)
        results[name] = (mean / 2).tolist()
    return results
