"""Modules and what people do with them: compiled, they train, count and save as in eager."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager, assert_module_as_eager, assert_same
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import thunder


class Residual(nn.Module):
    """A residual block as in torchvision's ResNet."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            if stride != 1 or inputs != outputs
            else None
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        Residual(8, 8),
        Residual(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 5),
    )


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))


class Recurrent(nn.Module):
    """A recurrent cell unrolled in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 5)

    def forward(self, x: torch.Tensor) -> Any:
        state, outputs = None, []
        for step in x.unbind(1):
            state = self.cell(step, state)
            outputs.append(state[0])
        return torch.stack(outputs, 1), state


class Attention(nn.Module):
    """Self-attention through `nn.MultiheadAttention`."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, **options)

    def forward(self, x: torch.Tensor) -> Any:
        return self.attention(x, x, x, need_weights=False)[0], self.attention(x, x, x)[1]


class Decoder(nn.Module):
    """A `nn.Transformer` with its causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.Transformer(4, 2, 1, 1, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.transformer(x, x, tgt_mask=mask, tgt_is_causal=True)


class Tied(nn.Module):
    """An embedding whose weight is the output's."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(tokens))


class Checkpointed(nn.Module):
    """Recomputes its inner part in the backward."""

    def __init__(self, use_reentrant: bool = False) -> None:
        super().__init__()
        self.inner, self.use_reentrant = mlp(), use_reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, x, use_reentrant=self.use_reentrant) * 2


