"""Lightning's Trainer trains a compiled module, beside eager.

python examples/integrations/lightning_trainer.py
"""

from __future__ import annotations

import copy
import logging
import tempfile
import warnings
from typing import Any

import lightning
import torch
from torch import nn

import thunder


class Classifier(lightning.LightningModule):
    """A small network whose training step logs."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4))
        self.losses: list[float] = []

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        inputs, labels = batch
        loss = nn.functional.cross_entropy(self.network(inputs), labels)
        self.log("loss", loss)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def train(module: Classifier, folder: str) -> list[float]:
    """Return the losses of an epoch."""
    torch.manual_seed(1)
    examples = torch.utils.data.TensorDataset(torch.randn(64, 16), torch.randint(0, 4, (64,)))
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, torch.utils.data.DataLoader(examples, batch_size=8))
    return module.losses


if __name__ == "__main__":
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning.*")
    torch.manual_seed(0)
    module = Classifier()
    compiled = thunder.compile(copy.deepcopy(module))
    with tempfile.TemporaryDirectory() as folder:
        losses = train(module, folder), train(compiled, folder)
    print("losses, eager and compiled:", losses[0][-1], losses[1][-1])
    stats = thunder.compile_stats(compiled.network)
    print("calls traced:", stats.cache_misses, "of", stats.calls)
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-4)
