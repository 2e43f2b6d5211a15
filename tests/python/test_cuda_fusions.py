"""Fusions on a GPU, forward and backward: eager's results, within the rounding of a computation in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import thunder

pytestmark = pytest.mark.gpu

Tensor = torch.Tensor
SHAPES = [(128, 256), (37, 129), (1, 1), (64, 5000), (3, 70000)]
ROUNDING = {torch.float32: 2e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5) * w.float()).to(x.dtype)


def rotated(x: Tensor, y: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1) * y


FUNCTIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "elements": lambda x, y, w: F.gelu(x * y + 1, approximate="tanh") * torch.sigmoid(y) - x,
    "bias": lambda x, y, w: F.gelu(x + w),
    "swiglu": lambda x, y, w: F.silu(x) * y,
    "rms norm": lambda x, y, w: rms_norm(x + y, w),
    "layer norm": lambda x, y, w: F.layer_norm(x + y, x.shape[-1:], w, w),
    "softmax": lambda x, y, w: torch.softmax(x * 0.5 + y, -1),
    "cross entropy": lambda x, y, w: F.cross_entropy(
        (x * w).float(), torch.arange(x.shape[0], device="cuda") % x.shape[1]
    ),
    "embedding": lambda x, y, w: F.embedding(torch.arange(y.shape[0], device="cuda") // 2, x) * y,
    "sums of columns": lambda x, y, w: (x * y).sum(0) + w,
    "sum": lambda x, y, w: (x * y).sum(),
    "rotary embedding": lambda x, y, w: rotated(x * y, w) if x.shape[1] % 2 == 0 else x * y,
    "transposed": lambda x, y, w: x.t() * 2 + y.t(),
}


def outcome(function: Callable[..., Tensor], inputs: list[Tensor]) -> list[Tensor]:
    inputs = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    result = function(*inputs)
    gradients = torch.autograd.grad(result, inputs, torch.ones_like(result) * 0.5, allow_unused=True)
    return [result.detach(), *(gradient for gradient in gradients if gradient is not None)]


def distance(a: Tensor, b: Tensor) -> float:
    # Differences of larger numbers, such as the gradient of a norm over one element, are compared as if they were at
    # least a thousandth.
    return float((a.double() - b).abs().max() / b.abs().max().clamp(min=1e-3))


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_fusion(name: str, shape: tuple[int, int], dtype: torch.dtype) -> None:
    function = FUNCTIONS[name]
    inputs = [torch.randn(size, device="cuda").to(dtype) for size in (shape, shape, shape[1:])]
    compiled = thunder.jit(function, fullgraph=True)
    outcome(compiled, inputs)
    thunder.wait_until_compiled(compiled)
    ours, eager, exact = (
        outcome(compiled, inputs),
        outcome(function, inputs),
        outcome(function, [tensor.double() for tensor in inputs]),
    )
    for mine, theirs, reference in zip(ours, eager, exact, strict=True):
        assert (mine.shape, mine.dtype, mine.stride()) == (theirs.shape, theirs.dtype, theirs.stride())
        assert distance(mine, reference.double()) <= 3 * distance(theirs, reference.double()) + ROUNDING[dtype]


def test_results_are_equal_from_run_to_run() -> None:
    compiled = thunder.jit(FUNCTIONS["layer norm"])
    inputs = [torch.randn(size, device="cuda") for size in ((512, 1000), (512, 1000), (1000,))]
    outcome(compiled, inputs)
    thunder.wait_until_compiled(compiled)
    first, second = outcome(compiled, inputs), outcome(compiled, inputs)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


class Images(torch.nn.Module):
    """A convolution, a batch norm and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = torch.nn.Conv2d(3, 32, 3, bias=False), torch.nn.BatchNorm2d(32)
        self.second, self.third = torch.nn.Conv2d(32, 32, 3, padding=1, bias=False), torch.nn.BatchNorm2d(32)

    def forward(self, images: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(images)))
        return (x + self.third(self.second(x))).mean((2, 3))


def test_images_in_mixed_precision() -> None:
    model, images = Images().cuda(), torch.randn(8, 3, 32, 32, device="cuda")
    other, exact = Images().cuda(), Images().cuda().double()
    other.load_state_dict(model.state_dict())
    exact.load_state_dict(model.state_dict())
    compiled = thunder.jit(other, fullgraph=True)
    for _ in range(2):
        for module in (model, compiled):
            with torch.autocast("cuda", torch.bfloat16):
                module(images).float().square().sum().backward()
        exact(images.double()).square().sum().backward()
        thunder.wait_until_compiled(compiled)
    torch.testing.assert_close(other.norm.running_var, model.norm.running_var, rtol=1e-2, atol=1e-3)
    for mine, theirs, reference in zip(other.parameters(), model.parameters(), exact.parameters(), strict=True):
        assert mine.grad.stride() == theirs.grad.stride()
        assert distance(mine.grad, reference.grad) <= 3 * distance(theirs.grad, reference.grad) + 5e-2


@pytest.mark.parametrize("channels_last", [False, True])
def test_strides_of_a_convolution(channels_last: bool) -> None:
    images = torch.randn(2, 16, 8, 8, device="cuda", dtype=torch.bfloat16)
    images = images.contiguous(memory_format=torch.channels_last) if channels_last else images
    weight = torch.randn(32, 16, 3, 3, device="cuda", dtype=torch.bfloat16)
    convolve = lambda x, w: (F.conv2d(x, w, padding=1), F.conv2d(x, w, padding=1).stride())  # noqa: E731
    ours, theirs = thunder.jit(convolve)(images, weight), convolve(images, weight)
    assert ours[1] == theirs[1] == ours[0].stride()


