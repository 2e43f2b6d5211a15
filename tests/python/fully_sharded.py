"""Models trained by `thunder.distributed.fsdp`, beside one process: run in processes by test_fully_sharded.py."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import distributed_wrappers as wrappers
import torch
import torch.distributed as dist
from data_parallel import default_clip, error_of, local, train
from processes import device
from small_language_models import MODELS, language_loss
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate

import thunder
from thunder.distributed import FSDPBucketingStrategy as Buckets
from thunder.distributed import FSDPType

# Sizes of the shards of `Layers`, in two processes.
SHARDS = [[[4, 6], [4], [3, 8], [3], [2, 6], [2]], [[4, 6], [4], [3, 8], [3], [1, 6], [1]]]
GATHER, SCATTER = "all_gather_into_tensor", "reduce_scatter_tensor"
STRATEGIES = {
    "zero2": {"sharding_strategy": FSDPType.ZERO2},
    "zero3": {"sharding_strategy": FSDPType.ZERO3},
    "zero2 layer": {"sharding_strategy": FSDPType.ZERO2, "bucketing_strategy": Buckets.LAYER},
    "zero3 block": {"sharding_strategy": FSDPType.ZERO3, "bucketing_strategy": Buckets.BLOCK},
}


def wrap_in(options: dict[str, Any]) -> Callable[[nn.Module], Any]:
    return lambda model: thunder.distributed.fsdp(model, **options)


def hybrid(model: nn.Module) -> Any:
    """Shards over two processes, which other two have, too."""
    mesh = init_device_mesh(device().type, (2, 2), mesh_dim_names=("copies", "shards"))
    return thunder.distributed.fsdp(model, device_mesh=mesh, **STRATEGIES["zero3 block"])


def describe_hybrid() -> list[str]:
    """Return the collectives of a backward of hybrid sharding, in order, without those by which it gathers."""
    model = hybrid(wrappers.Layers().to(device()))
    model(wrappers.batch(0, 0, 4, 6)).sum().backward()
    pickle.loads(pickle.dumps(model))(wrappers.batch(0, 0, 4, 6)).sum().backward()
    names = [symbol.name.split(".")[1] for symbol in thunder.last_backward_traces(model)[-1].bound_symbols]
    return [name for name in names if "reduce" in name]


def clip(model: Any) -> torch.Tensor:
    return thunder.distributed.clip_grad_norm_(model, 0.5)


def shard_of(full: torch.Tensor, count: int) -> torch.Tensor:
    """Return the rows of this process, of a shard for each of `count` processes; a scalar as it is."""
    if full.dim() == 0:
        return full
    rows = -(-full.shape[0] // count)
    place = dist.get_rank() % count
    return full[place * rows : (place + 1) * rows]


def shards_of(steps: list[list[torch.Tensor]], count: int) -> list[list[torch.Tensor]]:
    return [[loss, norm, *(shard_of(each, count) for each in gradients)] for loss, norm, *gradients in steps]


def compare(rank: int, strategies: list[str], models: list[str]) -> dict[str, Any]:
    """Return for each case the largest difference from one process."""
    found: dict[str, Any] = {}
    everyone = list(range(dist.get_world_size()))
    for name in models:
        make = MODELS[name]
        for accumulates in (False, True):
            full = train(make, lambda model: model, everyone, accumulates)
            for strategy in strategies:
                wrap = hybrid if strategy == "hybrid" else wrap_in(STRATEGIES[strategy])
                got = train(make, wrap, [rank], accumulates, clip)
                expected = shards_of(full, 2 if strategy == "hybrid" else dist.get_world_size())
                found[name, strategy, accumulates] = wrappers.difference(got, expected)
    return found


def compare_in_four(rank: int) -> dict[str, Any]:
    found = compare(rank, ["zero3 block", "hybrid"], ["llama", "experts"])
    collectives = describe_hybrid()
    dist.barrier()
    return {**found, "collectives": collectives}


def compare_all(rank: int) -> dict[str, Any]:
    found: dict[str, Any] = {"models": compare(rank, list(STRATEGIES), list(MODELS)), "facts": facts(rank)}
    make, wrap = MODELS["llama"], wrap_in(STRATEGIES["zero3 block"])
    runs = [train(make, lambda model: thunder.jit(wrap(model), compile="eager"), [rank], True, clip) for _ in range(2)]
    found["again"] = wrappers.difference(*runs)
    found["clipped by PyTorch"] = wrappers.difference(train(make, wrap, [rank], True, default_clip), runs[0])
    scalar = [train(MODELS["experts"], wrap, [rank], False, each) for each in (clip, default_clip)]
    found["clipped by PyTorch, with a scalar"] = wrappers.difference(*scalar)
    low = wrap_in({**STRATEGIES["zero3 block"], "param_dtype": torch.bfloat16, "reduce_dtype": torch.float32})
    found["bfloat16"] = wrappers.difference(train(make, low, [rank], True, clip), runs[0])
    dist.barrier()
    return found


def offload(rank: int) -> dict[str, Any]:
    """Return how far training with shards on the CPU is from one process, and facts about it."""
    found: dict[str, Any] = {}
    everyone = list(range(dist.get_world_size()))
    for name, make in MODELS.items():
        for strategy in ("zero2 layer", "zero3 block"):
            wrap = wrap_in({**STRATEGIES[strategy], "cpu_offload": True})
            got = train(make, wrap, [rank], True, clip)
            expected = shards_of(train(make, lambda model: model, everyone, True), dist.get_world_size())
            found[name, strategy] = wrappers.difference(
                [[each.cpu() for each in step] for step in got], [[each.cpu() for each in step] for step in expected]
            )
    model, optimizer = begin(wrap_in({**STRATEGIES["zero3 block"], "cpu_offload": True}))
    one_step(model, optimizer, [rank], 0)
    one_step(model, optimizer, [rank], 1)
    language_loss(model, rank, 0).backward()
    tensors = [local(each) for each in model.parameters()] + [local(each.grad) for each in model.parameters()]
    tensors += [local(each) for state in optimizer.state.values() for each in state.values()]
    backward = thunder.last_backward_traces(model)[-1].bound_symbols
    is_copy = [each.name == "aten._to_copy.default" and each.results[0].device.type == "cpu" for each in backward]
    last = max(i for i, each in enumerate(backward) if SCATTER in each.name)
    found["devices"] = {each.device.type for each in tensors}
    found["pinned"] = all(local(each).is_pinned() for each in model.parameters())
    found["copied at the end"] = any(is_copy) == (device().type == "cuda") and not any(is_copy[:last])
    full = thunder.distributed.full_state_dict(model)
    other = wrap_in({"cpu_offload": True})(MODELS["llama"]().to(device()))
    thunder.distributed.load_full_state_dict(other, full)
    found["full state"] = all(
        torch.equal(tensor.cpu(), full[name].cpu())
        for name, tensor in thunder.distributed.full_state_dict(other).items()
    )
    with torch.no_grad():
        found["loss"] = (language_loss(other, rank, 0) - language_loss(model, rank, 0)).abs().item()
    found["pickled"] = pickle.loads(pickle.dumps(model)).embedding.weight.to_local().device.type
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
    gradient = local(model.one.weight.grad).tolist()
    results: dict[str, Any] = {
        "shards": [list(local(each).shape) for each in model.parameters()] == SHARDS[rank],
        "are DTensors": all(type(each.grad) is type(each) is DTensor for each in model.parameters()),
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
        results[name] = local(other.one.weight.grad).tolist() == gradient
    results.update(states(rank, model, plain, x))
    results.update(parts(model, x))
    results.update(meta(x))
    results.update(autograd(wrap_in({})(wrappers.Layers().to(device())), x))
    results.update(low_precision(x))
    results["twice"] = error_of(lambda: wrap_in({})(wrap_in({})(wrappers.Layers().to(device()))))
    results["plain module"] = error_of(lambda: thunder.distributed.full_state_dict(plain))
    results["clip of a plain module"] = error_of(lambda: thunder.distributed.clip_grad_norm_(plain, 1.0))
    results["replicated"] = error_of(lambda: replicated()(x))
    results["full ones as shards"] = error_of(lambda: model.load_state_dict(plain.state_dict()))
    results["optimizer of before"] = error_of(lambda: optimizer_of_before(x))
    results["shards as full ones"] = error_of(
        lambda: thunder.distributed.load_full_state_dict(model, model.state_dict())
    )
    return results


def optimizer_of_before(x: torch.Tensor) -> None:
    """Make an optimizer of a module, and take a step of what `fsdp` made of it."""
    before = wrappers.Layers().to(device())
    optimizer = torch.optim.AdamW(before.parameters())
    model = wrap_in({})(before)
    model(x).sum().backward()
    optimizer.step()


def prefetches(trace: Any) -> bool:
    """Whether a gather is under way while a product is computed."""
    under_way = 0
    for symbol in trace.bound_symbols:
        under_way += (GATHER in symbol.name) - ("wait_tensor" in symbol.name)
        if under_way > 0 and "addmm" in symbol.name:
            return True
    return False


def states(rank: int, model: Any, plain: nn.Module, x: torch.Tensor) -> dict[str, Any]:
    """Return facts about state dicts of shards and of full parameters."""
    full = thunder.distributed.full_state_dict(model)
    only_first = thunder.distributed.full_state_dict(model, rank=0, to_cpu=True)
    plain.load_state_dict(full)
    other = wrap_in({"broadcast_from": None})(wrappers.Layers().to(device()))
    thunder.distributed.load_full_state_dict(other, full)
    again = wrap_in({"broadcast_from": None})(wrappers.Layers().to(device()))
    again.load_state_dict(model.state_dict())
    expected = plain(x)
    with torch.no_grad():
        same = [torch.allclose(each(x), expected, atol=1e-6) for each in (model, other, again)]
    return {
        "full": all(same),
        "full shapes": all(full[name].shape == each.shape for name, each in plain.state_dict().items()),
        "first only": len(only_first) == (len(full) if rank == 0 else 0),
    }


def parts(model: Any, x: torch.Tensor) -> dict[str, Any]:
    """Return whether a submodule that is called by itself computes with full parameters, in `no_sync` as well."""
    model.zero_grad()
    model.one(x).square().sum().backward()
    expected = local(model.one.weight.grad).clone()
    model.zero_grad()
    inside = thunder.jit(model, rematerialize=False)
    with inside.no_sync():
        inside.one(x).square().sum().backward()
    return {"part": model.one(x).shape == (4, 8), "part in no_sync": local(inside.one.weight.grad).equal(expected)}


def autograd(model: Any, x: torch.Tensor) -> dict[str, Any]:
    """Return whether gradients of parameters take the ways that those of other tensors take."""
    loss = model(x).square().sum()
    gradients = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    seen: list[Any] = []
    model.one.weight.register_hook(lambda gradient: seen.append(gradient) or 2 * gradient)
    model.one.bias.register_post_accumulate_grad_hook(seen.append)
    loss.backward()
    twice = local(2 * gradients[0]).equal(local(model.one.weight.grad))
    second = error_of(lambda: torch.autograd.grad(model(x).exp().sum(), model.one.weight, create_graph=True))
    return {
        "autograd.grad": all(type(each) is DTensor for each in gradients),
        "hooks": twice and len(seen) == 2 and {type(each) for each in seen} == {DTensor},
        "second derivative": second,
    }


def low_precision(x: torch.Tensor) -> dict[str, Any]:
    """Return the dtypes of collectives, where parameters and gradients are sent in others."""
    options = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float16}
    model = wrap_in(options)(wrappers.Layers().to(device()))
    model(x).sum().backward()
    symbols = [
        *thunder.last_traces(model)[-1].bound_symbols,
        *thunder.last_backward_traces(model)[-1].bound_symbols,
    ]
    dtypes = {
        name: {str(symbol.args[0].dtype) for symbol in symbols if name in symbol.name} for name in (GATHER, SCATTER)
    }
    return {"sent in": dtypes, "kept in": {str(each.grad.dtype) for each in model.parameters()}}


def replicated() -> Any:
    """Return a module one of whose parameters was sharded in another way afterwards."""
    model = wrap_in({})(wrappers.Layers().to(device()))
    model.one.weight = nn.Parameter(model.one.weight.detach().redistribute(placements=[Replicate()]))
    return model


def one_step(model: Any, optimizer: torch.optim.Optimizer, ranks: list[int], step: int) -> float:
    """Return the mean loss of a step."""
    loss = torch.stack([language_loss(model, rank, step) for rank in ranks]).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def begin(wrap: Callable[[nn.Module], Any]) -> tuple[Any, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = wrap(MODELS["llama"]().to(device()))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)


def save(folder: str, rank: int) -> None:
    """Train a step on the same batch in all processes, and save."""
    model, optimizer = begin(wrap_in(STRATEGIES["zero3 block"]))
    one_step(model, optimizer, [0], 0)
    parts = get_state_dict(model, optimizer)
    checkpoint.save(dict(zip(("model", "optimizer"), parts, strict=True)), checkpoint_id=folder)


def resume(folder: str, rank: int, wrap: Callable[[nn.Module], Any] | None = None) -> tuple[float, float]:
    """Load, and return the losses of the next two steps; in one process, of a plain model."""
    is_alone = dist.get_world_size() == 1
    model, optimizer = begin((lambda model: model) if is_alone else wrap or wrap_in(STRATEGIES["zero2 layer"]))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    checkpoint.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return one_step(model, optimizer, [0], 1), one_step(model, optimizer, [0], 2)


def straight_on() -> tuple[float, float]:
    """Return what `resume` shall return."""
    model, optimizer = begin(lambda model: model)
    one_step(model, optimizer, [0], 0)
    return one_step(model, optimizer, [0], 1), one_step(model, optimizer, [0], 2)


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
