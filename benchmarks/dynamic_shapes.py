"""Training steps with batches and lengths at random, and generation with a cache that grows, traces included.

python benchmarks/dynamic_shapes.py [--compilers eager,thunder] [--steps 100] [--tokens 200]

Models are tiny ones of transformers, and one of LitGPT. Training is timed from the first step on; of generation, the
first call apart. The compilers get the same shapes in the same order; losses and tokens are compared with eager's.
"at one shape" is a step after others at random, beside eager and a program that is made for that shape alone.
"""

from __future__ import annotations

import functools
import random
from typing import Any

import common
import torch
import transformers

import thunder

WORDS = 1024
MODELS: dict[str, Any] = {
    "llama 4x256": transformers.LlamaConfig(
        vocab_size=WORDS,
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=8,
    ),
    "gpt2 4x256": transformers.GPT2Config(
        vocab_size=WORDS, n_embd=256, n_layer=4, n_head=8, bos_token_id=0, eos_token_id=0, attn_pdrop=0, embd_pdrop=0,
        resid_pdrop=0,
    ),
}  # fmt: skip


GENERATING: dict[str, Any] = {
    **MODELS,
    "t5 4x256": transformers.T5Config(
        vocab_size=WORDS, d_model=256, d_kv=32, d_ff=1024, num_layers=4, num_heads=8, decoder_start_token_id=0
    ),
    "mamba 4x256": transformers.MambaConfig(vocab_size=WORDS, hidden_size=256, num_hidden_layers=4, state_size=16),
    "qwen3-moe 4x256": transformers.Qwen3MoeConfig(
        vocab_size=WORDS,
        hidden_size=256,
        intermediate_size=512,
        moe_intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        num_experts=8,
        num_experts_per_tok=2,
    ),
}


def build(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    config = GENERATING[name]
    kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    model: torch.nn.Module = kind.from_config(config)
    return model


def specializations(call: Any, compiler: str) -> int:
    return int(thunder.compile_stats(call)["specializations"]) if compiler == "thunder" else 0


def train(name: str, compiler: str, arguments: Any) -> tuple[dict[str, Any], list[float]]:
    model = build(name).train()
    call = common.compiled(compiler, model)
    draw = random.Random(0)
    generator = torch.Generator().manual_seed(0)
    losses: list[float] = []

    def steps() -> None:
        for _ in range(arguments.steps):
            size = draw.randint(1, 8), draw.randint(17, arguments.longest)
            words = torch.randint(0, WORDS, size, generator=generator)
            model.zero_grad()
            loss = call(input_ids=words, labels=words, use_cache=False).loss
            loss.backward()
            losses.append(loss.item())

    total = common.seconds(steps)
    row = {"name": f"{name}, training", "compiler": compiler, "us": total / arguments.steps * 1e6}
    return {**row, "specializations": specializations(call, compiler)}, losses


def at_one_shape(name: str, arguments: Any) -> list[dict[str, Any]]:
    """Return rows of a step of one shape: eager's, that of a program for it alone, and that of one for all shapes."""
    model = build(name).train()
    calls: dict[str, Any] = {
        "eager": model,
        "thunder, static": thunder.jit(model, dynamic=False),
        "thunder": thunder.jit(model),
    }
    for size in ((3, 40), (2, 33), (5, 64)):
        words = torch.randint(0, WORDS, size)
        calls["thunder"](input_ids=words, labels=words, use_cache=False).loss.backward()
    words = torch.randint(0, WORDS, (4, 128))

    def step(call: Any) -> None:
        model.zero_grad()
        call(input_ids=words, labels=words, use_cache=False).loss.backward()

    steps: dict[str, Any] = {compiler: functools.partial(step, call) for compiler, call in calls.items()}
    for run in steps.values():
        common.seconds(run, 3)
    rows = common.take_turns(steps, count=2, rounds=4 * arguments.rounds)
    return [{"name": f"{name}, at one shape", "compiler": compiler, **row} for compiler, row in rows.items()]


def generate(name: str, compiler: str, arguments: Any) -> tuple[dict[str, Any], list[float]]:
    model = build(name).eval()
    call = common.compiled(compiler, model)
    words = torch.randint(2, WORDS, (1, 7), generator=torch.Generator().manual_seed(0))
    options = {"max_new_tokens": arguments.tokens, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    tokens: list[float] = []
    with torch.no_grad():
        first = common.seconds(lambda: tokens.extend(call.generate(words, **options)[0].tolist()))
        later = min(common.seconds(lambda: call.generate(words, **options)) for _ in range(arguments.rounds))
    row = {"name": f"{name}, a token", "compiler": compiler, "us": later / arguments.tokens * 1e6, "first_s": first}
    return {**row, "specializations": specializations(call, compiler)}, tokens


def generate_with_litgpt(compiler: str, arguments: Any) -> tuple[dict[str, Any], list[float]]:
    """LitGPT's loop hands the model the position as an int."""
    import litgpt
    from litgpt.generate import base

    torch.manual_seed(0)
    size = {"n_layer": 4, "n_embd": 256, "n_head": 8, "intermediate_size": 1024, "padded_vocab_size": WORDS}
    model = litgpt.GPT(litgpt.Config.from_name("pythia-14m", block_size=512, **size)).eval()
    call = common.compiled(compiler, model)
    words = torch.randint(2, WORDS, (7,), generator=torch.Generator().manual_seed(0))
    tokens: list[float] = []

    def run() -> None:
        model.clear_kv_cache()
        model.max_seq_length = 512
        model.set_kv_cache(batch_size=1)
        tokens[:] = base.generate(call, words, len(words) + arguments.tokens, temperature=0.0).tolist()

    with torch.no_grad():
        first = common.seconds(run)
        later = min(common.seconds(run) for _ in range(arguments.rounds))
    row = {
        "name": "LitGPT 4x256, a token",
        "compiler": compiler,
        "us": later / arguments.tokens * 1e6,
        "first_s": first,
    }
    return {**row, "specializations": specializations(call, compiler)}, tokens


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--longest", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=200)
    parser.set_defaults(compilers=["eager", "thunder"], rounds=3)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows: list[dict[str, Any]] = []
    measured: list[Any] = [functools.partial(train, name) for name in MODELS]
    measured += [functools.partial(generate, name) for name in GENERATING]
    for measure in (*measured, generate_with_litgpt):
        expected: list[float] | None = None
        for compiler in arguments.compilers:
            row, numbers = measure(compiler, arguments)
            expected = numbers if expected is None else expected
            torch.testing.assert_close(torch.tensor(numbers), torch.tensor(expected), rtol=1e-3, atol=1e-4)
            rows.append(row)
    common.add_ratios(rows, "us")
    if "thunder" in arguments.compilers:
        rows += [row for name in MODELS for row in at_one_shape(name, arguments)]
    for row in rows:
        common.report(row)
    common.write(arguments, rows)


if __name__ == "__main__":
    main()
