"""Gradients of the filters of depthwise convolutions: as eager's, from a kernel of the CPU executor."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import thunder

Gradients = list[torch.Tensor]


def make_inputs(
    images: tuple[int, int, int, int], filter: tuple[int, int], dtype: torch.dtype, channels_last: bool
) -> list[torch.Tensor]:
    torch.manual_seed(0)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    x = torch.randn(images).to(dtype, memory_format=layout)
    channels = images[1]
    return [x, torch.randn(channels, 1, *filter).to(dtype), torch.randn(channels).to(dtype)]


def gradients_of(function: object, inputs: list[torch.Tensor], cotangent: torch.Tensor | None = None) -> Gradients:
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    result = function(*leaves)  # type: ignore[operator]
    torch.manual_seed(1)
    result.backward(torch.randn_like(result) if cotangent is None else cotangent)
    return [x.grad for x in leaves if x.grad is not None]


def is_taken(function: object) -> bool:
    return any("convolution_backward" in str(each.operations) for each in thunder.fusions(function))


def check(images: tuple[int, int, int, int], filter: tuple[int, int], **options: object) -> None:
    dtype = options.pop("dtype", torch.float32)
    channels_last = options.pop("channels_last", True)

    def convolve(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, b, groups=x.shape[1], **options)

    inputs = make_inputs(images, filter, dtype, channels_last)
    compiled = thunder.jit(convolve)
    got, expected = gradients_of(compiled, inputs), gradients_of(convolve, inputs)
    fast_in_onednn = dtype == torch.float32 and filter[1] <= 3 and options.get("dilation", 1) == 1
    assert is_taken(compiled) != fast_in_onednn
    torch.manual_seed(1)
    cotangent = torch.randn_like(convolve(*inputs)).double()
    exact = gradients_of(convolve, [x.double() for x in inputs], cotangent)
    for ours, eager, truth in zip(got, expected, exact, strict=True):
        assert ours.dtype == eager.dtype
        assert ours.shape == eager.shape
        error = (ours.double() - truth).abs().max().item()
        units = 32 if dtype == torch.float64 else 1  # eager is the truth there
        unit = units * torch.finfo(dtype).eps * truth.abs().max().item()
        assert error <= 1.5 * (eager.double() - truth).abs().max().item() + unit


@pytest.mark.parametrize("channels", [1, 3, 8, 17, 96])
@pytest.mark.parametrize("channels_last", [True, False])
def test_numbers_of_channels(channels: int, channels_last: bool) -> None:
    check((2, channels, 13, 11), (7, 7), padding=3, channels_last=channels_last)


@pytest.mark.parametrize("filter", [(1, 1), (1, 5), (2, 4), (3, 3), (6, 1), (7, 7), (8, 8), (3, 9), (17, 31)], ids=str)
@pytest.mark.parametrize("stride", [1, 2, (3, 1)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_sizes_and_strides_of_filters(filter: tuple[int, int], stride: int, dtype: torch.dtype) -> None:
    check((3, 20, 34, 33), filter, stride=stride, padding=(filter[0] // 2, filter[1] // 2), dtype=dtype)


@pytest.mark.parametrize("padding", [0, 1, (5, 2), (0, 9)], ids=str)
@pytest.mark.parametrize("dilation", [1, 2, (1, 4)], ids=str)
@pytest.mark.parametrize("size", [(9, 14), (15, 16)], ids=str)
def test_paddings_and_dilations(padding: int, dilation: int, size: tuple[int, int]) -> None:
    check((2, 12, *size), (3, 4), padding=padding, dilation=dilation, stride=2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("channels_last", [True, False])
def test_dtypes(dtype: torch.dtype, channels_last: bool) -> None:
    check((2, 21, 20, 20), (5, 5), padding=2, dtype=dtype, channels_last=channels_last)


@pytest.mark.parametrize("images", [(1, 4, 150, 60), (9, 40, 28, 28), (3, 200, 7, 7), (1, 8, 1, 1)], ids=str)
def test_images_in_several_units(images: tuple[int, int, int, int]) -> None:
    check(images, (5, 5), padding=2)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_what_is_not_finite_reaches_the_taps_that_meet_it(value: float) -> None:
    x, w, _ = make_inputs((1, 4, 6, 6), (5, 5), torch.float32, True)
    cotangent = torch.ones(1, 4, 6, 6)
    cotangent[0, 1, 0, 0] = value
    cotangent[0, 2, 5, 3] = value

    def convolve(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, padding=2, groups=4)

    expected = gradients_of(convolve, [x.double(), w.double()], torch.ones(1, 4, 6, 6).double())[1]
    got = gradients_of(thunder.jit(convolve), [x, w], cotangent)[1]
    meets = torch.zeros(4, 1, 5, 5, dtype=torch.bool)
    meets[1, :, 2:, 2:] = True
    meets[2, :, :3, :] = True
    assert torch.equal(got.isfinite(), ~meets)
    torch.testing.assert_close(got.double()[~meets], expected[~meets], rtol=1e-5, atol=1e-5)


def test_empty_batches_have_zero_gradients() -> None:
    x, w, b = make_inputs((1, 6, 9, 9), (3, 3), torch.float32, True)
    got = gradients_of(thunder.jit(lambda x, w, b: F.conv2d(x, w, b, groups=6)), [x[:0], w, b])
    assert got[0].shape == (0, 6, 9, 9)
    assert not got[1].any()
    assert not got[2].any()


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    inputs = make_inputs((8, 40, 30, 30), (7, 7), torch.float32, True)
    compiled = thunder.jit(lambda x, w, b: F.conv2d(x, w, b, padding=3, groups=40))
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            results.append(gradients_of(compiled, inputs)[1])
    finally:
        torch.set_num_threads(before)
    assert is_taken(compiled)
    assert all(torch.equal(result, results[0]) for result in results[1:])


@pytest.mark.parametrize("needed", [(False, True, False), (False, True, True), (True, True, False)], ids=str)
@pytest.mark.parametrize("channels_last", [True, False])
def test_gradients_that_are_asked_for(needed: tuple[bool, bool, bool], channels_last: bool) -> None:
    inputs = make_inputs((2, 10, 12, 12), (5, 5), torch.float32, channels_last)

    def convolve(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, b, padding=2, groups=10)

    compiled = thunder.jit(convolve)
    found = []
    for function in (convolve, compiled):
        leaves = [x.clone().requires_grad_(needs) for x, needs in zip(inputs, needed, strict=True)]
        function(*leaves).square().sum().backward()
        found.append([x.grad for x in leaves])
    for eager, ours in zip(*found, strict=True):
        assert (eager is None) == (ours is None)
        if eager is not None:
            torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-4)
            assert ours.stride() == eager.stride()


@pytest.mark.parametrize("groups", [1, 2])
def test_other_convolutions_are_left_to_pytorch(groups: int) -> None:
    x, w = torch.randn(2, 4, 8, 8), torch.randn(8, 4 // groups, 3, 3)
    compiled = thunder.jit(lambda x, w: F.conv2d(x, w, groups=groups))
    gradients_of(compiled, [x, w])
    assert not is_taken(compiled)


def test_a_piece_that_hands_out_a_number_has_eagers_numbers() -> None:
    x, w, _ = make_inputs((2, 16, 14, 14), (5, 5), torch.float32, True)

    def step(x: torch.Tensor, w: torch.Tensor) -> float:
        leaf = w.detach().requires_grad_()
        F.conv2d(x, leaf, groups=16).square().sum().backward()
        return leaf.grad.sum().item()

    compiled = thunder.jit(step)
    assert compiled(x, w) == step(x, w)
    assert compiled(x, w) == step(x, w)
