"""Convolutions without gradients: oneDNN's own layout of the filters is kept while they stay the same."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from profiled import operators_of

import thunder

CALLS_UNTIL_KEPT = 3


def images(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes).to(memory_format=torch.channels_last)


def keeps_filters(call: Callable[[], Any]) -> bool:
    return "mkldnn::_convolution_pointwise" in operators_of(call)


def convolution(**options: Any) -> torch.nn.Conv2d:
    torch.manual_seed(0)
    return torch.nn.Conv2d(8, 16, 3, **options)


@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"stride": 2, "padding": 1}, {"dilation": (2, 1), "padding": (2, 0)}, {"stride": (1, 3)}],
    ids=str,
)
def test_results(options: dict[str, Any]) -> None:
    module, x = convolution(**options), images(2, 8, 20, 24)
    compiled = thunder.jit(module)
    with torch.no_grad():
        expected = module(x)
        for _ in range(CALLS_UNTIL_KEPT):
            got = compiled(x)
            assert got.stride() == expected.stride()
            torch.testing.assert_close(got, expected)
        assert keeps_filters(lambda: compiled(x))


def test_bfloat16() -> None:
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN has no bfloat16 here")
    module, x = convolution().bfloat16(), images(2, 8, 20, 24).bfloat16()
    compiled = thunder.jit(module)
    with torch.no_grad():
        for _ in range(CALLS_UNTIL_KEPT):
            torch.testing.assert_close(compiled(x), module(x))
        assert keeps_filters(lambda: compiled(x))


def replace(module: torch.nn.Conv2d) -> None:
    module.weight = torch.nn.Parameter(torch.randn_like(module.weight))


def write_one_past_the_version(module: torch.nn.Conv2d) -> None:
    module.weight.data[5, 3, 1, 2] += 10


def swap_past_the_version(module: torch.nn.Conv2d) -> None:
    array = module.weight.detach().numpy()
    array[[0, 1]] = array[[1, 0]].copy()


def write(module: torch.nn.Conv2d) -> None:
    with torch.no_grad():
        module.weight.mul_(2)


def load(module: torch.nn.Conv2d) -> None:
    module.load_state_dict(torch.nn.Conv2d(8, 16, 3).state_dict())


@pytest.mark.parametrize("change", [replace, write, write_one_past_the_version, swap_past_the_version, load])
def test_filters_that_change(change: Callable[[torch.nn.Conv2d], None]) -> None:
    module, x = convolution(), images(2, 8, 20, 20)
    compiled = thunder.jit(module)
    with torch.no_grad():
        for _ in range(CALLS_UNTIL_KEPT):
            compiled(x)
        assert keeps_filters(lambda: compiled(x))
    change(module)
    with torch.no_grad():
        for _ in range(CALLS_UNTIL_KEPT):
            torch.testing.assert_close(compiled(x), module(x))


def test_a_step_between() -> None:
    module, x = convolution(), images(2, 8, 20, 20)
    compiled = thunder.jit(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(3):
        with torch.no_grad():
            for _ in range(CALLS_UNTIL_KEPT):
                torch.testing.assert_close(compiled(x), module(x))
        assert not keeps_filters(lambda: compiled(x).sum().backward())
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (lambda x, w: F.conv2d(x, w), True),
        (lambda x, w: F.conv2d(x.contiguous(), w), False),
        (lambda x, w: F.conv2d(x, w[:, :4], groups=2), False),
        (lambda x, w: F.conv2d(x, w * 2), False),
        (lambda x, w: F.conv_transpose2d(x, w.transpose(0, 1)), False),
        (lambda x, w: F.conv2d(x.double(), w.double()), False),
        (lambda x, w: F.conv2d(x[0], w), False),
        (lambda x, w: F.conv2d(x, w, padding="same"), False),
    ],
)
def test_what_is_kept(function: Callable[..., torch.Tensor], kept: bool) -> None:
    x, w = images(2, 8, 20, 20), torch.randn(16, 8, 3, 3)
    compiled = thunder.jit(function)
    for _ in range(CALLS_UNTIL_KEPT):
        torch.testing.assert_close(compiled(x, w), function(x, w))
    assert keeps_filters(lambda: compiled(x, w)) == kept


def test_inference_mode_and_flags() -> None:
    module, x = convolution(), images(2, 8, 20, 20)
    compiled = thunder.jit(module)
    with torch.inference_mode():
        for _ in range(CALLS_UNTIL_KEPT):
            torch.testing.assert_close(compiled(x), module(x))
        assert keeps_filters(lambda: compiled(x))
        made_inside = torch.randn(16, 8, 3, 3)
        function = thunder.jit(F.conv2d)
        for _ in range(CALLS_UNTIL_KEPT):
            torch.testing.assert_close(function(x, made_inside), F.conv2d(x, made_inside))
        assert not keeps_filters(lambda: function(x, made_inside))
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):
        torch.testing.assert_close(compiled(x), module(x))
        assert not keeps_filters(lambda: compiled(x))


def test_many_threads() -> None:
    module, x = convolution(), images(2, 8, 20, 20)
    compiled = thunder.jit(module)
    with torch.no_grad():
        expected = module(x)

    def call(_: int) -> torch.Tensor:
        with torch.no_grad():
            return compiled(x)

    with ThreadPoolExecutor(8) as pool:
        for got in pool.map(call, range(64)):
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("sizes", [(2, 1, 6, 6), (2, 1, 1, 1), (2, 3, 1, 1), (1, 1, 6, 1)])
@pytest.mark.parametrize("is_channels_last", [False, True])
def test_images_that_lie_in_both_ways_have_results_as_in_eager(sizes: Any, is_channels_last: bool) -> None:
    module = torch.nn.Conv2d(sizes[1], 4, 3, padding=1)
    compiled = thunder.jit(lambda x: module(x).flatten(1))
    layout = thunder.jit(module)
    with torch.no_grad():
        for _ in range(CALLS_UNTIL_KEPT + 1):
            x = images(*sizes) if is_channels_last else torch.randn(sizes)
            expected = module(x)
            assert layout(x).stride() == expected.stride()
            torch.testing.assert_close(compiled(x), expected.flatten(1))
