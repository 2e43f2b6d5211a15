"""`generate()` of Hugging Face and of LitGPT with a compiled model: the tokens of eager, and few programs for them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="symbols need Python 3.11")

WORDS = 96
ATTENTION = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
EXPERTS = {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 8}
# Class of the configuration and its arguments.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", ATTENTION),
    "gpt2": ("GPT2Config", {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4}),
    "t5": (
        "T5Config",
        {
            "vocab_size": WORDS,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 64,
            "num_layers": 2,
            "num_heads": 4,
            "decoder_start_token_id": 0,
        },
    ),
    "mamba": ("MambaConfig", {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}),
    "qwen3_moe": ("Qwen3MoeConfig", {**ATTENTION, **EXPERTS}),
    "mistral": ("MistralConfig", {**ATTENTION, "sliding_window": 64}),
}
# Those that read the cache out of a dict that they make of pairs.
FROM_PAIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt_neo": (
        "GPTNeoConfig",
        {
            "vocab_size": WORDS,
            "hidden_size": 32,
            "attention_types": [[["global", "local"], 1]],
            "num_layers": 2,
            "num_heads": 4,
            "window_size": 6,
            "bos_token_id": 1,
            "eos_token_id": 1,
        },
    ),
    "bloom": ("BloomConfig", {"vocab_size": WORDS, "hidden_size": 32, "n_head": 4, "n_layer": 2}),
}


def specializations(compiled: Any) -> int:
    count: int = thunder.compile_stats(compiled)["specializations"]
    return count


def hugging_face(name: str, **options: Any) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    configuration, arguments = (MODELS | FROM_PAIRS)[name]
    config = getattr(transformers, configuration)(**(arguments | options))
    torch.manual_seed(0)
    kind = "AutoModelForSeq2SeqLM" if name == "t5" else "AutoModelForCausalLM"
    model: nn.Module = getattr(transformers, kind).from_config(config).eval()
    model.generation_config.eos_token_id = None  # type: ignore[union-attr]
    model.generation_config.pad_token_id = 0  # type: ignore[union-attr]
    return model


def prompt(length: int) -> torch.Tensor:
    return torch.randint(2, WORDS, (1, length), generator=torch.Generator().manual_seed(length))


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_caches_grow_where_all_sizes_are_symbols_from_the_start(name: str) -> None:
    model, compiled = hugging_face(name), thunder.jit(hugging_face(name), dynamic=True)  # equal weights
    for length in (7, 5, 9):
        mine, theirs = (each.generate(prompt(length), max_new_tokens=12, do_sample=False) for each in (compiled, model))
        assert torch.equal(mine, theirs)
    assert specializations(compiled) <= 3


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", MODELS)
def test_tokens_of_hugging_face_are_those_of_eager(name: str, cache: str) -> None:
    if (name, cache) == ("mamba", "static"):
        pytest.skip("has a cache of its own")
    model = hugging_face(name)
    compiled = thunder.jit(model)
    options: dict[str, Any] = {"max_new_tokens": 24, "do_sample": False}
    if cache == "static":
        options |= {"cache_implementation": "static", "disable_compile": True}
    with torch.no_grad():
        expected = model.generate(prompt(7), **options)  # type: ignore[operator]
        assert torch.equal(compiled.generate(prompt(7), **options), expected)
        assert specializations(compiled) <= 3, thunder.explain_shapes(compiled)
        expected = model.generate(prompt(12), **options)  # type: ignore[operator]
        assert torch.equal(compiled.generate(prompt(12), **options), expected)
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


def test_tokens_of_litgpt_are_those_of_eager() -> None:
    litgpt = pytest.importorskip("litgpt", reason="pip install --no-deps -r requirements/litgpt.txt")
    from litgpt.generate.base import generate

    torch.manual_seed(0)
    config = litgpt.Config.from_name(
        "pythia-14m", n_layer=2, n_embd=32, n_head=4, padded_vocab_size=WORDS, block_size=64, intermediate_size=64
    )
    model = litgpt.GPT(config).eval()
    compiled = thunder.jit(model)

    def tokens(call: Callable[..., Any], length: int) -> torch.Tensor:
        model.clear_kv_cache()
        model.max_seq_length = 40
        model.set_kv_cache(batch_size=1)
        result: torch.Tensor = generate(call, prompt(length)[0], length + 24, temperature=0.0)
        return result

    with torch.no_grad():
        assert torch.equal(tokens(compiled, 7), tokens(model, 7))
        assert specializations(compiled) <= 3, thunder.explain_shapes(compiled)
        assert torch.equal(tokens(compiled, 12), tokens(model, 12))
        assert specializations(compiled) <= 4, thunder.explain_shapes(compiled)
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


@pytest.mark.parametrize("name", ["llama", "gpt2", "t5", "qwen3_moe", "mistral"])
def test_a_padded_batch_has_few_programs(name: str) -> None:
    model = hugging_face(name)
    compiled = thunder.jit(model)
    words = torch.cat([prompt(7), prompt(7) + 1])
    mask = torch.ones_like(words)
    mask[0, :3] = 0
    options: dict[str, Any] = {"attention_mask": mask, "max_new_tokens": 16, "do_sample": False}
    with torch.no_grad():
        expected = model.generate(words, **options)  # type: ignore[operator]
        assert torch.equal(compiled.generate(words, **options), expected)
    assert specializations(compiled) <= 3, thunder.explain_shapes(compiled)


# A window of attention that is full from the prompt on, becomes full between tokens, or has no more room than one.
@pytest.mark.parametrize(("window", "is_padded", "count"), [(6, False, 3), (16, False, 5), (16, True, 5), (9, True, 5)])
def test_a_window_that_becomes_full_has_few_programs(window: int, is_padded: bool, count: int) -> None:
    model = hugging_face("mistral", sliding_window=window)
    compiled = thunder.jit(model)
    words = torch.cat([prompt(7), prompt(7) + 1])
    options: dict[str, Any] = {"max_new_tokens": 24, "do_sample": False}
    if is_padded:
        options["attention_mask"] = torch.ones_like(words)
        options["attention_mask"][0, :3] = 0
    with torch.no_grad():
        expected = model.generate(words, **options)  # type: ignore[operator]
        assert torch.equal(compiled.generate(words, **options), expected)
    assert specializations(compiled) <= count, thunder.explain_shapes(compiled)


@pytest.mark.parametrize("name", ["llama", "t5", *FROM_PAIRS])
def test_fresh_prompts_have_the_programs_of_those_before(name: str) -> None:
    model = hugging_face(name)
    compiled = thunder.jit(model)
    counts = []
    with torch.no_grad():
        for length in (7, 12, 9, 15, 8):
            expected = model.generate(prompt(length), max_new_tokens=8, do_sample=False)  # type: ignore[operator]
            assert torch.equal(compiled.generate(prompt(length), max_new_tokens=8, do_sample=False), expected)
            counts.append(specializations(compiled))
    assert counts[0] <= 3
    assert counts[1:] == counts[1:2] * 4, thunder.explain_misses(compiled)
