"""Models trained by `thunder.distributed.tensor_parallel`, beside one process: run by test_tensor_parallel.py."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import data_parallel
import distributed_wrappers as wrappers
import fully_sharded
import torch
import torch.distributed as dist
from data_parallel import error_of
from fully_sharded import STRATEGIES
from processes import device
from small_language_models import MODELS
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from transformers import LlamaConfig, LlamaForCausalLM

import thunder

STEPS = 5
COLUMN = ["*.q_proj", "*.k_proj", "*.v_proj", "*.gate_proj", "*.up_proj", "lm_head"]
ROW = ["*.o_proj", "*.down_proj", "*.embed_tokens"]


def llama(tied: bool) -> nn.Module:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=64,
        use_cache=False,
        tie_word_embeddings=tied,
    )
    return LlamaForCausalLM(config).to(device())


class Mixed(nn.Module):
    """Layers with biases, and operations that need all features."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8, padding_idx=3)
        self.one, self.other, self.head = nn.Linear(8, 12), nn.Linear(12, 8), nn.Linear(8, 4)
        self.norm = nn.LayerNorm(12)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        y = self.one(self.embedding(input_ids)).tanh() * self.scale
        y, z = y.chunk(2, dim=1)
        return self.head(torch.relu(self.other(self.norm(y + z)) * 2))


