"""Models in PyTorch's own wrappers, trained in two processes: run by test_distributed_wrappers.py."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from processes import device
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import thunder

STEPS = 5
Wrap = Callable[[nn.Module], Any]


class Convolutions(nn.Module):
    """Batch norm, whose buffers are broadcast, and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.other_norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm(self.first(x)))
        y = F.relu(self.other_norm(self.second(y)) + y)
        return self.head(y.mean((2, 3)))


class Branches(nn.Module):
    """Uses some of its parameters, other ones in other steps."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, uses_one: bool = True) -> torch.Tensor:
        return self.head(torch.relu(self.one(x) if uses_one else self.other(x)))


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.head = nn.Linear(6, 8), nn.Linear(8, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.other(torch.relu(self.one(x)))))


def batch(rank: int, step: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2 * step + rank)).to(device())


def image_loss(model: Any, rank: int, step: int) -> torch.Tensor:
    return model(batch(rank, step, 4, 3, 6, 6)).square().mean()


def branch_loss(model: Any, rank: int, step: int) -> torch.Tensor:
    return model(batch(rank, step, 4, 6), (rank + step) % 3 > 0).square().mean()


def layers_loss(model: Any, rank: int, step: int) -> torch.Tensor:
    return model(batch(rank, step, 4, 6)).square().mean()


def same_loss(model: Any, rank: int, step: int) -> torch.Tensor:
    """Return a loss of the same batch in all processes."""
    return layers_loss(model, 0, step)


def full(tensor: Any) -> Any:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def train(make: type[nn.Module], wrap: Wrap, loss_of: Any, rank: int, accumulates: bool = False) -> list[Any]:
    """Return for each step the loss, the gradients and the buffers."""
    torch.manual_seed(0)
    model = wrap(make().to(device()))
    # Without `foreach`, which PyTorch's AdamW takes by itself on GPUs: it refuses DTensors beside other parameters.
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
    seen = []
    for step in range(STEPS):
        if accumulates:
            with model.no_sync():
                loss_of(model, rank, step + STEPS).backward()
        loss = loss_of(model, rank, step)
        loss.backward()
        gradients = [None if each.grad is None else full(each.grad).clone() for each in model.parameters()]
        seen.append([loss.detach().clone(), *gradients, *(buffer.clone() for buffer in model.buffers())])
        optimizer.step()
        optimizer.zero_grad()
    return seen


def difference(left: list[Any], right: list[Any]) -> float:
    """Return the largest one; infinite where one has a gradient and the other none."""
    largest = 0.0
    for one, other in zip(left, right, strict=True):
        for a, b in zip(one, other, strict=True):
            if (a is None) != (b is None):
                return float("inf")
            if a is not None and a.numel() > 0:
                largest = max(largest, (a.float() - b.float()).abs().max().item())
    return largest


def data_parallel(order: str, **options: Any) -> Wrap:
    if order == "around":
        return lambda model: DistributedDataParallel(thunder.jit(model), **options)
    if order == "inside":
        return lambda model: thunder.jit(DistributedDataParallel(model, **options))
    return lambda model: DistributedDataParallel(model, **options)


def shard(model: Any, **options: Any) -> Any:
    mesh = init_device_mesh(device().type, (dist.get_world_size(),))
    for layer in (model.one, model.other, model):
        fully_shard(layer, mesh=mesh, **options)
    return model


def shard_compiled_layers(model: Any, **options: Any) -> Any:
    """FSDP's hooks run in eager, the layers between them compiled."""
    for layer in (model.one, model.other):
        layer.forward = thunder.jit(layer.forward, fullgraph=True)
    return shard(model, **options)


def parallelize(model: Any) -> Any:
    """PyTorch's tensor parallelism: parameters are DTensors, and hooks change inputs and outputs."""
    mesh = init_device_mesh(device().type, (dist.get_world_size(),))
    return parallelize_module(model, mesh, {"one": ColwiseParallel(), "other": RowwiseParallel()})


