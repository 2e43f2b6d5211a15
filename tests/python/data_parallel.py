"""Models trained by `thunder.distributed.ddp`, beside others: run in processes by test_data_parallel.py."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import distributed_wrappers as wrappers
import torch
import torch.distributed as dist
from processes import device
from small_language_models import MODELS, language_loss
from torch import nn

import thunder

STEPS = 5
PROCESSES = 2
SMALL = {"bucket_cap_mb": 0.0001}


def ddp(model: nn.Module, **options: Any) -> Any:
    return thunder.distributed.ddp(model, **options)


def jit_of_ddp(model: nn.Module) -> Any:
    """Compile before the first call: kernels that come later have other last bits than the operations before them."""
    options: dict[str, Any] = {"rematerialize": False, "compile": "eager"}
    return thunder.jit(thunder.distributed.ddp(model, bucket_size_in_mb=0.01), **options)


def ddp_of_jit(model: nn.Module) -> Any:
    return thunder.distributed.ddp(thunder.jit(model, rematerialize=False), bucket_size_in_mb=0.01)


class BranchesByData(nn.Module):
    """Each process looks at its own data, and uses other parameters in other steps."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.low = nn.Linear(6, 6, dtype=torch.bfloat16)
        self.never = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.one(x)
        if y.sum() > 0:
            y = self.other(y) + self.low(x.bfloat16()).float()
        if y[0, 0] > 0:
            y = y * 2
        return self.head(torch.relu(y))


def uneven_loss(model: Any, rank: int, step: int) -> torch.Tensor:
    """Return a loss of a batch whose size differs between processes."""
    return model(wrappers.batch(rank, step, 4 + rank * (step % 3), 6)).square().mean()


def uneven_branch_loss(model: Any, rank: int, step: int) -> torch.Tensor:
    return model(wrappers.batch(rank, step, 4 + rank * (step % 3), 6), (rank + step) % 3 > 0).square().mean()


UNUSED = {"find_unused_parameters": True}
# As `DATA_PARALLEL` of distributed_wrappers.py.
BRANCHES: dict[str, tuple[type[nn.Module], Any, dict[str, Any], bool]] = {
    "unused parameters accumulated": (wrappers.Branches, wrappers.branch_loss, UNUSED, True),
    "unused parameters in small buckets": (wrappers.Branches, wrappers.branch_loss, {**UNUSED, **SMALL}, False),
    "branches by data": (BranchesByData, wrappers.layers_loss, {**UNUSED, **SMALL}, False),
    "branches by data accumulated": (BranchesByData, wrappers.layers_loss, UNUSED, True),
    "batches of other sizes": (wrappers.Layers, uneven_loss, {}, False),
    "branches and batches of other sizes": (wrappers.Branches, uneven_branch_loss, UNUSED, False),
}


def ddp_as(options: dict[str, Any]) -> Callable[[nn.Module], Any]:
    """Return `ddp` with those options of DistributedDataParallel that it has."""
    own = {"find_unused_parameters": options.get("find_unused_parameters", False)}
    if "bucket_cap_mb" in options:
        own["bucket_size_in_mb"] = options["bucket_cap_mb"]
    return lambda model: ddp(model, **own)


