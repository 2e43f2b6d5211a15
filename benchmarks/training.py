"""Training steps of full-size models on a GPU: forward in bfloat16 autocast, backward, fused AdamW.

The model of 7B has parameters of bfloat16 and no autocast.

python benchmarks/training.py [--compilers eager,inductor,thunder] [--models REGEX] [--profile FOLDER]

Each model and compiler has a process of its own, with empty caches. `us` is the fastest step, `first_s` the seconds of
the first one, compilation included; `peak_GiB` is the memory of a later step, `launches` its kernels. `--profile` keeps
the time of each kernel. Vision models are timm's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import torch
from torch.nn import functional as F

Step = Callable[[Callable[..., Any]], torch.Tensor]


def _language(
    model: str, config: str, batch: int, length: int, dtype: torch.dtype = torch.float32, **sizes: Any
) -> tuple[torch.nn.Module, Step]:
    import transformers

    configuration = getattr(transformers, config)(**sizes)
    configuration.use_cache = False
    torch.set_default_dtype(dtype)
    with torch.device("cuda"):
        module = getattr(transformers, model)(configuration)
    torch.set_default_dtype(torch.float32)
    tokens = torch.randint(0, configuration.vocab_size - 1, (batch, length), device="cuda")
    return module, lambda call: call(input_ids=tokens, labels=tokens)[0]


def _vision(model: str, batch: int) -> tuple[torch.nn.Module, Step]:
    import timm

    images = torch.randn(batch, 3, 224, 224, device="cuda")
    labels = torch.randint(0, 1000, (batch,), device="cuda")
    return timm.create_model(model).cuda(), lambda call: F.cross_entropy(call(images), labels)


MODELS: dict[str, Callable[[], tuple[torch.nn.Module, Step]]] = {
    "bert-base, 16 x 512": lambda: _language("BertForMaskedLM", "BertConfig", 16, 512),
    "gpt2, 8 x 1024": lambda: _language("GPT2LMHeadModel", "GPT2Config", 8, 1024),
    "llama 1B, 2 x 2048": lambda: _language(
        "LlamaForCausalLM",
        "LlamaConfig",
        2,
        2048,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
        tie_word_embeddings=True,
    ),
    "llama 7B, 2 x 4096": lambda: _language(
        "LlamaForCausalLM",
        "LlamaConfig",
        2,
        4096,
        torch.bfloat16,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        vocab_size=32000,
        max_position_embeddings=4096,
    ),
    "resnet50, 128 images": lambda: _vision("resnet50", 128),
    "vit-b/16, 128 images": lambda: _vision("vit_base_patch16_224", 128),
    "convnext-tiny, 128 images": lambda: _vision("convnext_tiny", 128),
}


def measure(name: str, compiler: str, folder: Path | None) -> dict[str, Any]:
    """Return the row of one model and compiler."""
    torch.manual_seed(0)
    module, loss = MODELS[name]()
    module.train()
    torch.cuda.synchronize()
    start = time.perf_counter()
    target = common.compiled(compiler, module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)

    has_autocast = next(module.parameters()).dtype == torch.float32

    def step() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=has_autocast):
            value = loss(target)
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return value.detach()

    first_loss = float(step())
    first = time.perf_counter() - start
    step()
    common.settle(compiler, target)
    for _ in range(4):
        step()
    torch.cuda.reset_peak_memory_stats()
    times = sorted(common.seconds(step) for _ in range(12))
    file = common.profile_file(folder, name, compiler)
    return {
        "name": name,
        "compiler": compiler,
        "us": times[0] * 1e6,
        "median_us": times[6] * 1e6,
        "first_s": first,
        "peak_GiB": torch.cuda.max_memory_allocated() / 2**30,
        "launches": common.launches(step, file),
        "first_loss": first_loss,
        "loss": float(step()),
    }


def main() -> None:
    parser = common.parser(__doc__)
    parser.set_defaults(device="cuda")
    common.add_model_options(parser, models="")
    arguments = parser.parse_args()
    common.measure_models(arguments, MODELS, lambda name, compiler: measure(name, compiler, arguments.profile))


if __name__ == "__main__":
    main()
