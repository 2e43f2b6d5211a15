"""Models with random weights that the benchmarks train; one row each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import common
import torch
import transformers

Inputs = dict[str, torch.Tensor]


def _language(model: str, config: str, *, batch: int, length: int, **sizes: Any) -> tuple[torch.nn.Module, Inputs]:
    configuration = getattr(transformers, config)(use_cache=False, **sizes)
    tokens = torch.randint(0, configuration.vocab_size - 1, (batch, length))
    return getattr(transformers, model)(configuration), {"input_ids": tokens, "labels": tokens}


def _vision(model: str, config: str, *, batch: int, **sizes: Any) -> tuple[torch.nn.Module, Inputs]:
    labels = torch.zeros(batch, dtype=torch.long)
    images = torch.randn(batch, 3, 224, 224)
    return getattr(transformers, model)(getattr(transformers, config)(**sizes)), {
        "pixel_values": images,
        "labels": labels,
    }


def _quickstart() -> tuple[torch.nn.Module, Inputs]:
    tokens = torch.randint(0, 2048, (4, 128))
    return common.llama(4, 256, vocabulary=2048), {"input_ids": tokens, "labels": tokens}


MODELS: dict[str, Callable[[], tuple[torch.nn.Module, Inputs]]] = {
    "llama 4x256, 4x128 tokens": _quickstart,
    "gpt2 6x384, 2x128 tokens": lambda: _language(
        "GPT2LMHeadModel", "GPT2Config", batch=2, length=128, n_layer=6, n_embd=384, n_head=6, vocab_size=4096,
        attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0,
    ),
    "bert 6x384, 4x128 tokens": lambda: _language(
        "BertForMaskedLM", "BertConfig", batch=4, length=128, num_hidden_layers=6, hidden_size=384,
        intermediate_size=1536, num_attention_heads=6, vocab_size=4096,
    ),
    "vit-small, 2 images": lambda: _vision(
        "ViTForImageClassification", "ViTConfig", batch=2, hidden_size=384, num_attention_heads=6,
        intermediate_size=1536,
    ),
    "resnet50, 2 images": lambda: _vision("ResNetForImageClassification", "ResNetConfig", batch=2),
    "convnext-tiny, 2 images": lambda: _vision("ConvNextForImageClassification", "ConvNextConfig", batch=2),
}  # fmt: skip
