"""Convolutional networks run in channels-last memory: eager's results, in eager's strides."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import thunder


class Network(nn.Module):
    """Two convolutions, a batch norm, a residual connection, pooling and a classifier."""

    def __init__(self, momentum: float | None = 0.1) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16, momentum=momentum)
        self.depthwise = nn.Conv2d(16, 16, 5, padding=2, groups=16)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(16, 5)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = torch.relu(self.norm(self.stem(images)))
        features = self.pool(features + self.depthwise(features))
        return self.head(features.mean((2, 3))), features


def _images() -> torch.Tensor:
    return torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(3))


def _took_part(function: Callable) -> bool:
    return any(str(trace).splitlines()[0].endswith("; channels_last") for trace in thunder.last_traces(function))


def _strides(tensor: torch.Tensor) -> list[int]:
    """Where there is more than one element."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def _close(got: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor) -> None:
    """Within ten times eager's own distance from float64, and of the same metadata."""
    assert (got.shape, got.dtype, _strides(got)) == (expected.shape, expected.dtype, _strides(expected))
    scale = exact.abs().max().item() + 1e-12
    error, eager_error = ((t.double() - exact).abs().max().item() / scale for t in (got, expected))
    assert error <= 10 * eager_error + 1e-6


def _step(module: nn.Module, call: Callable, images: torch.Tensor) -> list[torch.Tensor]:
    scores, features = call(images)
    (scores.logsumexp(-1).sum() + (features * features).mean()).backward()
    return [scores.detach(), features.detach(), *(p.grad for p in module.parameters())]


@pytest.mark.parametrize("momentum", [0.1, None])
def test_training_step(momentum: float | None) -> None:
    torch.manual_seed(0)
    module = Network(momentum)
    exact, jitted = copy.deepcopy(module).double(), copy.deepcopy(module)
    call = thunder.jit(jitted)
    for _ in range(2):
        for m in (module, exact, jitted):
            m.zero_grad()
        results = _step(jitted, call, _images())
        for got, expected, truth in zip(
            results, _step(module, module, _images()), _step(exact, exact, _images().double()), strict=True
        ):
            _close(got, expected, truth)
    for got, expected in zip(jitted.buffers(), module.buffers(), strict=True):
        torch.testing.assert_close(got, expected)
    if momentum is None:  # Python reads how many batches there were
        return
    assert _took_part(call)
    printed = str(thunder.last_traces(call)[-1])
    assert "native_batch_norm" not in printed
    assert "prims.fused" in printed


def test_running_statistics_are_written_where_they_are_behind_a_pooling_of_whole_images() -> None:
    class Pooled(Network):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            features = torch.relu(self.norm(self.depthwise(self.stem(images))))
            return self.head(nn.functional.adaptive_avg_pool2d(features, 1).flatten(1))

    torch.manual_seed(0)
    module = Pooled()
    jitted = copy.deepcopy(module)
    call = thunder.jit(jitted)
    torch.testing.assert_close(call(_images()), module(_images()))
    assert _took_part(call)
    written = [symbol for symbol in str(thunder.last_traces(call)[-1]).splitlines() if "aten.copy_" in symbol]
    assert all(line.startswith("    ") for line in written), "copied by an operation of its own"
    for got, expected in zip(jitted.buffers(), module.buffers(), strict=True):
        torch.testing.assert_close(got, expected)


def test_evaluation() -> None:
    torch.manual_seed(0)
    module = Network()
    module(_images())
    module.eval()
    call = thunder.jit(copy.deepcopy(module))
    with torch.no_grad():
        for got, expected in zip(call(_images()), module(_images()), strict=True):
            torch.testing.assert_close(got, expected)
            assert got.stride() == expected.stride()
    assert _took_part(call)
    assert "batch_norm" not in str(thunder.last_traces(call)[-1])


