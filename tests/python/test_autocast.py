"""`thunder.autocast` gives what `torch.autocast` gives, as a program."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_same
from operator_samples import operators
from small_modules import mlp, resnet
from torch import nn
from torch.nn import functional as F

import thunder


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape or (3, 4), generator=torch.Generator().manual_seed(sum(shape)))


WEIGHT = x(4, 2)

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "product": lambda a: a @ WEIGHT,
    "linear": lambda a: F.linear(a, WEIGHT.t()).relu(),
    "range": lambda a: F.mse_loss(a @ WEIGHT, torch.zeros(3, 2)),
    "promotion": lambda a: torch.cat([a @ WEIGHT, a], 1),
    "containers": lambda a: {"product": a @ WEIGHT, "rest": [a * 2, (a.shape[0], None)]},
    "write": lambda a: (b := a @ WEIGHT, b.mul_(2), b[0].zero_())[0],
    "dropout": lambda a: F.dropout(a @ WEIGHT, 0.5),
}


def in_eager(program: Callable[..., Any], dtype: torch.dtype, *arguments: Any, device: str = "cpu") -> Any:
    torch.manual_seed(0)
    with torch.autocast(device, dtype):
        return program(*arguments)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_autocast_equals_pytorchs(name: str, dtype: torch.dtype) -> None:
    compiled = thunder.autocast(PROGRAMS[name], dtype)
    for _ in range(2):
        torch.manual_seed(0)
        assert_same(compiled(x()), in_eager(PROGRAMS[name], dtype, x()), "result")
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("make", [mlp, resnet, lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)])
def test_training_step_of_a_module(make: Callable[[], nn.Module]) -> None:
    module = make()
    eager = copy.deepcopy(module)
    data = x(2, 3, 8, 8) if any(isinstance(part, nn.Conv2d) for part in module.modules()) else x(5, 3, 4)
    in_eager(eager, torch.bfloat16, data).float().square().sum().backward()
    thunder.autocast(module)(data).float().square().sum().backward()
    for parameter, expected in zip(module.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected.grad, rtol=2e-2, atol=2e-2)


def test_casts_are_in_the_trace() -> None:
    compiled = thunder.autocast(lambda a: F.mse_loss(a @ WEIGHT, torch.zeros(3, 2)))
    compiled(x())
    trace = str(thunder.last_traces(compiled)[-1])
    for value in ('bf16[3, 4]"', 'bf16[4, 2]"', 'bf16[3, 2]"', 'f32[3, 2]"'):  # arguments, product, cast back
        assert value in trace


def test_autocast_composes_with_other_transforms() -> None:
    def loss(w: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        return (a @ w).float().square().sum()

    expected = torch.func.grad(lambda w, a: in_eager(loss, torch.bfloat16, w, a))(WEIGHT, x())
    torch.testing.assert_close(thunder.grad(thunder.autocast(loss))(WEIGHT, x()), expected)
    batched = thunder.vmap(thunder.autocast(lambda a: a @ WEIGHT))(x(5, 3, 4))
    assert_same(batched, in_eager(torch.matmul, torch.bfloat16, x(5, 3, 4), WEIGHT), "result")


def test_autocast_inside_of_a_jitted_function() -> None:
    compiled = thunder.jit(lambda a: thunder.autocast(lambda t: t @ WEIGHT)(a).float() + a @ WEIGHT)
    expected = in_eager(torch.matmul, torch.bfloat16, x(), WEIGHT).float() + x() @ WEIGHT
    torch.testing.assert_close(compiled(x()), expected)


def test_other_dtypes_and_devices_are_refused() -> None:
    with pytest.raises(ValueError, match=r"dtype: expected torch\.bfloat16 or torch\.float16, got torch\.float32"):
        thunder.autocast(torch.sin, torch.float32)
    with pytest.raises(ValueError, match="device_type: expected 'cpu' or 'cuda', got 'meta'"):
        thunder.autocast(torch.sin, device_type="meta")


PUT_TOGETHER: dict[str, Callable[[torch.Tensor], Any]] = {
    "einsum": lambda a: torch.einsum("ij,jk,kl->il", a, WEIGHT, x(2, 5)),
    "tensordot": lambda a: torch.tensordot(a, WEIGHT, 1),
    "multi_dot": lambda a: torch.linalg.multi_dot([a, WEIGHT, x(2, 5)]),
    "inner": lambda a: torch.inner(a, WEIGHT.t()),
    "kron": lambda a: torch.kron(a, WEIGHT),
    "nll_loss": lambda a: F.nll_loss(F.log_softmax(a @ WEIGHT, 1), torch.tensor([0, 1, 0])),
    "cross_entropy": lambda a: F.cross_entropy(a @ WEIGHT, torch.tensor([0, 1, 0]), label_smoothing=0.1),
    "cosine_similarity": lambda a: F.cosine_similarity(a, a @ x(4, 4)),
    "layer_norm": lambda a: F.layer_norm(a @ x(4, 4), (4,)),
    "lstm": lambda a: LSTM(a),
    "gru_cell": lambda a: CELL(a),
    "attention": lambda a: ATTENTION(a, a, a),
    "matrix_power": lambda a: torch.linalg.matrix_power(a @ a.t(), 3),
    "chain": lambda a: torch.chain_matmul(a, WEIGHT, x(2, 3)),
}
BILINEAR = x(2, 4, 4)
LSTM, CELL, ATTENTION = nn.LSTM(4, 3), nn.GRUCell(4, 3), nn.MultiheadAttention(4, 2)


@pytest.mark.parametrize("name", PUT_TOGETHER)
def test_what_pytorch_puts_together_is_taken_apart(name: str) -> None:
    def inside(a: torch.Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return PUT_TOGETHER[name](a)

    around = thunder.jit(PUT_TOGETHER[name])
    compiled = thunder.jit(inside)
    for _ in range(2):
        with torch.no_grad():
            expected = inside(x())
            assert_same(compiled(x()), expected, "inside", atol=0.02, rtol=0.02)
            assert_same(in_eager(around, torch.bfloat16, x()), expected, "around", atol=0.02, rtol=0.02)


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("function", [lambda a: F.bilinear(a, a, BILINEAR), torch.linalg.pinv])
def test_kernels_that_cast_inside_run_in_eager(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    compiled, a = thunder.jit(function), x()
    result = in_eager(compiled, torch.bfloat16, a)
    assert torch.equal(result, in_eager(function, torch.bfloat16, a))
    assert not torch.equal(result, function(a).to(result.dtype))


def test_what_meets_no_cast_is_recorded_as_it_is_called() -> None:
    compiled = thunder.jit(lambda a: torch.trapezoid(a).reshape(-1))
    in_eager(compiled, torch.bfloat16, x())
    assert "trapezoid" in str(thunder.last_traces(compiled)[0])


def tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else []
    return [tensor for part in parts for tensor in tensors_in(part)]


def fresh(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return type(value)(map(fresh, value)) if type(value) in (list, tuple) else value


def dtypes_under_autocast(function: Callable[..., Any], sample: Any, device: str) -> Any:
    """Return the dtypes of the results of a call, and of the gradients of its arguments; or what it raises."""
    arguments = fresh((sample.input, *sample.args))
    keywords = {name: fresh(value) for name, value in sample.kwargs.items()}
    try:
        results = tensors_in(in_eager(lambda: function(*arguments, **keywords), torch.bfloat16, device=device))
        sources = [result for result in results if result.requires_grad and result.is_floating_point()]
        torch.autograd.backward(sources, [torch.ones_like(source) for source in sources])
    except Exception as error:
        return type(error)
    gradients = [tensor.grad for tensor in tensors_in((arguments, keywords)) if tensor.is_leaf]
    return [result.dtype for result in results], [None if g is None else g.dtype for g in gradients]


def may_have_parts(op: Any) -> bool:
    is_unary = type(op).__name__ == "UnaryUfuncInfo" or op.name.startswith(("_", "fft.", "signal.", "special."))
    return torch.float32 in op.dtypes and not is_unary


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning", "ignore::UserWarning")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    "op", {op.name: op for op in operators() if may_have_parts(op)}.values(), ids=lambda op: op.name
)
def test_operator_under_autocast_gives_eagers_dtypes(op: Any, device: str) -> None:
    sample = next(iter(op.sample_inputs(device, torch.float32, requires_grad=op.supports_autograd)))
    call = op.op
    compiled = thunder.jit(lambda *arguments, **keywords: call(*arguments, **keywords))
    assert dtypes_under_autocast(compiled, sample, device) == dtypes_under_autocast(call, sample, device)
