"""PEFT's LoRA on a compiled model: a tiny Llama with random weights, beside eager.

python examples/integrations/peft_lora.py
"""

from __future__ import annotations

import copy

import peft
import torch
import transformers

import thunder


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        max_position_embeddings=32,
    )
    adapters = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
    return peft.get_peft_model(transformers.LlamaForCausalLM(config), adapters)


def train(model: torch.nn.Module) -> list[float]:
    """Return the losses of some steps, in which the adapters alone change."""
    tokens = torch.randint(0, 64, (8, 16), generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-2)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    plain = model()
    compiled = thunder.jit(copy.deepcopy(plain))
    losses = train(plain), train(compiled)
    print("losses, eager and compiled:", losses[0][-1], losses[1][-1])
    print("calls traced:", thunder.cache_misses(compiled), "of", thunder.compile_stats(compiled).calls)
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-4)
    adapters = peft.get_peft_model_state_dict(compiled)
    assert adapters.keys() == peft.get_peft_model_state_dict(plain).keys()
    print(len(adapters), "tensors of adapters to save")
