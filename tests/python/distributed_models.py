"""Models of transformers trained by each strategy, beside one process: run by test_distributed_models.py."""

from __future__ import annotations

import copy
import importlib.util
import operator
import os
import socket
import tempfile
from collections.abc import Callable
from typing import Any

import distributed_wrappers as wrappers
import torch
import torch.distributed as dist
import transformers
from fully_sharded import STRATEGIES
from processes import device
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import thunder

STEPS = 5
VOCABULARY = 40


def gpt2() -> nn.Module:
    """Embedding and head share a weight."""
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=16,
        n_embd=16,
        n_layer=2,
        n_head=4,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        resid_pdrop=0.0,
        use_cache=False,
    )
    return transformers.GPT2LMHeadModel(config)


def llama() -> nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config)


def mixtral() -> nn.Module:
    """Which experts compute depends on data, and on the process."""
    config = transformers.MixtralConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        use_cache=False,
    )
    return transformers.MixtralForCausalLM(config)


def t5() -> nn.Module:
    """Encoder and decoder, with an embedding and position biases that layers share."""
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=16,
        d_kv=4,
        d_ff=24,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
        use_cache=False,
    )
    return transformers.T5ForConditionalGeneration(config)


def resnet() -> nn.Module:
    """Batch norms, whose buffers each process has."""
    config = transformers.ResNetConfig(
        num_channels=3, embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic", num_labels=5
    )
    return transformers.ResNetForImageClassification(config)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "gpt2": gpt2,
    "llama": llama,
    "mixtral": mixtral,
    "t5": t5,
    "resnet": resnet,
}
# Layers that tensor_parallel splits.
SPLIT: dict[str, dict[str, Any]] = {
    "gpt2": {"row": ["*.wte"], "column": ["*.wpe", "lm_head"]},
    "llama": {
        "column": ["*.q_proj", "*.k_proj", "*.v_proj", "*.gate_proj", "*.up_proj", "lm_head"],
        "row": ["*.o_proj", "*.down_proj", "*.embed_tokens"],
        "sequence_parallel": True,
    },
    "mixtral": {"column": ["*.q_proj", "*.k_proj", "*.v_proj", "lm_head"], "row": ["*.o_proj", "*.embed_tokens"]},
    "t5": {"column": ["*.q", "*.k", "*.v", "*.wi"], "row": ["*.o", "*.wo"]},
    "resnet": {"row": ["classifier.1"]},
}


