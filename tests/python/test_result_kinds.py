"""Traces say of each result the dtype and the strides that PyTorch's kernels give it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from operator_samples import operators
from recorded_kinds import differences
from torch import nn
from torch.nn import functional as F

import thunder
from thunder._check import load_extension

Tensor = torch.Tensor

#: Operators of which traces say strides that a kernel does not give; docs/maintainers/status.md.
KNOWN = {"_conj_physical", "_batch_norm_with_update_functional", "batch_norm_backward", "resize_as", "clone"}
#: Of memory that nobody filled, of sparse tensors, and for GPUs alone.
LEFT_OUT = ("empty", "new_empty", "sparse", "jiterator")
#: Behind a kernel that gives other strides than it says, these go by one or the other; docs/maintainers/status.md.
ASKS_FOR_STRIDES = {"as_strided", "as_strided_copy", "stft"}
#: What a trace refuses, or a sample that raises in eager, too.
REFUSALS = (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError, StopIteration, AttributeError)

DTYPES = (torch.float16, torch.bfloat16, torch.float64, torch.float32, torch.int64, torch.bool, torch.complex64)


@pytest.fixture
def no_round_trips(round_trips: None) -> None:
    """Leave out what all other tests do with each trace: here are thousands of them."""
    load_extension().trace.check_round_trips(False)


def samples(count: int, grad: bool) -> Iterator[tuple[Any, list[Any], dict[str, Any]]]:
    for operator in operators():
        if torch.float32 not in operator.dtypes or operator.name.startswith(LEFT_OUT):
            continue
        try:
            rows = operator.sample_inputs("cpu", torch.float32, requires_grad=grad and operator.supports_autograd)
            rows = list(itertools.islice(rows, count))
        except REFUSALS:
            continue
        for row in rows:
            yield operator, [row.input, *row.args], dict(row.kwargs)


def mapped(change: Callable[[Tensor], Tensor], args: list[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    tree_map = torch.utils._pytree.tree_map
    return tree_map(lambda x: change(x) if isinstance(x, Tensor) and x.layout == torch.strided else x, (args, kwargs))


def wrong(operator: Any, args: list[Any], kwargs: dict[str, Any]) -> list[str]:
    try:
        operator.op(*args, **kwargs)
        found = differences(operator.op, tuple(args), kwargs)
    except (*REFUSALS, KeyError):
        return []
    return [f"{operator.name}: {name}: {text}" for name, text in found if name not in KNOWN]


def transposed(x: Tensor) -> Tensor:
    dims = tuple(range(x.dim() - 1, -1, -1))
    return x.detach().permute(dims).contiguous().permute(dims)


def images_last(x: Tensor) -> Tensor:
    return x.detach().contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x.detach()


def with_gaps(x: Tensor) -> Tensor:
    if x.dim() == 0:
        return x.detach()
    wide = torch.zeros(*x.shape[:-1], x.shape[-1] * 2, dtype=x.dtype)
    return wide[..., ::2].copy_(x.detach())


@pytest.mark.slow
@pytest.mark.usefixtures("no_round_trips")
@pytest.mark.parametrize("layout", [transposed, images_last, with_gaps])
def test_strides_of_operators(layout: Callable[[Tensor], Tensor]) -> None:
    def change(x: Tensor) -> Tensor:
        return layout(x).requires_grad_(x.requires_grad)

    found = [text for row in samples(1, True) for text in wrong(row[0], *mapped(change, *row[1:]))]
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.usefixtures("no_round_trips")
def test_dtypes_of_operators_of_mixed_dtypes() -> None:
    choice = random.Random(0)
    found = []
    for (operator, args, kwargs), _ in itertools.product(samples(1, False), range(3)):
        base = choice.choice(DTYPES[:4])

        def change(x: Tensor, base: torch.dtype = base) -> Tensor:
            if not x.is_floating_point():
                return x
            x = x.to(choice.choice(DTYPES) if choice.random() < 0.4 else base)
            return x.detach().requires_grad_(x.is_floating_point() and choice.random() < 0.5)

        found += wrong(operator, *mapped(change, args, kwargs))
    assert not found, "\n".join(found)


HALF, FLOAT, DOUBLE = torch.rand(6).half(), torch.rand(6), torch.rand((), dtype=torch.float64)
MIXED: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "weighted": (lambda p, w: F.binary_cross_entropy(p, p, weight=w, reduction="none"), (HALF, FLOAT)),
    "weighted mean": (lambda p, w: F.binary_cross_entropy(p, p, weight=w), (HALF, FLOAT)),
    "soft margin": (lambda p, w: F.soft_margin_loss(p, w), (HALF, FLOAT)),
    "huber": (lambda p, w: F.huber_loss(p, w, reduction="none"), (HALF, FLOAT)),
    "huber of the wider one": (lambda p, w: F.huber_loss(w, p), (HALF, FLOAT)),
    "outer product": (lambda z, v: torch.addr(z, v, v), (DOUBLE, FLOAT)),
    "power of two": (lambda i, e: torch.ldexp(i, e), (torch.tensor(3), HALF[0])),
    "normal": (lambda p, w: torch.normal(p, w), (HALF, FLOAT)),
    "batch norm": (
        lambda x: torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)[1],
        (HALF.view(2, 3),),
    ),
    "statistics": (lambda x: torch._native_batch_norm_legit(x, None, None, True, 0.1, 1e-5)[1], (HALF.view(2, 3),)),
}


@pytest.mark.parametrize("name", MIXED)
def test_cast_of_a_result_of_mixed_dtypes(name: str) -> None:
    function, inputs = MIXED[name]
    for dtype in (torch.float16, torch.float32, torch.float64):

        def program(*inputs: Tensor, dtype: torch.dtype = dtype) -> tuple[Tensor, str, Tensor]:
            result = function(*inputs)
            return result.to(dtype), str(result.dtype), result.to(dtype) * 2

        torch.manual_seed(0)
        theirs = program(*inputs)
        torch.manual_seed(0)
        ours = thunder.jit(program)(*inputs)
        assert ours[1] == theirs[1]
        torch.testing.assert_close(ours[::2], theirs[::2], equal_nan=True)


def test_gradients_of_losses_of_mixed_dtypes() -> None:
    for loss in (F.mse_loss, F.smooth_l1_loss, F.soft_margin_loss):
        gradients = []
        for call in (loss, thunder.jit(loss)):
            half = HALF.clone().requires_grad_()
            call(half, FLOAT).backward()
            gradients.append(half.grad)
        torch.testing.assert_close(gradients[1], gradients[0])


SQUARE: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "stft": (lambda x: torch.stft(x, 16, 4, 16, torch.hann_window(16), return_complex=True), (1, 32)),
    "stft of one": (lambda x: torch.stft(x, 16, 4, 16, torch.hann_window(16), return_complex=True), (32,)),
    "transposed in place": (lambda x: (x * 1).transpose_(0, 1), (4, 4)),
    "transposed twice": (lambda x: (x * 1).t_().t_() + x, (4, 4)),
    "as_strided in place": (lambda x: (x * 1).as_strided_((4, 4), (1, 4)), (4, 4)),
    "other part": (lambda x: (x * 1)[1:].as_strided_((3, 4), (4, 1), 2), (4, 4)),
    "fft": (lambda x: torch.fft.fftn(x.t(), dim=(1, 0)), (4, 4)),
    "rfft": (lambda x: torch.fft.rfftn(x.permute(2, 0, 1), dim=(2, 0, 1)), (4, 4, 4)),
    "hfft2": (lambda x: torch.fft.hfft2(x.permute(2, 1, 0) + 0j, None, [0]), (7, 6, 5)),
    "irfft2": (lambda x: torch.fft.irfft2(x.permute(2, 1, 0) + 0j, None, [0]), (7, 6, 5)),
    "rotated": (lambda x: torch.rot90(x), (4, 4)),
    "eigenvectors": (lambda x: torch.linalg.eigh(x @ x.mT)[1].abs(), (4, 4)),
}


@pytest.mark.parametrize("name", SQUARE)
def test_strides_that_a_program_asks_for(name: str) -> None:
    function, sizes = SQUARE[name]

    def program(x: Tensor) -> tuple[Tensor, tuple[int, ...], bool]:
        result = function(x)
        return result, result.stride(), result.is_contiguous()

    compiled = thunder.jit(program)
    for _ in range(2):
        x = torch.randn(sizes)
        theirs, ours = program(x), compiled(x)
        assert ours[1:] == theirs[1:]
        assert ours[0].stride() == theirs[0].stride()
        torch.testing.assert_close(ours[0], theirs[0])


@pytest.mark.parametrize("frames", [16, 17, 18])
def test_gradient_of_a_normed_weight_behind_a_spectrogram(frames: int) -> None:
    gradients = []
    for jit in (lambda f: f, thunder.jit):
        torch.manual_seed(0)
        layer = nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 4, 3))
        x = torch.randn(1, 8 * (frames - 1))

        def program(x: Tensor, layer: nn.Module = layer) -> Tensor:
            spectrum = torch.stft(x, 32, 8, 32, torch.hann_window(32), return_complex=True)
            return layer(torch.view_as_real(spectrum).permute(0, 3, 2, 1)).pow(2).mean()

        jit(program)(x).backward()
        gradients.append([p.grad for p in layer.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0])


@torch.library.custom_op("thunder_test::laid_otherwise", mutates_args=())
def laid_otherwise(x: Tensor) -> Tensor:
    return (x * 2).mT.contiguous().mT


@laid_otherwise.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


laid_otherwise.register_autograd(lambda ctx, grad: laid_otherwise(grad))


@torch.library.custom_op("thunder_test::laid_in_reverse", mutates_args=())
def laid_in_reverse(x: Tensor) -> Tensor:
    dims = tuple(range(x.dim() - 1, -1, -1))
    return x.permute(dims).clone(memory_format=torch.contiguous_format).permute(dims)


@laid_in_reverse.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype)


laid_in_reverse.register_autograd(lambda ctx, grad: laid_in_reverse(grad))


def in_reverse(structure: Any) -> Any:
    """Lay all tensors out in the reverse order, by a kernel whose description says that they are contiguous."""

    def change(x: Any) -> Any:
        is_taken = isinstance(x, Tensor) and x.layout == torch.strided and (x.is_floating_point() or x.is_complex())
        return laid_in_reverse(x) if is_taken else x

    return torch.utils._pytree.tree_map(change, structure)


def values_and_gradients(program: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
    leaves: list[Tensor] = []

    def leaf(x: Tensor) -> Tensor:
        x = x.detach().clone().requires_grad_(x.requires_grad)
        leaves.extend([x] if x.requires_grad else [])
        return x

    torch.manual_seed(0)
    args, kwargs = mapped(leaf, args, kwargs)
    results = [x for x in torch.utils._pytree.tree_leaves(program(*args, **kwargs)) if isinstance(x, Tensor)]
    roots = [x for x in results if x.requires_grad]
    cotangents = [torch.linspace(1, 2, x.numel()).reshape(x.shape).to(x.dtype) for x in roots]
    if not roots:
        return [x.detach() for x in results]
    gradients = torch.autograd.grad(roots, leaves, cotangents, allow_unused=True, materialize_grads=True)
    return [*(x.detach() for x in results), *gradients]


@pytest.mark.slow
@pytest.mark.usefixtures("no_round_trips")
@pytest.mark.filterwarnings("error::thunder.EagerFallbackWarning")
def test_operators_between_kernels_that_lay_out_otherwise() -> None:
    """Kernels that read memory in order get it in order, also where it was only recorded as contiguous."""
    wrong = []
    for operator, args, kwargs in samples(2, True):
        if operator.name in ASKS_FOR_STRIDES or operator.name == "to_sparse":
            continue

        def program(*args: Any, call: Callable[..., Any] = operator.op, **kwargs: Any) -> Any:
            args, kwargs = in_reverse((args, kwargs))
            return in_reverse(call(*args, **kwargs))

        try:
            theirs = values_and_gradients(program, args, kwargs)
        except REFUSALS:
            continue
        try:
            ours = values_and_gradients(thunder.jit(program), args, kwargs)
            torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-4, atol=1e-4)
        except Exception as error:  # a warning among them
            wrong.append(f"{operator.name}: {error}")
    assert not wrong, "\n".join(wrong)


GROUP_NORMS: dict[str, Callable[..., Tensor]] = {
    "norm": lambda x, w, b: F.group_norm(laid_in_reverse(x), 2, w, b),
    "norm and its gradient": lambda x, w, b: laid_in_reverse(F.group_norm(x, 2, w, b)),
    "fused": lambda x, w, b: (F.group_norm(laid_in_reverse(x) + 1, 2, w, b) * 2).sin(),
    "without a weight": lambda x, w, b: laid_in_reverse(F.group_norm(laid_in_reverse(x), 2)) * w.sum() * b.sum(),
    "twice": lambda x, w, b: torch.autograd.grad(
        laid_in_reverse(F.group_norm(laid_in_reverse(x), 2, w, b)).pow(3).sum(), x, create_graph=True
    )[0],
}


@pytest.mark.filterwarnings("error::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("shape", [(2, 4, 5), (2, 4, 5, 6), (1, 4, 1, 3), (2, 4, 2, 3, 2)], ids=str)
@pytest.mark.parametrize("name", GROUP_NORMS)
def test_group_norm_of_what_a_kernel_lays_out_otherwise(name: str, shape: tuple[int, ...]) -> None:
    compiled = thunder.jit(GROUP_NORMS[name])
    for _ in range(2):
        args = [torch.randn(shape, dtype=torch.float64), *(torch.rand(4, dtype=torch.float64) for _ in range(2))]
        args = [x.requires_grad_() for x in args]
        theirs = values_and_gradients(GROUP_NORMS[name], args, {})
        torch.testing.assert_close(values_and_gradients(compiled, args, {}), theirs)


@pytest.mark.filterwarnings("error::thunder.EagerFallbackWarning")
def test_number_read_behind_a_group_norm_of_what_a_kernel_lays_out_otherwise() -> None:
    def program(x: Tensor) -> Tensor:
        y = F.group_norm(laid_in_reverse(x), 2)
        return y * 2 if y[0, 0, 0, 0] > y[0, 1, 1, 1] else y * 3

    compiled = thunder.jit(program)
    for _ in range(4):
        x = torch.randn(2, 4, 5, 6)
        torch.testing.assert_close(compiled(x), program(x))


def test_weight_norm_of_what_a_kernel_lays_out_otherwise() -> None:
    """It reads memory in order, and relies on `contiguous()`, which is nothing for what was recorded as contiguous."""

    def program(v: Tensor, g: Tensor) -> Tensor:
        return laid_otherwise(torch._weight_norm(laid_otherwise(v), g, 0)).pow(2).sum()

    results = []
    for call in (program, thunder.jit(program)):
        torch.manual_seed(0)
        v, g = torch.randn(4, 5, requires_grad=True), torch.rand(4, 1, requires_grad=True)
        loss = call(v, g)
        results.append((loss.detach(), *torch.autograd.grad(loss, (v, g))))
    torch.testing.assert_close(results[1], results[0])
