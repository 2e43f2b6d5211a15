"""Rules that stand for meta kernels in Python (`tracer/result_rules.cpp`): results are as eager lays them out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager
from torch.nn import functional as F

import thunder

Tensor = torch.Tensor


def leaf(*sizes: int) -> Tensor:
    return torch.randn(*sizes, requires_grad=True)


def channels_last(*sizes: int) -> Tensor:
    return torch.randn(*sizes).to(memory_format=torch.channels_last).requires_grad_()


CASES: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "where": (lambda a, b: torch.where(a[:, :1] > 0, a, b), (leaf(4, 5), leaf(5))),
    "where, transposed": (lambda a, b: torch.where(a > 0, a, b), (leaf(5, 4).t(), leaf(4, 5))),
    "where of integers": (lambda a: torch.where(a > 0, a, a.new_zeros(())), (torch.arange(-3, 3),)),
    "clamp": (lambda a: a.clamp(-1, 1).clamp_min(0.1), (leaf(4, 5),)),
    "mean": (lambda a: a.mean() + a.logsumexp(-1), (leaf(4, 5),)),
    "logsumexp": (lambda a: a.logsumexp((0, 2), keepdim=True), (leaf(4, 5, 6),)),
    "activations": (lambda a: F.mish(a) + F.celu(a) + F.hardswish(a) + F.hardtanh(a), (leaf(4, 5),)),
    "activations of a part": (lambda a: F.hardswish(a[:, :3]) * F.mish(a[:, 2:]), (leaf(4, 5),)),
    "prelu": (lambda a, w: F.prelu(a, w), (leaf(2, 3, 4), leaf(3))),
    "glu": (lambda a: F.glu(a, 0), (leaf(4, 5),)),
    "remainder": (lambda a: a % 3 + (a.long() % 3), (leaf(4, 5),)),
    "ranges": (lambda a: a * torch.arange(5) + torch.arange(1, 11, 2) + torch.arange(2, 7), (leaf(4, 5),)),
    "flip and roll": (lambda a: a.flip(0).roll(1, 0) + a.flip(1), (leaf(5, 5),)),
    "repeat": (lambda a: a.repeat(2, 1, 3), (leaf(4, 5),)),
    "pad": (lambda a: F.pad(a, (1, 2, -1, 0)), (leaf(4, 5),)),
    "cut and padded": (lambda a: F.pad(a, (5, -5, -4, 3)) * 2 + F.pad(a, (-5, 5)).sum(), (leaf(4, 5),)),
    "in place": (lambda a: _written(a), (leaf(4, 5),)),
    "view_copy": (lambda a: torch.view_copy(a, (5, -1)) + torch.view_copy(a.t(), (-1, 4)), (leaf(4, 5),)),
    "gathered": (lambda a, i: a[i], (leaf(4, 5), torch.tensor([1, 1, 3]))),
    "binary cross entropy": (lambda a, b: F.binary_cross_entropy(a.sigmoid(), b.sigmoid()), (leaf(4, 5), leaf(4, 5))),
    "with logits": (lambda a, b: F.binary_cross_entropy_with_logits(a, b.detach()), (leaf(4, 5), leaf(4, 5))),
    "losses": (lambda a, b: F.huber_loss(a, b) + F.smooth_l1_loss(a, b) + F.mse_loss(a, b), (leaf(4, 5), leaf(4, 5))),
    "losses, not reduced": (lambda a, b: F.huber_loss(a, b, reduction="none"), (leaf(4, 5), leaf(4, 5))),
    "sum of a loss": (lambda a, b: F.mse_loss(a, b, reduction="sum"), (leaf(4, 5), leaf(4, 5))),
    "loss, transposed": (lambda a, b: F.mse_loss(a.t(), b, reduction="none"), (leaf(5, 4), leaf(4, 5))),
    "adaptive pool": (lambda a: F.adaptive_avg_pool2d(a, 3), (leaf(2, 4, 6, 6),)),
    "adaptive pool, channels_last": (lambda a: F.adaptive_avg_pool2d(a, 3), (channels_last(2, 4, 6, 6),)),
    "layer norm": (lambda a: F.layer_norm(a, (5,)), (leaf(4, 5),)),
    "layer norm, transposed": (lambda a, w: F.layer_norm(a.t(), (4,), w, w), (leaf(4, 5), leaf(4))),
    "batch norm": (lambda a, w: F.batch_norm(a, None, None, w, w, training=True), (leaf(2, 4, 3, 3), leaf(4))),
    "batch norm, channels_last": (
        lambda a, w: F.batch_norm(a, None, None, w, w, training=True),
        (channels_last(2, 4, 3, 3), leaf(4)),
    ),
    "group norm": (lambda a, w: F.group_norm(a, 2, w, w), (leaf(2, 4, 3, 3), leaf(4))),
    "convolution": (lambda a, w: F.conv2d(a, w, padding=1), (leaf(2, 4, 5, 5), leaf(6, 4, 3, 3))),
    "convolution, channels_last": (lambda a, w: F.conv2d(a, w), (channels_last(2, 4, 5, 5), leaf(6, 4, 3, 3))),
    "transposed convolution": (
        lambda a, w, b: F.conv_transpose2d(a, w, b, stride=2, output_padding=1, groups=2),
        (leaf(2, 4, 5, 5), leaf(4, 3, 3, 2), leaf(6)),
    ),
    "transposed convolution of sequences": (
        lambda a, w: F.conv_transpose1d(a, w, padding=1, dilation=2),
        (leaf(2, 4, 5), leaf(4, 3, 3)),
    ),
}


def _recurrent(kind: type[torch.nn.RNNBase], **options: Any) -> Callable[..., Tensor]:
    torch.manual_seed(0)
    network = kind(5, 3, **options)
    return lambda a, *hidden: network(a, *hidden)[0] + network(a, *hidden)[1].sum()


for kind in (torch.nn.GRU, torch.nn.RNN):
    CASES |= {
        f"{kind.__name__}": (_recurrent(kind), (leaf(4, 2, 5),)),
        f"{kind.__name__}, batches first": (_recurrent(kind, batch_first=True), (leaf(2, 4, 5),)),
        f"{kind.__name__}, one step": (_recurrent(kind, batch_first=True, bias=False), (leaf(2, 1, 5), leaf(1, 2, 3))),
        f"{kind.__name__}, both ways": (_recurrent(kind, num_layers=2, bidirectional=True), (leaf(4, 2, 5),)),
        f"{kind.__name__}, one sequence": (_recurrent(kind), (leaf(4, 5),)),
    }
CASES["RNN of relu"] = (_recurrent(torch.nn.RNN, nonlinearity="relu"), (leaf(4, 2, 5),))


def _written(a: Tensor) -> Tensor:
    b = a.clone()
    b[:, 0] = 0
    b[1:, 2:] += 1
    b[2].fill_(3)
    return b


HALVES = (torch.bfloat16, torch.float16)
MIXED: dict[str, Callable[..., Tensor]] = {
    "layer norm": lambda a, w: F.layer_norm(a.flatten(2).mT, (4,), w, w),
    "layer norm without weights": lambda a, w: F.layer_norm(a, a.shape[2:]),
    "batch norm": lambda a, w: F.batch_norm(a, w.detach() * 0, w.detach().clone(), w, w, training=True),
    "batch norm, evaluated": lambda a, w: F.batch_norm(a, w.detach() * 0, w.detach(), w, w),
    "group norm": lambda a, w: F.group_norm(a, 2, w, w),
    "convolution": lambda a, w: F.conv2d(a, w.to(a.dtype)[:, None, None, None], groups=4),
    "attention": lambda a, w: F.scaled_dot_product_attention(a.transpose(1, 2), a.transpose(1, 2), a.transpose(1, 2)),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("is_mixed", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", MIXED)
def test_results_of_half_precision(name: str, layout: torch.memory_format, is_mixed: bool, dtype: torch.dtype) -> None:
    function = MIXED[name]
    a = torch.randn(2, 4, 3, 6).to(dtype, memory_format=layout).requires_grad_()
    w = torch.rand(4, dtype=torch.float32 if is_mixed else dtype, requires_grad=True)
    results = []
    for call in (function, thunder.jit(function, fullgraph=True)):
        out = call(a, w)
        gradients = torch.autograd.grad(out.float().square().sum(), (a, w), allow_unused=True)
        results.append((out.detach(), out.stride(), *gradients))
    torch.testing.assert_close(results[1], results[0], rtol=2e-2, atol=2e-2)


NETWORKS = """
import sys, torch
from torch import nn
import thunder

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.q, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
    def forward(self, x):
        q, k, v = (t.view(2, 6, 2, 8).transpose(1, 2) for t in self.q(self.norm(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(2, 6, 16))

images, rows = torch.randn(2, 3, 8, 8), torch.randn(2, 6, 16)
convolutions = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.GroupNorm(2, 8))
for network, x in (
    (nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.1)), rows),
    (nn.Sequential(Attention(), Attention()), rows),
    (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), rows),
    (convolutions, images),
):
    with torch.autocast("cpu", torch.bfloat16):
        loss = thunder.jit(network)(x).float().square().mean()
    loss.backward()
    print([name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules])
