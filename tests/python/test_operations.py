"""Tensors made inside, random numbers and arithmetic: values and gradients are as in eager."""

from __future__ import annotations

import functools
import math

import torch
from beside_eager import assert_as_eager
from programs import Function, parametrize, x
from torch.nn import functional as F

import thunder

FACTORIES = [
    ("zeros", lambda a: torch.zeros(3, 4) + a),
    ("zeros_like", lambda a: torch.zeros_like(a)),
    ("full", lambda a: torch.full((3, 4), 2.5) * a),
    ("arange", lambda a: torch.arange(4) * a),
    ("linspace", lambda a: torch.linspace(0, 1, 4) * a),
    ("eye", lambda a: a @ torch.eye(4)),
    ("tensor_list", lambda a: a * torch.tensor([1.0, 2.0, 3.0, 4.0])),
    ("tensor_number", lambda a: a * torch.tensor(2)),
    ("tensor_of_shape", lambda a: torch.tensor(a.shape)),
    ("as_tensor", lambda a: torch.as_tensor([1, 2]) + a[:, :2]),
    ("scalar_tensor", lambda a: torch.scalar_tensor(3.0) * a),
    ("new_zeros", lambda a: a.new_zeros(2) + a.new_ones(2)),
    ("new_tensor", lambda a: a.new_tensor([1, 2, 3, 4]) * a),
    ("new_full", lambda a: a.new_full((4,), 2) * a),
    ("empty_filled", lambda a: torch.empty(3, 4).fill_(1) * a),
    ("float64_constant", lambda a: a * torch.tensor(2.0, dtype=torch.float64)),
    ("Tensor_constructor", lambda a: torch.Tensor([1, 2, 3, 4]) * a),
    ("constant_alone", lambda a: torch.tensor([1, 2])),
    ("constant_requires_grad", lambda a: torch.ones(4, requires_grad=True) * a),
    ("meshgrid", lambda a: torch.meshgrid(torch.arange(3), torch.arange(4), indexing="ij")),
    ("tril_mask", lambda a: a.masked_fill(torch.ones(3, 4).tril() == 0, 0)),
    ("one_hot", lambda a: F.one_hot(torch.tensor([0, 2]), 3).float() @ a),
    ("stack_numbers", lambda a: torch.stack([a[0], torch.zeros(4)])),
    ("float_of_python", lambda a: a * math.sqrt(a.shape[0]) + len(a)),
    ("default_dtype", lambda a: torch.ones(2, dtype=torch.get_default_dtype())),
    ("finfo", lambda a: a.clamp(max=torch.finfo(a.dtype).max)),
]


@parametrize(FACTORIES)
def test_factory(program: Function) -> None:
    assert_as_eager(program, x())


def test_factory_gives_a_new_tensor_at_each_call() -> None:
    compiled = thunder.jit(lambda a: (torch.zeros(2), torch.tensor([1.0, 2.0]), a + 1))
    first, second = compiled(x()), compiled(x())
    first[0].add_(1)
    first[1].add_(1)
    assert second[0].tolist() == [0, 0]
    assert compiled(x())[1].tolist() == second[1].tolist() == [1, 2]


RANDOM = [
    ("rand", lambda a: torch.rand(4) * a),
    ("randn", lambda a: torch.randn(3, 4) + a),
    ("randint", lambda a: torch.randint(0, 9, (3, 4)) * a),
    ("randperm", lambda a: a[torch.randperm(3)]),
    ("rand_like", lambda a: torch.rand_like(a) * a),
    ("normal_", lambda a: torch.empty(3, 4).normal_(1, 2) * a),
    ("uniform_", lambda a: torch.empty(3, 4).uniform_() * a),
    ("bernoulli", lambda a: torch.bernoulli(torch.full((3, 4), 0.5)) * a),
    ("bernoulli_", lambda a: torch.empty(3, 4).bernoulli_(0.3) * a),
    ("multinomial", lambda a: torch.multinomial(a.detach().softmax(1), 2)),
    ("dropout", lambda a: F.dropout(a, 0.4)),
    ("dropout_twice", lambda a: F.dropout(F.dropout(a, 0.4) * 2, 0.2)),
    ("dropout_of_transposed", lambda a: F.dropout(a.t(), 0.4)),
    ("dropout_in_place", lambda a: F.dropout(a * 1, 0.4, inplace=True)),
    ("dropout2d", lambda a: F.dropout2d(a.view(1, 3, 2, 2), 0.4)),
    ("alpha_dropout", lambda a: F.alpha_dropout(a, 0.4)),
    ("rrelu", lambda a: F.rrelu(a, training=True)),
    ("gumbel_softmax", lambda a: F.gumbel_softmax(a)),
    ("attention_dropout", lambda a: F.scaled_dot_product_attention(a[None], a[None], a[None], dropout_p=0.5)),
    ("unused_random", lambda a: (torch.rand(3), a * 2)[1]),
]


