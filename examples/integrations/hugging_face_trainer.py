"""transformers.Trainer trains a compiled model: a tiny Llama with random weights, beside eager.

python examples/integrations/hugging_face_trainer.py
"""

from __future__ import annotations

import tempfile

import torch
import transformers

import thunder


def model() -> transformers.LlamaForCausalLM:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        max_position_embeddings=32,
    )
    return transformers.LlamaForCausalLM(config)


def data() -> list[dict[str, torch.Tensor]]:
    tokens = torch.randint(0, 64, (32, 16), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": row, "labels": row} for row in tokens]


def train(compiled: torch.nn.Module, folder: str) -> float:
    """Return the loss of an epoch."""
    arguments = transformers.TrainingArguments(
        folder,
        per_device_train_batch_size=8,
        num_train_epochs=1,
        learning_rate=1e-2,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        logging_strategy="no",
        save_strategy="no",
    )
    return float(transformers.Trainer(compiled, arguments, train_dataset=data()).train().training_loss)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        compiled = thunder.compile(model())
        losses = train(model(), folder), train(compiled, folder)
    print("losses, eager and compiled:", *losses)
    print("calls traced:", thunder.cache_misses(compiled), "of", thunder.compile_stats(compiled).calls)
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-4)