class Buffered(nn.Module):
    """Keeps a running mean in a buffer, a count in Python and a cache made at the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("table", torch.arange(4.0), persistent=False)
        self.calls, self.history = 0, []
        self.cache: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean((0, 1))
            self.mean.mul_(1.0)
        if self.cache is None:
            self.cache = torch.ones(4) * 3
        self.calls += 1
        self.history.append(x.shape[0])
        return (x - self.mean) * self.table + self.cache


class Parametrized(nn.Module):
    """A weight under weight normalization."""

    def __init__(self, normalize: Callable[[nn.Module], nn.Module]) -> None:
        super().__init__()
        self.linear = normalize(nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def sequence() -> torch.Tensor:
    return torch.randn(2, 3, 4, requires_grad=True)


def picture() -> torch.Tensor:
    return torch.randn(2, 3, 8, 8, requires_grad=True)


def tokens() -> torch.Tensor:
    return torch.randint(0, 10, (2, 3))


MODULES: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "mlp": (mlp, sequence),
    "resnet": (resnet, picture),
    "resnet_channels_last": (lambda: resnet().to(memory_format=torch.channels_last), picture),
    "batch_norm_without_momentum": (lambda: nn.BatchNorm2d(3, momentum=None), picture),
    "batch_norm_without_statistics": (lambda: nn.BatchNorm2d(3, track_running_stats=False), picture),
    "batch_norm_twice": (lambda: (lambda norm: nn.Sequential(norm, norm))(nn.BatchNorm2d(3)), picture),
    "batch_norm_1d": (lambda: nn.BatchNorm1d(3), sequence),
    "instance_norm": (lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), picture),
    "group_norm": (lambda: nn.GroupNorm(3, 3), picture),
    "layer_norm": (lambda: nn.LayerNorm(4), sequence),
    "dropouts": (lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 4), nn.Dropout(0.1, inplace=True)), sequence),
    "rnn": (lambda: nn.RNN(4, 5, batch_first=True), sequence),
    "lstm": (lambda: nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True), sequence),
    "lstm_dropout": (lambda: nn.LSTM(4, 5, 2, batch_first=True, dropout=0.5), sequence),
    "gru": (lambda: nn.GRU(4, 5, 2), sequence),
    "recurrent": (Recurrent, sequence),
    "attention": (Attention, sequence),
    "attention_dropout": (lambda: Attention(dropout=0.2), sequence),
    "encoder": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2), sequence),
    "decoder": (Decoder, sequence),
    "tied": (Tied, tokens),
    "embedding_padding": (lambda: nn.Embedding(10, 4, padding_idx=0), tokens),
    "embedding_max_norm": (lambda: nn.Embedding(10, 4, max_norm=1.0), tokens),
    "embedding_scaled": (lambda: nn.Embedding(10, 4, scale_grad_by_freq=True), tokens),
    "embedding_bag": (lambda: nn.EmbeddingBag(10, 4, mode="mean"), tokens),
    "embedding_bag_max": (lambda: nn.EmbeddingBag(10, 4, mode="max"), tokens),
    "checkpoint": (Checkpointed, sequence),
    "checkpoint_reentrant": (lambda: Checkpointed(True), sequence),
    "weight_norm": (lambda: Parametrized(nn.utils.parametrizations.weight_norm), sequence),
    "spectral_norm": (lambda: Parametrized(nn.utils.parametrizations.spectral_norm), sequence),
    "upsample": (lambda: nn.Sequential(nn.Upsample(scale_factor=2), nn.ConvTranspose2d(3, 2, 3)), picture),
    "pixel_shuffle": (lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.PixelShuffle(2)), picture),
    "prelu": (lambda: nn.Sequential(nn.PReLU(), nn.Softmax(-1), nn.Hardswish()), sequence),
    "depthwise": (lambda: nn.Conv2d(3, 6, 3, groups=3, padding="same", padding_mode="reflect"), picture),
}


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", MODULES)
def test_module(name: str, mode: str) -> None:
    build, inputs = MODULES[name]
    # Without momentum, the number of batches so far is read as a number: one trace for each.
    misses = None if (name, mode) == ("batch_norm_without_momentum", "train") else 1
    assert_as_eager(getattr(build(), mode)(), inputs(), calls=3, misses=misses)


def test_buffers_counters_and_caches() -> None:
    module = Buffered()
    eager = copy.deepcopy(module)
    compiled = thunder.jit(module)
    for _ in range(4):
        x = sequence()
        assert_same(compiled(x), eager(x), "result")
        assert_module_as_eager(module, eager)
        assert (module.calls, module.history) == (eager.calls, eager.history)
    torch.testing.assert_close(module.cache, eager.cache)


def test_batch_norm_counts_each_call_once() -> None:
    compiled = thunder.jit(nn.BatchNorm1d(4))
    for expected in (1, 2, 3):
        compiled(torch.randn(3, 4))
        assert compiled.num_batches_tracked.item() == expected


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
        lambda p: torch.optim.Adam(p, 0.01),
        lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
        lambda p: torch.optim.AdamW(p, 0.01, foreach=False),
        lambda p: torch.optim.AdamW(p, 0.01, fused=True),
        lambda p: torch.optim.RMSprop(p, 0.01),
    ],
    ids=["sgd", "adam", "adamw_foreach", "adamw", "adamw_fused", "rmsprop"],
)
def test_optimizer(optimizer: Callable[[Any], torch.optim.Optimizer]) -> None:
    module = resnet()
    eager = copy.deepcopy(module)
    compiled = thunder.jit(module)
    x, labels = picture().detach(), torch.tensor([0, 3])
    losses = []
    for model in (eager, compiled):
        steps = optimizer(model.parameters())
        for _ in range(4):
            steps.zero_grad()
            loss = F.cross_entropy(model(x), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            steps.step()
            losses.append(loss.item())
    assert losses[4:] == pytest.approx(losses[:4], rel=1e-4)
    assert thunder.cache_misses(compiled) == 1


def test_zero_grad_in_place_keeps_gradients_apart() -> None:
    compiled = thunder.jit(mlp())
    compiled(sequence()).sum().backward()
    first = compiled[0].weight.grad
    kept = first.clone()
    compiled(sequence()).sum().backward()
    assert compiled[0].weight.grad is first
    assert not torch.equal(first, kept)


@pytest.mark.parametrize("retain", [True, False])
def test_second_backward(retain: bool) -> None:
    module = mlp()
    eager = copy.deepcopy(module)
    x = sequence().detach()
    errors = []
    for model in (eager, thunder.jit(module)):
        loss = model(x).square().sum()
        loss.backward(retain_graph=retain)
        try:
            loss.backward()
        except RuntimeError as error:
            errors.append(str(error))
    assert_module_as_eager(module, eager)
    assert len(errors) == (0 if retain else 2)
    assert len(set(errors)) <= 1


def test_two_losses_of_one_forward_in_turn() -> None:
    module = nn.Linear(4, 4)
    eager = copy.deepcopy(module)
    x = sequence().detach()
    for call in (eager, thunder.jit(module)):
        y = call(x)
        y[0].sum().backward(retain_graph=True)
        y[1].square().sum().backward()
    assert_module_as_eager(module, eager)


def test_backwards_of_several_forwards_in_reverse_order() -> None:
    module = mlp()
    eager = copy.deepcopy(module)
    inputs = [torch.randn(2, 4) for _ in range(3)]
    for model in (eager, thunder.jit(module)):
        losses = [model(x).square().sum() for x in inputs]
        for loss in reversed(losses):
            loss.backward()
    assert_module_as_eager(module, eager)


def test_double_backward_raises() -> None:
    compiled = thunder.jit(mlp())
    x = sequence()
    (gradient,) = torch.autograd.grad(compiled(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        gradient.sum().backward()


def test_weight_changed_between_forward_and_backward_raises_as_in_eager() -> None:
    compiled = thunder.jit(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)))
    loss = compiled(sequence()).sum()
    with torch.no_grad():
        compiled[2].weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_frozen_parameters_get_no_gradient_and_thawed_ones_do() -> None:
    module = mlp()
    module[0].requires_grad_(False)
    eager = copy.deepcopy(module)
    compiled = thunder.jit(module)
    x = sequence().detach()
    for thaw in (False, True):
        for model in (eager, compiled):
            model[0].requires_grad_(thaw)
            model.zero_grad()
            model(x).sum().backward()
        assert_module_as_eager(module, eager)


def test_untied_weights_get_their_own_gradients() -> None:
    module = Tied()
    eager = copy.deepcopy(module)
    compiled, ids = thunder.jit(module), tokens()
    for untie in (False, True):
        for model in (eager, compiled):
            if untie:
                model.head.weight = nn.Parameter(model.embedding.weight.detach().clone())
            model.zero_grad()
            model(ids).square().sum().backward()
        assert_module_as_eager(module, eager)


@pytest.mark.parametrize("around", [True, False], ids=["around", "inside"])
def test_autocast(around: bool) -> None:
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=not around):
                return self.body(x).softmax(-1)

    module = Cast()
    eager = copy.deepcopy(module)
    x = sequence()
    results = []
    for model in (eager, thunder.jit(module)):
        with torch.autocast("cpu", torch.bfloat16, enabled=around):
            results.append(model(x))
        results[-1].square().sum().backward()
    assert results[0].dtype == results[1].dtype
    torch.testing.assert_close(results[1], results[0])
    for got, expected in zip(module.parameters(), eager.parameters(), strict=True):
        assert got.grad.dtype == expected.grad.dtype
        torch.testing.assert_close(got.grad, expected.grad, rtol=1e-2, atol=1e-3)


# ------------------------------------------------------------------------------------------ changed between calls


class Configured(nn.Module):
    """Reads attributes of several kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.names, self.options = 2.0, ["a", "b"], {"bias": True}
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.activation: Callable[[torch.Tensor], torch.Tensor] = torch.tanh

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = self.activation(layer(x)) * self.scale
        x = x * len(self.names)
        return x + 1 if self.options["bias"] else x


