"""Which models of transformers compile: training steps of tiny configurations, at several sizes, beside eager.

python benchmarks/supported_models.py [--models REGEX] [--table FILE]

Each architecture has random weights, and a process of its own. `worst` is the largest difference of outputs and
gradients from eager's in float64, relative to the largest value of the tensor. Up to 1e-4, or three times that of
eager in float32, counts as equal; where it is more, the float64 model is compiled, too. `specializations` are the
programs for all sizes; `first_s` are the seconds of the first step, beside `eager_first_s`. `--table` writes the
results as a page of the documentation.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import torch

WORDS = 99
# Whatever of these a configuration knows is set: models of two layers, a few dozen wide.
SMALL: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "embedding_size": 32,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "n_positions": 64,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "d_inner": 64,
    "ffn_dim": 64,
    "word_embed_proj_dim": 32,
    "sliding_window": 8,
    "num_local_experts": 4,
    "num_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "state_size": 8,
    "image_size": 32,
    "patch_size": 8,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "layerdrop": 0.0,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "problem_type": "single_label_classification",
}
SIZES = ((2, 16), (3, 16), (3, 24), (5, 8), (4, 32), (1, 16), (2, 40))
EQUAL = 1e-4

Inputs = dict[str, torch.Tensor]


def words(names: str) -> list[str]:
    return names.split()


def text(batch: int, length: int) -> Inputs:
    tokens = torch.randint(10, WORDS, (batch, length))
    mask = torch.ones_like(tokens)
    mask[-1, -3:] = 0
    return {"input_ids": tokens, "attention_mask": mask, "labels": tokens.clone()}


def text_unmasked(batch: int, length: int) -> Inputs:
    tokens = torch.randint(10, WORDS, (batch, length))
    return {"input_ids": tokens, "labels": tokens.clone()}


def images(batch: int, length: int) -> Inputs:
    return {"pixel_values": torch.randn(batch, 3, 32, 32), "labels": torch.arange(batch) % 2}


def large_images(batch: int, length: int) -> Inputs:
    return {"pixel_values": torch.randn(batch, 3, 64, 64), "labels": torch.arange(batch) % 2}


KINDS: dict[str, tuple[Callable[[int, int], Inputs], list[str]]] = {
    "decoders": (
        text,
        words("""Bloom CodeGen Cohere Falcon Gemma Gemma2 GPTNeoX GPTJ Glm Granite Llama Mistral Mixtral Nemotron Olmo
        Olmo2 Olmoe OPT Persimmon Phi Phi3 Qwen2 Qwen2Moe Qwen3 Qwen3Moe StableLm Starcoder2 GptOss"""),
    ),
    "decoders without masks": (text_unmasked, ["Mamba", "FalconMamba"]),
    "encoders": (
        text,
        words("""Albert Bert Camembert DebertaV2 Electra Ernie IBert MPNet MegatronBert MobileBert ModernBert
        Nystromformer RemBert RoFormer Roberta XLMRoberta"""),
    ),
    "encoder-decoders": (text, words("Bart BigBirdPegasus Blenderbot M2M100 MBart MT5 Pegasus PLBart T5 UMT5")),
    "images": (images, words("Beit DeiT Dinov2 ViT ViTMSN ConvNext ConvNextV2")),
    "larger images": (large_images, words("EfficientNet MobileNetV1 MobileNetV2 PoolFormer RegNet ResNet")),
}
CLASSES = {
    "decoders": ("ForCausalLM", "LMHeadModel"),
    "decoders without masks": ("ForCausalLM",),
    "encoders": ("ForMaskedLM",),
    "encoder-decoders": ("ForConditionalGeneration",),
    "images": ("ForImageClassification",),
    "larger images": ("ForImageClassification",),
}
OWN: dict[str, dict[str, Any]] = {
    "Phi": {"num_key_value_heads": 4},
    "Nemotron": {"head_dim": 8, "num_key_value_heads": 2},
    "CodeGen": {"rotary_dim": 4},
    "GPTJ": {"rotary_dim": 4},
    "ModernBert": {"cls_token_id": 1, "sep_token_id": 2},
    "BigBirdPegasus": {"attention_type": "original_full"},
    "ResNet": {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1], "embedding_size": 8},
    "RegNet": {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1], "embedding_size": 8},
    "PoolFormer": {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1], "patch_size": 7, "image_size": 64},
    "EfficientNet": {"image_size": 64},
    "MobileNetV1": {"image_size": 64},
    "MobileNetV2": {"image_size": 64},
    "ConvNext": {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1], "patch_size": 4},
    "ConvNextV2": {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1], "patch_size": 4},
}
NAMES = [(kind, name) for kind, (_, names) in KINDS.items() for name in names]


def build(kind: str, name: str) -> torch.nn.Module:
    """Return the model in training mode, without dropout."""
    import transformers

    torch.manual_seed(0)
    endings = [ending for ending in CLASSES[kind] if hasattr(transformers, name + ending)]
    architecture = getattr(transformers, name + endings[0])
    known = architecture.config_class().to_dict()
    sizes = {key: value for key, value in SMALL.items() if known.get(key) is not None or key.endswith("_id")}
    config = architecture.config_class(**{**sizes, "use_cache": False, **OWN.get(name, {})})
    for key, value in vars(config).items():
        if "drop" in key and isinstance(value, float):
            setattr(config, key, 0.0)
    return architecture(config).train()


def train(call: Callable[..., Any], module: torch.nn.Module, inputs: Inputs) -> dict[str, torch.Tensor]:
    """Return the loss, the outputs and the gradients of a step, by name."""
    torch.manual_seed(1)
    module.zero_grad(set_to_none=True)
    output = call(**inputs)
    output.loss.backward()
    values = {key: value for key, value in output.items() if isinstance(value, torch.Tensor)}
    return {**values, **{key: p.grad for key, p in module.named_parameters() if p.grad is not None}}


def difference(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """Return the largest relative difference; a tensor counts by at least a hundredth of the largest."""
    if actual.keys() != expected.keys():
        return float("inf")
    scales = {key: float(value.detach().abs().max()) if value.numel() else 0.0 for key, value in expected.items()}
    floor = 0.01 * max(scales.values())
    return max(
        float((actual[key] - expected[key]).detach().abs().max()) / max(scale, floor)
        for key, scale in scales.items()
        if expected[key].numel()
    )


def exact_step(module: torch.nn.Module, inputs: Inputs) -> dict[str, torch.Tensor] | None:
    """Return the step in float64; None: the model has no float64."""
    try:
        return train(module, module, inputs)
    except (RuntimeError, NotImplementedError):
        return None


def measure(kind: str, name: str) -> dict[str, Any]:
    """Return the row of one architecture, alone in this process."""
    import thunder

    warnings.simplefilter("ignore")
    thunder.jit(torch.nn.Linear(2, 2))(torch.ones(1, 2)).sum().backward()  # what the first use of all imports
    model = build(kind, name)
    plain, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    compiled = thunder.jit(model)
    row: dict[str, Any] = {"name": name, "kind": kind, "compiler": "thunder", "worst": 0.0, "eager_worst": 0.0}
    for batch, length in SIZES:
        torch.manual_seed(2)
        inputs = KINDS[kind][0](batch, length)
        start = time.perf_counter()
        expected = train(plain, plain, inputs)
        middle = time.perf_counter()
        actual = train(compiled, model, inputs)
        row.setdefault("eager_first_s", middle - start)
        row.setdefault("first_s", time.perf_counter() - middle)
        doubles = {key: value.double() if value.is_floating_point() else value for key, value in inputs.items()}
        reference = exact_step(exact, doubles) or expected
        row["worst"] = max(row["worst"], difference(actual, reference))
        if (
            difference(actual, reference) > max(EQUAL, 3 * difference(expected, reference))
            and reference is not expected
        ):
            double = copy.deepcopy(exact)
            row["exact_worst"] = difference(train(thunder.jit(double), double, doubles), reference)
        row["eager_worst"] = max(row["eager_worst"], difference(expected, reference))
    stats = thunder.compile_stats(compiled)
    return {**row, "specializations": stats["specializations"], "eager_calls": stats["eager_calls"]}


def status(row: dict[str, Any]) -> str:
    if "error" in row:
        return "error: " + row["error"]
    if row["eager_calls"]:
        return "runs in eager"
    if "exact_worst" in row:
        return "equal in float64" if row["exact_worst"] < 1e-9 else f"differs by {row['exact_worst']:.1e}"
    return "equal" if row["worst"] <= max(EQUAL, 3 * row["eager_worst"]) else f"differs by {row['worst']:.1e}"


def alone(kind: str, name: str) -> dict[str, Any]:
    """Return the row of one architecture, measured in a process of its own."""
    command = [sys.executable, __file__, "--alone", f"{kind}/{name}"]
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode == 0:
        return json.loads(finished.stdout.splitlines()[-1])
    lines = finished.stderr.strip().splitlines() or [f"exit status {finished.returncode}"]
    return {"name": name, "kind": kind, "compiler": "thunder", "error": lines[-1][:200]}


def table(rows: list[dict[str, Any]], heading: str) -> str:
    """Return a page in Markdown."""
    lines = [heading, "", "| model | result | programs for seven sizes | first step, of eager's |", "|---|---|---|---|"]
    for row in rows:
        if "error" in row:
            lines.append(f"| {row['name']} | {status(row)} | | |")
        else:
            ratio = row["first_s"] / row["eager_first_s"]
            lines.append(f"| {row['name']} | {status(row)} | {row['specializations']} | {ratio:.1f} |")
    return "\n".join(lines) + "\n"


HEADING = """# Models that compile

Training steps of tiny configurations with random weights, in float32 on the CPU, each at seven sizes (batches of 1 to
5, lengths of 8 to 40): outputs and gradients, by their distance from eager in float64. "equal in float64": rounding
alone changes the float32 model much, and the float64 model is exact.

The first size that is met is traced for itself, and a batch of one has a program of its own: three programs mean that
sizes are symbols, more that a size is [needed as a number](dynamic-shapes.md#what-pins-a-size), as in a loop over the
text.

`python benchmarks/supported_models.py --table docs/models.md` writes this page."""


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--models", default="", help="regular expression of the names to run")
    parser.add_argument("--table", type=Path, help="write the results as a page in Markdown")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.alone:
        print(json.dumps(measure(*arguments.alone.split("/"))))
        return
    rows = []
    for kind, name in NAMES:
        if re.search(arguments.models, name):
            rows.append(alone(kind, name))
            common.report({**rows[-1], "result": status(rows[-1])})
    equal = sum(status(row).startswith("equal") for row in rows)
    print(f"{equal} of {len(rows)} equal eager")
    common.write(arguments, rows)
    if arguments.table:
        arguments.table.write_text(table(rows, HEADING))


if __name__ == "__main__":
    main()
