"""A transform that keeps of each parameter a shard in each process, and gathers it where it is used (ZeRO 3).

python examples/extending/sharded_parameters.py    (two processes on the CPU)
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import thunder
from thunder import Trace
from thunder.transforms import Transform, override_parameter


class Sharded(Transform):
    """Replaces parameters by their rows `[rank * rows, (rank + 1) * rows)`, padded with zeros to equal shards.

    Programs see the whole parameter: a gather in front of the first use. Its derivative sums the gradients of all
    processes and gives each its shard.
    """

    def transform_module(self, model: Any) -> None:
        for name, parameter in list(model.named_parameters()):
            rows = -(-parameter.shape[0] // dist.get_world_size())
            padded = parameter.new_zeros(rows * dist.get_world_size(), *parameter.shape[1:])
            padded[: parameter.shape[0]] = parameter.detach()
            shard = padded[rows * dist.get_rank() :][:rows].clone()
            override_parameter(model, name, nn.Parameter(shard, requires_grad=parameter.requires_grad))

    def transform_traces_pre_prologue(
        self, prologue_trace: Trace, computation_trace: Trace, epilogue_trace: Trace, **kwargs: Any
    ) -> Any:
        edit = computation_trace.edit("sharded")
        for value in dict.fromkeys(computation_trace.parameters.values()):
            edit.substitute(value, edit.insert_first(self._gather, edit.take_stored(value), value.shape[0]))
        return prologue_trace, edit.finish(), epilogue_trace

    def _gather(self, shard: torch.Tensor, rows: int) -> torch.Tensor:
        group = dist.group.WORLD.group_name
        gather = torch.ops._c10d_functional_autograd.all_gather_into_tensor
        gathered = gather(shard, dist.get_world_size(), group)
        return torch.ops._c10d_functional.wait_tensor(gathered)[:rows]


def train(rank: int, world_size: int, store: str) -> None:
    """Take steps of SGD on other data in each process, beside the whole model on the data of all."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 3))
    compiled = thunder.jit(model, transforms=[Sharded()])
    modules = [compiled, model]
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.01) for module in modules]
    for step in range(3):
        seeds = [step * world_size + process for process in range(world_size)]
        batches = [torch.randn(8, 4, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        losses = [module(batches[rank]).square().sum() for module in modules]
        losses[0].backward()
        torch.stack([model(batch).square().sum() for batch in batches]).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        difference = (losses[0] - losses[1]).abs().item()
        print(f"rank {rank} step {step} loss {losses[0].item():.4f} difference {difference:.1e}")
    if rank == 0:
        print({name: tuple(parameter.shape) for name, parameter in compiled.named_parameters()})
        print(thunder.last_backward_traces(compiled)[-1])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, "train"]
            started = [
                subprocess.Popen([*command, str(rank), "2", f"{folder}/store"], stdout=subprocess.PIPE, text=True)
                for rank in range(2)
            ]
            for process in started:
                print(process.communicate()[0])
                if process.returncode != 0:
                    sys.exit(process.returncode)
