"""Programs without gradients that run as CUDA graphs, beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder

pytestmark = pytest.mark.gpu

CALLS = 8


def numbers(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, device="cuda")


def graph_of(compiled: Any) -> str:
    return thunder.compile_stats(compiled)["cuda_graph"]


def jitted(function: Any, **options: Any) -> Any:
    return thunder.jit(function, compile="eager", **options)


@torch.no_grad()
def assert_recorded(function: Callable[..., Any], make_inputs: Callable[[], tuple[Any, ...]], **options: Any) -> Any:
    compiled = jitted(function, **options)
    kept = []
    for _ in range(CALLS):
        inputs = make_inputs()
        kept.append((compiled(*inputs), function(*inputs)))
    assert graph_of(compiled) == "recorded"
    for got, expected in kept:  # later calls have not changed earlier results
        torch.testing.assert_close(got, expected)
    return compiled


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)).cuda()


def test_results_of_new_inputs_are_those_of_eager():
    assert_recorded(mlp(), lambda: (numbers(8, 32),))


def test_inputs_at_one_place_are_read_there():
    x = numbers(8, 32)

    def changed() -> tuple[torch.Tensor]:
        x.add_(1)
        return (x,)

    assert_recorded(mlp(), changed)


def test_parameters_that_are_updated_are_read_anew():
    model = mlp()

    def updated() -> tuple[torch.Tensor]:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.9)
        return (numbers(8, 32),)

    assert_recorded(model, updated)


def test_a_parameter_that_is_replaced_is_read_where_it_lies_now():
    model, x = mlp(), numbers(8, 32)
    compiled = assert_recorded(model, lambda: (x,))
    with torch.no_grad():
        model[0].weight.data = numbers(64, 32)
        for _ in range(CALLS):
            torch.testing.assert_close(compiled(x), model(x))
    assert graph_of(compiled) == "recorded"


@torch.no_grad()
def test_what_is_written_to_is_written_to_once_a_call():
    cache, expected = torch.zeros(4, 8, device="cuda"), torch.zeros(4, 8, device="cuda")

    def step(cache: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        cache.add_(x)
        return cache.sum(0)

    compiled = jitted(step)
    for _ in range(CALLS):
        x = numbers(4, 8)
        before, expected_before = cache._version, expected._version
        torch.testing.assert_close(compiled(cache, x), step(expected, x))
        torch.testing.assert_close(cache, expected)
        assert cache._version - before == expected._version - expected_before
    assert graph_of(compiled) == "recorded"
    other = torch.zeros(4, 8, device="cuda")  # another cache, as another text has it
    for _ in range(CALLS):
        compiled(other, torch.ones(4, 8, device="cuda"))
    assert torch.equal(other, torch.full((4, 8), float(CALLS), device="cuda"))
    torch.testing.assert_close(cache, expected)


@torch.no_grad()
def test_an_input_that_is_returned_is_that_of_the_call():
    compiled = jitted(lambda x: (x, x * 2))
    for _ in range(CALLS):
        x = numbers(4)
        assert compiled(x)[0] is x


@torch.no_grad()
def test_inputs_that_share_memory_are_no_copies():
    base = numbers(4, 4)

    def program(whole: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        whole.mul_(2)
        return row + 1

    expected = base.clone()
    compiled = jitted(program)
    for i in range(CALLS):
        row = i % 4
        torch.testing.assert_close(compiled(base, base[row]), program(expected, expected[row]))
        torch.testing.assert_close(base, expected)


@torch.no_grad()
def test_settings_of_kernels_are_those_of_the_call():
    x, y = numbers(256, 256), numbers(256, 256)
    compiled = jitted(lambda x, y: (x @ y).relu())
    for _ in range(CALLS):
        compiled(x, y)
    assert graph_of(compiled) == "recorded"
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        torch.backends.cuda.matmul.allow_tf32 = not before
        assert torch.equal(compiled(x, y), (x @ y).relu())
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert torch.equal(compiled(x, y), (x @ y).relu())


@torch.no_grad()
def test_another_stream_runs_kernel_by_kernel():
    model, x = mlp(), numbers(8, 32)
    compiled = assert_recorded(model, lambda: (x,))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        result = compiled(x)
    stream.synchronize()
    torch.testing.assert_close(result, model(x))


@torch.no_grad()
def test_a_recording_of_the_user_takes_the_kernels():
    model, x = mlp(), numbers(8, 32)
    compiled = assert_recorded(model, lambda: (x,))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compiled(x)
    x.copy_(numbers(8, 32))
    graph.replay()
    torch.testing.assert_close(result, model(x))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_without_gradients(mode: Any):
    model, x = mlp(), numbers(8, 32)
    compiled = jitted(model)
    with mode():
        for _ in range(CALLS):
            result = compiled(x)
            assert result.is_inference() == torch.is_inference_mode_enabled()
            torch.testing.assert_close(result, model(x))
    assert graph_of(compiled) == "recorded"
    assert compiled(x).requires_grad


@torch.no_grad()
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (lambda x: torch.rand_like(x) + x, "random"),
        (lambda x: x.nonzero() * 2, "looks at data"),
        (lambda x: x.cpu() + 1, "not on a GPU"),
        (lambda x: x * x.sum().item(), "looks at data"),
    ],
)
def test_what_cannot_be_recorded_says_why(program: Callable[..., Any], reason: str):
    compiled = jitted(program)
    x = numbers(4, 4)
    for _ in range(CALLS):
        compiled(x)
    assert reason in graph_of(compiled)


def test_generators_draw_on_after_a_recording_that_failed():
    from thunder import _cuda_graphs

    torch.manual_seed(7)
    expected = [torch.rand(3, device="cuda") for _ in range(2)]
    torch.manual_seed(7)
    assert torch.equal(torch.rand(3, device="cuda"), expected[0])
    x = torch.ones(4, device="cuda")
    graph = _cuda_graphs.Graph(0)
    graph.begin()
    with pytest.raises(RuntimeError):  # waits for the device
        x.nonzero()
    with pytest.raises(RuntimeError):
        graph.end()
    assert torch.equal(torch.rand(3, device="cuda"), expected[1])


@torch.no_grad()
def test_options_choose():
    x = numbers(1024, 4096)
    compiled = jitted(lambda x: x * 2 + 1)
    forced = jitted(lambda x: x * 2 + 1, cuda_graphs=True)
    none = jitted(lambda x: x * 2 + 1, cuda_graphs=False)
    for _ in range(CALLS):
        x = numbers(1024, 4096)
        expected = x * 2 + 1
        assert all(torch.equal(function(x), expected) for function in (compiled, forced, none))
    assert "16 MiB" in graph_of(compiled)
    assert graph_of(forced) == "recorded"
    assert graph_of(none) == "cuda_graphs=False"


def test_caches_of_keys_and_values_stay_in_place():
    transformers = pytest.importorskip("transformers")
    configuration = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=128,
    )
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(configuration).eval()

    def generated(call: Any) -> list[torch.Tensor]:
        cache = transformers.StaticCache(config=configuration, max_cache_len=32)
        token, position, logits = torch.zeros(1, 1, dtype=torch.long, device="cuda"), torch.tensor([0]).cuda(), []
        with torch.no_grad():
            for _ in range(20):
                out = call(
                    input_ids=token,
                    cache_position=position,
                    position_ids=position[None],
                    past_key_values=cache,
                    use_cache=True,
                )
                logits.append(out.logits)
                token, position = out.logits[:, -1:].argmax(-1), position + 1
        return logits

    compiled = jitted(model)
    for _ in range(2):
        torch.testing.assert_close(generated(compiled), generated(model))
    assert graph_of(compiled) == "recorded"