def loss_of(model: Any, rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    if model.config.model_type == "resnet":
        images = torch.randn(4, 3, 16, 16, generator=generator).to(device())
        loss: torch.Tensor = model(pixel_values=images, labels=torch.arange(4, device=device())).loss
        return loss
    tokens = torch.randint(1, VOCABULARY, (2, 8), generator=generator).to(device())
    loss = model(input_ids=tokens, labels=tokens).loss
    return loss


def train(
    make: Callable[[], nn.Module], wrap: Callable[[nn.Module], Any], ranks: list[int], steps: int = STEPS
) -> list[list[torch.Tensor]]:
    """Return for each step the mean loss of `ranks`, the norm of the gradients and the clipped gradients.

    Steps accumulate two batches, the first one in `no_sync`, and are taken by AdamW.
    """
    torch.manual_seed(0)
    model = wrap(make().to(device()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-4, foreach=False)
    is_plain = not isinstance(model, thunder.ThunderModule)
    seen = []
    for step in range(steps):
        for part in range(2):
            context = model.no_sync() if part == 0 and hasattr(model, "no_sync") else torch.enable_grad()
            with context:
                loss = torch.stack([loss_of(model, rank, 2 * step + part) for rank in ranks]).mean()
                loss.backward()
        if is_plain:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        else:
            norm = thunder.distributed.clip_grad_norm_(model, 0.5)
        gradients = [None if each.grad is None else wrappers.full(each.grad).clone() for each in model.parameters()]
        seen.append([loss.detach().clone(), norm.detach().clone(), *gradients])
        optimizer.step()
        optimizer.zero_grad()
    return seen


def strategies() -> dict[str, tuple[Callable[[str], Callable[[nn.Module], Any]], list[int], list[int]]]:
    """Return for each strategy how it wraps a model, the batches of this process, and those of all."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if size == 4:
        mesh = init_device_mesh(device().type, (2, 2), mesh_dim_names=("data", "features"))

        def both(name: str) -> Callable[[nn.Module], Any]:
            group, data = mesh["features"].get_group(), mesh["data"].get_group()
            return lambda model: thunder.distributed.fsdp(
                thunder.distributed.tensor_parallel(model, **SPLIT[name], process_group=group),
                process_group=data,
                **STRATEGIES["zero3 block"],
            )

        return {"2-d": (both, [mesh["data"].get_local_rank()], [0, 1])}
    everyone = list(range(size))
    unused = {"mixtral"}

    def data_parallel(name: str) -> Callable[[nn.Module], Any]:
        return lambda model: thunder.distributed.ddp(model, find_unused_parameters=name in unused)

    def sharded(strategy: str) -> Callable[[str], Callable[[nn.Module], Any]]:
        return lambda name: lambda model: thunder.distributed.fsdp(model, **STRATEGIES[strategy])

    def parts(name: str) -> Callable[[nn.Module], Any]:
        return lambda model: thunder.distributed.tensor_parallel(model, **SPLIT[name])

    return {
        "ddp": (data_parallel, [rank], everyone),
        "zero2": (sharded("zero2 layer"), [rank], everyone),
        "zero3": (sharded("zero3 block"), [rank], everyone),
        "tp": (parts, [0], [0]),
    }


def sharded_by(strategy: str, **options: Any) -> Callable[[nn.Module], Any]:
    return lambda model: thunder.distributed.fsdp(model, **STRATEGIES[strategy], **options)


def compare_litgpt() -> dict[str, float]:
    """Return how far the losses of LitGPT's loop are from those of one process, by each strategy."""
    litgpt, utils = importlib.import_module("litgpt"), importlib.import_module("litgpt.utils")
    sizes = {"n_layer": 2, "n_embd": 32, "n_head": 4, "intermediate_size": 64, "block_size": 32}
    config = litgpt.Config.from_name("pythia-14m", padded_vocab_size=64, **sizes)
    torch.manual_seed(0)
    original = litgpt.GPT(config).to(device())
    tokens = torch.randint(0, 64, (4, 17), generator=torch.Generator().manual_seed(1)).to(device())

    def losses(model: Any) -> list[float]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
        found = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = utils.chunked_cross_entropy(model(tokens[:, :-1]), tokens[:, 1:], chunk_size=0)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    split = {"column": ["*.attn.qkv", "*.mlp.fc", "lm_head"], "row": ["*.attn.proj", "*.mlp.proj", "*.wte"]}
    wraps: dict[str, Callable[[nn.Module], Any]] = {
        "ddp": thunder.distributed.ddp,
        "zero2": sharded_by("zero2 layer"),
        "zero3": sharded_by("zero3 block"),
        "tp": lambda model: thunder.distributed.tensor_parallel(model, **split),
    }
    expected = losses(copy.deepcopy(original))
    got = {name: losses(wrap(copy.deepcopy(original))) for name, wrap in wraps.items()}
    return {f"{name} litgpt": max(map(abs, map(operator.sub, got[name], expected))) for name in wraps}


def compare_trainer(rank: int) -> dict[str, float]:
    """Return how far the losses of Trainer are from those with DistributedDataParallel, by each strategy."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    os.environ["OMP_NUM_THREADS"] = "1"  # as torchrun sets it; Accelerate starts more threads otherwise
    generator = torch.Generator().manual_seed(1)
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, VOCABULARY, (16, 8), generator=generator)]

    def loss(wrap: Callable[[nn.Module], Any]) -> float:
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder:
            arguments = transformers.TrainingArguments(
                folder,
                per_device_train_batch_size=2,
                gradient_accumulation_steps=2,
                max_grad_norm=0.5,
                num_train_epochs=2,
                learning_rate=1e-2,
                report_to=[],
                disable_tqdm=True,
                use_cpu=True,
                logging_strategy="no",
                save_strategy="no",
            )
            trainer = transformers.Trainer(wrap(llama()), arguments, train_dataset=rows)
            return float(trainer.train().training_loss)

    expected = loss(lambda model: model)
    wraps = {
        "ddp": thunder.distributed.ddp,
        "zero2": sharded_by("zero2 layer"),
        "zero3": sharded_by("zero3 block"),
    }
    return {f"{name} trainer": abs(loss(wrap) - expected) for name, wrap in wraps.items()}


def compare_all(rank: int) -> dict[str, float]:
    """Return for each strategy and model the largest difference from one process."""
    found = {}
    known: dict[tuple[str, int], list[list[torch.Tensor]]] = {}
    for strategy, (wrap, own, everyone) in strategies().items():
        for name, make in MODELS.items():
            if (name, len(everyone)) not in known:
                known[name, len(everyone)] = train(make, lambda model: model, everyone)
            got = train(make, wrap(name), own)
            for step in got:
                dist.all_reduce(step[0])
                step[0] /= dist.get_world_size()
            found[f"{strategy} {name}"] = wrappers.difference(got, known[name, len(everyone)])
    dist.barrier()
    return found


def compare_loops(rank: int) -> dict[str, float]:
    """Return for each strategy how far the losses of others' training loops are; Trainer's on the CPU alone."""
    found = compare_litgpt() if importlib.util.find_spec("litgpt") else {}
    found.update(compare_trainer(rank) if device().type == "cpu" else {})
    dist.barrier()
    return found
