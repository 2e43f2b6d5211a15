"""Tokens that a language model generates on a GPU with a static cache: numbers, what is written, and what runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder

pytestmark = pytest.mark.gpu
transformers = pytest.importorskip("transformers")

PLACES = 64
PROMPT = 5


def build(dtype: torch.dtype, **sizes: Any) -> tuple[torch.nn.Module, Any]:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=2,
        vocab_size=512,
        eos_token_id=None,
        **sizes,
    )
    with torch.device("cuda"):
        module = transformers.LlamaForCausalLM(config).to(dtype).eval()
    return module, transformers.StaticCache(config=config, max_cache_len=PLACES)


@torch.no_grad()
def run(module: torch.nn.Module, call: Any, cache: Any, tokens: torch.Tensor) -> torch.Tensor:
    """The logits behind each of the tokens, which follow a prompt that eager has read."""
    cache.reset()
    place = torch.arange(PROMPT, device="cuda")
    state = {"past_key_values": cache, "use_cache": True}
    module(input_ids=tokens[:, :PROMPT], cache_position=place, position_ids=place[None], **state)
    logits = []
    for i in range(PROMPT, tokens.shape[1]):
        place = torch.tensor([i], device="cuda")
        result = call(input_ids=tokens[:, i : i + 1], cache_position=place, position_ids=place[None], **state)
        logits.append(result.logits.clone())
    return torch.cat(logits, 1)


def stored(cache: Any) -> list[torch.Tensor]:
    return [tensor.clone() for layer in cache.layers for tensor in (layer.keys, layer.values)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("graphs", [True, False])
def test_logits_are_as_near_to_float64_as_eagers(dtype: torch.dtype, graphs: bool) -> None:
    module, cache = build(dtype)
    tokens = torch.randint(0, 512, (1, 30), device="cuda")
    exact_module, exact_cache = build(torch.float64)
    exact_module.load_state_dict(module.state_dict())
    exact = run(exact_module, exact_module, exact_cache, tokens)
    f = thunder.jit(module, compile="eager", cuda_graphs=graphs)
    run(module, f, cache, tokens)
    got, kept = run(module, f, cache, tokens), stored(cache)
    eager, expected = run(module, module, cache, tokens), stored(cache)
    error = (got.double() - exact).abs().max()
    assert error <= 1.5 * (eager.double() - exact).abs().max() + 1e-6
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5
    for mine, other in zip(kept, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)
        assert not mine[:, :, tokens.shape[1] :].any()


def test_kernels_write_rows_of_the_cache_and_attend_to_it() -> None:
    module, cache = build(torch.bfloat16)
    f = thunder.jit(module, compile="eager")
    run(module, f, cache, torch.zeros(1, 12, dtype=torch.long, device="cuda"))
    final = thunder.last_traces(f)[-1]
    names = [symbol.name for symbol in final.bound_symbols]
    assert "aten.index_copy_.default" not in names
    assert str(final).count('kind="attention"') == 2
    assert sum(kernel.name == "fused_grouped_attention" for kernel in thunder.last_kernels(f)) == 1


@pytest.mark.parametrize("keys", [1, 200, 3000])
@pytest.mark.parametrize("groups", [2, 8])
def test_attention_of_one_query(keys: int, groups: int) -> None:
    query = torch.randn(3, 8, 1, 64, device="cuda", dtype=torch.bfloat16)
    key, value = (torch.randn(3, groups, keys, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    mask = torch.rand(3, 1, 1, keys, device="cuda") < 0.5
    mask[0] = False
    additive = torch.where(mask, 0.0, -torch.inf).bfloat16()

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        return F.scaled_dot_product_attention(query, key, value, mask, enable_gqa=True)

    f = thunder.jit(attend, compile="eager")
    for given in (None, mask, additive):
        with torch.no_grad():
            got = f(query, key, value, given)
        wide = None if given is None else given if given.dtype == torch.bool else given.double()
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            exact = attend(query.double(), key.double(), value.double(), wide)
        torch.testing.assert_close(got.double(), exact, rtol=1e-2, atol=1e-2)
        assert 'kind="attention"' in str(thunder.last_traces(f)[-1])


def test_attention_of_one_query_with_gradients_is_pytorchs() -> None:
    inputs = [torch.randn(1, 4, n, 64, device="cuda", requires_grad=True) for n in (1, 9, 9)]
    f = thunder.jit(F.scaled_dot_product_attention, compile="eager")
    f(*inputs).sum().backward()
    assert all(x.grad is not None for x in inputs)
    assert 'kind="attention"' not in str(thunder.last_traces(f)[-1])