def test_kernels_of_attention_choose_their_order() -> None:
    def attend(q: Tensor) -> Tensor:
        with torch.autocast("cuda", enabled=False):
            return F.scaled_dot_product_attention(q, q, q)

    q = torch.randn(2, 4, 64, 64, device="cuda", dtype=torch.bfloat16)
    before = torch._C._get_sdp_priority_order()
    torch._C._set_sdp_priority_order(sorted(before))
    torch.testing.assert_close(thunder.jit(attend, fullgraph=True)(q), attend(q))
    torch._C._set_sdp_priority_order(before)


def test_a_vocabulary_of_odd_size() -> None:
    model = torch.nn.Linear(256, 5003, bias=False).cuda()
    x, targets = torch.randn(1024, 256, device="cuda"), torch.randint(0, 5003, (1024,), device="cuda")

    def loss(head: torch.nn.Module) -> tuple[Tensor, Tensor]:
        with torch.autocast("cuda", torch.bfloat16):
            scores = head(x)
            return F.cross_entropy(scores.float(), targets), scores

    compiled = thunder.jit(model, fullgraph=True)
    with_loss = thunder.jit(lambda: loss(model), fullgraph=True)
    expected, scores = loss(model)
    for function in (lambda: loss(compiled), with_loss):
        function()[0].backward()
        thunder.wait_until_compiled(compiled)
        model.zero_grad()
        got, mine = function()
        assert mine.stride() == scores.stride()
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
        got.backward()
        gradient = model.weight.grad
        model.zero_grad()
        loss(model)[0].backward()
        torch.testing.assert_close(gradient, model.weight.grad, rtol=2e-2, atol=1e-4)
        model.zero_grad()


def test_casts_of_many_weights_are_one_launch() -> None:
    sizes = [(768, 768), (768,), (3072, 768), (5,), (3, 7), (2049,)] * 30
    weights = [torch.randn(size, device="cuda") for size in sizes]
    compiled = thunder.jit(lambda *xs: [x.bfloat16() for x in xs], compile="eager")
    for got, weight in zip(compiled(*weights), weights, strict=True):
        assert torch.equal(got, weight.bfloat16())
    assert 'kind="batch"' in str(thunder.last_traces(compiled)[-1])
    others = [torch.randn(weight.numel() + 1, device="cuda")[1:].view(weight.shape) for weight in weights]  # unaligned
    for got, weight in zip(compiled(*others), others, strict=True):
        assert torch.equal(got, weight.bfloat16())


def test_sums_of_many_gradients_are_equal_from_run_to_run() -> None:
    gradients = [torch.randn(rows, 768, device="cuda", dtype=torch.bfloat16) for rows in (4096, 17, 512, 1000)]
    compiled = thunder.jit(lambda *xs: [x.float().sum(0) for x in xs], compile="eager")
    first = compiled(*gradients)
    assert 'kind="batch"' in str(thunder.last_traces(compiled)[-1])
    for got, again, x in zip(first, compiled(*gradients), gradients, strict=True):
        assert torch.equal(got, again)
        torch.testing.assert_close(got.double(), x.double().sum(0), rtol=1e-4, atol=1e-3)


def dropped(x: Tensor, w: Tensor) -> Tensor:
    return F.dropout(F.dropout(F.gelu(x + w), 0.1) * x, 0.3)


@pytest.mark.parametrize("dtype", ROUNDING, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("shape", [(512, 768), (37, 129), (3, 2), (4096, 1024), (33, 1000), (1000, 514)], ids=str)
def test_masks_of_dropout_are_those_of_eager(shape: tuple[int, int], dtype: torch.dtype) -> None:
    def run(function: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
        torch.manual_seed(7)
        x = torch.ones(shape, device="cuda", dtype=dtype, requires_grad=True)
        y = function(x, torch.ones(shape[1:], device="cuda", dtype=dtype))
        y.sum().backward()
        return y, x.grad

    ours, theirs = run(thunder.jit(dropped, compile="eager", fullgraph=True)), run(dropped)
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine == 0, other == 0)
        torch.testing.assert_close(mine, other)
    after = torch.rand(5, device="cuda")  # the generator goes on as after eager
    run(dropped)
    assert torch.equal(after, torch.rand(5, device="cuda"))


def test_dropout_is_part_of_fusions_and_saves_a_state() -> None:
    compiled = thunder.jit(dropped, compile="eager", fullgraph=True)
    x = torch.randn(512, 768, device="cuda", requires_grad=True)
    compiled(x, torch.randn(768, device="cuda")).sum().backward()
    forward, backward = thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1]
    assert "native_dropout.default" not in str(forward)
    for trace in (forward, backward):
        (fusion,) = [symbol for symbol in trace.bound_symbols if symbol.name == "prims.fused"][-1:]
        assert "thunder.dropout_mask.default" in fusion.nested


def test_masks_while_kernels_are_compiled_are_those_of_kernels() -> None:
    compiled = thunder.jit(dropped, fullgraph=True)
    x, w = torch.ones(256, 384, device="cuda"), torch.ones(384, device="cuda")
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        results.append(compiled(x, w))
        thunder.wait_until_compiled(compiled)
    torch.testing.assert_close(*results)
