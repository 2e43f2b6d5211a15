"""Diffusers' UNet and scheduler: a training loop and the denoising of images, beside eager.

python examples/integrations/diffusers_denoising.py
"""

from __future__ import annotations

import copy

import diffusers
import torch
from torch.nn import functional as F

import thunder


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return diffusers.UNet2DModel(
        sample_size=16,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
        attention_head_dim=8,
    )


def train(model: torch.nn.Module) -> list[float]:
    """Return the losses of some steps that predict the noise in images."""
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(4, 1, 16, 16, generator=generator)
    scheduler = diffusers.DDPMScheduler(num_train_timesteps=100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(6):
        noise = torch.randn(images.shape, generator=generator)
        steps = torch.randint(0, 100, (4,), generator=generator)
        optimizer.zero_grad()
        loss = F.mse_loss(model(scheduler.add_noise(images, noise, steps), steps).sample, noise)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def denoise(model: torch.nn.Module) -> torch.Tensor:
    """Return images, float32[2, 1, 16, 16], that eight steps make of noise."""
    generator = torch.Generator().manual_seed(2)
    scheduler = diffusers.DDIMScheduler(num_train_timesteps=100)
    scheduler.set_timesteps(8)
    images = torch.randn(2, 1, 16, 16, generator=generator)
    for step in scheduler.timesteps:
        images = scheduler.step(model(images, step).sample, step, images).prev_sample
    return images


if __name__ == "__main__":
    plain = model()
    compiled = thunder.jit(copy.deepcopy(plain))
    losses = train(plain), train(compiled)
    print("losses, eager and compiled:", losses[0][-1], losses[1][-1])
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(denoise(compiled), denoise(plain), rtol=1e-3, atol=1e-3)
    print("calls traced:", thunder.cache_misses(compiled), "of", thunder.compile_stats(compiled).calls)