"""


def test_first_calls_under_autocast_import_no_compiler_of_pytorch() -> None:
    result = subprocess.run([sys.executable, "-c", NETWORKS], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["[]"] * 4


@pytest.mark.parametrize("name", CASES)
def test_results(name: str) -> None:
    function, inputs = CASES[name]
    results = []
    for call in (function, thunder.jit(function)):
        out = call(*inputs)
        leaves = [x for x in inputs if x.requires_grad]
        gradients = torch.autograd.grad(out.sum(), leaves, allow_unused=True) if out.requires_grad else ()
        results.append((out.detach(), out.stride(), *gradients))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda a, b: torch.where(a > 0, a, b), (torch.randn(4, 5), torch.randn(3, 5))),
        (lambda a: a.repeat(2), (torch.randn(4, 5),)),
        (lambda a, w: F.conv_transpose2d(a, w, output_padding=1), (torch.randn(2, 4, 5, 5), torch.randn(4, 3, 3, 3))),
        (lambda a, w: F.conv_transpose2d(a, w), (torch.randn(2, 4, 5, 5), torch.randn(3, 3, 3, 3))),
        (lambda a: a[torch.tensor([9])], (torch.randn(4, 5),)),
        (lambda a, b: F.binary_cross_entropy(a, b), (torch.rand(4, 5), torch.rand(4, 3))),
        (lambda a: torch.arange(5, 2) * a, (torch.randn(3),)),
        (lambda a: F.pad(a, (30, -30)) * 2, (torch.randn(3, 14),)),
        (lambda a: F.pad(a, (0, 0, -4, 9)) * 2, (torch.randn(3, 14),)),
        (lambda a, h, *w: torch._VF.gru(a, h, w, False, 1, 0.0, False, False, False), (*[torch.randn(1, 2, 3)] * 3,)),
        (
            lambda a, h, *w: torch._VF.gru(a, h, w, False, 1, 0.0, False, False, False),
            (torch.randn(4, 2, 5), torch.randn(1, 2, 3), torch.randn(9, 4), torch.randn(9, 3)),
        ),
    ],
)
def test_errors(function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> None:
    with pytest.raises((RuntimeError, ValueError, IndexError)) as theirs:
        function(*inputs)
    with pytest.raises(type(theirs.value)):
        thunder.jit(function)(*inputs)


def test_recurrent_layers_of_other_sizes() -> None:
    """One program without gradients; with them, the steps are operations of their own."""
    function = _recurrent(torch.nn.GRU, batch_first=True)
    compiled, trained = thunder.jit(function), thunder.jit(function)
    for length in (4, 7, 5, 1):
        a = torch.randn(2, length, 5)
        with torch.no_grad():
            torch.testing.assert_close(compiled(a), function(a))
        theirs, ours = a.clone().requires_grad_(), a.clone().requires_grad_()
        function(theirs).square().sum().backward()
        trained(ours).square().sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert thunder.compile_stats(compiled)["cache_misses"] == 3  # the first size, all, one step
    assert thunder.compile_stats(trained)["eager_calls"] == 0


SHIFTS: dict[str, Callable[..., Any]] = {
    "truth_by_number": lambda t, i: t << 1,
    "truth_by_integers": lambda t, i: t << i,
    "integers_by_truth": lambda t, i: (i << t, i >> t),
    "number_by_integers": lambda t, i: (True << i, False >> i, 5 >> i),
    "truth_to_the_right": lambda t, i: (t >> 1, t >> i),
    "truth_without_dimensions": lambda t, i: t[0] << i,
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8], ids=str)
@pytest.mark.parametrize("name", SHIFTS)
def test_shift_with_truth_values(name: str, dtype: torch.dtype) -> None:
    assert_as_eager(SHIFTS[name], torch.tensor([True, False, True]), torch.tensor([1, 2, 3], dtype=dtype))
