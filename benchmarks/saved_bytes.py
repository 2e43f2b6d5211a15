"""Bytes that a forward keeps for its backward, beside PyTorch's min-cut partitioner.

    python benchmarks/saved_bytes.py [--models REGEX] [--sizes tiny,full] [--min-cut default,inductor]

Models have no weights: everything lies on the meta device. Counted is what the backward takes besides cotangents, as
its trace (thunder) or its graph (AOTAutograd with `min_cut_rematerialization_partition`) says; parameters, buffers and
inputs, which live anyway, are not. `--min-cut inductor` decomposes operations first, as Inductor does.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn
from torch._functorch.aot_autograd import aot_module
from torch._functorch.partitioners import min_cut_rematerialization_partition

import thunder

Inputs = dict[str, torch.Tensor]
NO_DROPOUT = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}


def language(name: str, batch: int, length: int, **sizes: Any) -> tuple[nn.Module, Inputs]:
    model, config = {
        "bert": ("BertForMaskedLM", "BertConfig"),
        "gpt2": ("GPT2LMHeadModel", "GPT2Config"),
        "llama": ("LlamaForCausalLM", "LlamaConfig"),
    }[name]
    configuration = getattr(transformers, config)(**sizes)
    tokens = torch.randint(0, configuration.vocab_size - 1, (batch, length), device="meta")
    return getattr(transformers, model)(configuration), {"input_ids": tokens, "labels": tokens}


def vision(model: str, config: str, batch: int, image_size: int, **sizes: Any) -> tuple[nn.Module, Inputs]:
    inputs = {
        "pixel_values": torch.randn(batch, 3, image_size, image_size),
        "labels": torch.zeros(batch, dtype=torch.long),
    }
    return getattr(transformers, model)(getattr(transformers, config)(**sizes)), inputs


MODELS: dict[str, Callable[[], tuple[nn.Module, Inputs]]] = {
    "bert tiny": lambda: language(
        "bert", 2, 32, num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=128, vocab_size=512
    ),
    "bert full": lambda: language("bert", 16, 512),
    "gpt2 tiny": lambda: language(
        "gpt2", 2, 32, n_layer=2, n_embd=64, n_head=4, vocab_size=512, use_cache=False, **NO_DROPOUT
    ),
    "gpt2 full": lambda: language("gpt2", 8, 1024, use_cache=False),
    "llama tiny": lambda: language(
        "llama", 2, 32, num_hidden_layers=2, hidden_size=64, num_attention_heads=4, num_key_value_heads=4,
        intermediate_size=128, vocab_size=512, use_cache=False,
    ),
    "llama full": lambda: language("llama", 1, 2048, use_cache=False),
    "vit tiny": lambda: vision(
        "ViTForImageClassification", "ViTConfig", 2, 32, image_size=32, patch_size=8, num_hidden_layers=2,
        hidden_size=64, num_attention_heads=4, intermediate_size=128,
    ),
    "vit full": lambda: vision("ViTForImageClassification", "ViTConfig", 32, 224),
    "resnet tiny": lambda: vision(
        "ResNetForImageClassification", "ResNetConfig", 2, 32, embedding_size=16, hidden_sizes=[16, 32],
        depths=[1, 1],
    ),
    "resnet full": lambda: vision("ResNetForImageClassification", "ResNetConfig", 32, 224),
}  # fmt: skip

ITEM_SIZES = {"b8": 1, "i32": 4, "i64": 8, "f32": 4, "f64": 8, "bf16": 2, "f16": 2, "ui8": 1}


def of_thunder(model: nn.Module, inputs: Inputs, rematerialize: bool) -> int:
    """Return the bytes of the values that thunder's forward saves."""
    compiled = thunder.jit(model, rematerialize=rematerialize)
    compiled(**inputs)
    forward, backward = thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1]
    kept = {name for name, _, _ in inputs_of(str(forward))}
    return sum(size for name, size, _ in inputs_of(str(backward)) if name not in kept and "cotangent" not in name)


def inputs_of(text: str) -> list[tuple[str, int, str]]:
    """Return (name, bytes, type) for each input of a printed trace."""
    found = []
    for name, kind, sizes in re.findall(r'^  # (\w+): "\w+ (\w+)\[([\d, ]*)\]', text, re.MULTILINE):
        count = 1
        for size in sizes.split(",") if sizes else []:
            count *= int(size)
        found.append((name, count * ITEM_SIZES[kind], kind))
    return found


def of_min_cut(model: nn.Module, inputs: Inputs, inductor: bool) -> int:
    """Return the bytes of what AOTAutograd's forward saves, by its min-cut partitioner."""
    found: list[int] = []

    def forward(graph: torch.fx.GraphModule, _: Any) -> Any:
        return graph

    def backward(graph: torch.fx.GraphModule, _: Any) -> Any:
        saved = [node for node in graph.graph.nodes if node.op == "placeholder"]
        values = [node.meta["val"] for node in saved if not node.name.startswith(("primals", "tangents"))]
        found.append(sum(value.numel() * value.element_size() for value in values if isinstance(value, torch.Tensor)))
        return graph

    decompositions = None
    if inductor:
        from torch._inductor.decomposition import select_decomp_table

        decompositions = select_decomp_table()
    compiled = aot_module(
        model, forward, backward, partition_fn=min_cut_rematerialization_partition, decompositions=decompositions
    )
    compiled(**inputs).loss.sum().backward()
    return found[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="", help="regular expression of the models to measure")
    parser.add_argument("--sizes", default="tiny,full")
    parser.add_argument("--min-cut", choices=("default", "inductor"), default="default")
    arguments = parser.parse_args()
    print(f"{'':14}{'all saved':>12}{'thunder':>12}{'min-cut':>12}{'ratio':>8}")
    status = 0
    for name, make in MODELS.items():
        if not re.search(arguments.models, name) or name.split()[-1] not in arguments.sizes.split(","):
            continue
        with torch.device("meta"):
            model, inputs = make()
        everything = of_thunder(model, inputs, rematerialize=False)
        ours = of_thunder(model, inputs, rematerialize=True)
        theirs = of_min_cut(model, inputs, arguments.min_cut == "inductor")
        print(f"{name:14}{megabytes(everything)}{megabytes(ours)}{megabytes(theirs)}{ours / theirs:8.2f}", flush=True)
        status |= int(ours > theirs)
    return status


def megabytes(count: int) -> str:
    return f"{count / 1e6:9.3f} MB"


if __name__ == "__main__":
    sys.exit(main())
