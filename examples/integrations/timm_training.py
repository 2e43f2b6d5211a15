"""timm's models, optimizers and average of weights: a tiny network trained on a GPU or CPU, beside eager.

python examples/integrations/timm_training.py
"""

from __future__ import annotations

import copy

import timm
import timm.optim
import timm.utils
import torch
from torch.nn import functional as F

import thunder

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return timm.create_model("resnet10t", num_classes=5, drop_rate=0.0).to(DEVICE)


def train(model: torch.nn.Module) -> tuple[list[float], torch.Tensor]:
    """Return the losses of some steps, and what the averaged weights make of the images, float32[4, 5]."""
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(4, 3, 64, 64, generator=generator).to(DEVICE)
    labels = torch.randint(0, 5, (4,), generator=generator).to(DEVICE)
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.01)
    average = timm.utils.ModelEmaV3(model, decay=0.5)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        average.update(model)
        losses.append(loss.item())
    with torch.no_grad():
        return losses, average.module.eval()(images)


if __name__ == "__main__":
    plain = model()
    compiled = thunder.jit(copy.deepcopy(plain))
    (expected, averaged), (losses, compiled_average) = train(plain), train(compiled)
    print("losses, eager and compiled:", expected[-1], losses[-1])
    print("calls traced:", thunder.cache_misses(compiled), "of", thunder.compile_stats(compiled).calls)
    torch.testing.assert_close(losses, expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(compiled_average, averaged, rtol=1e-2, atol=1e-2)
