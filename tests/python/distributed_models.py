"""Models of transformers trained by each strategy, beside one process: run by test_distributed_models.py."""

from __future__ import annotations

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
