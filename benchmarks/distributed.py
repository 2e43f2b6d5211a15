"""Training steps of a Llama in several processes: PyTorch's wrappers beside `thunder.distributed`.

torchrun --standalone --nproc-per-node 2 benchmarks/distributed.py                        (CPU: a tiny model, gloo)
torchrun --standalone --nproc-per-node 2 benchmarks/distributed.py --model 1b --ways ddp  (GPUs: NCCL)
torchrun --standalone --nproc-per-node 2 benchmarks/distributed.py --model 7b --ways fsdp --length 4096

Each process takes steps on tokens of its own, or on the same where `tensor` splits layers: forward, backward, AdamW,
with parameters of `--dtype` (default: bfloat16 on GPUs), or of float32 and autocast to `--autocast`. One way after the
other runs in the same processes; `alone` is the model in one process, with which to compare.

`ms` is the median of the steps of the slowest process, `first_s` its first step with compilation, `peak_GiB` its
largest memory after the first step; `communication_ms` is the time in which kernels of NCCL run in a profiled step,
`hidden` the share of it in which other kernels run too, of the process with the smallest one (GPUs only). `first_loss`
and `loss` are those of the first and the last step, over all processes: they are the same for all ways of one kind but
for rounding.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import torch
import torch.distributed as dist
from overlap import hidden_share, kernel_intervals, length
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import thunder
from thunder.distributed import FSDPBucketingStrategy, FSDPType

MODELS: dict[str, dict[str, Any]] = {
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 512,
        "tie_word_embeddings": True,
    },
    "1b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "tie_word_embeddings": True,
    },
    "7b": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 32000,
    },
}


def make_model(arguments: argparse.Namespace, device: torch.device) -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(arguments.dtype)
    try:
        with device:
            return LlamaForCausalLM(LlamaConfig(**MODELS[arguments.model], use_cache=False))
    finally:
        torch.set_default_dtype(before)


def _fully_shard(model: Any, *, compiles_layers: bool = False) -> Any:
    for layer in model.model.layers:
        if compiles_layers:
            layer.compile()
        fully_shard(layer)
    return fully_shard(model)


def _fsdp(strategy: FSDPType) -> Callable[[Any], Any]:
    return lambda model: thunder.distributed.fsdp(
        model, sharding_strategy=strategy, bucketing_strategy=FSDPBucketingStrategy.BLOCK
    )


COLUMN = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"]
ROW = ["self_attn.o_proj", "mlp.down_proj"]


def _parallelize(model: Any) -> Any:
    """Split the layers by PyTorch's `parallelize_module`, and compute the loss of all logits."""
    mesh = init_device_mesh(next(model.parameters()).device.type, (dist.get_world_size(),))
    plan: dict[str, ParallelStyle] = {f"model.layers.*.{name}": ColwiseParallel() for name in COLUMN}
    plan |= {f"model.layers.*.{name}": RowwiseParallel() for name in ROW}
    return parallelize_module(model, mesh, plan)


def _tensor_parallel(model: Any) -> Any:
    return thunder.distributed.tensor_parallel(
        model, column=[f"*.{name}" for name in COLUMN], row=[f"*.{name}" for name in ROW]
    )


WAYS: dict[str, Callable[[Any], Any]] = {
    "alone eager": lambda model: model,
    "alone thunder": thunder.jit,
    "ddp eager": DistributedDataParallel,
    "ddp torch.compile": lambda model: torch.compile(DistributedDataParallel(model)),
    "ddp around thunder.jit": lambda model: DistributedDataParallel(thunder.jit(model)),
    "ddp thunder": thunder.distributed.ddp,
    "fsdp eager": _fully_shard,
    "fsdp torch.compile": lambda model: torch.compile(_fully_shard(model)),
    "fsdp torch.compile layers": lambda model: _fully_shard(model, compiles_layers=True),
    "fsdp thunder zero2": _fsdp(FSDPType.ZERO2),
    "fsdp thunder zero3": _fsdp(FSDPType.ZERO3),
    "tensor eager": _parallelize,
    "tensor torch.compile": lambda model: torch.compile(_parallelize(model)),
    "tensor thunder": _tensor_parallel,
}


def _groups(model: torch.nn.Module) -> list[dict[str, Any]]:
    """Return the parameters, DTensors and others by themselves: the fused optimizer does not take them together."""
    parameters = list(model.parameters())
    groups = [[p for p in parameters if isinstance(p, DTensor) is parted] for parted in (False, True)]
    return [{"params": group} for group in groups if group]


