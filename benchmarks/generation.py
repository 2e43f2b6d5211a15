"""Time of a token on a GPU: a language model of 16-bit floats generates, one sequence at a time.

Its cache has a fixed number of places, or grows with each token (`DynamicCache`, the default of transformers).

python benchmarks/generation.py [--compilers eager,inductor,thunder] [--models REGEX] [--tokens 128] [--errors]

Each model and compiler has a process of its own, with empty caches. `us` is the time per token of the fastest round;
`first_s` the seconds of the first tokens, compilation included; `launches` the kernels per token. `weights_us` is what
reading the weights once takes at the bandwidth that a copy on this GPU has. `error` (with `--errors`) is the largest
difference of logits from those of the same model in float64, over their largest, after the same tokens. `inductor` is
`torch.compile(mode="reduce-overhead")`, which records CUDA graphs, as thunder does by itself.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import common
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache

LLAMA_1B: dict[str, Any] = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128256,
    "tie_word_embeddings": True,
}
LLAMA_8B: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
}
MODELS: dict[str, tuple[dict[str, Any], int | None]] = {
    "llama 1B, cache of 256": (LLAMA_1B, 256),
    "llama 1B, cache of 4096": (LLAMA_1B, 4096),
    "llama 8B, cache of 256": (LLAMA_8B, 256),
    "llama 1B, growing cache": (LLAMA_1B, None),
}
PROMPT = 16

Call = Callable[..., Any]


class Generator:
    """A model with a cache of so many places, or one that grows, which eager fills with a prompt."""

    def __init__(self, sizes: dict[str, Any], places: int | None, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        config = LlamaConfig(**sizes, eos_token_id=None)
        with torch.device("cuda"):
            self.module = LlamaForCausalLM(config).to(dtype).eval()
        self.cache = DynamicCache() if places is None else StaticCache(config=config, max_cache_len=places)

    @torch.no_grad()
    def run(self, call: Call, count: int, tokens: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Generate `count` tokens, or take them from `tokens`; return them, and the last logits."""
        if isinstance(self.cache, StaticCache):
            self.cache.reset()
        else:
            self.cache = DynamicCache()
        places = torch.arange(PROMPT, device="cuda")
        prompt = torch.arange(PROMPT, device="cuda")[None]
        logits = self._logits(self.module, prompt, places)
        place = torch.tensor([PROMPT], device="cuda")
        made = []
        for i in range(count):
            made.append(logits.argmax(-1) if tokens is None else tokens[:, i : i + 1])
            logits = self._logits(call, made[-1], place)
            place = place + 1
        return torch.cat([prompt[:, :0], *made], 1), logits

    def _logits(self, call: Call, tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        state = {"cache_position": places, "position_ids": places[None], "past_key_values": self.cache}
        return call(input_ids=tokens, use_cache=True, **state).logits[:, -1:].clone()


def compiled(compiler: str, module: torch.nn.Module) -> Call:
    return (
        torch.compile(module, mode="reduce-overhead") if compiler == "inductor" else common.compiled(compiler, module)
    )


def seconds_of_reading(count: int) -> float:
    """Return the seconds that reading so many bytes takes, by those of a copy."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    fastest = min(common.seconds(lambda: target.copy_(source), 4) for _ in range(5))
    return fastest * count / (2 * source.numel())


def measure(name: str, compiler: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the row of one model and compiler."""
    sizes, places = MODELS[name]
    generator = Generator(sizes, places, torch.bfloat16)
    call = compiled(compiler, generator.module)
    start = time.perf_counter()
    generator.run(call, 3)
    common.synchronize()
    first = time.perf_counter() - start
    common.settle(compiler, call)
    generator.run(call, 8)
    count = arguments.tokens
    prompt = min(common.seconds(lambda: generator.run(call, 0)) for _ in range(3))
    times = sorted(common.seconds(lambda: generator.run(call, count)) - prompt for _ in range(arguments.rounds))
    file = common.profile_file(arguments.profile, name, compiler)
    of_prompt = common.launches(lambda: generator.run(call, 0), None)
    row = {
        "name": name,
        "compiler": compiler,
        "us": times[0] / count * 1e6,
        "median_us": times[len(times) // 2] / count * 1e6,
        "weights_us": seconds_of_reading(sum(p.nbytes for p in generator.module.parameters())) * 1e6,
        "first_s": first,
        "launches": (common.launches(lambda: generator.run(call, 8), file) - of_prompt) / 8,
    }
    if arguments.errors:
        row["error"] = error(generator, call, sizes, places)
    return row


def error(generator: Generator, call: Call, sizes: dict[str, Any], places: int | None, count: int = 24) -> float:
    """Return the error of logits after tokens that the model itself has chosen in float64."""
    exact = Generator(sizes, places, torch.float64)
    exact.module.load_state_dict(generator.module.state_dict())
    tokens, expected = exact.run(exact.module, count)
    _, got = generator.run(call, count, tokens)
    return float((got.double() - expected).abs().max() / expected.abs().max())


def main() -> None:
    parser = common.parser(__doc__)
    parser.set_defaults(device="cuda", rounds=5)
    common.add_model_options(parser, models="1B")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--errors", action="store_true", help="compare logits with those in float64")
    arguments = parser.parse_args()
    common.measure_models(arguments, MODELS, lambda name, compiler: measure(name, compiler, arguments))


if __name__ == "__main__":
    main()
