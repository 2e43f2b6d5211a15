"""How fast the GPUs at hand compute, copy and communicate: what `scaling_model.py` predicts from.

torchrun --standalone --nproc-per-node 2 benchmarks/machine_rates.py

Rows, all of process 0: matmuls of bfloat16 (`work` in floating-point operations, `seconds`), attention forward and
backward, copies (`work` in bytes read and written), fused AdamW (`work` in parameters), collectives by the bytes of the
full tensor, and a matmul while a collective runs. Times are medians of runs of many calls.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import torch
import torch.distributed as dist
from torch.nn import functional as F

Row = dict[str, Any]
BUSY_SECONDS = 0.4
BYTES = [1 << power for power in range(16, 31, 2)]


def seconds_of(call: Callable[[], Any], rounds: int = 5) -> float:
    """Return the seconds of a call on the device, of many in a row: a GPU that is busy for long runs slower."""

    def timed(count: int) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / count

    timed(3)
    first = torch.tensor(timed(3), device="cuda", dtype=torch.float64)
    dist.all_reduce(first, op=dist.ReduceOp.MAX)  # all processes make as many calls
    count = max(1, min(300, int(BUSY_SECONDS / rounds / first.item())))
    return statistics.median(timed(count) for _ in range(rounds))


def matmuls() -> list[Row]:
    """Time matmuls of 8,192 rows and n by n weights."""
    rows = []
    for n in (512, 1024, 2048, 4096, 8192):
        x, weight = (torch.randn(size, n, device="cuda", dtype=torch.bfloat16) for size in (8192, n))
        seconds = seconds_of(functools.partial(torch.matmul, x, weight))
        rows.append({"what": "matmul", "work": 2 * 8192 * n * n, "seconds": seconds})
    return rows


def attention() -> list[Row]:
    """Time causal attention of 32 heads of 128 over 2 x 4,096 tokens; work counts both halves of the matrices."""
    q, k, v = (torch.randn(2, 32, 4096, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    work = 4 * q.numel() * 4096
    forward = seconds_of(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
    for tensor in (q, k, v):
        tensor.requires_grad_()
    result = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    backward = seconds_of(lambda: torch.autograd.grad(result, (q, k, v), result, retain_graph=True))
    return [
        {"what": "attention", "work": work, "seconds": forward},
        {"what": "attention backward", "work": work, "seconds": backward},
    ]


def memory() -> list[Row]:
    """Time a copy of 1 GiB, and an update of 256 million parameters of bfloat16."""
    source = torch.randn(1 << 28, device="cuda")
    target = torch.empty_like(source)
    copy = seconds_of(lambda: target.copy_(source))
    parameters = [torch.randn(1 << 24, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(16)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    update = seconds_of(torch.optim.AdamW(parameters, fused=True).step)
    return [
        {"what": "copy", "work": 2 * source.nbytes, "seconds": copy},
        {"what": "update", "work": sum(parameter.numel() for parameter in parameters), "seconds": update},
    ]


def collectives() -> list[Row]:
    """Time collectives of all processes; the second number is that of a matmul by itself and beside an all-gather."""
    rows, count = [], dist.get_world_size()
    for size in BYTES:
        full = torch.zeros(size // 2, device="cuda", dtype=torch.bfloat16)
        part = torch.zeros(size // 2 // count, device="cuda", dtype=torch.bfloat16)
        calls: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda full=full: dist.all_reduce(full),
            "all_gather": lambda full=full, part=part: dist.all_gather_into_tensor(full, part),
            "reduce_scatter": lambda full=full, part=part: dist.reduce_scatter_tensor(part, full),
        }
        for name, call in calls.items():
            rows.append({"what": name, "work": size, "processes": count, "seconds": seconds_of(call)})
    return rows


def interference() -> list[Row]:
    """Time twenty matmuls by themselves (`work`), beside gathers (`seconds`), and these by themselves (`gathers`)."""
    x = torch.randn(8192, 4096, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    full = torch.zeros(1 << 28, device="cuda", dtype=torch.bfloat16)
    part = torch.zeros(full.numel() // dist.get_world_size(), device="cuda", dtype=torch.bfloat16)

    def compute() -> None:
        for _ in range(20):
            x @ weight

    def gather() -> list[Any]:
        return [dist.all_gather_into_tensor(full, part, async_op=True) for _ in range(3)]

    def both() -> None:
        works = gather()
        compute()
        for work in works:
            work.wait()

    gathers = seconds_of(lambda: [work.wait() for work in gather()])
    row = {"what": "matmul beside all_gather", "work": seconds_of(compute), "seconds": seconds_of(both)}
    return [{**row, "gathers": gathers}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="result file (default: benchmarks/results/machine_rates-cuda.json)")
    arguments = parser.parse_args()
    arguments.device, arguments.threads = "cuda", torch.get_num_threads()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rows = [*matmuls(), *attention(), *memory(), *collectives(), *interference()]
    if dist.get_rank() == 0:
        for row in rows:
            common.report(row)
        common.write(arguments, rows, start=f"torchrun --standalone --nproc-per-node {dist.get_world_size()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