def swap_layers(module: nn.Module) -> None:
    module.layers[0], module.layers[1] = module.layers[1], module.layers[0]


def double_weight(module: nn.Module) -> None:
    with torch.no_grad():
        module.layers[0].weight.mul_(2)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "float": lambda module: setattr(module, "scale", 3.0),
    "float_to_int": lambda module: setattr(module, "scale", 2),
    "list_length": lambda module: module.names.append("c"),
    "dict_value": lambda module: module.options.update(bias=False),
    "function": lambda module: setattr(module, "activation", torch.relu),
    "module_removed": lambda module: module.layers.pop(1),
    "module_added": lambda module: module.layers.append(nn.Identity()),
    "modules_swapped": swap_layers,
    "weight_values": double_weight,
    "weight_data": lambda module: setattr(module.layers[0].weight, "data", torch.ones(4, 4)),
    "weight_frozen": lambda module: module.layers[0].requires_grad_(False),
    "dtype": lambda module: module.double(),
    "hook": lambda module: module.layers[0].register_forward_hook(lambda m, args, out: out * 2) and None,
    "forward_replaced": lambda module: setattr(module.layers[0], "forward", torch.sigmoid),
    "bias_removed": lambda module: setattr(module.layers[0], "bias", None),
    "state_loaded": lambda module: module.load_state_dict({k: v * 0.5 for k, v in module.state_dict().items()}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_between_calls(change: str) -> None:
    module = Configured()
    eager = copy.deepcopy(module)
    compiled = thunder.jit(module)
    for _ in range(3):
        x = torch.randn(2, 4, dtype=next(module.parameters()).dtype)
        results = [model(x) for model in (compiled, eager)]
        torch.testing.assert_close(*results)
        for model, result in ((module, results[0]), (eager, results[1])):
            model.zero_grad()
            result.sum().backward()
        assert_module_as_eager(module, eager)
        for model in (module, eager):
            if _ == 0:
                CHANGES[change](model)


# ---------------------------------------------------------------------------------------------------------- hooks


class Recorder:
    """Hooks that write down what they see, in order."""

    def __init__(self, module: nn.Module) -> None:
        self.seen: list[Any] = []
        module.register_forward_pre_hook(lambda m, args: self.seen.append(("pre", args[0].shape)))
        module.register_forward_hook(lambda m, args, out: self.seen.append(("forward", out.shape)))


def test_hooks_that_record_python_values_run_at_each_call() -> None:
    module = mlp()
    recorder = Recorder(module[0])
    compiled = thunder.jit(module)
    for _ in range(3):
        compiled(sequence())
    assert recorder.seen == [("pre", (2, 3, 4)), ("forward", (2, 3, 8))] * 3


def test_hook_that_keeps_activations() -> None:
    module, kept = mlp(), []
    eager = copy.deepcopy(module)
    module[0].register_forward_hook(lambda m, args, out: kept.append(out.detach()))
    compiled = thunder.jit(module)
    for _ in range(2):
        x = sequence()
        compiled(x)
        torch.testing.assert_close(kept[-1], eager[0](x).detach())


def double_gradient(parameter: nn.Parameter) -> None:
    parameter.grad.mul_(2)


@pytest.mark.parametrize(
    "register",
    [
        lambda m: m.register_forward_pre_hook(lambda m, args: (args[0] * 2,)),
        lambda m: m.register_forward_hook(lambda m, args, out: out * 3),
        lambda m: m.register_forward_hook(lambda m, args, keywords, out: out * 3, with_kwargs=True),
        lambda m: m.weight.register_hook(lambda gradient: gradient * 2),
        lambda m: m.weight.register_post_accumulate_grad_hook(double_gradient),
    ],
    ids=["pre", "forward", "kwargs", "tensor", "accumulated"],
)
def test_hook_that_changes_values(register: Callable[[nn.Module], Any]) -> None:
    module = mlp()
    eager = copy.deepcopy(module)
    register(module[2]), register(eager[2])
    compiled = thunder.jit(module)
    for _ in range(2):
        x = sequence().detach().requires_grad_()
        results = [model(x * 2) for model in (compiled, eager)]
        torch.testing.assert_close(*results)
        for result in results:
            result.sum().backward()
        assert_module_as_eager(module, eager)


@pytest.mark.parametrize("name", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_backward_hook_of_a_module_inside_is_refused(name: str) -> None:
    module = mlp()
    getattr(module[2], name)(lambda m, *gradients: None)
    with pytest.raises(NotImplementedError, match="full backward hooks"):
        thunder.jit(module)(sequence())


def test_retain_grad_inside() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 2
        y.retain_grad()
        return y, y * 3

    assert_as_eager(program, sequence())


# ------------------------------------------------------------------------------------------------------ composition


def test_compiled_submodule_of_an_eager_model() -> None:
    module = resnet()
    eager = copy.deepcopy(module)
    module[4] = thunder.jit(module[4])
    x = picture()
    for _ in range(2):
        results = [model(x) for model in (module, eager)]
        assert_same(*results, "result")
        for result in results:
            result.square().sum().backward()
        assert_module_as_eager(module, eager)
    assert list(module.state_dict()) == list(eager.state_dict())


def test_compiled_function_calls_a_compiled_function() -> None:
    inner = thunder.jit(lambda x: torch.sin(x) * 2)
    assert_as_eager(lambda x: inner(x) + inner(x * 2), sequence())


def test_functional_call_with_other_parameters() -> None:
    module = nn.Linear(4, 4)
    other = {name: torch.ones_like(p, requires_grad=True) for name, p in module.named_parameters()}
    assert_as_eager(lambda p, x: torch.func.functional_call(module, p, (x,)), other, sequence())


def test_recursion_between_compiled_functions() -> None:
    @thunder.jit
    def power(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 1 else x * power(x, n - 1)

    torch.testing.assert_close(power(torch.tensor([2.0, 3.0]), 4), torch.tensor([16.0, 81.0]))


def test_eight_threads_with_retraces() -> None:
    module = mlp()
    compiled, failures = thunder.jit(module), []

    def work(number: int) -> None:
        try:
            for step in range(12):
                x = torch.randn(1 + (number + step) % 5, 4)
                torch.testing.assert_close(compiled(x), module.__class__.forward(module, x))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_threads_have_their_own_grad_mode() -> None:
    compiled, results = thunder.jit(mlp()), {}

    def work(enabled: bool) -> None:
        with torch.set_grad_enabled(enabled):
            results[enabled] = [compiled(torch.randn(2, 4)).requires_grad for _ in range(5)]

    threads = [threading.Thread(target=work, args=(enabled,)) for enabled in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {True: [True] * 5, False: [False] * 5}


def test_backward_in_another_thread() -> None:
    module = mlp()
    loss = thunder.jit(module)(sequence()).sum()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    assert module[0].weight.grad is not None


def test_state_dict_travels_both_ways(tmp_path: Any) -> None:
    compiled, plain = thunder.jit(resnet()), resnet()
    compiled(picture())
    torch.save(compiled.state_dict(), tmp_path / "model.pt")
    plain.load_state_dict(torch.load(tmp_path / "model.pt"))
    x = picture()
    torch.testing.assert_close(compiled.eval()(x), plain.eval()(x))
    with torch.no_grad():
        plain[0].weight.mul_(2)
    compiled.load_state_dict(plain.state_dict())
    torch.testing.assert_close(compiled(x), plain(x))
