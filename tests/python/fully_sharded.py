"""Models trained by `thunder.distributed.fsdp`, beside one process: run in processes by test_fully_sharded.py."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import distributed_wrappers as wrappers
import torch
import torch.distributed as dist
from data_parallel import error_of, train
from processes import device
from small_language_models import MODELS
from torch import nn

import thunder
from thunder.distributed import FSDPBucketingStrategy as Buckets
from thunder.distributed import FSDPType

GATHER, SCATTER = "all_gather_into_tensor", "reduce_scatter_tensor"
STRATEGIES = {
    "zero2": {"sharding_strategy": FSDPType.ZERO2},
    "zero3": {"sharding_strategy": FSDPType.ZERO3},
    "zero2 layer": {"sharding_strategy": FSDPType.ZERO2, "bucketing_strategy": Buckets.LAYER},
    "zero3 block": {"sharding_strategy": FSDPType.ZERO3, "bucketing_strategy": Buckets.BLOCK},
}


def wrap_in(options: dict[str, Any]) -> Callable[[nn.Module], Any]:
    return lambda model: thunder.distributed.fsdp(model, **options)


def clip(model: Any) -> torch.Tensor:
    return thunder.distributed.clip_grad_norm_(model, 0.5)


def shard_of(whole: torch.Tensor) -> torch.Tensor:
    """Return the rows of this process, filled up with zeros."""
    count, rank = dist.get_world_size(), dist.get_rank()
    whole = whole.reshape(1) if whole.dim() == 0 else whole
    rows = -(-whole.shape[0] // count)
    return torch.cat([whole, whole.new_zeros(rows * count - whole.shape[0], *whole.shape[1:])]).split(rows)[rank]


def shards_of(steps: list[list[torch.Tensor]]) -> list[list[torch.Tensor]]:
    return [[loss, norm, *map(shard_of, gradients)] for loss, norm, *gradients in steps]


def compare(rank: int, strategies: list[str], models: list[str]) -> dict[str, Any]:
    """Return for each case the largest difference from one process."""
    found: dict[str, Any] = {}
    everyone = list(range(dist.get_world_size()))
    for name in models:
        make = MODELS[name]
        for accumulates in (False, True):
            expected = shards_of(train(make, lambda model: model, everyone, accumulates))
            for strategy in strategies:
                wrap = wrap_in(STRATEGIES[strategy])
                got = train(make, wrap, [rank], accumulates, clip)
                found[name, strategy, accumulates] = wrappers.difference(got, expected)
    return found


def compare_in_four(rank: int) -> dict[str, Any]:
    return compare(rank, ["zero3 block"], ["llama"])


def compare_all(rank: int) -> dict[str, Any]:
    found: dict[str, Any] = {"models": compare(rank, list(STRATEGIES), list(MODELS)), "facts": facts(rank)}
    make, wrap = MODELS["llama"], wrap_in(STRATEGIES["zero3 block"])
    runs = [train(make, wrap, [rank], True, clip) for _ in range(2)]
    found["again"] = wrappers.difference(*runs)
    dist.barrier()
    return found


def count(traces: list[Any], name: str) -> int:
    return sum(name in symbol.name for symbol in traces[-1].bound_symbols)


def facts(rank: int) -> dict[str, Any]:
    """Return facts about modules that `fsdp` made, each under a name."""
    x = wrappers.batch(rank, 0, 4, 6)
    torch.manual_seed(rank)
    original = wrappers.Layers().to(device())
    plain = copy.deepcopy(original)
    model = wrap_in(STRATEGIES["zero3"])(original)
    model(x).square().sum().backward()
    gradient = model.one.weight.grad.tolist()
    results: dict[str, Any] = {
        "shards": [list(each.shape) for each in model.parameters()],
        "original keeps its own": original.one.weight.shape == (8, 6),
        "state dict": {name: list(each.shape) for name, each in model.state_dict().items()},
        "gathers": count(thunder.last_traces(model), GATHER),
        "gathers again": count(thunder.last_backward_traces(model), GATHER),
        "scatters": count(thunder.last_backward_traces(model), SCATTER),
        "prefetches": prefetches(thunder.last_traces(model)[-1]),
    }
    kept = wrap_in(STRATEGIES["zero2"])(wrappers.Layers().to(device()))
    kept(x).sum().backward()
    results["zero2 gathers again"] = count(thunder.last_backward_traces(kept), GATHER)
    made = {
        "jitted again": thunder.jit(model, rematerialize=False),
        "copied": copy.deepcopy(model),
        "pickled": pickle.loads(pickle.dumps(model)),
    }
    for name, other in made.items():
        other.zero_grad()
        other(x).square().sum().backward()
        results[name] = other.one.weight.grad.tolist() == gradient
    results.update(states(rank, model, plain, x))
    results.update(parts(model, x))
    results.update(meta(x))
    results["twice"] = error_of(lambda: wrap_in({})(wrap_in({})(wrappers.Layers().to(device()))))
    results["plain module"] = error_of(lambda: thunder.distributed.full_state_dict(plain))
    results["clip of a plain module"] = error_of(lambda: thunder.distributed.clip_grad_norm_(plain, 1.0))
    results["shards as whole ones"] = error_of(
        lambda: thunder.distributed.load_full_state_dict(model, model.state_dict())
    )
    return results


def prefetches(trace: Any) -> bool:
    """Whether a gather is under way while a product is computed."""
    under_way = 0
    for symbol in trace.bound_symbols:
        under_way += (GATHER in symbol.name) - ("wait_tensor" in symbol.name)
        if under_way > 0 and "addmm" in symbol.name:
            return True
    return False


def states(rank: int, model: Any, plain: nn.Module, x: torch.Tensor) -> dict[str, Any]:
    """Return facts about state dicts of shards and of whole parameters."""
    whole = thunder.distributed.full_state_dict(model)
    only_first = thunder.distributed.full_state_dict(model, rank=0, to_cpu=True)
    plain.load_state_dict(whole)
    other = wrap_in({"broadcast_from": None})(wrappers.Layers().to(device()))
    thunder.distributed.load_full_state_dict(other, whole)
    again = wrap_in({"broadcast_from": None})(wrappers.Layers().to(device()))
    again.load_state_dict(model.state_dict())
    expected = plain(x)
    with torch.no_grad():
        same = [torch.allclose(each(x), expected, atol=1e-6) for each in (model, other, again)]
    return {
        "whole": all(same),
        "whole shapes": all(whole[name].shape == each.shape for name, each in plain.state_dict().items()),
        "first only": len(only_first) == (len(whole) if rank == 0 else 0),
    }


def parts(model: Any, x: torch.Tensor) -> dict[str, Any]:
    """Return whether a submodule that is called by itself computes with whole parameters, in `no_sync` as well."""
    model.zero_grad()
    model.one(x).square().sum().backward()
    expected = model.one.weight.grad.clone()
    model.zero_grad()
    inside = thunder.jit(model, rematerialize=False)
    with inside.no_sync():
        inside.one(x).square().sum().backward()
    return {"part": model.one(x).shape == (4, 8), "part in no_sync": inside.one.weight.grad.equal(expected)}


class OnMeta(nn.Module):
    def __init__(self, **where: Any) -> None:
        super().__init__()
        self.one, self.norm = nn.Linear(6, 5, **where), nn.BatchNorm1d(5, **where)
        self.head = nn.Linear(5, 3, **where)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.one(x)))


class WithoutReset(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3, device="meta"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def meta(x: torch.Tensor) -> dict[str, Any]:
    """Return facts about modules from the meta device."""
    torch.manual_seed(5)
    model = wrap_in(STRATEGIES["zero3 block"])(OnMeta(device="meta"))
    torch.manual_seed(5)
    plain = OnMeta(device=device())
    for module in (plain.one, plain.norm, plain.head):
        module.reset_parameters()
    tied = MODELS["tied"]().to(device())
    torch.manual_seed(5)
    for module in (plain.one, plain.norm, plain.head):
        module.reset_parameters()
    sharded = wrap_in({})(tied)
    return {
        "materialized": torch.allclose(model(x), plain(x), atol=1e-6),
        "tied": sharded.embedding.weight is sharded.head.weight,
        "without reset": error_of(lambda: wrap_in({})(WithoutReset())),
    }
