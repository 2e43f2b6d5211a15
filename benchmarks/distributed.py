"""Training steps of a Llama in several processes: PyTorch's wrappers beside `thunder.distributed`.

torchrun --standalone --nproc-per-node 2 benchmarks/distributed.py                        (CPU: a tiny model, gloo)
torchrun --standalone --nproc-per-node 2 benchmarks/distributed.py --model 1b --ways ddp  (GPUs: NCCL)
torchrun --standalone --nproc-per-node 2 benchmarks/distributed.py --model 7b --ways fsdp

Each process takes steps on tokens of its own: forward, backward, AdamW. One way after the other runs in the same
processes. `ms` is the median of the steps of the slowest process, `first_s` its first step with compilation, `peak_GiB`
its largest memory after the first step (GPUs only), `loss` that of the last step, over all processes: it is the same
for all ways but for rounding. `--json` keeps the table.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import thunder
from thunder.distributed import FSDPBucketingStrategy, FSDPType

MODELS: dict[str, dict[str, int]] = {
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 512},
    "1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "vocab_size": 32000},
    "7b": {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "vocab_size": 32000},
}
HEAD_SIZE = 128


def make_model(name: str, device: torch.device, dtype: torch.dtype) -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = MODELS[name]
    heads = max(4, sizes["hidden_size"] // HEAD_SIZE)
    config = LlamaConfig(**sizes, num_attention_heads=heads, num_key_value_heads=heads, use_cache=False)
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            return LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)


def _fully_shard(model: Any) -> Any:
    for layer in model.model.layers:
        fully_shard(layer)
    return fully_shard(model)


def _fsdp(strategy: FSDPType) -> Callable[[Any], Any]:
    return lambda model: thunder.distributed.fsdp(
        model, sharding_strategy=strategy, bucketing_strategy=FSDPBucketingStrategy.BLOCK
    )


WAYS: dict[str, Callable[[Any], Any]] = {
    "ddp eager": DistributedDataParallel,
    "ddp torch.compile": lambda model: torch.compile(DistributedDataParallel(model)),
    "ddp around thunder.jit": lambda model: DistributedDataParallel(thunder.jit(model)),
    "ddp thunder": thunder.distributed.ddp,
    "fsdp eager": _fully_shard,
    "fsdp torch.compile": lambda model: torch.compile(_fully_shard(model)),
    "fsdp thunder zero2": _fsdp(FSDPType.ZERO2),
    "fsdp thunder zero3": _fsdp(FSDPType.ZERO3),
}


def over_processes(value: float, device: torch.device, op: Any) -> float:
    tensor = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(tensor, op=op)
    return tensor.item()


def measure(way: str, arguments: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Return the row of one way."""
    model: Any = WAYS[way](make_model(arguments.model, device, arguments.dtype))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    generator = torch.Generator(device).manual_seed(dist.get_rank())
    shape = arguments.batch, arguments.length
    vocabulary = MODELS[arguments.model]["vocab_size"]
    seconds, loss = [], torch.zeros(())
    for step in range(arguments.steps + 1):
        tokens = torch.randint(vocabulary, shape, generator=generator, device=device)
        if step == 1 and device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        _synchronize(device)
        dist.barrier()
        begin = time.perf_counter()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        _synchronize(device)
        seconds.append(time.perf_counter() - begin)
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
    most = dist.ReduceOp.MAX
    return {
        "way": way,
        "ms": over_processes(statistics.median(seconds[1:]) * 1e3, device, most),
        "first_s": over_processes(seconds[0], device, most),
        "peak_GiB": over_processes(peak, device, most),
        "loss": over_processes(loss.item(), device, dist.ReduceOp.SUM) / dist.get_world_size(),
    }


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="tiny")
    parser.add_argument("--ways", default="", help="those whose names begin so, or have all these words; default: all")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=0, help="tokens; default: 4,096 on GPUs, 64 on CPUs")
    parser.add_argument("--steps", type=int, default=10, help="besides the first one")
    parser.add_argument("--dtype", type=lambda name: getattr(torch, name), default=None)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    arguments.length = arguments.length or (4096 if on_gpu else 64)
    arguments.dtype = arguments.dtype or (torch.bfloat16 if on_gpu else torch.float32)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rows = []
    for way in WAYS:
        if not all(word in way.split() or way.startswith(word) for word in arguments.ways.split()):
            continue
        rows.append(measure(way, arguments, device))
        if dist.get_rank() == 0:
            print(" ".join(f"{name} {_text(value)}" for name, value in rows[-1].items()), flush=True)
        gc.collect()
        if on_gpu:
            torch.cuda.empty_cache()
    if arguments.json and dist.get_rank() == 0:
        described = {
            "processes": dist.get_world_size(),
            "model": arguments.model,
            "batch": arguments.batch,
            "length": arguments.length,
            "dtype": str(arguments.dtype),
            "device": torch.cuda.get_device_name() if on_gpu else "cpu",
            "torch": torch.__version__,
        }
        arguments.json.write_text(json.dumps({**described, "rows": rows}, indent=2) + "\n")
    dist.destroy_process_group()


def _text(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else f"{value:24}"


if __name__ == "__main__":
    main()
