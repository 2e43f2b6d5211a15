"""Programs that run as CUDA graphs, beside eager."""

from __future__ import annotations

import functools
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
    return thunder.jit(function, compile="eager", **{"cuda_graphs": True, **options})


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


def test_inputs_that_are_turned_have_other_sizes_after_each_call():
    def turn(x: torch.Tensor) -> torch.Tensor:
        x.t_()
        return x + 1

    compiled = jitted(turn)
    for _ in range(CALLS):
        x = numbers(2, 3)
        expected = x.t() + 1
        torch.testing.assert_close(compiled(x), expected)
        assert x.shape == (3, 2)
    assert "changes what a tensor is" in graph_of(compiled)


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
    graph = _cuda_graphs.Graph(0, None)
    graph.begin()
    with pytest.raises(RuntimeError):  # waits for the device
        x.nonzero()
    with pytest.raises(RuntimeError):
        graph.end()
    assert torch.equal(torch.rand(3, device="cuda"), expected[1])


@torch.no_grad()
def test_options_choose():
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * 2 + 1).cumsum(0)

    compiled, forced, none = (jitted(function, cuda_graphs=choice) for choice in (None, True, False))
    for _ in range(CALLS):
        x = numbers(1024, 4096)
        expected = function(x)
        assert all(torch.equal(each(x), expected) for each in (compiled, forced, none))
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


# --- with gradients