def test_gradients_of_what_a_concatenation_keeps_are_added_in_the_order_of_the_images() -> None:
    """The first is a mean's, in another order; the others are slices, which have gaps: sums have neither."""

    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 16, 3, padding=1)
            self.norms = nn.ModuleList(nn.BatchNorm2d(16 + 8 * i) for i in range(3))
            self.layers = nn.ModuleList(nn.Conv2d(16 + 8 * i, 8, 3, padding=1) for i in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.stem(x)
            for norm, layer in zip(self.norms, self.layers, strict=True):
                x = torch.cat([x, layer(torch.relu(norm(x)))], 1)
            return x.mean((2, 3))

    torch.manual_seed(0)
    eager, images = Growing(), torch.randn(8, 3, 32, 32)
    exact, module = copy.deepcopy(eager).double(), copy.deepcopy(eager)
    compiled = thunder.jit(module)
    for run in (eager, exact, compiled):
        run(images.double() if run is exact else images).square().sum().backward()
    assert _took_part(compiled)
    names = [symbol.name for symbol in thunder.last_backward_traces(compiled)[-1].bound_symbols]
    assert "aten.add.Tensor" not in names
    for (name, got), expected, truth in zip(
        module.named_parameters(), eager.parameters(), exact.parameters(), strict=True
    ):
        if not name.endswith(".bias"):  # zero but for rounding in front of a norm
            _close(got.grad, expected.grad, truth.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_group_norms_are_arithmetic(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 32, 3), nn.GroupNorm(8, 32), nn.SiLU(), nn.Conv2d(32, 32, 3), nn.GroupNorm(4, 32), nn.SiLU()]
    module = nn.Sequential(*layers).to(dtype)
    images = _images().to(dtype)
    exact = copy.deepcopy(module).double()
    call = thunder.jit(module)
    for has_gradient in (False, True):
        with torch.set_grad_enabled(has_gradient):
            _close(call(images), module(images), exact(images.double()))
        assert "group_norm" not in str(thunder.last_traces(call)[-1])


def test_random_numbers_are_those_of_eager() -> None:
    convolutions = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3))

    def function(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(convolutions(x), 0.5)

    torch.manual_seed(5)
    expected = function(_images())
    call = thunder.jit(function)
    torch.manual_seed(5)
    got = call(_images())
    assert _took_part(call)
    assert torch.equal(got == 0, expected == 0)
    torch.testing.assert_close(got, expected)


def test_what_follows_the_order_of_memory() -> None:
    weight = torch.randn(4, 3, 3, 3)
    other = torch.randn(4, 4, 3, 3)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.conv2d(torch.conv2d(torch.conv2d(x, weight), other), other)
        return y.as_strided((10,), (7,), 3), (y * 2).view(4, -1)

    call = thunder.jit(function)
    for got, expected in zip(call(_images()), function(_images()), strict=True):
        torch.testing.assert_close(got, expected)
        assert got.stride() == expected.stride()
    assert _took_part(call)


def test_results_that_share_memory_still_do() -> None:
    weight = torch.randn(4, 3, 3, 3)
    other = torch.randn(4, 4, 3, 3)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.conv2d(torch.conv2d(x, weight), other)
        return y, y.flatten(1)

    images, flat = thunder.jit(function)(_images())
    images.zero_()
    assert not flat.any()


def test_no_change_where_there_is_nothing_to_gain() -> None:
    small = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3))
    one = nn.Conv2d(3, 8, 3)
    for module, images in ((small, torch.randn(1, 3, 8, 8)), (one, _images())):
        call = thunder.jit(module)
        torch.testing.assert_close(call(images), module(images))
        assert not _took_part(call)


@pytest.mark.parametrize("trains", [True, False])
def test_images_that_are_small_beside_the_filters_stay_where_filters_are_trained(trains: bool) -> None:
    wide = nn.Sequential(*(nn.Conv2d(64, 64, 3, padding=1, bias=False) for _ in range(3))).requires_grad_(trains)
    images = torch.randn(2, 64, 16, 16)
    call = thunder.jit(wide)
    torch.testing.assert_close(call(images), wide(images))
    assert _took_part(call) == (not trains)


def test_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_DISABLE_PASSES", "channels_last")
    call = thunder.jit(Network())
    call(_images())
    assert not _took_part(call)


def test_modules_in_channels_last_already() -> None:
    torch.manual_seed(0)
    module = Network().to(memory_format=torch.channels_last)
    images = _images().contiguous(memory_format=torch.channels_last)
    jitted = copy.deepcopy(module)
    call = thunder.jit(jitted)
    for got, expected in zip(_step(jitted, call, images), _step(module, module, images), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
        assert _strides(got) == _strides(expected)
    assert "native_batch_norm" not in str(thunder.last_traces(call)[-1])