def train(
    make: Callable[[], nn.Module],
    wrap: Callable[[nn.Module], Any],
    ranks: list[int],
    accumulates: bool = False,
    clip: Callable[[Any], Any] | None = None,
    seen_of: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> list[list[torch.Tensor]]:
    """Return for each step the mean loss of `ranks`, and what `seen_of` gives of clipped gradients; AdamW.

    `seen_of`: by default what this process has.
    """
    torch.manual_seed(0)
    model = wrap(make().to(device()))
    # Without `foreach`, which PyTorch's AdamW takes by itself on GPUs: it refuses DTensors beside other parameters.
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
    seen = []
    for step in range(STEPS):
        for part in range(2 if accumulates else 1):
            hidden = accumulates and part == 0 and hasattr(model, "no_sync")
            with model.no_sync() if hidden else warnings.catch_warnings():
                losses = [language_loss(model, rank, 2 * step + part) for rank in ranks]
                loss = torch.stack(losses).mean()
                loss.backward()
        norm = (clip or default_clip)(model)
        gradients = [(seen_of or local)(each.grad).clone() for each in model.parameters() if each.grad is not None]
        seen.append([mean_of(loss.detach().clone(), ranks), wrappers.full(norm).detach().clone(), *gradients])
        optimizer.step()
        optimizer.zero_grad()
    return seen


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return what this process has of a DTensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def default_clip(model: Any) -> torch.Tensor:
    return nn.utils.clip_grad_norm_(model.parameters(), 0.5)


def mean_of(loss: torch.Tensor, ranks: list[int]) -> torch.Tensor:
    if len(ranks) == 1:
        dist.all_reduce(loss)
        loss /= dist.get_world_size()
    return loss


def compare_all(rank: int) -> dict[str, Any]:
    """Return for each case the largest difference from what it stands beside."""
    found: dict[str, Any] = {}
    everyone = list(range(dist.get_world_size()))
    for name, make in MODELS.items():
        for accumulates in (False, True):
            case = f"{name}{' accumulated' if accumulates else ''}"
            expected = train(make, lambda model: model, everyone, accumulates)
            got = train(make, jit_of_ddp, [rank], accumulates)
            found[case] = wrappers.difference(got, expected)
            if accumulates:
                found[f"{name} again"] = wrappers.difference(got, train(make, jit_of_ddp, [rank], accumulates))
    make = MODELS["tied"]
    found["ddp of jit"] = wrappers.difference(
        train(make, ddp_of_jit, [rank]), train(make, lambda model: model, everyone)
    )
    for name, (make, loss, options, accumulates) in {**wrappers.DATA_PARALLEL, **BRANCHES}.items():
        expected = wrappers.train(make, wrappers.data_parallel("eager", **options), loss, rank, accumulates)
        got = wrappers.train(make, ddp_as(options), loss, rank, accumulates)
        found[f"beside DistributedDataParallel: {name}"] = wrappers.difference(got, expected)
    expected = wrappers.train(wrappers.Layers, wrappers.data_parallel("eager"), wrappers.layers_loss, rank)
    low = wrappers.train(
        wrappers.Layers, lambda model: ddp(model, communication_dtype=torch.bfloat16), wrappers.layers_loss, rank
    )
    found["bfloat16"] = wrappers.difference(low, expected)
    found["facts"] = facts(rank)
    dist.barrier()
    return found


def facts(rank: int) -> dict[str, Any]:
    """Return facts about a module that `ddp` made, each under a name."""
    torch.manual_seed(rank)
    original = wrappers.Layers().to(device())
    model = ddp(original, bucket_size_in_mb=0.0002)
    x = wrappers.batch(rank, 0, 4, 6)
    model(x).square().sum().backward()
    backward = thunder.last_backward_traces(model)[-1]
    operations = [symbol.name for symbol in backward.bound_symbols]
    last_start = max(i for i, name in enumerate(operations) if "all_reduce" in name)
    results: dict[str, Any] = {
        "weights": original.one.weight.tolist(),
        "gradient": model.one.weight.grad.tolist(),
        "starts": sum("all_reduce_" in name for name in operations),
        "waits come last": all("wait_tensor" not in name for name in operations[:last_start]),
        "overlaps": any("mm" in name for name in operations[operations.index(START) : last_start]),
        "views": model.one.weight.grad._base is None and model.one.weight.grad.untyped_storage().nbytes() > 192,
        "original": original(x).equal(model(x)),
    }
    again = thunder.jit(model, rematerialize=False)
    model.zero_grad()
    again(x).square().sum().backward()
    results["jitted again"] = model.one.weight.grad.tolist() == results["gradient"]
    for name, copied in {"copied": copy.deepcopy(model), "pickled": pickle.loads(pickle.dumps(model))}.items():
        copied.zero_grad()
        copied(x).square().sum().backward()
        results[name] = copied.one.weight.grad.tolist() == results["gradient"]
    results["unused"] = unused(rank)
    results["in a context"] = context(rank)
    results["inside of another program"] = is_averaged(rank, lambda model: thunder.jit(lambda x: model(x)))
    results["by forward"] = is_averaged(rank, lambda model: model.forward)
    results["outside of a program"] = error_of(lambda: torch.func.vmap(ddp(wrappers.Layers().to(device())))(x[None]))
    results["twice"] = error_of(lambda: ddp(ddp(wrappers.Layers().to(device()))))
    results["written"] = error_of(lambda: ddp(Written().to(device()), broadcast_from=None)(x))
    results["shapes"] = error_of(lambda: ddp(nn.Linear(2, 2 + rank, device=device())))
    return results


START = "_c10d_functional.all_reduce_.default"


class Written(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.weight.mul_(2)
        return x * self.weight


def unused(rank: int) -> bool:
    """Whether a branch that nobody takes has no gradient."""
    model = ddp(wrappers.Branches().to(device()))
    model(wrappers.batch(rank, 0, 4, 6), True).sum().backward()
    return model.other.weight.grad is None and model.one.weight.grad is not None


def context(rank: int) -> bool:
    """Whether `thunder.distributed.no_sync` leaves gradients that differ between processes."""
    model = ddp(wrappers.Layers().to(device()))
    with thunder.distributed.no_sync(model):
        model(wrappers.batch(rank, 0, 4, 6)).sum().backward()
    sent = [torch.zeros_like(model.one.weight.grad) for _ in range(dist.get_world_size())]
    dist.all_gather(sent, model.one.weight.grad)
    return not sent[0].equal(sent[1])


def is_averaged(rank: int, caller: Callable[[Any], Callable[..., Any]]) -> bool:
    """Whether gradients are the same in all processes where a module is called in another way."""
    model = ddp(wrappers.Layers().to(device()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        caller(model)(wrappers.batch(rank, 0, 4, 6)).square().sum().backward()
    sent = [torch.zeros_like(model.one.weight.grad) for _ in range(dist.get_world_size())]
    dist.all_gather(sent, model.one.weight.grad)
    return sent[0].equal(sent[1])


def error_of(call: Callable[[], Any]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except (KeyError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
    return ""