class Training:
    """A model trained in one of the ways, on tokens of this process."""

    def __init__(self, way: str, arguments: argparse.Namespace, device: torch.device) -> None:
        self.model: Any = WAYS[way](make_model(arguments, device))
        self.optimizer = torch.optim.AdamW(_groups(self.model), lr=1e-4, fused=device.type == "cuda")
        self.vocabulary = MODELS[arguments.model]["vocab_size"]
        self.shape = arguments.batch, arguments.length
        self.autocast = arguments.autocast
        self.device = device
        seed = 0 if way.startswith("tensor") else dist.get_rank()  # these processes work on the same tokens
        self.generator = torch.Generator(device).manual_seed(seed)
        self.losses: list[torch.Tensor] = []

    def step(self) -> None:
        """Take a step."""
        tokens = torch.randint(self.vocabulary, self.shape, generator=self.generator, device=self.device)
        with torch.autocast(self.device.type, self.autocast) if self.autocast else contextlib.nullcontext():
            loss = self.model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(loss.detach())

    def seconds(self) -> float:
        """Take a step that all processes begin together; return its seconds."""
        common.synchronize()
        dist.barrier()
        begin = time.perf_counter()
        self.step()
        common.synchronize()
        return time.perf_counter() - begin

    def over_processes(self, value: float | torch.Tensor, op: Any) -> float:
        """Return the sum, or what `op` says, of the values of all processes."""
        tensor = torch.as_tensor(value, dtype=torch.float64, device=self.device).clone()
        dist.all_reduce(tensor, op=op)
        return tensor.item()


def measure(way: str, arguments: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Return the row of one way."""
    training, on_gpu = Training(way, arguments, device), device.type == "cuda"
    over_processes = training.over_processes
    first = training.seconds()
    if on_gpu:
        training.seconds()  # what compiles in the background is in place behind this one
        torch.cuda.reset_peak_memory_stats()
    seconds = [training.seconds() for _ in range(arguments.steps)]
    most, count = dist.ReduceOp.MAX, dist.get_world_size()
    row: dict[str, Any] = {
        "way": way,
        "ms": over_processes(statistics.median(seconds) * 1e3, most),
        "first_s": over_processes(first, most),
    }
    if on_gpu:
        row["peak_GiB"] = over_processes(torch.cuda.max_memory_allocated() / 2**30, most)
        communication, computation = kernel_intervals(lambda: training.seconds())
        row["communication_ms"] = over_processes(length(communication) / 1e3, most)
        row["hidden"] = over_processes(hidden_share(communication, computation), dist.ReduceOp.MIN)
    row["first_loss"] = over_processes(training.losses[0], dist.ReduceOp.SUM) / count
    row["loss"] = over_processes(training.losses[arguments.steps], dist.ReduceOp.SUM) / count
    return {**row, "model": arguments.model, "tokens": training.shape, "processes": count}


def _arguments(on_gpu: bool) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="tiny")
    parser.add_argument("--ways", default="ddp,fsdp,tensor", help="comma-separated beginnings of names")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=2048 if on_gpu else 64, help="tokens of an example")
    parser.add_argument("--steps", type=int, default=10, help="those that are timed")
    parser.add_argument("--dtype", type=_dtype, help="of parameters; default: bfloat16 on GPUs, float32 on CPUs")
    parser.add_argument("--autocast", type=_dtype, help="parameters of float32, operations of this dtype")
    parser.add_argument("--json", type=Path, help="result file (default: benchmarks/results/distributed-<device>.json)")
    arguments = parser.parse_args()
    if arguments.dtype is None:
        arguments.dtype = torch.bfloat16 if on_gpu and arguments.autocast is None else torch.float32
    arguments.device = "cuda" if on_gpu else "cpu"
    arguments.ways = [way for way in WAYS if way.startswith(tuple(arguments.ways.split(",")))]
    if not arguments.ways:
        parser.error(f"--ways: expected beginnings of {', '.join(WAYS)}")
    return arguments


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise argparse.ArgumentTypeError(f"expected a dtype, got {name}")
    return dtype


def main() -> None:
    on_gpu = torch.cuda.is_available()
    arguments = _arguments(on_gpu)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    arguments.threads = torch.get_num_threads()
    dist.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)
    rows = []
    for way in arguments.ways:
        rows.append(measure(way, arguments, device))
        gc.collect()
        torch._dynamo.reset()
        if on_gpu:
            torch.cuda.empty_cache()
        if dist.get_rank() == 0:  # after each, so that those before one that fails are kept
            common.report(rows[-1])
            common.write(arguments, rows, start=f"torchrun --standalone --nproc-per-node {dist.get_world_size()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
