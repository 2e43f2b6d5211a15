"""Trains a small model in several processes, which hold the same parameters (ddp) or a shard of each (fsdp).

    torchrun --nproc-per-node 2 examples/distributed_training.py ddp

On CPUs gloo sends the gradients; with GPUs it is NCCL, and each process has a GPU.
"""

import sys

import torch

import thunder


def main(kind: str) -> None:
    """Train for ten steps, and print what each process has."""
    torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = torch.distributed.get_rank()
    device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(rank)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)).to(device)
    # All processes begin with the parameters of process 0.
    model = thunder.distributed.ddp(model) if kind == "ddp" else thunder.distributed.fsdp(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        x = torch.randn(32, 16, device=device)  # the part of the batch that this process has
        loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()  # averages the gradients over all processes
        optimizer.step()
        optimizer.zero_grad()
    total = sum(parameter.sum().item() for parameter in model.parameters())
    count = sum(parameter.numel() for parameter in model.parameters())
    sys.stdout.write(f"{kind}: process {rank} has {count} parameters, their sum is {total:.5f}, loss {loss:.4f}\n")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ("ddp", "fsdp"):
        raise SystemExit(__doc__)
    main(sys.argv[1])