def run_step(call: Any, module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Return result and gradients of one step."""
    module.zero_grad()
    result = call(x)
    result.square().sum().backward()
    return [result.detach(), *(parameter.grad for parameter in module.parameters())]


def recorded_training() -> tuple[nn.Module, Any]:
    module = mlp()
    compiled = jitted(module)
    for _ in range(CALLS):
        run_step(compiled, module, numbers(8, 32))
    assert graph_of(compiled) == "recorded"
    return module, compiled


def assert_alike(got: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_steps_are_those_of_eager():
    module, reference = mlp(), mlp()
    reference.load_state_dict(module.state_dict())
    compiled = jitted(module)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.01) for each in (module, reference)]
    for _ in range(3 * CALLS):
        x = numbers(8, 32)
        assert_alike(run_step(compiled, module, x), run_step(reference, reference, x))
        for optimizer in optimizers:
            optimizer.step()
    assert graph_of(compiled) == "recorded"


def test_gradients_and_results_of_earlier_steps_stay():
    module, compiled = recorded_training()
    inputs = [numbers(8, 32) for _ in range(3)]
    kept = [run_step(compiled, module, x) for x in inputs]
    for got, x in zip(kept, inputs, strict=True):
        assert_alike(got, run_step(module, module, x))


def test_gradients_accumulate():
    module, compiled = recorded_training()
    inputs = [numbers(8, 32) for _ in range(3)]

    def accumulated(call: Any) -> list[torch.Tensor]:
        module.zero_grad()
        for x in inputs:
            call(x).square().sum().backward()
        return [parameter.grad for parameter in module.parameters()]

    assert_alike(accumulated(compiled), accumulated(module))


@pytest.mark.parametrize("is_reversed", [False, True])
def test_two_forwards_before_their_backwards(is_reversed: bool):
    module, compiled = recorded_training()
    inputs = [numbers(8, 32) for _ in range(2)]

    def gradients(call: Any) -> list[torch.Tensor]:
        module.zero_grad()
        losses = [call(x).square().sum() for x in inputs]
        for loss in reversed(losses) if is_reversed else losses:
            loss.backward()
        return [parameter.grad for parameter in module.parameters()]

    assert_alike(gradients(compiled), gradients(module))
    x = numbers(8, 32)
    assert_alike(run_step(compiled, module, x), run_step(module, module, x))


def test_a_backward_twice():
    module, compiled = recorded_training()
    x = numbers(8, 32)

    def gradients(call: Any) -> list[torch.Tensor]:
        module.zero_grad()
        loss = call(x).square().sum()
        loss.backward(retain_graph=True)
        call(numbers(8, 32))
        loss.backward()
        return [parameter.grad for parameter in module.parameters()]

    assert_alike(gradients(compiled), gradients(module))
    loss = compiled(x).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_a_step_after_a_hook_that_raised():
    module, compiled = recorded_training()

    def stop(gradient: torch.Tensor) -> None:
        raise ValueError("stop")

    result = compiled(numbers(8, 32))
    result.register_hook(stop)
    with pytest.raises(ValueError, match="stop"):
        result.sum().backward()
    del result
    for _ in range(2):
        x = numbers(8, 32)
        assert_alike(run_step(compiled, module, x), run_step(module, module, x))


def test_hooks_see_what_eager_shows():
    module, compiled = recorded_training()
    x = numbers(8, 32)

    def seen(call: Any) -> list[torch.Tensor]:
        gradients: dict[str, torch.Tensor] = {}
        handles = [
            each.register_hook(functools.partial(gradients.__setitem__, name))
            for name, each in module.named_parameters()
        ]
        run_step(call, module, x)
        for handle in handles:
            handle.remove()
        return [gradients[name] for name, _ in module.named_parameters()]

    assert_alike(seen(compiled), seen(module))


def test_training_on_another_stream():
    module, compiled = recorded_training()
    x = numbers(8, 32)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        got = run_step(compiled, module, x)
    torch.cuda.current_stream().wait_stream(stream)
    assert_alike(got, run_step(module, module, x))


def test_an_expanded_cotangent_and_one_that_is_not():
    module, compiled = recorded_training()
    x = numbers(8, 32)
    for cotangent in (torch.ones(1, device="cuda").expand(8, 32), numbers(8, 32)):
        got = torch.autograd.grad(compiled(x), list(module.parameters()), cotangent)
        assert_alike(list(got), list(torch.autograd.grad(module(x), list(module.parameters()), cotangent)))


def test_gradients_of_an_input():
    module = mlp()
    compiled = jitted(module)
    for _ in range(CALLS):
        x = numbers(8, 32).requires_grad_()
        got = torch.autograd.grad(compiled(x).sin().sum(), x)
        assert_alike(list(got), list(torch.autograd.grad(module(x).sin().sum(), x)))
    assert graph_of(compiled) == "recorded"


def test_a_result_that_was_written_to_raises_as_in_eager():
    module = nn.Sequential(nn.Linear(32, 32), nn.Sigmoid()).cuda()
    compiled = jitted(module)
    for _ in range(CALLS):
        run_step(compiled, module, numbers(8, 32))
    result = compiled(numbers(8, 32))
    result.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_saved_tensors_with_hooks_are_not_those_of_a_graph():
    module, compiled = recorded_training()
    packed: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        compiled(numbers(8, 32)).sum().backward()
    before = [tensor.clone() for tensor in packed]
    run_step(compiled, module, numbers(8, 32))
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(packed, before, strict=True))


def test_training_that_drops_names_the_reason():
    module = nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.5)).cuda()
    compiled = jitted(module)
    for _ in range(CALLS):
        run_step(compiled, module, numbers(8, 32))
    assert "thunder::dropout_state" in graph_of(compiled) or "random" in graph_of(compiled)


def test_parameters_in_new_memory():
    module, compiled = recorded_training()
    for parameter in module.parameters():
        parameter.data = parameter.data.clone() * 2
    for _ in range(CALLS):
        x = numbers(8, 32)
        assert_alike(run_step(compiled, module, x), run_step(module, module, x))
    assert graph_of(compiled) == "recorded"


def test_small_training_is_recorded():
    module, large = mlp(), nn.Sequential(nn.Linear(32, 8192), nn.GELU(), nn.Linear(8192, 32)).cuda()
    compiled, never = (jitted(module, cuda_graphs=choice) for choice in (None, False))
    too_large = jitted(large, cuda_graphs=None)
    for _ in range(CALLS):
        x = numbers(8, 32)
        expected = run_step(module, module, x)
        assert_alike(run_step(compiled, module, x), expected)
        assert_alike(run_step(never, module, x), expected)
        run_step(too_large, large, numbers(2048, 32))
    assert graph_of(compiled) == "recorded"
    assert graph_of(never) == "cuda_graphs=False"
    assert "64 MiB" in graph_of(too_large)


@torch.no_grad()
def test_one_kernel_is_not_recorded():
    compiled = jitted(lambda x: x * 2 + 1, cuda_graphs=None)
    for _ in range(CALLS):
        compiled(numbers(8, 8))
    assert "one kernel" in graph_of(compiled)


@pytest.mark.parametrize("width", [16, 64, 512])
def test_graphs_that_run_between_forward_and_backward(width: int):
    """A graph of another program must not write where saved values lie."""

    def network(count: int) -> nn.Module:
        layers = [layer for _ in range(count) for layer in (nn.Linear(width, width), nn.GELU())]
        return nn.Sequential(*layers).cuda()

    modules = [network(count) for count in (6, 3, 5)]
    compiled = [jitted(module) for module in modules]
    asked = jitted(network(8))

    def gradients(calls: list[Any], x: torch.Tensor, order: list[int]) -> list[torch.Tensor]:
        results = {i: calls[i](x) for i in order}
        with torch.no_grad():
            asked(x)
        found = []
        for i in reversed(order):
            found += torch.autograd.grad(results[i].square().sum(), list(modules[i].parameters()))
        return found

    for i in range(3):  # one after the other: what one recording gives up, the next one may take
        for _ in range(CALLS):
            run_step(compiled[i], modules[i], numbers(8, width))
            with torch.no_grad():
                asked(numbers(8, width))
    assert [graph_of(each) for each in (*compiled, asked)] == ["recorded"] * 4
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        x = numbers(8, width)
        assert_alike(gradients(compiled, x, order), gradients(modules, x, order))


def test_compiled_autograd_takes_saved_values_of_a_graph():
    module, compiled = recorded_training()
    x = numbers(8, 32)
    expected = run_step(module, module, x)
    with torch._dynamo.compiled_autograd._enable(lambda graph: graph):
        got = run_step(compiled, module, x)
    assert_alike(got, expected)
    assert "compiled autograd" in graph_of(compiled)
    assert_alike(run_step(compiled, module, x), expected)