class Residuals(nn.Module):
    """Norms and residuals between layers with biases, of sequences of `length`, and reductions along each dimension."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length
        self.embedding, self.positions = nn.Embedding(20, 8), nn.Embedding(12, 8)
        self.first_norm, self.second_norm = nn.LayerNorm(8), nn.RMSNorm(8)
        self.one, self.other, self.head = nn.Linear(8, 12), nn.Linear(12, 8), nn.Linear(8, 4)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        input_ids = input_ids.repeat(1, 2)[:, : self.length]
        x = self.embedding(input_ids) + self.positions.weight[: input_ids.shape[1]]
        x = x + self.other(torch.tanh(self.one(self.first_norm(x))))
        x = self.second_norm(x) * x.var(-1, keepdim=True) + x.amax(1, keepdim=True) - x.sum((0, 2), keepdim=True)
        return torch.tanh((self.head(x.mean(1)) + x.sum(-1).mean(0).sum()) * 0.01)


def residuals(length: int) -> nn.Module:
    torch.manual_seed(0)
    return Residuals(length).to(device())


def mixed(tied: bool) -> nn.Module:
    torch.manual_seed(0)
    return Mixed().to(device())


def loss_of(model: Any, rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    tokens = torch.randint(20, (2, 6), generator=generator).to(device())
    if hasattr(model, "lm_head"):
        return model(input_ids=tokens, labels=tokens).loss
    return model(tokens).square().mean()


def train(model: Any, ranks: list[int]) -> list[list[torch.Tensor]]:
    """Return for each step the mean loss of `ranks`, the norm of the gradients, and the clipped gradients; AdamW."""
    # Without `foreach`, which PyTorch's AdamW takes by itself on GPUs: it refuses DTensors beside other parameters.
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
    clip = thunder.distributed.clip_grad_norm_
    seen = []
    for step in range(STEPS):
        loss = torch.stack([loss_of(model, rank, step) for rank in ranks]).mean()
        loss.backward()
        is_plain = not isinstance(model, thunder.ThunderModule)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5) if is_plain else clip(model, 0.5)
        gradients = [wrappers.full(each.grad).clone() for each in model.parameters() if each.grad is not None]
        seen.append([loss.detach().clone(), norm.clone(), *gradients])
        optimizer.step()
        optimizer.zero_grad()
    return seen


def parallel(model: nn.Module, **options: Any) -> Any:
    return thunder.distributed.tensor_parallel(model, column=COLUMN, row=ROW, **options)


def parallel_mixed(model: nn.Module) -> Any:
    return thunder.distributed.tensor_parallel(model, column=["embedding", "one"], row=["other"])


def in_sequences(model: nn.Module) -> Any:
    return parallel(model, sequence_parallel=True)


def mixed_in_sequences(model: nn.Module) -> Any:
    return thunder.distributed.tensor_parallel(
        model, column=["one"], row=["other", "embedding"], sequence_parallel=True
    )


CASES: dict[str, tuple[Callable[[Any], nn.Module], Any, Callable[[nn.Module], Any]]] = {
    "llama": (llama, False, parallel),
    "tied": (llama, True, parallel),
    "mixed": (mixed, False, parallel_mixed),
    "llama in sequences": (llama, False, in_sequences),
    "tied in sequences": (llama, True, in_sequences),
    "mixed in sequences": (mixed, False, mixed_in_sequences),
    "residuals in sequences": (residuals, 8, mixed_in_sequences),
    "residuals in sequences that are odd": (residuals, 7, mixed_in_sequences),
    "residuals in sequences of one": (residuals, 1, mixed_in_sequences),
}


def compare_all(rank: int) -> dict[str, Any]:
    """Return for each case the largest difference from one process, and facts."""
    found: dict[str, Any] = {}
    for name, (make, tied, wrap) in CASES.items():
        got = train(wrap(make(tied)), [0])
        found[name] = wrappers.difference(got, train(make(tied), [0]))
    runs = [train(thunder.jit(parallel(llama(False)), compile="eager"), [0]) for _ in range(2)]
    found["again"] = wrappers.difference(*runs)
    found["facts"] = facts()
    dist.barrier()
    return found


def facts() -> dict[str, Any]:
    model = parallel(llama(False))
    loss_of(model, 0, 0).backward()
    results = facts_of_sequences()
    names = [symbol.name for symbol in thunder.last_traces(model)[-1].bound_symbols]
    plain = llama(False)
    plain.load_state_dict(thunder.distributed.full_state_dict(model))
    other = parallel(llama(False), broadcast_from=None)
    for parameter in other.parameters():
        nn.init.zeros_(parameter)
    thunder.distributed.load_full_state_dict(other, plain.state_dict())
    with torch.no_grad():
        expected, got, loaded = (loss_of(each, 0, 0).item() for each in (plain, model, other))
    layer, x, is_on_cpu = nn.Linear, torch.ones(2, 4, device=device()), device().type == "cpu"
    return {
        **results,
        "sums": sum("sum_over_processes" in name for name in names),
        "gathers": sum("gather_parts" in name for name in names),
        "part": list(model.model.layers[0].mlp.gate_proj.weight.to_local().shape),
        "full state": abs(expected - got) < 1e-5 and abs(expected - loaded) < 1e-5,
        "autocast": is_as_eager_below_autocast(),
        "losses": {name: difference_of_loss(**options) for name, options in LOSSES.items()},
        "losses of gathered": {name: gathers_for_loss(**options) for name, options in LOSSES.items()},
        "no such word": error_of(lambda: Classifier(target=9).parallel()(Classifier.words())) if is_on_cpu else "",
        "no such module": error_of(lambda: parallel(layer(4, 4, device=device()))),
        "not a layer": error_of(
            lambda: thunder.distributed.column_parallel(nn.Sequential(nn.ReLU(), layer(4, 4)).to(device()), ["0"])
        ),
        "odd": error_of(lambda: thunder.distributed.row_parallel(nn.Sequential(layer(3, 4)).to(device()), ["0"])),
        "shared": error_of(
            lambda: thunder.distributed.tensor_parallel(llama(True), column=["*.embed_tokens", "lm_head"])
        ),
        "twice": error_of(lambda: parallel(model)),
        "read otherwise": error_of(lambda: thunder.distributed.column_parallel(Transposed().to(device()), ["one"])(x)),
    }


def facts_of_sequences() -> dict[str, Any]:
    """Return facts about a Llama with parts of sequences: operations of its traces, and sizes of norms."""
    model = in_sequences(llama(False))
    loss_of(model, 0, 0).backward()
    traces = {
        "forward": thunder.last_traces(model)[0].bound_symbols,
        "backward": thunder.last_backward_traces(model)[-1].bound_symbols,
    }
    operations = ("scatter_sum", "gather_summing", "gather_parts")
    counts = {f"{which} {op}": sum(op in s.name for s in traces[which]) for which in traces for op in operations}
    norms = {s.results[0].shape for s in traces["forward"] if s.name == "aten.rsqrt.default"}
    return {**counts, "norms": norms}


class Classifier(nn.Module):
    """The loss of a layer with 8 outputs."""

    def __init__(
        self,
        target: int | None = None,
        is_probability: bool = False,
        dtype: torch.dtype = torch.int64,
        **options: Any,
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(4, 8).to(device())
        self.is_probability, self.target, self.dtype, self.options = is_probability, target, dtype, options

    @staticmethod
    def words() -> torch.Tensor:
        return torch.tensor([0, 7, 3, 4, 5, 5, 1], device=device())

    def parallel(self) -> Any:
        return thunder.distributed.column_parallel(self, ["head"])

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        logits = self.head(words[:, None] * torch.tensor([0.5, -1.0, 0.25, 2.0], device=words.device))
        target = torch.full_like(words, self.target) if self.target is not None else words.to(self.dtype)
        if self.is_probability:
            target = nn.functional.one_hot(words, 8).float()
        return nn.functional.cross_entropy(logits, target, **self.options)


LOSSES: dict[str, dict[str, Any]] = {
    "mean": {},
    "sum": {"reduction": "sum"},
    "each": {"reduction": "none"},
    "ignored": {"ignore_index": 5},
    "an ignored word": {"ignore_index": 7, "reduction": "none"},
    "all ignored": {"target": -100},
    "smooth": {"label_smoothing": 0.1, "ignore_index": 4},
    "probabilities": {"is_probability": True},
    "bytes": {"dtype": torch.uint8},
}


def difference_of_loss(**options: Any) -> float:
    """Return the largest difference of loss and gradient from one process, over the largest number."""
    results = []
    for wrap in (lambda module: module, Classifier.parallel):
        model = wrap(Classifier(**options))
        loss = model(Classifier.words())
        (loss * torch.arange(1.0, loss.numel() + 1, device=loss.device).view_as(loss)).sum().backward()
        results.append([loss.detach(), *(wrappers.full(each.grad) for each in model.parameters())])
    largest = 0.0
    for expected, got in zip(*results, strict=True):
        if not torch.equal(got.isnan(), expected.isnan()):
            return float("inf")
        difference = (got - expected).nan_to_num().abs().max() / (1 + expected.nan_to_num().abs().max())
        largest = max(largest, difference.item())
    return largest


def gathers_for_loss(**options: Any) -> bool:
    """Return whether logits of all words are gathered."""
    model = Classifier(**options).parallel()
    model(Classifier.words())
    gathers = [s for s in thunder.last_traces(model)[0].bound_symbols if s.name.startswith("thunder.gather_parts")]
    return any(symbol.results[0].shape[-1] == 8 for symbol in gathers)


def is_as_eager_below_autocast() -> bool:
    tokens = torch.arange(12, device=device()).view(2, 6)
    with torch.autocast(device().type, torch.bfloat16):
        expected, got = mixed(False)(tokens), parallel_mixed(mixed(False))(tokens)
    return got.dtype == expected.dtype and torch.allclose(got, expected, atol=2e-2)


class Transposed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.one.weight


# Layers of small_language_models.py that are split.
SPLIT: dict[str, dict[str, Any]] = {
    "llama": {
        "column": ["*.qkv", "*.gate", "*.up"],
        "row": ["*.out", "*.down"],
        "sequence_parallel": True,
    },
    "tied": {"column": ["embedding", "positions"], "row": ["head"]},
    "experts": {"column": ["embedding"], "row": ["head"]},
}


def compare_in_four(folder: str, rank: int) -> dict[str, Any]:
    """Two processes for the features, two for the batch. `folder`: for a checkpoint."""
    mesh = init_device_mesh(device().type, (2, 2), mesh_dim_names=("data", "features"))
    features, data = mesh["features"].get_group(), mesh["data"].get_group()
    expected = train(llama(True), [0, 1])
    model = thunder.distributed.ddp(parallel(llama(True), process_group=features), process_group=data)
    got = train(model, [mesh["data"].get_local_rank()])
    for step in got:
        dist.all_reduce(step[0], group=data)
        step[0] /= 2
    alone = train(parallel(llama(False)), [0])
    found = {"with ddp": wrappers.difference(got, expected)}
    found["with ddp, first step"] = wrappers.difference(got[:1], expected[:1])
    found["four"] = wrappers.difference(alone, train(llama(False), [0]))
    found.update(compare_sharded(mesh))
    found["facts"] = facts_of_sharded(mesh)
    save(folder, mesh)
    found["resumed"] = fully_sharded.resume(folder, rank, lambda model: sharded(mesh, model, SPLIT["llama"]))
    dist.barrier()
    return found


def sharded(mesh: Any, model: nn.Module, split: dict[str, Any], **options: Any) -> Any:
    model = thunder.distributed.tensor_parallel(model, **split, process_group=mesh["features"].get_group())
    return thunder.distributed.fsdp(model, process_group=mesh["data"].get_group(), **options)


def compare_sharded(mesh: Any) -> dict[str, Any]:
    """Return for each case of `fsdp` around `tensor_parallel` the largest difference from one process."""
    found: dict[str, Any] = {}
    for (name, split), strategy in zip(SPLIT.items(), ["zero3 block", "zero2 layer", "zero3"], strict=True):
        make = MODELS[name]

        def wrap(model: nn.Module) -> Any:
            return thunder.jit(sharded(mesh, model, split, **STRATEGIES[strategy]), compile="eager")  # noqa: B023

        arguments: tuple[Any, ...] = (True, clip, wrappers.full)
        runs = [data_parallel.train(make, wrap, [mesh["data"].get_local_rank()], *arguments) for _ in range(2)]
        expected = data_parallel.train(make, lambda model: model, [0, 1], True, None, wrappers.full)
        found[f"with fsdp: {name}"] = wrappers.difference(runs[0], expected)
        found[f"with fsdp, again: {name}"] = wrappers.difference(*runs)
    return found


def clip(model: Any) -> torch.Tensor:
    return thunder.distributed.clip_grad_norm_(model, 0.5)


def facts_of_sharded(mesh: Any) -> dict[str, Any]:
    """Return facts about what `fsdp` makes of what `tensor_parallel` made."""
    split: dict[str, Any] = {"column": COLUMN, "row": ROW}
    model = sharded(mesh, llama(True), split, **STRATEGIES["zero3 block"])
    loss = loss_of(model, 0, 0)
    loss.backward()
    gradient = wrappers.full(model.lm_head.weight.grad)
    plain = llama(True)
    plain.load_state_dict(thunder.distributed.full_state_dict(model))
    loss_of(plain, 0, 0).backward()
    other = sharded(mesh, llama(True), split)
    for parameter in other.parameters():
        nn.init.zeros_(parameter)
    thunder.distributed.load_full_state_dict(other, plain.state_dict())
    results = {
        "gradients": (gradient - plain.lm_head.weight.grad).abs().max().item() < 1e-5,
        "full state": all(
            torch.equal(full, plain.state_dict()[name])
            for name, full in thunder.distributed.full_state_dict(other).items()
        ),
        "tied": other.lm_head.weight is other.model.embed_tokens.weight,
        "shards": [list(each.to_local().shape) for each in (model.lm_head.weight, model.model.norm.weight)],
        "names": model.lm_head.weight.device_mesh.mesh_dim_names,
        "placements": str(model.model.layers[0].mlp.down_proj.weight.placements),
    }
    for name, copied in {"copied": copy.deepcopy(model), "pickled": pickle.loads(pickle.dumps(model))}.items():
        copied.zero_grad()
        loss_of(copied, 0, 0).backward()
        results[name] = wrappers.full(copied.lm_head.weight.grad).equal(gradient)
    alike = thunder.distributed.tensor_parallel(llama(True), **split, process_group=mesh["features"].get_group())
    results["other group"] = error_of(lambda: thunder.distributed.fsdp(alike))
    results["two dimensions"] = error_of(lambda: thunder.distributed.fsdp(alike, device_mesh=mesh))
    return results


def save(folder: str, mesh: Any) -> None:
    """Train a step, and save."""
    model, optimizer = fully_sharded.begin(lambda model: sharded(mesh, model, SPLIT["llama"]))
    fully_sharded.one_step(model, optimizer, [0], 0)
    parts = get_state_dict(model, optimizer)
    checkpoint.save(dict(zip(("model", "optimizer"), parts, strict=True)), checkpoint_id=folder)
