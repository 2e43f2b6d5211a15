"""Train a small Hugging Face Llama (random weights) through thunder.jit, beside eager PyTorch.

    python examples/quickstart.py [--steps 8] [--layers 4] [--width 256]

Both start from the same weights and see the same tokens; each step prints both losses and step times.
Exit status 1 when the losses differ by more than 1e-4 of their size.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time

import torch
import transformers

import thunder


def small_llama(layers: int, width: int) -> torch.nn.Module:
    """Return a Llama of `layers` blocks and hidden size `width`, in float32."""
    config = transformers.LlamaConfig(
        hidden_size=width,
        intermediate_size=width * 11 // 4,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64,
        vocab_size=2048,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config)


def train_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, tokens: torch.Tensor) -> tuple[float, float]:
    """Return the loss and the seconds of one step."""
    start = time.perf_counter()
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item(), time.perf_counter() - start


def main() -> int:
    """Train, print, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    eager = small_llama(arguments.layers, arguments.width)
    compiled = thunder.jit(copy.deepcopy(eager))
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-3) for model in (eager, compiled)]
    batches = [torch.randint(0, 2048, (4, 128)) for _ in range(arguments.steps)]

    millions = sum(parameter.numel() for parameter in eager.parameters()) / 1e6
    print(f"Llama: {arguments.layers} layers, {millions:.1f} M parameters; {torch.get_num_threads()} threads")
    print("step    loss: eager     thunder   ms: eager   thunder")
    seconds: tuple[list[float], list[float]] = ([], [])
    agree = True
    for step, tokens in enumerate(batches, start=1):
        losses = []
        for model, optimizer, times in zip((eager, compiled), optimizers, seconds, strict=True):
            loss, elapsed = train_step(model, optimizer, tokens)
            losses.append(loss)
            times.append(elapsed)
        agree &= abs(losses[1] - losses[0]) <= 1e-5 * abs(losses[0])
        note = "  (traced and compiled)" if step == 1 else ""
        milliseconds = [times[-1] * 1e3 for times in seconds]
        print(
            f"{step:4}   {losses[0]:12.6f}{losses[1]:12.6f}{milliseconds[0]:12.1f}{milliseconds[1]:10.1f}{note}",
            flush=True,
        )

    if arguments.steps > 1:
        ratio = statistics.median(seconds[1][1:]) / statistics.median(seconds[0][1:])
        print(f"Median step after the first: {ratio:.3f} x eager's")
    print(f"Cache: {thunder.cache_misses(compiled)} compiled, {thunder.cache_hits(compiled)} reused")
    print("Losses agree to five digits." if agree else "LOSSES DIFFER.")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
