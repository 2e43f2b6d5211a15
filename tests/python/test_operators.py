"""Operators of all kinds: dtypes, layouts, indexing, checks, caches, tensors that are not plain."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager
from programs import Function, parametrize, x
from torch.nn import functional as F

import thunder

DTYPES = [
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
    torch.bool,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(3, 4), (), (0, 4)], ids=["matrix", "scalar", "empty"])
def test_dtype_and_shape(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    a = (x(3, 4, grad=False) * 3).to(dtype)
    a = a if shape == (3, 4) else a[0, 0].clone() if shape == () else a[:0]

    def program(a: torch.Tensor) -> Any:
        b = a + 1
        return (
            b * a,
            b.sum(),
            a == b,
            torch.where(a != 0, a, b),
            a.reshape(-1),
            b.to(torch.float32),
            torch.stack([a, b]),
        )

    assert_as_eager(program, a)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.complex64], ids=str)
def test_gradient_of_dtype(dtype: torch.dtype) -> None:
    a = x(3, 4, grad=False).to(dtype).requires_grad_()
    assert_as_eager(lambda a: ((a * a).sum(), (a @ a.mT) * 2, a.float() if not a.is_complex() else a.abs()), a)


PROMOTION = [
    ("int_plus_float", lambda a: torch.arange(4) + 1.5),
    ("int_division", lambda a: torch.arange(4) / 3),
    ("bool_plus_int", lambda a: torch.tensor([True, False]) + 2),
    ("half_times_scalar_tensor", lambda a: a.half() * torch.tensor(2.0)),
    ("double_scalar_tensor", lambda a: a + torch.tensor(1.0, dtype=torch.float64)),
    ("complex_number", lambda a: a * 1j),
    ("int_power", lambda a: torch.arange(4) ** 2 - 2 ** torch.arange(4)),
    ("comparison_with_float", lambda a: torch.arange(4) > 1.5),
]


@parametrize(PROMOTION)
def test_type_promotion(program: Function) -> None:
    assert_as_eager(program, x())


def test_channels_last_is_kept() -> None:
    image = x(2, 3, 4, 4, grad=False).to(memory_format=torch.channels_last).requires_grad_()
    weight = x(5, 3, 3, 3, grad=False).to(memory_format=torch.channels_last).requires_grad_()
    compiled = assert_as_eager(lambda a, w: F.relu(F.conv2d(a, w, padding=1)) * 2, image, weight)
    assert compiled(image, weight).is_contiguous(memory_format=torch.channels_last)


def test_strides_of_a_kernel_that_differ_from_those_recorded() -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        spectrum = torch.fft.fftn(a.t(), dim=(0,)).real.contiguous()
        return torch.as_strided(spectrum * 2, (2, 2), (1, 2)).sum()

    assert_as_eager(program, x())


CONJUGATES = [
    ("conj", lambda c: c.conj() * 2),
    ("view_of_resolved", lambda c: torch.view_as_real(c.conj().resolve_conj())),
    ("adjoint", lambda c: c.mH @ c),
    ("imag_of_conj", lambda c: c.conj().imag.resolve_neg() + 1),
    ("ihfft", lambda c: torch.fft.ihfft(c.real)),
]


@parametrize(CONJUGATES)
def test_conjugate_and_negative_views(program: Function) -> None:
    c = torch.view_as_complex(x(3, 4, 2, grad=False)).requires_grad_()
    assert_as_eager(program, c)


def test_input_with_a_conjugate_bit() -> None:
    c = torch.view_as_complex(x(3, 4, 2, grad=False))
    assert_as_eager(lambda c: (torch.view_as_real(c.resolve_conj()), c * 2), c.conj())
    compiled = thunder.jit(lambda c: c.mul_(1j))
    eager, ours = c.clone(), c.clone()
    eager.conj().mul_(1j)
    compiled(ours.conj())
    torch.testing.assert_close(ours, eager)


# ------------------------------------------------------------------- what reads data, or is read before it is known

DATA = [
    ("one_hot", lambda a: F.one_hot(torch.tensor([0, 2, 1]), 4)),
    ("one_hot_of_argument", lambda a: F.one_hot((a[0] > 0).long(), 3) * a[0, :3]),
    ("quantile", lambda a: (a.quantile(0.4), a.quantile(torch.tensor([0.1, 0.9]), dim=1), a.nanquantile(0.5))),
    ("cov", lambda a: (torch.cov(a), torch.corrcoef(a))),
    ("combinations", lambda a: torch.combinations(a[0])),
    ("tensor_split", lambda a: a.tensor_split(torch.tensor([1, 3]), dim=1)),
    ("narrow_by_tensor", lambda a: a.narrow(1, torch.tensor(1), 2)),
    ("prod", lambda a: (a.prod(), a.prod(1), (a * (a > 0)).prod(1))),
    ("cumprod", lambda a: (a.cumprod(1), (a * (a > 0)).cumprod(1), (a * (a > 1)).cumprod(0))),
    ("aminmax", lambda a: (*a.aminmax(dim=0), *a.aminmax(), a.max(), a.min(), a.median())),
    ("lstsq", lambda a: torch.linalg.lstsq(a.t(), a.t()[:, :2]).solution),
    ("histogram", lambda a: torch.histogram(a.detach(), 4).hist),
    ("geqrf", lambda a: torch.geqrf(a.detach())),
    ("masked_fill_of_tensor", lambda a: a.masked_fill(a > 0, a.sum())),
    ("index_put_by_mask", lambda a: (a * 1).index_put((a > 0,), a.sum())),
    ("index_fill_by_tensor", lambda a: a.index_fill(1, torch.tensor([0, 0]), a.sum())),
    ("repeat_interleave_by_counts", lambda a: a.repeat_interleave(torch.tensor([1, 0, 2]), dim=0)),
    ("multi_margin_loss", lambda a: F.multi_margin_loss(a, torch.tensor([1, 0, 2]))),
    (
        "ctc_loss",
        lambda a: F.ctc_loss(a.log_softmax(1)[:, None], torch.tensor([[1, 2]]), torch.tensor([3]), torch.tensor([2])),
    ),
    ("ctc_loss_by_numbers", lambda a: F.ctc_loss(a.log_softmax(1)[:, None], torch.tensor([[1, 2]]), (3,), (2,))),
]


@parametrize(DATA)
def test_operator_that_reads_data(program: Function) -> None:
    assert_as_eager(program, x(), misses=None)


MASKED = [
    ("number", lambda a, m: a.index_put((m,), torch.tensor(2.0))),
    ("number_that_requires_grad", lambda a, m: a.index_put((m,), a.sum())),
    ("item", lambda a, m: (b := a * 1, b.__setitem__(m, 0.5), b)[2]),
    ("rows", lambda a, m: a.index_put((m[:, 0],), a.new_ones(1))),
    ("columns", lambda a, m: (b := a * 1, b.__setitem__((slice(None), m[0]), 3.0), b)[2]),
]


@parametrize(MASKED)
def test_one_number_written_by_a_mask_holds_for_all_masks(program: Function) -> None:
    compiled, a = thunder.jit(program), x()
    for bound in (0.0, 1.0, -9.0, 9.0):
        mask = a.detach() > bound
        outcomes = []
        for function in (program, compiled):
            result = function(a, mask)
            outcomes.append((result, *torch.autograd.grad(result.cos().sum(), a)))
        torch.testing.assert_close(outcomes[1], outcomes[0])
    assert thunder.cache_misses(compiled) == 1


@parametrize(
    [
        ("values", lambda a, m: a.index_put((m,), a[m] * 2)),
        ("rows", lambda a, m: a.index_put((m[:, 0],), a[2])),
        ("accumulated", lambda a, m: a.index_put((m,), a.sum(), accumulate=True)),
        ("mask_and_index", lambda a, m: a.index_put((m[:, 0], torch.tensor(1)), a[0, :1] * 3)),
        ("bytes", lambda a, m: a.index_put((m.byte(),), a[m])),
    ]
)
def test_values_written_by_a_mask(program: Function) -> None:
    for bound in (0.0, 0.5, 9.0):
        assert_as_eager(program, x(), x(grad=False) > bound, misses=None)


def test_values_of_another_shape_written_by_a_mask_raise_as_in_eager() -> None:
    mask = torch.tensor([True, False, True])
    for function in (torch.index_put, thunder.jit(torch.index_put)):
        with pytest.raises((RuntimeError, IndexError), match="shape mismatch"):
            function(torch.zeros(3), (mask,), torch.ones(3))


def test_positions_that_a_composite_reads_make_specializations() -> None:
    compiled = thunder.jit(lambda a, t: a.tensor_split(t))
    for positions in ([1], [2], [1], [0, 1]):
        got, expected = compiled(x(), torch.tensor(positions)), x().tensor_split(torch.tensor(positions))
        torch.testing.assert_close(got, expected)
    assert thunder.cache_misses(compiled) == 3


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("batched", [True, False])
def test_ctc_loss(reduction: str, batched: bool) -> None:
    def program(
        logits: torch.Tensor, targets: torch.Tensor, inputs: torch.Tensor, lengths: torch.Tensor
    ) -> torch.Tensor:
        scores = logits.log_softmax(-1)
        return F.ctc_loss(scores, targets, inputs, lengths, reduction=reduction, zero_infinity=True)

    if batched:
        targets = torch.tensor([[1, 2, 1], [2, 2, 0]], dtype=torch.int32)
        assert_as_eager(program, x(4, 2, 3), targets, torch.tensor([4, 2]), torch.tensor([3, 2]), misses=None)
    else:
        assert_as_eager(program, x(4, 3), torch.tensor([1, 2]), torch.tensor(4), torch.tensor(2), misses=None)


def test_derivatives_without_a_meta_kernel_have_the_shape_of_their_kernel() -> None:
    def program(a: torch.Tensor) -> Any:
        return F.multi_margin_loss(a, torch.tensor([1, 0, 2])), F.multilabel_margin_loss(
            a, torch.tensor([[1, 0, -1, 2]] * 3)
        )

    assert_as_eager(program, x(), misses=None)


def test_result_without_gradients_requires_grad_as_in_eager() -> None:
    assert_as_eager(
        torch.linalg.householder_product, torch.zeros(0, 0).requires_grad_(), torch.zeros(0).requires_grad_()
    )
    assert_as_eager(lambda a: torch.ones(3, requires_grad=True) * a, torch.ones(3))


def test_one_hot_checks_its_classes_when_it_runs() -> None:
    compiled = thunder.jit(lambda t: F.one_hot(t, 3))
    compiled(torch.tensor([0, 1]))
    compiled(torch.tensor([2, 0]))
    assert thunder.cache_misses(compiled) == 1
    with pytest.raises(RuntimeError, match="smaller than num_classes"):
        compiled(torch.tensor([0, 3]))


@parametrize(
    [
        ("new_tensor", lambda a: a.new_tensor([1, 2, 3])),
        ("new_tensor_dtype", lambda a: a.new_tensor([1.5], dtype=torch.float64, requires_grad=True) * a),
        ("new_sizes", lambda a: a.new(2, 3).shape),
        ("new_data", lambda a: a.new([1.0, 2.0]) * 2),
        ("new_zeros_ones_full", lambda a: (a.new_zeros(2), a.new_ones(1, dtype=torch.int64), a.new_full((2,), 3.5))),
        ("new_empty_strided", lambda a: a.new_empty_strided((2, 3), (1, 2)).stride()),
    ]
)
def test_tensor_made_like_another(program: Function) -> None:
    assert_as_eager(program, x())


# ------------------------------------------------------------------------------------------- checks and indexing


def test_in_place_data_flow_inside_higher_order_functions() -> None:
    def double(t: torch.Tensor) -> torch.Tensor:
        t.mul_(2)
        return t

    def program(a: torch.Tensor) -> Any:
        parts = [a * 1, a + 1]
        doubled = list(map(double, parts))
        total = functools.reduce(lambda left, right: left.add_(right), doubled, torch.zeros_like(a))
        return doubled, total, parts[0].sum()

    assert_as_eager(program, x())


def test_checks_of_shape_dtype_and_device_happen_while_tracing() -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        if a.dtype != torch.float32:
            raise TypeError("expected float32")
        assert a.ndim == 2, "expected a matrix"
        assert a.device.type == "cpu"
        return a * 2 if a.shape[0] > 2 else a * 3

    compiled = thunder.jit(program)
    torch.testing.assert_close(compiled(x()), program(x()))
    assert " if " not in str(thunder.last_traces(compiled)[-1])
    with pytest.raises(TypeError, match="expected float32"):
        compiled(x(grad=False).double())
    with pytest.raises(AssertionError, match="expected a matrix"):
        compiled(x(3))
    torch.testing.assert_close(compiled(x(2, 2)), x(2, 2) * 3)
    assert thunder.cache_misses(compiled) == 2


def test_checks_of_data_happen_at_run_time() -> None:
    compiled = thunder.jit(lambda a: torch.linalg.cholesky(a))
    compiled(torch.eye(2))
    with pytest.raises(torch.linalg.LinAlgError):
        compiled(-torch.eye(2))
    assert thunder.cache_misses(compiled) == 1


INDEXING = [
    ("basic", lambda a, i: a[1:, None, ..., -1]),
    ("advanced", lambda a, i: a[i, torch.tensor([0, 1, 3])]),
    ("mixed", lambda a, i: a[None, i, :, 1:][..., [True, False, True]]),
    ("mixed_apart", lambda a, i: a.view(3, 2, 2)[i, :, torch.tensor([0, 1, 0])]),
    ("mask", lambda a, i: a[a > 0]),
    ("written", lambda a, i: torch.zeros(3, 4).index_put((i,), a, accumulate=True)),
    ("set_mixed", lambda a, i: (b := a * 1, b.__setitem__((i, slice(1, 3)), 0.0), b)[2]),
    ("negative_step_is_an_error", lambda a, i: a[::-1]),
]


@parametrize(INDEXING)
def test_indexing(program: Function) -> None:
    assert_as_eager(program, x(), torch.tensor([2, 0, 2]), misses=None)


# ------------------------------------------------------------------------------------ tensors that are not plain


def test_sparse_tensor_inside_is_refused_with_the_line() -> None:
    with pytest.warns(thunder.EagerFallbackWarning, match=r"(?s)dense.*test_operators\.py"):
        thunder.jit(lambda a: torch.sparse.mm(a.to_sparse(), a))(x(3, 3))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.eye(2).to_sparse(),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    ],
    ids=["sparse", "nested", "quantized"],
)
def test_input_that_is_not_dense_is_refused(tensor: torch.Tensor) -> None:
    with pytest.raises(NotImplementedError, match="expected a dense tensor"):
        thunder.jit(lambda a: a * 2, fullgraph=True)(tensor)


class Tagged(torch.Tensor):
    """A subclass without behaviour of its own."""


def test_subclass_that_ends_inside_is_passed_through() -> None:
    tagged = x(grad=False).as_subclass(Tagged)
    compiled = thunder.jit(lambda a: (type(a), (a * 2).as_subclass(torch.Tensor), a))
    kind, result, same = compiled(tagged)
    assert kind is Tagged
    assert same is tagged
    assert type(result) is torch.Tensor
    torch.testing.assert_close(result, tagged.as_subclass(torch.Tensor) * 2)
