"""Small modules of the kinds that people train, and inputs for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Residual(nn.Module):
    """A residual block as in torchvision's ResNet."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            if stride != 1 or inputs != outputs
            else None
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        Residual(8, 8),
        Residual(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 5),
    )


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))


class Recurrent(nn.Module):
    """A recurrent cell unrolled in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 5)

    def forward(self, x: torch.Tensor) -> Any:
        state, outputs = None, []
        for step in x.unbind(1):
            state = self.cell(step, state)
            outputs.append(state[0])
        return torch.stack(outputs, 1), state


class Attention(nn.Module):
    """Self-attention through `nn.MultiheadAttention`."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, **options)

    def forward(self, x: torch.Tensor) -> Any:
        return self.attention(x, x, x, need_weights=False)[0], self.attention(x, x, x)[1]


class Decoder(nn.Module):
    """A `nn.Transformer` with its causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.Transformer(4, 2, 1, 1, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.transformer(x, x, tgt_mask=mask, tgt_is_causal=True)


class Tied(nn.Module):
    """An embedding whose weight is the output's."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(tokens))


class Checkpointed(nn.Module):
    """Recomputes its inner part in the backward."""

    def __init__(self, use_reentrant: bool = False) -> None:
        super().__init__()
        self.inner, self.use_reentrant = mlp(), use_reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, x, use_reentrant=self.use_reentrant) * 2


class Buffered(nn.Module):
    """Keeps a running mean in a buffer, a count in Python and a cache made at the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("table", torch.arange(4.0), persistent=False)
        self.calls, self.history = 0, []
        self.cache: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean((0, 1))
            self.mean.mul_(1.0)
        if self.cache is None:
            self.cache = torch.ones(4) * 3
        self.calls += 1
        self.history.append(x.shape[0])
        return (x - self.mean) * self.table + self.cache


class Parametrized(nn.Module):
    """A weight under weight normalization."""

    def __init__(self, normalize: Callable[[nn.Module], nn.Module]) -> None:
        super().__init__()
        self.linear = normalize(nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def sequence() -> torch.Tensor:
    return torch.randn(2, 3, 4, requires_grad=True)


def picture() -> torch.Tensor:
    return torch.randn(2, 3, 8, 8, requires_grad=True)


def tokens() -> torch.Tensor:
    return torch.randint(0, 10, (2, 3))
