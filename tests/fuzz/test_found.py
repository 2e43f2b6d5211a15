"""Programs that the fuzzer found: each went wrong once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager
from programs import parametrize, x

import thunder


def write_to_split(a: torch.Tensor) -> Any:
    first, _ = a.split([1, 2])
    first.unsqueeze(1).fill_(7)
    return a.sum()


def write_to_chunk(a: torch.Tensor) -> Any:
    a.chunk(2, 1)[1][0, 1:] = 7
    return a * 2


def write_to_unbound(a: torch.Tensor) -> Any:
    rows = a.unbind()
    rows[1].zero_()
    return rows[1], a + 1


WRITES = [
    ("split", write_to_split),
    ("chunk", write_to_chunk),
    ("unbind", write_to_unbound),
    ("tensor_split", lambda a: (a.tensor_split(2, 1)[0].neg_(), a * 1)[1]),
    ("number_copied", lambda a: a[0].copy_(1.5)),
]


@parametrize(WRITES)
def test_write_to_one_of_several_views(program: Any) -> None:
    assert_as_eager(program, x(3, 4, grad=False))
    assert_as_eager(program, torch.arange(12).reshape(3, 4))
    assert_as_eager(lambda a: program(a * 1), x(3, 4, grad=False))


def test_written_view_shares_memory_with_what_it_shows() -> None:
    def program(a: torch.Tensor) -> Any:
        b = a * 2
        row = b[0]
        row.neg_()
        return b, row

    b, row = thunder.jit(program)(x(grad=False))
    assert b.data_ptr() == row.data_ptr()


def test_write_through_detach_leaves_no_gradient_below() -> None:
    def program(a: torch.Tensor) -> Any:
        a.detach().mul_(a)
        return a * 1

    assert_as_eager(program, x())


PLACES = [
    ("diagonal", lambda a: a.fill_diagonal_(0.5)),
    ("diagonal_by_itself", lambda a: a.as_strided((3,), (5,)).add_(a[:, 0].exp())),
    ("unfold", lambda a: a.unfold(0, 1, 2).mul_(3)),
]


@parametrize(PLACES)
def test_gradient_of_what_is_written_at_places_in_memory(program: Any) -> None:
    def of_a_value(a: torch.Tensor) -> Any:
        b = a.sin()
        program(b)
        return b * 2

    assert_as_eager(of_a_value, x())


METADATA = [
    ("dense_dim", lambda a: (a.dense_dim(), a.sparse_dim())),
    ("is_set_to", lambda a: (a.is_set_to(a), a.is_set_to(a[0]))),
]


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")  # is_set_to
@parametrize(METADATA)
def test_questions_about_metadata(program: Any) -> None:
    assert_as_eager(lambda a: (program(a), a + 1), x(), misses=None)


def test_operator_that_gives_no_tensor_is_refused() -> None:
    with pytest.warns(thunder.EagerFallbackWarning, match="call it outside"):
        assert not thunder.jit(lambda a: a.is_pinned())(x())


def read_in_grad(a: torch.Tensor) -> torch.Tensor:
    return (a * a.sum().item()).sum()


@pytest.mark.parametrize("transform", [thunder.grad, lambda f: thunder.jit(torch.func.grad(f))], ids=["own", "func"])
def test_number_read_in_a_differentiated_function(transform: Any) -> None:
    a = x(grad=False)
    gradient = transform(read_in_grad)
    for argument in (a, a * 2):
        torch.testing.assert_close(gradient(argument), torch.func.grad(read_in_grad)(argument))


def test_number_of_an_outer_tensor_read_in_nested_transforms() -> None:
    def program(module: Any, i: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        inner = module.grad(lambda v: v[i] * v.sum() * i.item())
        return module.grad(lambda v: inner(v).sum())(a)

    i, a = torch.tensor(1), torch.arange(3.0)
    torch.testing.assert_close(thunder.jit(program)(thunder, i, a), program(torch.func, i, a))


def test_input_that_no_cotangent_reaches_gets_no_gradient() -> None:
    f = thunder.jit(lambda a, b: (a * 2, b * 3, a * b))
    for position in range(3):
        a, b = x(), x()
        f(a, b)[position].sum().backward()
        assert (a.grad is None) == (position == 1)
        assert (b.grad is None) == (position == 0)


SECOND_DERIVATIVES = [
    ("slogdet", lambda a: torch.linalg.slogdet(a)[1]),
    ("det", lambda a: torch.linalg.det(a)),
    ("logit", lambda a: a.sigmoid().logit().square().sum()),
    ("mish", lambda a: torch.nn.functional.mish(a).sum()),
]


@parametrize(SECOND_DERIVATIVES)
def test_second_derivative_follows_factors_of_the_forward(program: Any) -> None:
    a = x(3, 3, grad=False) + torch.eye(3)

    def second(module: Any) -> Any:
        return lambda a: module.grad(lambda b: module.grad(program)(b).square().sum())(a)

    for got in (second(thunder)(a), thunder.jit(second(torch.func))(a)):
        torch.testing.assert_close(got, second(torch.func)(a), rtol=1e-4, atol=1e-4)

    def inside(a: torch.Tensor) -> torch.Tensor:
        (gradient,) = torch.autograd.grad(program(a), a, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), a)[0]

    got = thunder.jit(inside)(a.clone().requires_grad_())
    torch.testing.assert_close(got, second(torch.func)(a), rtol=1e-4, atol=1e-4)


def test_number_among_tensors() -> None:
    assert_as_eager(lambda a: (torch.isin(1.0, a), a != torch.isin(1.0, a, invert=True)), x(grad=False))


@pytest.mark.parametrize("index", [slice(-1, None), slice(2, 0), slice(-5, 2), slice(-1, None, 2)])
def test_write_to_a_slice_under_vmap(index: slice) -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        b = a * 1
        b[index] = 0.5
        return b

    a = x(3, 4, grad=False)
    torch.testing.assert_close(thunder.vmap(program)(a), torch.stack([program(row) for row in a]))


def test_trace_with_a_custom_gradient_runs() -> None:
    f = thunder.jit(torch.nn.functional.cosine_similarity)
    a, b = x(), x()
    expected = f(a, b)
    (result, *_) = thunder.last_traces(f)[-1].python_callable()(a, b)
    torch.testing.assert_close(result, expected.detach())


def test_trace_of_a_copied_number_runs() -> None:
    f = thunder.jit(lambda a: (a * 1).copy_(1.5))
    f(x(grad=False))
    torch.testing.assert_close(thunder.last_traces(f)[0].python_callable()(x(grad=False))[0], torch.full((3, 4), 1.5))


def written(write: Any, make: Any = lambda a: a * 2) -> Any:
    """Return the program that writes to what `make` gives, and returns that and a product of it."""

    def program(a: torch.Tensor, *others: torch.Tensor) -> Any:
        b = make(a)
        write(b, *others)
        return b, b * 3

    return program


WITHOUT_GRADIENT = [
    ("compared", written(lambda b: b.lt_(0.5))),
    ("copied_number", written(lambda b: b.copy_(torch.tensor(1.0)))),
    ("copied_tensor", written(lambda b: b.copy_(torch.ones(3, 4)))),
    ("compared_row", written(lambda b: b[0].lt_(0.5))),
    ("row_and_result", lambda a: (lambda row: (row.lt_(0.5), row))((a * 2)[0])),
    ("not_seen_by_autograd", written(lambda b: b.logical_not_())),
    ("row_not_seen_by_autograd", written(lambda b: b[0].logical_and_(b[1]))),
    ("compared_with_itself", lambda a: (a * 2).lt_(a.exp())),
    ("compared_with_a_row", lambda a: torch.ones(3, 4).ge_(a[0]) * 3),
    ("view_of_dtype", lambda a: written(lambda b: b.view(torch.float32)[0].fill_(3))(a)[0]),
    ("differentiated_inside", lambda a: torch.autograd.grad(written(lambda b: b.lt_(0.5))(a)[1].sum(), a)),
]


@parametrize(WITHOUT_GRADIENT)
def test_what_is_written_over_keeps_its_history(program: Any) -> None:
    assert_as_eager(program, x())


LEAVES = [
    ("logical_xor_", lambda a: (a.logical_xor_(torch.ones(4)), a * 2)[1]),
    ("out", lambda a: (torch.special.chebyshev_polynomial_w(torch.ones(3, 4), 2, out=a), a * 2)[1]),
    ("detach_", lambda a: (a.detach_(), a * 2)[1]),
    ("detach_of_what_was_read", lambda a: (torch.put(a, torch.tensor(0), a.sum()), a.detach_())[0]),
]


@parametrize(LEAVES)
def test_leaf_written_by_an_operator_that_autograd_does_not_see(program: Any) -> None:
    assert_as_eager(program, x())


WITHOUT_DERIVATIVE = [
    ("heaviside", lambda a: torch.heaviside(a, torch.ones(4))),
    ("one_argument", lambda a: torch.special.zeta(a.square() + 2, torch.ones(4)) * 2),
]


@parametrize(WITHOUT_DERIVATIVE)
def test_operator_without_a_derivative_is_an_error_in_backward(program: Any) -> None:
    compiled = thunder.jit(program)
    a = x()
    torch.testing.assert_close(compiled(a), program(a))
    messages = []
    for function in (program, compiled):
        with pytest.raises(RuntimeError, match="derivative for ") as raised:
            function(a).sum().backward()
        messages.append(str(raised.value).split("\n")[0])
    assert messages[0] in messages[1]
    assert_as_eager(lambda a: program(a).detach() * a, a)


CONJUGATES = [
    ("ihfft", lambda a: torch.fft.ihfft(a).imag),
    ("ifft", lambda a: torch.fft.ifft(a).t().imag),
    ("svd", lambda a: torch.svd(torch.complex(a, a.cos()))[2].imag.abs()),
]


@parametrize(CONJUGATES)
def test_parts_of_what_kernels_give_as_lazy_conjugates(program: Any) -> None:
    a = x(grad=False)
    torch.testing.assert_close(thunder.jit(program)(a), program(a))


COMPLEX_VIEWS = [
    ("select", written(lambda b, c: b[0].copy_(c[0]))),
    ("select_last", written(lambda b, c: b[:, -1].copy_(c[:, 0]))),
    ("diagonal", written(lambda b, c: b.diagonal(1, -2, -1).copy_(c[0, :3]))),
    ("as_strided", written(lambda b, c: b.as_strided((2, 2), (4, 2), 1).copy_(c[:2, :2]))),
]


@parametrize(COMPLEX_VIEWS)
def test_gradient_of_a_write_through_a_view_of_complex_numbers(program: Any) -> None:
    a, c = (torch.complex(x(grad=False) + i, x(grad=False).cos()).requires_grad_() for i in range(2))
    assert_as_eager(program, a, c)
    assert_as_eager(program, a, c.detach())


FACTORIES = [
    ("zeros", lambda a: torch.zeros(2, out=a)),
    ("full", lambda a: torch.full((2, 3), 2, out=a)),
    ("arange", lambda a: torch.arange(3, out=a)),
    ("eye", lambda a: torch.eye(3, out=a)),
    ("linspace", lambda a: torch.linspace(0, 1, 12, out=a)),
    ("rand", lambda a: torch.rand(3, 4, out=a)),
    ("empty", lambda a: torch.empty(3, 4, out=a).fill_(1)),
    ("zeros_like", lambda a: torch.zeros_like(a) + torch.ones(3, 4, out=a)),
]


@parametrize(FACTORIES)
def test_out_of_functions_that_make_tensors(program: Any) -> None:
    assert_as_eager(program, x(grad=False))
    assert_as_eager(lambda a: program(a * 1), x(grad=False))


def test_group_norm_without_elements() -> None:
    def program(a: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.group_norm(a, 2, weight, weight)

    assert_as_eager(program, x(2, 4, 0), x(4))
    assert_as_eager(program, x(0, 4, 3), x(4))


FORWARD_MODE = [
    ("strided_copy", lambda a: torch.zeros(4, 3).t().copy_(a) * 2),
    ("as_strided", lambda a: (a * 2).as_strided((2, 2), (4, 1), 1).sin()),
]


@parametrize(FORWARD_MODE)
def test_forward_mode_of_what_restores_strides(program: Any) -> None:
    a = x(grad=False)
    expected = torch.func.jvp(program, (a,), (a.cos(),))
    torch.testing.assert_close(thunder.jvp(program, (a,), (a.cos(),)), expected)
    torch.testing.assert_close(thunder.jit(lambda a: torch.func.jvp(program, (a,), (a.cos(),)))(a), expected)


STRIDES = [
    ("view_of_a_strided_tensor", lambda a: (a.t().split([2, 1])[0].not_equal_(0), a.t()[:2] == a.t()[:2])[1]),
    ("flat_view_of_what_is_written_turned", lambda a: (a.ravel(), a.mT[:, 1:].not_equal_(-1))[0]),
    ("turned_with_gaps", lambda a: torch.exp2(torch.stack([a, a], -1)[..., 0].t().ne_(1e-3))),
    ("view_copy", lambda a: torch.view_copy(a[:, :1].expand(3, 4), [12])),
    ("resized_out", lambda a: torch.msort(a.t(), out=torch.empty(1)) * 1),
]


@parametrize(STRIDES)
def test_strides_of_what_is_written_through_views(program: Any) -> None:
    assert_as_eager(program, x(grad=False))
    assert_as_eager(lambda a: program(a * 1), x(grad=False))


def test_flat_view_under_vmap_of_what_is_written_turned() -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        flat = a.ravel()
        a.mT[:, 1:].not_equal_(-1)
        return flat

    a = x(2, 3, 4, grad=False)
    torch.testing.assert_close(thunder.vmap(program)(a.clone()), torch.stack([program(row.clone()) for row in a]))


def test_resized_out_of_the_caller_has_the_strides_of_the_result() -> None:
    def program(a: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return torch.msort(a.t(), out=out)

    assert_as_eager(program, x(grad=False), torch.empty(1))


def test_integers_that_take_what_requires_grad() -> None:
    def program(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        b[0::2] = a.sum()
        return b.detach()

    torch.testing.assert_close(thunder.jit(program)(x(), torch.arange(4)), program(x(), torch.arange(4)))


NOTHING_WRITTEN = [
    ("dropout_", lambda a: torch.dropout_(a, 0.5, False) * 2),
    ("dropout_of_a_view", lambda a: torch.dropout_(a[:2], 0.5, False) * 2),
    ("feature_dropout_", lambda a: torch.feature_dropout_(a, 0.5, False) * 2),
]


@parametrize(NOTHING_WRITTEN)
def test_leaf_given_to_a_composite_that_does_not_write(program: Any) -> None:
    assert_as_eager(program, x())


def test_random_fill_of_integers_without_elements() -> None:
    assert_as_eager(lambda a: a.log_normal_(2.0, 0.1), torch.empty(0, 3, dtype=torch.int32))


def test_forward_mode_does_not_see_writes_that_autograd_does_not_see() -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        b = a * 2
        b.logical_not_()
        b[0].logical_and_(b[1])
        return b * a

    a = x(grad=False)
    expected = torch.func.jvp(program, (a,), (a.cos(),))
    torch.testing.assert_close(thunder.jvp(program, (a,), (a.cos(),)), expected)


ZERO_TANGENTS = [
    ("product_with_a_number", lambda a: (a / 0) * 2),
    ("power_of_a_mask", lambda a: a.float_power(torch.tensor([True, False, True, True]))),
    ("integer_power", lambda a: a ** torch.tensor([1, 2, 3, 0])),
]


@parametrize(ZERO_TANGENTS)
def test_a_tangent_of_zero_times_infinity_is_zero(program: Any) -> None:
    a = x(grad=False)
    torch.testing.assert_close(thunder.jvp(program, (a,), (a,)), torch.func.jvp(program, (a,), (a,)))


def test_zeros_without_memory_do_not_leave_a_trace() -> None:
    a = x(grad=False)
    _, tangent = thunder.jvp(torch.sgn, (a,), (a,))
    assert tangent.untyped_storage().data_ptr() != 0


WRITES_INSIDE = [
    ("margin_ranking_loss", lambda a: torch.nn.functional.margin_ranking_loss(a, a.cos(), a.sin())),
    ("std", lambda a: torch.std(a * a.cos())),
]


@parametrize(WRITES_INSIDE)
def test_second_derivative_of_a_composite_that_writes(program: Any) -> None:
    def twice(module: Any) -> Any:
        return module.grad(lambda a: module.grad(lambda b: program(b).square())(a).sum())

    torch.testing.assert_close(twice(thunder)(x(grad=False)), twice(torch.func)(x(grad=False)))


def test_forward_mode_of_a_remainder_of_masks() -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        return torch.tensor([True, False, True, True]) % a

    a = x(grad=False)
    torch.testing.assert_close(thunder.jvp(program, (a,), (a.cos(),)), torch.func.jvp(program, (a,), (a.cos(),)))


def test_flat_view_of_what_a_kernel_lays_out_in_its_own_way() -> None:
    assert_as_eager(lambda a: torch.linalg.eig(a @ a.t())[1].flatten(), x(grad=False))


IN_A_LOOP = [
    ("geqrf", lambda a: torch.geqrf(a)),
    ("masked_select", lambda a: torch.masked_select(a, torch.tensor([True, False, True, False]))),
    ("lstsq", lambda a: torch.linalg.lstsq(a, a[:, :1])[0]),
]


@parametrize(IN_A_LOOP)
def test_vmap_of_an_operator_whose_results_are_known_by_running_it(program: Any) -> None:
    a = x(2, 3, 4, grad=False)
    torch.testing.assert_close(thunder.vmap(program)(a), torch.func.vmap(program)(a), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("randomness", ["different", "same"])
def test_normal_fill_under_vmap_draws_what_torch_draws(randomness: str) -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        return (a * 1).normal_(1.0, 2.0)

    torch.manual_seed(3)
    expected = torch.func.vmap(program, randomness=randomness)(x(grad=False))
    torch.manual_seed(3)
    torch.testing.assert_close(thunder.vmap(program, randomness=randomness)(x(grad=False)), expected)


@pytest.mark.parametrize("dim", [0, 1])
def test_fusion_of_what_is_expanded_and_a_transposed_square(dim: int) -> None:
    def program(g: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(g.unsqueeze(dim).expand(4, 4) * a.t())

    assert_as_eager(program, x(4), x(4, 4))


@pytest.mark.parametrize("function", [torch.tanh, torch.nn.functional.gelu, torch.exp, torch.sigmoid])
def test_what_is_not_a_number_stays_so_whatever_its_bits(function: Any) -> None:
    bits = torch.tensor([-1, 0x7FC00001, 0x7FFFFFFF, -0x400000], dtype=torch.int32)
    a = bits.view(torch.float32).repeat(16)
    assert thunder.jit(lambda a: function(a) * 2)(a).isnan().all()


def test_segment_that_reads_a_view_of_an_input_reads_it_before_the_write() -> None:
    index = torch.tensor(1)

    def program(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        part = a[0, index, 2:]
        rolled = torch.roll(b, 0, 2)
        part[:, 0] = 2
        c.arcsin_()
        b.logical_not_()
        return rolled

    def pushed(*arguments: torch.Tensor) -> Any:
        return torch.func.jvp(program, arguments, tuple(torch.full_like(a, 0.5) for a in arguments))

    def arguments() -> list[torch.Tensor]:
        return [torch.ones(2, 2, 1, 2), torch.ones(1, 1, 1), torch.ones(())]

    torch.testing.assert_close(thunder.jit(pushed)(*arguments()), pushed(*arguments()))


def test_forward_mode_of_a_normal_fill_is_zero() -> None:
    a = x(grad=False)
    _, tangent = thunder.jvp(lambda a: (a * 1).normal_() * 2, (a,), (a,))
    assert not tangent.any()


PLACES_OF_EXAMPLES = [
    ("fill_diagonal", lambda a: (a * 1).fill_diagonal_(0.5)),
    ("fill_diagonal_of_strided", lambda a: (a.t() * 1).fill_diagonal_(0.5)),
    ("as_strided", lambda a: (lambda b: (b.as_strided((2, 2), (4, 1), 1).mul_(a[:2, :2]), b))(a * 2)[1]),
]


@parametrize(PLACES_OF_EXAMPLES)
def test_vmap_and_jvp_of_what_is_written_at_places_in_memory(program: Any) -> None:
    a = x(2, 3, 4, grad=False)
    torch.testing.assert_close(thunder.vmap(program)(a), torch.stack([program(row) for row in a]))
    expected = torch.func.jvp(program, (a[0],), (a[1],))
    torch.testing.assert_close(thunder.jvp(program, (a[0],), (a[1],)), expected)


def test_view_of_a_view_requires_grad_after_a_write_to_what_they_show() -> None:
    def program(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        shown = b[2, -1:, -2]
        b[2] = a
        return shown

    assert_as_eager(program, x(4, 4), torch.ones(3, 1, 4, 4))
    assert_as_eager(lambda a, b: program(a, b * 1), x(4, 4), torch.ones(3, 1, 4, 4))


REPETITIONS = [
    ("each", lambda a, n: torch.repeat_interleave(a, n, dim=1)),
    ("flat", lambda a, n: a.repeat_interleave(n[:1])),
    ("one_number", lambda a, n: a.repeat_interleave(n[1] + 1, dim=0)),
]


@parametrize(REPETITIONS)
def test_gradient_of_repetitions_that_are_data(program: Any) -> None:
    a, n = x(grad=False), torch.tensor([1, 0, 2, 3])
    f = thunder.grad(lambda a, n: program(a, n).square().sum())
    for numbers in (n, n.flip(0)):
        expected = torch.func.grad(lambda a, n=numbers: program(a, n).square().sum())(a)
        torch.testing.assert_close(f(a, numbers), expected)


def test_copy_that_was_asked_for_shares_no_memory_with_a_view_of_its_origin() -> None:
    def program(a: torch.Tensor) -> Any:
        b = a.exp()
        return b.to(copy=True), b[:, 0]

    copy, view = thunder.jit(program)(x(grad=False))
    assert copy.untyped_storage().data_ptr() != view.untyped_storage().data_ptr()


EXTREMA = [
    ("max", lambda a: a.max() * float("inf")),
    ("min", lambda a: torch.min(a).log()),
    ("max_of_nan", lambda a: torch.max(a * torch.tensor([1.0, 1.0, float("nan"), 1.0])).exp()),
    ("equal", lambda a: a.round().max() * 2 + a.round().min()),
]


@parametrize(EXTREMA)
def test_gradient_of_an_extremum_of_all(program: Any) -> None:
    assert_as_eager(program, x())


NUMBERS_OF_ANOTHER_DTYPE = [
    ("clamp", lambda a: (a.clamp(-1), a.clamp(-1) + 0)),
    ("clamp_both", lambda a: a.clamp(-3, 300) * 2 - 1),
    ("arithmetic", lambda a: (a * -1 + 3) * 2),
    ("where", lambda a: torch.where(a, -1, 3)),
    ("where_of_tensors", lambda a: torch.where(a, a * 2, a + 1)),
]


@pytest.mark.filterwarnings("ignore:where received a uint8 condition")
@parametrize(NUMBERS_OF_ANOTHER_DTYPE)
def test_bytes(program: Any) -> None:
    assert_as_eager(program, torch.arange(6, dtype=torch.uint8))


def test_write_beside_arguments_of_other_shapes_that_require_grad() -> None:
    def program(a: torch.Tensor, b: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> Any:
        return torch._native_batch_norm_legit(a, b, b, mean, variance, True, 0.1, 1e-5)

    assert_as_eager(program, x(3, 4, 2), x(4), torch.zeros(4), torch.ones(4))
    assert_as_eager(lambda a, b: (a * 1).lt_(b) * 2, x(3, 4), x(4))


def test_write_to_a_slice_of_complex_numbers_that_require_grad() -> None:
    def program(a: torch.Tensor) -> Any:
        b = a * a
        b[:-1] = 0.5 - 2j
        b[:, 1:3:2] = b[:, :1] * 2
        return b

    assert_as_eager(program, x(3, 4).detach().to(torch.complex64).requires_grad_())


def strided_twice(a: torch.Tensor) -> Any:
    a.mul_(2)
    shown = a.as_strided((2,), (5,), a.storage_offset())
    a.add_(1)
    shown.mul_(3)
    a.add_(shown.sum())
    return shown


def strided_before(a: torch.Tensor) -> Any:
    shown = a.as_strided((2,), (5,), a.storage_offset())
    a.mul_(2)
    shown.add_(1)
    return shown


WRITES_TO_WHAT_BEGINS_LATER = [
    ("diagonal", lambda a: (a.copysign_(2.0).fill_diagonal_(1), None)[1]),
    ("diagonal_of_transposed", lambda a: (a.add_(1).t().fill_diagonal_(3), a.mul_(2))[1]),
    ("strided", lambda a: (a.mul_(2), a.as_strided((2,), (5,), a.storage_offset()))[1]),
    ("strided_twice", strided_twice),
    ("strided_before", strided_before),
]


@parametrize(WRITES_TO_WHAT_BEGINS_LATER)
def test_as_strided_of_what_was_written_and_begins_later_in_its_memory(program: Any) -> None:
    memory = torch.randn(5, 4)
    expected, ours = memory.clone(), memory.clone()
    result, got = program(expected[1:3, 1:3]), thunder.jit(program)(ours[1:3, 1:3])
    torch.testing.assert_close(got, result)
    torch.testing.assert_close(ours, expected)


def test_results_without_a_derivative_require_no_grad_where_data_was_read() -> None:
    def program(a: torch.Tensor) -> Any:
        _, _, rank, values = torch.linalg.lstsq(a, a, driver="gelsy")
        return a[...], values[...], rank, a.requires_grad, values.requires_grad

    assert_as_eager(program, x(1, 1))


RANGES_OF_COMPLEX_NUMBERS = [
    ("logspace", lambda a: torch.logspace(-1, a, 3, 0.5)),
    ("logspace_of_nothing", lambda a: torch.logspace(a, 2, 0)),
    ("linspace", lambda a: torch.linspace(a, a * 2, 4)),
    ("linspace_of_both", lambda a: torch.linspace(torch.tensor(1.0, dtype=torch.float64), a, 4)),
]


@parametrize(RANGES_OF_COMPLEX_NUMBERS)
def test_range_between_complex_numbers_in_tensors(program: Any) -> None:
    def seen(a: torch.Tensor) -> Any:
        result = program(a)
        return result, result.dtype

    assert_as_eager(seen, torch.tensor(1 + 2j, dtype=torch.complex64))


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out_of_other_shape_that_requires_grad_is_refused_for_results_without_a_derivative() -> None:
    def program(a: torch.Tensor, b: torch.Tensor) -> Any:
        return torch.logical_or(a, a, out=b * 2)

    with pytest.raises(NotImplementedError, match=r"logical_or.*dtype"):
        thunder.jit(program, fullgraph=True)(torch.ones(1, 1), torch.ones(2, requires_grad=True))


def test_frequencies_in_an_out_of_another_shape() -> None:
    def program(a: torch.Tensor) -> Any:
        return torch.fft.fftfreq(4, out=a)

    assert_as_eager(program, torch.ones(4, 1))


def test_tangent_of_a_derivative_that_is_copied_into_other_strides() -> None:
    a = torch.randn(1, 2, 3).mT.contiguous().mT.half()
    f, inner = torch.func, (lambda t: t.copysign(0.5).sum())
    expected = f.jvp(f.grad(inner), (a,), (a,))
    torch.testing.assert_close(thunder.jvp(thunder.grad(inner), (a,), (a,)), expected)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_layout_of_a_given_number_of_positions(count: int) -> None:
    def program(a: torch.Tensor) -> Any:
        positions = torch.nonzero_static(a, size=count)
        return positions, positions.stride(), torch.nonzero_static(a.sum(), size=count).view(torch.float32)

    assert_as_eager(program, x(2, 3))


FILLS = [
    ("zero_of_complex_numbers", lambda a: (a.to(torch.complex64) * 1j).zero_().abs() + a),
    ("normal", lambda a: (a * 2).normal_(0.1)),
    ("uniform", lambda a: (a * 2).uniform_() * a),
    ("uniform_of_complex_numbers", lambda a: (a.to(torch.complex64) * 1j).uniform_().abs() + a),
    ("bernoulli_of_a_part", lambda a: ((b := a * 2)[0].bernoulli_(0.5), b)[1]),
]


@parametrize(FILLS)
def test_fill_of_what_requires_grad(program: Any) -> None:
    assert_as_eager(program, x())


LAID_OUT_AS_THE_SECOND = [
    ("logical_or", lambda a, b: torch.logical_or(b, a)),
    ("logical_and", lambda a, b: torch.logical_and(b, a)),
    ("logical_xor", lambda a, b: torch.logical_xor(b, a)),
    ("floor_divide", lambda a, b: torch.floor_divide(b, a)),
]


@parametrize(LAID_OUT_AS_THE_SECOND)
def test_result_is_laid_out_as_an_argument_of_more_dimensions(program: Any) -> None:
    def seen(a: torch.Tensor, b: torch.Tensor) -> Any:
        result = program(a, b)
        return result, result.stride(), result.ravel()

    assert_as_eager(seen, torch.ones(2, 2, 3).mT, torch.tensor([1, 2]))


@pytest.mark.parametrize("size", [(3, 3), (2, 3, 3), (0, 3, 3)])
def test_eigenvectors_are_columns(size: tuple[int, ...]) -> None:
    def seen(a: torch.Tensor) -> Any:
        _, vectors = torch.linalg.eig(a)
        return vectors.stride(), vectors.mH, vectors[..., :1], torch.view_as_real(vectors)

    assert_as_eager(seen, torch.randn(size, dtype=torch.float64))


def test_an_infinite_gradient_beside_the_places_that_are_filled() -> None:
    def program(a: torch.Tensor, places: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        filled = torch.index_fill(a, -1, places, value)
        beside = filled[:, 1]
        beside.asin_()
        return filled

    value = torch.tensor(1.0, requires_grad=True)
    assert_as_eager(program, torch.ones(2, 5), torch.tensor([4, 3, 3, 0]), value)