@parametrize(RANDOM)
def test_random_numbers_after_the_same_seed(program: Function) -> None:
    assert_as_eager(program, x(), calls=3, misses=None)


# --------------------------------------------------------------------------------------------- arithmetic

ARITHMETIC = [
    ("einsum", lambda a: torch.einsum("ij,kj->ik", a, a)),
    ("einsum_batch", lambda a: torch.einsum("bij,bjk->bik", a[None], a.t()[None])),
    ("matmul_operator", lambda a: a @ a.T),
    ("reverse_operators", lambda a: 1 - a + 2 / (a * a + 1) + 2**a),
    ("floor_mod", lambda a: (a // 0.3, a % 0.3, divmod(a, 0.3))),
    ("comparison", lambda a: (a > 0, a == a, a != 0, (a > 0) & (a < 1), ~(a > 0))),
    ("chained_comparison", lambda a: (a > 0).float() + a.ge(0.5)),
    ("integers", lambda a: (torch.arange(4) << 1 | 1, torch.arange(4) ^ 3)),
    ("bool_sum", lambda a: (a > 0).sum()),
    ("mean_keepdim", lambda a: a - a.mean(-1, keepdim=True)),
    ("var_std", lambda a: (a.var(1), a.std(), torch.var_mean(a, 1))),
    ("norm", lambda a: (a.norm(), a.norm(dim=1, p=1), torch.linalg.vector_norm(a))),
    ("cumsum", lambda a: (a.cumsum(0), a.cumprod(1), a.logcumsumexp(1))),
    ("logsumexp", lambda a: a.logsumexp(1)),
    ("cat", lambda a: torch.cat([a, a * 2], dim=-1)),
    ("stack", lambda a: torch.stack([a, a + 1], 1)),
    ("pad", lambda a: F.pad(a, (1, 2), value=3.0)),
    ("pad_reflect", lambda a: F.pad(a[None], (1, 2), mode="reflect")),
    ("repeat", lambda a: a.repeat(2, 1)),
    ("repeat_interleave", lambda a: a.repeat_interleave(2, dim=0)),
    ("tile", lambda a: torch.tile(a, (1, 2))),
    ("softmax_dtype", lambda a: a.softmax(1, dtype=torch.float64)),
    ("layer_norm", lambda a: F.layer_norm(a, (4,), torch.ones(4), torch.zeros(4))),
    ("rms_norm", lambda a: F.rms_norm(a, (4,))),
    ("group_norm", lambda a: F.group_norm(a.view(1, 4, 3), 2)),
    ("instance_norm", lambda a: F.instance_norm(a[None])),
    ("normalize", lambda a: F.normalize(a, dim=1)),
    ("cross_entropy", lambda a: F.cross_entropy(a, torch.tensor([0, 1, -100]), label_smoothing=0.1)),
    ("cross_entropy_weights", lambda a: F.cross_entropy(a, torch.tensor([0, 1, 2]), weight=torch.rand(4))),
    ("losses", lambda a: (F.mse_loss(a, a * 0), F.smooth_l1_loss(a, a.detach() + 1), F.huber_loss(a, a.detach()))),
    ("binary_cross_entropy", lambda a: F.binary_cross_entropy_with_logits(a, (a > 0).float())),
    ("kl_div", lambda a: F.kl_div(a.log_softmax(1), a.detach().softmax(1), reduction="batchmean")),
    ("activations", lambda a: [f(a) for f in (F.relu, F.gelu, F.silu, F.elu, F.mish, F.softplus, F.leaky_relu, F.glu)]),
    ("gelu_tanh", lambda a: F.gelu(a, approximate="tanh")),
    ("attention", lambda a: F.scaled_dot_product_attention(a[None, None], a[None, None], a[None, None])),
    ("attention_causal", lambda a: F.scaled_dot_product_attention(*(a[None, None],) * 3, is_causal=True)),
    ("attention_mask", lambda a: F.scaled_dot_product_attention(*(a[None, None],) * 3, attn_mask=torch.eye(3) > 0)),
    ("embedding", lambda a: F.embedding(torch.tensor([[0, 2], [1, 1]]), a)),
    ("embedding_bag", lambda a: F.embedding_bag(torch.tensor([0, 2, 1]), a, torch.tensor([0, 2]))),
    ("conv1d", lambda a: F.conv1d(a[None], torch.ones(2, 3, 2), stride=2)),
    ("conv_transpose", lambda a: F.conv_transpose1d(a[None], torch.ones(3, 2, 2))),
    ("conv3d", lambda a: F.conv3d(a.view(1, 3, 1, 2, 2), torch.ones(2, 3, 1, 1, 1))),
    ("avg_pool", lambda a: F.avg_pool1d(a[None], 2)),
    ("adaptive_pool", lambda a: F.adaptive_avg_pool1d(a[None], 3)),
    ("bilinear", lambda a: F.bilinear(a, a, torch.ones(2, 4, 4))),
    ("linalg", lambda a: (torch.linalg.svdvals(a), torch.linalg.inv(a @ a.T + torch.eye(3)), torch.det(a @ a.T))),
    ("cholesky", lambda a: torch.linalg.cholesky(a @ a.T + torch.eye(3))),
    ("fft", lambda a: torch.fft.rfft(a).abs()),
    ("complex", lambda a: torch.view_as_complex(a.reshape(3, 2, 2)).angle()),
    ("polar", lambda a: torch.view_as_real(torch.polar(a.abs(), a))),
    ("cdist", lambda a: torch.cdist(a, a + 1)),
    ("lerp", lambda a: torch.lerp(a, a * 2, 0.3)),
    ("addmm", lambda a: torch.addmm(torch.ones(3), a, a.t(), beta=2, alpha=0.5)),
    ("bmm", lambda a: torch.bmm(a[None], a.t()[None])),
    ("outer", lambda a: torch.outer(a[0], a[1])),
    ("tensordot", lambda a: torch.tensordot(a, a, dims=([1], [1]))),
    ("prod", lambda a: (a.prod(), a.prod(1))),
    ("amax", lambda a: (a.amax(1), a.detach().aminmax(dim=0), a.argmax(), a.max())),
    ("median", lambda a: (a.median(), a.median(1).values, a.quantile(0.4))),
    ("clamp", lambda a: a.clamp(min=torch.zeros(4)).clamp_max(0.5)),
    ("int_to_float", lambda a: torch.arange(3).float() @ a),
    ("result_type", lambda a: torch.arange(4) / 2 + a.to(torch.bfloat16)),
    ("bfloat16", lambda a: a.bfloat16() @ a.bfloat16().t()),
    ("map_of_functions", lambda a: sum(map(torch.sin, [a, a * 2]))),
    ("reduce", lambda a: functools.reduce(torch.add, [a, a, a])),
    ("python_sum_of_rows", lambda a: sum(a)),
    ("bucketize", lambda a: torch.bucketize(a.detach(), torch.linspace(-1, 1, 4))),
    ("searchsorted", lambda a: torch.searchsorted(torch.linspace(-1, 1, 4), a.detach())),
    ("allclose", lambda a: torch.isclose(a, a * 1)),
    ("nan_to_num", lambda a: (a / 0).nan_to_num(0.0, 1.0, -1.0)),
    ("logical", lambda a: torch.logical_and(a > 0, a < 1).any()),
    ("block_diag", lambda a: torch.block_diag(a, a)),
    ("vander", lambda a: a.unflatten(1, (2, 2)).flatten(0, 1)),
    ("foreach", lambda a: torch._foreach_add([a, a * 2], 1)),
]


@parametrize(ARITHMETIC)
def test_operation(program: Function) -> None:
    assert_as_eager(program, x())
