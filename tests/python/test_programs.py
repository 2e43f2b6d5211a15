"""Plain PyTorch functions do compiled what they do in eager: values, gradients, strides, writes, random numbers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager
from torch.nn import functional as F

Function = Callable[..., Any]


def x(*shape: int, grad: bool = True) -> torch.Tensor:
    """Return random numbers, the same at each start."""
    return torch.randn(*(shape or (3, 4)), generator=torch.Generator().manual_seed(7)).requires_grad_(grad)


def parametrize(programs: list[tuple[str, Function]], known: dict[str, str] | None = None) -> Any:
    """Parametrize by programs; `known`: why some of them do not work yet."""
    marks = {name: [pytest.mark.xfail(strict=True, reason=reason)] for name, reason in (known or {}).items()}
    assert marks.keys() <= {name for name, _ in programs}
    return pytest.mark.parametrize(
        "program", [pytest.param(f, id=name, marks=marks.get(name, [])) for name, f in programs]
    )


def named(f: Function) -> tuple[str, Function]:
    return f.__name__, f


# ------------------------------------------------------------------------------------------------ writes


def write_to_intermediate(a: torch.Tensor) -> Any:
    b = a * 2
    b.add_(1).mul_(a)
    return b


def write_through_view(a: torch.Tensor) -> Any:
    b = a * 2
    b[0].mul_(3)
    b.view(-1)[2:5] = a.view(-1)[:3]
    return b


def write_seen_by_older_view(a: torch.Tensor) -> Any:
    b = a * 1
    row = b[1]
    b.add_(1)
    return row * 2, b.sum()


def write_through_view_of_view(a: torch.Tensor) -> Any:
    b = a.clone()
    b.t()[1:3].unsqueeze(0)[0, :, 0].zero_()
    return b


def write_by_slice(a: torch.Tensor) -> Any:
    b = torch.zeros(3, 4)
    b[:, 1:3] = a[:, :2]
    b[..., -1] = 5
    return b


def write_by_mask(a: torch.Tensor) -> Any:
    b = a.clone()
    b[a > 0] = 0.5
    return b


def write_by_index_list(a: torch.Tensor) -> Any:
    b = a.clone()
    b[[0, 2]] = a[[1, 1]] * 2
    return b


def write_by_fill_functions(a: torch.Tensor) -> Any:
    b = a.clone().masked_fill_(a > 0, 2.0)
    b[:, 0].fill_(3)
    return b.clamp_(-1, 2)


def write_with_out(a: torch.Tensor) -> Any:
    out = torch.empty(3, 4)
    torch.mul(a.detach(), 2, out=out)
    return out + a


def write_to_two_names(a: torch.Tensor) -> Any:
    b = c = a * 2
    b += 1
    return b, c


def write_with_operators(a: torch.Tensor) -> Any:
    b = a * 2
    b *= a
    b -= 1
    b /= 2
    b **= 2
    return b


def write_after_use_in_graph(a: torch.Tensor) -> Any:
    b = a * 2
    c = b + 1
    b.mul_(2)
    return c * b


def write_to_detached(a: torch.Tensor) -> Any:
    b = a * 2
    b.detach().zero_()
    return b


def write_to_expanded(a: torch.Tensor) -> Any:
    b = torch.zeros(4).expand(3, 4)
    return b.contiguous().add_(a)


def write_index_add(a: torch.Tensor) -> Any:
    return torch.zeros(5, 4).index_add_(0, torch.tensor([0, 4, 0]), a)


def write_scatter(a: torch.Tensor) -> Any:
    return torch.zeros(3, 6).scatter_(1, torch.tensor([[0, 1, 2, 5]]).expand(3, 4), a)


def write_by_copy(a: torch.Tensor) -> Any:
    b = torch.empty(3, 4, dtype=torch.float64)
    b.copy_(a)
    return b


def write_to_real_imag(a: torch.Tensor) -> Any:
    c = torch.complex(a, a * 2)
    return torch.view_as_real(c * c), c.real, c.imag.sum()


def write_resized_data(a: torch.Tensor) -> Any:
    b = a.detach().clone()
    b.unsqueeze_(0).transpose_(1, 2).squeeze_(0)
    return b + 1


WRITES = [f for name, f in sorted(globals().items()) if name.startswith("write_")]


@parametrize([named(f) for f in WRITES])
def test_write_inside(program: Function) -> None:
    assert_as_eager(program, x())


INPUT_WRITES = [
    ("add_", lambda a: a.add_(1)),
    ("add_and_return_other", lambda a: a.add_(1) * 2),
    ("mul_twice", lambda a: a.mul_(2).mul_(3)),
    ("row", lambda a: a[0].zero_()),
    ("slice", lambda a: a.__setitem__((slice(None), 1), 4.0)),
    ("mask", lambda a: a.__setitem__(a > 0, 0.0)),
    ("copy_", lambda a: a.copy_(torch.ones(4))),
    ("view", lambda a: a.view(-1)[3:].add_(1)),
    ("transposed", lambda a: a.t().mul_(torch.arange(4.0)[:, None])),
    ("read_before_and_after", lambda a: (a * 2, a.add_(1), a * 2)),
    ("random", lambda a: a.normal_()),
    ("set_by_operator", lambda a: a.__iadd__(1)),
]


@parametrize(INPUT_WRITES)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "slice"])
def test_write_to_an_input(program: Function, layout: str, request: pytest.FixtureRequest) -> None:
    if request.node.callspec.id in ("transposed-row", "slice-row", "slice-view", "slice-transposed"):
        request.applymarker(pytest.mark.xfail(strict=True, reason="a view of a written input is returned as a copy"))
    a = {"contiguous": x(3, 4, grad=False), "transposed": x(4, 3, grad=False).t(), "slice": x(3, 8, grad=False)[:, ::2]}
    assert_as_eager(program, a[layout])


def test_write_to_an_input_that_is_given_twice() -> None:
    def program(pair: list[torch.Tensor]) -> torch.Tensor:
        pair[0].add_(1)
        return pair[1] * 2

    a = x(grad=False)
    assert_as_eager(program, [a, a])


def test_write_to_an_input_seen_through_another_input_is_refused() -> None:
    def program(a: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return view * 2

    import thunder

    a = x(grad=False)
    with pytest.raises(NotImplementedError, match="shares memory with another input"):
        thunder.jit(program)(a, a[0])


def test_write_to_a_leaf_that_requires_grad_raises_as_in_eager() -> None:
    assert_as_eager(lambda a: a.add_(1), x())


def test_write_to_a_leaf_under_no_grad() -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            a.mul_(0.5)
        return a * a

    assert_as_eager(program, x())


@pytest.mark.xfail(strict=True, reason="writes to inputs that are not leaves are refused")
def test_write_to_an_input_that_autograd_made() -> None:
    import thunder

    def program(a: torch.Tensor) -> torch.Tensor:
        a.mul_(2)
        return a * a

    outcomes = []
    for function in (program, thunder.jit(program)):
        leaf = x()
        b = leaf * 3
        result = function(b)
        result.sum().backward()
        outcomes.append((result, b, leaf.grad))
    torch.testing.assert_close(outcomes[1], outcomes[0])


# ---------------------------------------------------------------------------------------------- indexing

INDEXING = [
    ("int", lambda a: a[1]),
    ("negative", lambda a: a[-1, -2]),
    ("slice", lambda a: a[1:, ::2]),
    ("ellipsis", lambda a: a[..., 0]),
    ("none", lambda a: a[None, :, None]),
    ("list", lambda a: a[[0, 2, 2]]),
    ("two_lists", lambda a: a[[0, 2], [1, 3]]),
    ("list_and_slice", lambda a: a[:, [3, 0]]),
    ("tensor", lambda a: a[torch.tensor([2, 0])]),
    ("two_tensors", lambda a: a[torch.arange(3)[:, None], torch.tensor([[0, 3]])]),
    ("bool_list", lambda a: a[[True, False, True]]),
    ("true", lambda a: a[True]),
    ("python_range", lambda a: a[range(2)]),
    ("zero_dim_tensor", lambda a: a[torch.tensor(1)]),
    ("numbers_of_shape", lambda a: a[: a.shape[0] - 1, a.size(1) // 2 :]),
    ("narrow", lambda a: a.narrow(1, 1, 2)),
    ("select", lambda a: a.select(0, 1)),
    ("unbind", lambda a: a.unbind(1)),
    ("iterate", lambda a: [row * 2 for row in a]),
    ("unpack", lambda a: (lambda p, q, r: p + q * r)(*a)),
    ("take_along_dim", lambda a: a.take_along_dim(a.argsort(1), 1)),
    ("gather", lambda a: a.gather(1, torch.tensor([[3, 0], [1, 1], [2, 0]]))),
    ("index_select", lambda a: a.index_select(1, torch.tensor([3, 3]))),
    ("where", lambda a: torch.where(a > 0, a, 0.0)),
    ("where_tensors", lambda a: torch.where(a > 0, a * 2, -a)),
    ("masked_fill", lambda a: a.masked_fill(a > 0, -math.inf)),
    ("scatter_add", lambda a: torch.zeros(3, 4).scatter_add(1, torch.zeros(3, 4, dtype=torch.long), a)),
    ("scatter_reduce", lambda a: torch.ones(4).scatter_reduce(0, torch.tensor([0, 1, 1, 3]), a[0], "amax")),
    ("index_add", lambda a: a.index_add(0, torch.tensor([1, 1]), a[:2])),
    ("index_put", lambda a: a.index_put((torch.tensor([0]), torch.tensor([1])), torch.tensor(5.0))),
    ("topk", lambda a: a.topk(2, dim=1)),
    ("sort", lambda a: a.sort(dim=1, descending=True)),
    ("max_dim", lambda a: a.max(dim=1)),
    ("diagonal", lambda a: a.diagonal()),
    ("tril", lambda a: a.tril() + a.triu(1)),
    ("roll", lambda a: a.roll((1, 1), (0, 1))),
    ("flip", lambda a: a.flip(0)),
    ("unfold", lambda a: a.unfold(1, 2, 1)),
]


@parametrize(INDEXING)
def test_indexing(program: Function) -> None:
    assert_as_eager(program, x())


# ------------------------------------------------------------------------------------------------- views

VIEWS = [
    ("transpose", lambda a: a.t()),
    ("permute", lambda a: a.view(1, 3, 4).permute(2, 0, 1)),
    ("reshape", lambda a: a.reshape(2, -1)),
    ("reshape_of_transposed", lambda a: a.t().reshape(-1)),
    ("flatten", lambda a: a.flatten()),
    ("expand", lambda a: a[:, None].expand(3, 5, 4)),
    ("split", lambda a: a.split([1, 3], dim=1)),
    ("chunk", lambda a: a.chunk(2, 1)),
    ("as_strided", lambda a: a.as_strided((2, 2), (4, 1), 1)),
    ("unsqueeze_squeeze", lambda a: a.unsqueeze(1).squeeze(1)),
    ("view_as", lambda a: a.view_as(a)),
    ("contiguous", lambda a: a.t().contiguous()),
    ("mT", lambda a: a.mT),
    ("T", lambda a: a.T),
    ("movedim", lambda a: a.movedim(0, 1)),
    ("view_dtype", lambda a: a.detach().view(torch.int32)),
    ("to_same", lambda a: a.to(torch.float32)),
    ("to_copy", lambda a: a.to(torch.float32, copy=True)),
    ("to_double", lambda a: a.double()),
    ("type_as", lambda a: a.type_as(torch.ones(1, dtype=torch.float64))),
    ("broadcast_tensors", lambda a: torch.broadcast_tensors(a, torch.ones(1, 4))),
    ("input_and_its_view", lambda a: (a, a[0])),
    ("data", lambda a: a.data * 2),
]


@parametrize(VIEWS)
def test_view_returned(program: Function) -> None:
    assert_as_eager(program, x())


def test_returned_view_shares_memory_with_the_input() -> None:
    import thunder

    a = x(grad=False)
    view = thunder.jit(lambda a: a.view(-1)[2:])(a)
    view.zero_()
    assert a.flatten()[2:].eq(0).all()


def test_two_returned_views_share_memory() -> None:
    import thunder

    def program(a: torch.Tensor) -> Any:
        b = a * 2
        return b, b.t()

    b, transposed = thunder.jit(program)(x(grad=False))
    b.zero_()
    assert transposed.eq(0).all()


@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.contiguous_format])
@parametrize(
    [
        ("pointwise", lambda a: a * 2 + 1),
        ("conv", lambda a: F.conv2d(a, torch.ones(2, 3, 3, 3), padding=1)),
        ("pool", lambda a: F.max_pool2d(a, 2)),
        ("clone", lambda a: a.clone()),
        ("ones_like", lambda a: torch.ones_like(a) * a),
        ("interpolate", lambda a: F.interpolate(a, scale_factor=2, mode="bilinear")),
        ("softmax", lambda a: a.softmax(1)),
        ("is_contiguous", lambda a: a if a.is_contiguous() else a * 2),
        ("stride", lambda a: a * a.stride(1)),
    ]
)
def test_memory_format(program: Function, memory_format: torch.memory_format) -> None:
    assert_as_eager(program, x(2, 3, 4, 4, grad=False).to(memory_format=memory_format).requires_grad_())


# ------------------------------------------------------------------------------------------ making tensors

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


@parametrize(FACTORIES, {"new_tensor": "reads the storage of trace tensors", "one_hot": "reads the data of a constant"})
def test_factory(program: Function) -> None:
    assert_as_eager(program, x())


def test_factory_gives_a_new_tensor_at_each_call() -> None:
    import thunder

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


@parametrize(RANDOM, {"rrelu": "writes to its noise argument"})
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
    ("amax", lambda a: (a.amax(1), a.aminmax(dim=0), a.argmax(), a.max())),
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


@parametrize(
    ARITHMETIC,
    {
        "cumsum": "the backward of cumprod reads data",
        "prod": "the backward of prod reads data",
        "amax": "the backward of aminmax reads data",
        "median": "quantile reads data",
    },
)
def test_operation(program: Function) -> None:
    assert_as_eager(program, x())


# ---------------------------------------------------------------------------------------------- grad modes


def mode_no_grad_inside(a: torch.Tensor) -> Any:
    with torch.no_grad():
        b = a * 2
    return b, a * b


def mode_no_grad_decorated(a: torch.Tensor) -> Any:
    @torch.no_grad()
    def inner(t: torch.Tensor) -> torch.Tensor:
        return t * 2

    return inner(a) * a


def mode_enable_grad_inside_no_grad(a: torch.Tensor) -> Any:
    with torch.no_grad():
        with torch.enable_grad():
            b = a * 2
        c = b * 2
    return b, c


def mode_set_grad_enabled(a: torch.Tensor) -> Any:
    with torch.set_grad_enabled(False):
        b = a * 2
    return b + a, torch.is_grad_enabled()


def mode_inference_mode_inside(a: torch.Tensor) -> Any:
    with torch.inference_mode():
        b = (a * 2).sum()
    return b


def mode_detach(a: torch.Tensor) -> Any:
    return a.detach() * a, a.detach()


def mode_requires_grad_inside(a: torch.Tensor) -> Any:
    b = (a.detach() * 2).requires_grad_()
    return b * 3 + a, b.requires_grad


def mode_new_leaf_returned(a: torch.Tensor) -> Any:
    return (a.detach() * 2).requires_grad_()


def mode_stop_gradient_trick(a: torch.Tensor) -> Any:
    return a + (a.round() - a).detach()


def mode_branch_on_requires_grad(a: torch.Tensor) -> Any:
    b = a * 2
    return b + 1 if b.requires_grad and b.grad_fn is not None and not b.is_leaf and a.is_leaf else b - 1


def mode_autocast_inside(a: torch.Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        b = a @ a.t()
        c = b.softmax(-1)
        with torch.autocast("cpu", enabled=False):
            d = a @ a.t()
    return b, c, d, b + d


def mode_saved_tensor_hooks(a: torch.Tensor) -> Any:
    with contextlib.suppress(ValueError):
        b = a.sin()
        raise ValueError
    return b


MODES = [f for name, f in sorted(globals().items()) if name.startswith("mode_")]


@parametrize(
    [named(f) for f in MODES],
    {
        "mode_branch_on_requires_grad": "grad_fn and is_leaf are those of trace tensors",
        "mode_inference_mode_inside": "inference mode inside gives ordinary tensors",
        "mode_new_leaf_returned": "requires_grad_ of a result is lost",
    },
)
def test_grad_mode_inside(program: Function) -> None:
    assert_as_eager(program, x())


@pytest.mark.parametrize(
    "context",
    [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16), torch.enable_grad],
    ids=["no_grad", "inference_mode", "autocast", "enable_grad"],
)
@parametrize([("linear", lambda a: F.linear(a, a).softmax(-1)), ("product", lambda a: a * a), ("input", lambda a: a)])
def test_grad_mode_around(program: Function, context: Callable[[], Any]) -> None:
    import thunder

    compiled, a = thunder.jit(program), x()
    for _ in range(2):
        with context():
            got, expected = compiled(a), program(a)
        torch.testing.assert_close(got, expected)
        assert got.requires_grad == expected.requires_grad
        assert got.is_inference() == expected.is_inference()


LATER = [
    ("grad", lambda a: torch.autograd.grad((a * a).sum(), a)[0]),
    ("backward", lambda a: (a * a).sum().backward()),
    ("register_hook", lambda a: (a * 2).register_hook(lambda gradient: gradient * 2)),
    ("manual_seed", lambda a: (torch.manual_seed(5), torch.rand(4) * a)[1]),
    ("set_rng_state", lambda a: (torch.set_rng_state(torch.get_rng_state()), a)[1]),
    ("Generator", lambda a: torch.rand(4, generator=torch.Generator().manual_seed(3)) * a),
]


@parametrize(LATER)
def test_what_would_be_lost_in_a_trace_is_refused(program: Function) -> None:
    import thunder

    with pytest.raises(NotImplementedError, match="not supported inside a jitted function"):
        thunder.jit(program)(x())


# -------------------------------------------------------------------------------------- structures, Python

Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Point:
    """A plain dataclass."""

    x: torch.Tensor
    y: Any = None


def add_all(*tensors: torch.Tensor, scale: float = 1.0, **more: torch.Tensor) -> torch.Tensor:
    return (sum(tensors) + sum(more.values())) * scale


def with_default(a: torch.Tensor, b: int = 2, *, c: tuple[float, ...] = (1.0, 2.0)) -> Any:
    return a * b + sum(c)


def closure(a: torch.Tensor) -> Any:
    total = []

    def visit(t: torch.Tensor, depth: int) -> None:
        nonlocal total
        total = [*total, t * depth]
        if depth:
            visit(t + 1, depth - 1)

    visit(a, 3)
    return total


def generator(a: torch.Tensor) -> Any:
    def rows() -> Any:
        for index, row in enumerate(a):
            yield index * row

    return torch.stack(list(rows()))


def match_on_shape(a: torch.Tensor) -> Any:
    match a.shape:
        case (3, n):
            return a * n
        case _:
            return a


def exception_inside(a: torch.Tensor) -> Any:
    try:
        return a @ torch.ones(9)
    except RuntimeError:
        return a * 2
    finally:
        a = None


def sorted_by_key(a: torch.Tensor) -> Any:
    return sorted([a, a[:1], a[:2]], key=lambda t: t.shape[0])


STRUCTURES = [
    ("tuple", lambda a: (a * 2, 1, None, "s", 2.5, True)),
    ("nested", lambda a: {"a": [a * 2, (a, {"b": a + 1})], 3: None}),
    ("ordered_dict", lambda a: OrderedDict(x=a * 2, y=a)),
    ("namedtuple", lambda a: Pair(a * 2, [a])),
    ("dataclass", lambda a: Point(a * 2, y=Point(a + 1))),
    ("none", lambda a: None),
    ("int_of_shape", lambda a: a.shape[0] * 2),
    ("shape", lambda a: (a.shape, a.size(), a.dim(), a.numel(), a.dtype, a.device, a.stride(), a.ndim)),
    ("same_tensor_twice", lambda a: [a * 2] * 2),
    ("empty", lambda a: ()),
    ("torch_return_type", lambda a: torch.max(a, 1)),
    ("dict_comprehension", lambda a: {f"{i}": row for i, row in enumerate(a)}),
    ("formatted_shape", lambda a: f"{a.shape} {a.dtype}"),
    ("isinstance", lambda a: (isinstance(a, torch.Tensor), type(a) is torch.Tensor, torch.is_tensor(a))),
    ("is_floating_point", lambda a: (a.is_floating_point(), torch.is_floating_point(a), a.is_complex(), a.is_cuda)),
    ("len_bool", lambda a: (len(a), bool(a.shape), a is not None)),
    ("hasattr", lambda a: (hasattr(a, "shape"), hasattr(a, "nothing"), getattr(a, "other", 3))),
    ("attribute_on_tensor", lambda a: setattr(t := a * 2, "tag", 4) or t.tag * t),
    ("in_list", lambda a: any(t is a for t in [a * 2, a])),
    ("closure", closure),
    ("generator", generator),
    ("match_on_shape", match_on_shape),
    ("exception_inside", exception_inside),
    ("sorted_by_key", sorted_by_key),
    ("partial", functools.partial(torch.add, alpha=2, other=torch.ones(4))),
    ("deepcopy_of_tensor", lambda a: a.detach().clone()),
    ("torch_function", torch.sin),
    ("method", torch.Tensor.sigmoid),
]


@parametrize(STRUCTURES)
def test_python(program: Function) -> None:
    assert_as_eager(program, x())


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [((x(),), {}), ((x(), x()), {"scale": 2}), ((), {"more": x()}), ((x(),), {"p": x(), "q": x(), "scale": 0.5})],
)
def test_star_arguments(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    assert_as_eager(add_all, *arguments, **keywords)


@pytest.mark.parametrize("keywords", [{}, {"b": 3}, {"c": (4.0,)}])
def test_default_arguments(keywords: dict[str, Any]) -> None:
    assert_as_eager(with_default, x(), **keywords)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64]
)
def test_input_dtype(dtype: torch.dtype) -> None:
    assert_as_eager(lambda a: (a + 1, a * a, a.sum()), x(grad=False).to(dtype))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (1, 1, 1), (2, 3, 4, 5)])
def test_input_shape(shape: tuple[int, ...]) -> None:
    assert_as_eager(lambda a: (a * 2, a.sum(), a.flatten(), a.softmax(-1)), torch.randn(shape, requires_grad=True))


@pytest.mark.parametrize(
    "view",
    [lambda a: a.t(), lambda a: a[:, ::2], lambda a: a[None].expand(2, -1, -1), lambda a: a[1:], lambda a: a[0, 0]],
    ids=["transposed", "strided", "expanded", "offset", "scalar"],
)
def test_input_layout(view: Function) -> None:
    assert_as_eager(lambda a: (a * 2, a.contiguous(), a.reshape(-1), a.clone()), view(x(grad=False)).requires_grad_())


def test_parameter_subclass_input_keeps_its_gradient() -> None:
    assert_as_eager(lambda p: p * 2, torch.nn.Parameter(x(grad=False)))


def test_nan_and_infinity_as_numbers() -> None:
    assert_as_eager(lambda a, b: (a * b, b), x(), math.nan, misses=None)


def test_numpy_input_is_a_constant_of_python() -> None:
    import numpy

    assert_as_eager(lambda a, n: a * torch.from_numpy(n), x(), numpy.ones(4, numpy.float32), misses=None)
