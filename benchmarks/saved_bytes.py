"""Bytes that a forward keeps for its backward, beside PyTorch's min-cut partitioner.

    python benchmarks/saved_bytes.py [--models REGEX] [--sizes tiny,full] [--device meta]

Models have no weights: everything lies on the meta device. Counted is what the backward takes besides cotangents, as
its trace (thunder) or its graph (AOTAutograd with `min_cut_rematerialization_partition`, alone and after Inductor's
decompositions) says, in bytes; parameters, buffers and inputs, which live anyway, are not. Exit status 1 where thunder
saves more.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import torch
import transformers
from torch import nn
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch.utils._pytree import tree_leaves
from transformers import masking_utils

import thunder

Inputs = dict[str, torch.Tensor]


def language(name: str, batch: int, length: int, **sizes: Any) -> tuple[nn.Module, Inputs]:
    model, config = {
        "bert": ("BertForMaskedLM", "BertConfig"),
        "gpt2": ("GPT2LMHeadModel", "GPT2Config"),
        "llama": ("LlamaForCausalLM", "LlamaConfig"),
    }[name]
    configuration = getattr(transformers, config)(**sizes)
    tokens = torch.randint(0, configuration.vocab_size - 1, (batch, length))
    return getattr(transformers, model)(configuration), {"input_ids": tokens, "labels": tokens}


def vision(model: str, config: str, batch: int, side: int, **sizes: Any) -> tuple[nn.Module, Inputs]:
    inputs = {
        "pixel_values": torch.randn(batch, 3, side, side),
        "labels": torch.zeros(batch, dtype=torch.long),
    }
    return getattr(transformers, model)(getattr(transformers, config)(**sizes)), inputs


MODELS: dict[str, Callable[[], tuple[nn.Module, Inputs]]] = {
    "bert tiny": lambda: language(
        "bert", 2, 32, num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=128, vocab_size=512
    ),
    "bert full": lambda: language("bert", 16, 512),
    "gpt2 tiny": lambda: language(
        "gpt2", 2, 32, n_layer=2, n_embd=64, n_head=4, vocab_size=512, use_cache=False
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


def of_thunder(compiled: Any) -> int:
    """Return the bytes of what the forward of the last compilation saves, without its inputs."""
    forward, backward = thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1]
    kept = {name for name, _ in inputs_of(str(forward))}
    return sum(size for name, size in inputs_of(str(backward)) if name not in kept and "cotangent" not in name)


def of_module_by_thunder(model: nn.Module, inputs: Inputs, *, rematerialize: bool) -> int:
    compiled = thunder.jit(model, rematerialize=rematerialize)
    compiled(**inputs)
    return of_thunder(compiled)


def inputs_of(text: str) -> list[tuple[str, int]]:
    """Return (name, bytes) for each input of a printed trace."""
    return [
        (name, ITEM_SIZES[kind] * torch.Size([int(size) for size in sizes.split(",") if size]).numel())
        for name, kind, sizes in re.findall(r'^  # (\w+): "\w+ (\w+)\[([\d, ]*)\]', text, re.MULTILINE)
    ]


class Found(Exception):
    """Ends AOTAutograd's work once the partitioner has done its own."""


def of_min_cut(program: Callable[..., Any], *arguments: Any, inductor: bool = False) -> int:
    """Return the bytes of the memory that AOTAutograd's forward saves, by its min-cut partitioner.

    Saved views count as the memory behind them; what lies in the memory of an argument does not count.
    """
    decompositions = select_decomp_table() if inductor else None
    of_arguments: set[int] = set()

    def storages(graph: torch.fx.GraphModule, prefix: str) -> dict[int, int]:
        """Return the bytes of the memory behind the placeholders whose names begin so, by its address."""
        nodes = [node for node in graph.graph.nodes if node.op == "placeholder" and node.name.startswith(prefix)]
        values = [node.meta["val"] for node in nodes if isinstance(node.meta["val"], torch.Tensor)]
        return {value.untyped_storage()._cdata: value.untyped_storage().nbytes() for value in values}

    def forward(graph: torch.fx.GraphModule, _: Any) -> Any:
        of_arguments.update(storages(graph, "primals"))
        return graph

    def backward(graph: torch.fx.GraphModule, _: Any) -> Any:
        of_arguments.update(storages(graph, "tangents"))
        raise Found(sum(size for storage, size in storages(graph, "").items() if storage not in of_arguments))

    compiled = aot_function(
        program, forward, backward, partition_fn=min_cut_rematerialization_partition, decompositions=decompositions
    )
    try:
        results = tree_leaves(compiled(*arguments))
        torch.autograd.backward([result.sum() for result in results if result.requires_grad])
    except Found as found:
        return int(found.args[0])
    raise AssertionError("expected a backward")


def of_module_by_min_cut(model: nn.Module, inputs: Inputs, *, inductor: bool) -> int:
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}

    def program(state: Any, inputs: Any) -> Any:
        return tuple(torch.func.functional_call(model, state, (), inputs).values())

    return of_min_cut(program, state, inputs, inductor=inductor)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="", help="regular expression of the models to measure")
    parser.add_argument("--sizes", default="tiny,full")
    parser.add_argument("--device", default="meta")
    parser.add_argument("--json", type=Path, help="result file (default: benchmarks/results/saved_bytes-<device>.json)")
    arguments = parser.parse_args()
    arguments.threads = torch.get_num_threads()
    # Looks at data, which AOTAutograd without TorchDynamo refuses; sequences are not packed here.
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    rows = []
    for name, make in MODELS.items():
        if not re.search(arguments.models, name) or name.split()[-1] not in arguments.sizes.split(","):
            continue
        with torch.device(arguments.device):
            model, inputs = make()
        row = {
            "name": name,
            "all": of_module_by_thunder(model, inputs, rematerialize=False),
            "thunder": of_module_by_thunder(model, inputs, rematerialize=True),
            "min-cut": of_module_by_min_cut(model, inputs, inductor=False),
            "min-cut of Inductor": of_module_by_min_cut(model, inputs, inductor=True),
        }
        row["ratio"] = row["thunder"] / min(row["min-cut"], row["min-cut of Inductor"])
        common.report(row)
        rows.append(row)
    common.write(arguments, rows)
    return int(any(row["ratio"] > 1 for row in rows))


if __name__ == "__main__":
    sys.exit(main())
