"""Published models in tiny configurations: forward, loss, backward and buffers equal eager, with and without dropout.

Hugging Face's come from their configurations (nothing is downloaded), LitGPT's from its table of configurations, scaled
down. In float64 what differs is wrong, not rounded; a few models compute parts in float32 all the same.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder

transformers = pytest.importorskip("transformers")

VOCABULARY = 60
TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
}
GROUPED = {**TEXT, "num_key_value_heads": 2, "head_dim": 8}
# Left out, the first call would write it into the configuration that it has read: one more trace.
CLASSES = {"problem_type": "single_label_classification"}
SPECIAL_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


def text() -> dict[str, torch.Tensor]:
    """Return token ids (2, 10), a mask with padding, and labels."""
    tokens = torch.randint(5, VOCABULARY, (2, 10))
    mask = torch.ones_like(tokens)
    mask[1, -3:] = 0
    return {"input_ids": tokens, "attention_mask": mask, "labels": tokens.clone()}


def image() -> dict[str, torch.Tensor]:
    """Return images (2, 3, 32, 32) and their classes."""
    return {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([0, 1])}


HUGGING_FACE: dict[str, tuple[Callable[[], dict[str, torch.Tensor]], dict[str, Any]]] = {
    "LlamaForCausalLM": (text, GROUPED),
    "MistralForCausalLM": (text, {**GROUPED, "sliding_window": 4}),
    "Gemma2ForCausalLM": (text, {**GROUPED, "sliding_window": 4}),
    "FalconForCausalLM": (text, TEXT),
    "GPT2LMHeadModel": (text, {"vocab_size": VOCABULARY, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 4}),
    "BertForMaskedLM": (text, TEXT),
    "T5ForConditionalGeneration": (
        text,
        {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
    ),
    "ViTForImageClassification": (image, {**TEXT, "image_size": 32, "patch_size": 8, **CLASSES}),
    "ConvNextForImageClassification": (image, {"hidden_sizes": [8, 12, 16, 24], "depths": [1, 1, 2, 1], **CLASSES}),
    "MixtralForCausalLM": (text, {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}),
}

LITGPT = {
    "pythia-14m": {},
    "Llama-2-7b-hf": {},
    "Mistral-7B-v0.1": {"n_query_groups": 2, "sliding_window_size": 4},
    "Gemma-2b": {"n_query_groups": 1},
    "falcon-7b": {"n_query_groups": 1},
}


def set_dropout(config: Any, probability: float) -> None:
    """Set every dropout probability; skipping of layers stays off."""
    for name, value in list(vars(config).items()):
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0 if "path" in name or "layer" in name else probability)


def strengthened(module: nn.Module) -> nn.Module:
    """Draw weights of variance 1 / inputs: with the usual 0.02, attention in so small a model hardly matters."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() >= 2:
                parameter.normal_(std=parameter[0].numel() ** -0.5)
    return module.double().train()


def hugging_face(name: str, dropout: float) -> nn.Module:
    """Return a Hugging Face model with random weights, in training mode."""
    architecture = getattr(transformers, name)
    config = architecture.config_class(**SPECIAL_TOKENS, use_cache=False, **HUGGING_FACE[name][1])
    set_dropout(config, dropout)
    return strengthened(architecture(config))


def step(function: nn.Module, module: nn.Module, inputs: dict[str, torch.Tensor], seed: int) -> dict[str, Any]:
    """Run forward and backward; return outputs, gradients and buffers."""
    torch.manual_seed(seed)
    module.zero_grad()
    outputs = function(**inputs)
    logits, loss = (
        (outputs.logits, outputs.loss) if hasattr(outputs, "loss") else (outputs, outputs.logsumexp(-1).sum())
    )
    loss.backward()
    return {
        "logits": logits.detach(),
        "loss": loss.detach(),
        **{f"gradient of {name}": p.grad.clone() for name, p in module.named_parameters() if p.grad is not None},
        **{f"buffer {name}": b.clone() for name, b in module.named_buffers()},
    }


def assert_trains_as_eager(module: nn.Module, inputs: dict[str, torch.Tensor], tolerance: float = 3e-6) -> None:
    """Check two steps, the second from the cache, each from the same seed; tolerance relative to a tensor's largest."""
    eager, compiled = copy.deepcopy(module), thunder.jit(module)
    dtype = next(module.parameters()).dtype
    inputs = {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}
    for seed in (1, 2):
        expected, got = step(eager, eager, inputs, seed), step(compiled, module, inputs, seed)
        assert got.keys() == expected.keys()
        for name, value in expected.items():
            scale = value.abs().max().item() if value.numel() else 0.0
            torch.testing.assert_close(
                got[name], value, rtol=0, atol=tolerance * scale + 1e-12, msg=lambda text, name=name: f"{name}: {text}"
            )
    counts = (thunder.cache_misses(compiled), thunder.cache_hits(compiled))
    assert counts == (1, 1), str(thunder.explain_misses(compiled))


@pytest.mark.parametrize("dropout", [0.0, 0.1], ids=["plain", "dropout"])
@pytest.mark.parametrize("name", HUGGING_FACE)
def test_hugging_face_model_trains_as_eager(name: str, dropout: float) -> None:
    module = hugging_face(name, dropout)
    if name == "MixtralForCausalLM":  # the grouped matrix product of its experts has no float64
        assert_trains_as_eager(module.float(), text(), tolerance=3e-4)
    else:
        assert_trains_as_eager(module, HUGGING_FACE[name][0]())


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "GPT2LMHeadModel", "BertForMaskedLM"])
def test_hugging_face_model_evaluates_as_eager(name: str) -> None:
    module = hugging_face(name, 0.1).eval()
    inputs = HUGGING_FACE[name][0]()
    with torch.no_grad():
        expected, got = module(**inputs), thunder.jit(module)(**inputs)
    assert type(got) is type(expected)
    assert list(got) == list(expected)
    torch.testing.assert_close(got.logits, expected.logits, rtol=1e-4, atol=5e-6)  # norms compute in float


def litgpt_model(name: str) -> nn.Module:
    """Return LitGPT's `GPT` in the named configuration, scaled down."""
    litgpt = pytest.importorskip("litgpt", reason="pip install --no-deps -r requirements/litgpt.txt")
    config = litgpt.Config.from_name(
        name,
        **{
            "block_size": 16,
            "padded_vocab_size": VOCABULARY,
            "vocab_size": VOCABULARY,
            "n_layer": 2,
            "n_embd": 32,
            "n_head": 4,
            "head_size": 8,
            "intermediate_size": 48,
            "n_query_groups": 4,
            **LITGPT[name],
        },
    )
    return strengthened(litgpt.GPT(config))


@pytest.mark.parametrize("name", LITGPT)
def test_litgpt_model_trains_as_eager(name: str) -> None:
    assert_trains_as_eager(litgpt_model(name), {"idx": torch.randint(0, VOCABULARY, (2, 10))})