# Model, loss, options of DistributedDataParallel, whether gradients are accumulated.
DATA_PARALLEL: dict[str, tuple[type[nn.Module], Any, dict[str, Any], bool]] = {
    "buffers": (Convolutions, image_loss, {}, False),
    "no_sync": (Convolutions, image_loss, {"bucket_cap_mb": 0.0001}, True),
    "bucket views": (Convolutions, image_loss, {"gradient_as_bucket_view": True}, False),
    "unused parameters": (Branches, branch_loss, {"find_unused_parameters": True}, False),
    "static graph": (Layers, layers_loss, {"static_graph": True}, False),
}
SHARDED: dict[str, dict[str, Any]] = {
    "plain": {},
    "kept": {"reshard_after_forward": False},
    "mixed precision": {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)},
}


def compare_all(rank: int) -> dict[str, Any]:
    """Return for each case how far it is from eager, and whether thunder warned that it ran in eager."""
    found: dict[str, Any] = {}

    def compare(name: str, expected: list[Any], run: Callable[[], list[Any]]) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = run()
        in_eager = any(issubclass(each.category, thunder.EagerFallbackWarning) for each in caught)
        found[name] = difference(got, expected), in_eager

    for name, (make, loss_of, options, accumulates) in DATA_PARALLEL.items():
        expected = train(make, data_parallel("eager", **options), loss_of, rank, accumulates)
        for order in ("around", "inside"):
            wrap = data_parallel(order, **options)
            compare(f"{name}, {order}", expected, lambda: train(make, wrap, loss_of, rank, accumulates))  # noqa: B023
    for name, options in SHARDED.items():
        expected = train(Layers, lambda model: shard(model, **options), layers_loss, rank)  # noqa: B023
        for order, sharded in {
            "inside": lambda model: thunder.jit(shard(model, **options)),  # noqa: B023
            "around": lambda model: shard(thunder.jit(model), **options),  # noqa: B023
            "layers": lambda model: shard_compiled_layers(model, **options),  # noqa: B023
        }.items():
            compare(f"sharded {name}, {order}", expected, lambda: train(Layers, sharded, layers_loss, rank))  # noqa: B023
    expected = train(Layers, parallelize, same_loss, rank)
    for order, parallel in {
        "inside": lambda model: thunder.jit(parallelize(model)),
        "around": lambda model: parallelize(thunder.jit(model)),
    }.items():
        compare(f"tensor parallel, {order}", expected, lambda: train(Layers, parallel, same_loss, rank))  # noqa: B023
    found["refusal"] = refusal(lambda model: thunder.jit(parallelize(model), fullgraph=True))
    found["inspection"] = inspect(rank)
    dist.barrier()
    return found


def refusal(wrap: Wrap) -> str:
    """Return why a module is not compiled."""
    try:
        wrap(Layers().to(device()))(batch(0, 0, 4, 6))
    except NotImplementedError as error:
        return str(error)
    return ""


def inspect(rank: int) -> dict[str, Any]:
    """Return facts about a compiled `DistributedDataParallel`."""
    wrapper = DistributedDataParallel(Layers().to(device()))
    compiled: Any = thunder.jit(wrapper)
    compiled(batch(rank, 0, 4, 6))
    try:
        thunder.jit(wrapper, transforms=[Halved()])
        refusal = ""
    except ValueError as error:
        refusal = str(error)
    return {
        "is a DistributedDataParallel": isinstance(compiled, DistributedDataParallel),
        "names": list(compiled.state_dict()) == list(wrapper.state_dict()),
        "original is eager": type(wrapper.module) is Layers,
        "traces": "linear" in str(thunder.last_traces(compiled)[0]),
        "refusal": refusal,
    }


class Halved(thunder.transforms.Transform):
    def transform_module(self, model: Any) -> None:
        raise AssertionError("not reached")
