"""Time of a decoding step: one token of each sequence through a language model, without gradients, compilers in turns.

python benchmarks/decoding.py [--compilers eager,thunder,prepacked] [--batches 1,4,8,16] [--dtypes float32,bfloat16]

Attention to what came before is left out: it reads no weights. `prepacked` is thunder with `prepack_weights=True`.
"""

from __future__ import annotations

import functools
from typing import Any

import models
import torch
import transformers

SIZES: dict[str, Any] = {
    "gpt2 12x768": transformers.GPT2Config(use_cache=False),
    "llama 4x2048": transformers.LlamaConfig(
        use_cache=False, num_hidden_layers=4, hidden_size=2048, intermediate_size=5632, num_attention_heads=32
    ),
}


def build(config: Any, batch: int, dtype: torch.dtype) -> tuple[torch.nn.Module, models.Inputs]:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).to(dtype).eval()
    return model, {"input_ids": torch.randint(0, config.vocab_size, (batch, 1))}


def main() -> None:
    parser = models.parser(__doc__)
    parser.add_argument("--batches", type=lambda text: [int(word) for word in text.split(",")], default=[1, 4, 8, 16])
    parser.add_argument("--dtypes", type=lambda text: text.split(","), default=["float32", "bfloat16"])
    parser.set_defaults(compilers=["eager", "thunder", "prepacked"])
    arguments = parser.parse_args()
    builders = {
        f"{name}, {dtype}, batch {batch}": functools.partial(build, config, batch, getattr(torch, dtype))
        for name, config in SIZES.items()
        for dtype in arguments.dtypes
        for batch in arguments.batches
    }
    with torch.no_grad():
        models.compare(arguments, builders, lambda model, inputs: model(**inputs))


if __name__ == "__main__":
    main()
