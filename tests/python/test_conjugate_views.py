"""Conjugate and negative views: known by a bit in eager, whose memory they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder


def number() -> torch.Tensor:
    return torch.complex(torch.arange(6.0).reshape(2, 3), torch.ones(2, 3))


def conjugate(z: torch.Tensor) -> Any:
    return z.conj()


def adjoint_of_made(z: torch.Tensor) -> Any:
    return (z * 2).mH


def imaginary(z: torch.Tensor) -> Any:
    return z.conj().imag * 2, (z.conj().t() * 2).imag


def part_of_conjugate(z: torch.Tensor) -> Any:
    return z.conj()[1:].t()


def conjugate_of_written(z: torch.Tensor) -> Any:
    w = z * 1
    v = w.conj()
    v.mul_(2j)
    return w, v


def asked_of_input(z: torch.Tensor) -> Any:
    return z * (2 if z.is_conj() else 3), z.conj().is_conj(), torch.is_conj(z), z.real.is_conj()


def resolved_has_memory_of_its_own(z: torch.Tensor) -> Any:
    w = z * 1
    w.conj().resolve_conj().mul_(2)
    w._neg_view().resolve_neg().mul_(2)
    return w


PROGRAMS = [
    conjugate,
    adjoint_of_made,
    imaginary,
    part_of_conjugate,
    conjugate_of_written,
    asked_of_input,
    resolved_has_memory_of_its_own,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_bits_values_and_memory_are_those_of_eager(program: Callable[..., Any]) -> None:
    compiled = thunder.jit(program)
    for make in (number, lambda: number().conj(), number):
        seen = []
        for function in (program, compiled):
            z = make()
            results = function(z)
            results = results if isinstance(results, tuple) else (results,)
            tensors = [result for result in results if isinstance(result, torch.Tensor)]
            bits = [(tensor.is_conj(), tensor.is_neg()) for tensor in tensors]
            with torch.no_grad():
                z.mul_(3)
            numbers = [result for result in results if not isinstance(result, torch.Tensor)]
            seen.append((bits, numbers, [tensor.resolve_conj().resolve_neg() for tensor in tensors]))
        assert seen[0][:2] == seen[1][:2]
        torch.testing.assert_close(seen[1][2], seen[0][2])


@pytest.mark.parametrize("program", [lambda z: z.conj().imag, lambda z: z.conj().imag.is_neg()])
def test_part_of_a_conjugate_is_refused_where_its_bit_counts(program: Callable[..., Any]) -> None:
    with pytest.raises(NotImplementedError):
        thunder.jit(program, fullgraph=True)(number())


def test_bit_of_what_a_kernel_made_is_not_guessed() -> None:
    with pytest.raises(NotImplementedError, match="ask outside"):
        thunder.jit(lambda z: z if (z * 2).is_conj() else -z, fullgraph=True)(number())


def test_gradient_of_a_conjugate_is_eager_s() -> None:
    gradients = []
    for function in (conjugate, thunder.jit(conjugate)):
        z = number().requires_grad_()
        result = function(z)
        torch.view_as_real(result.resolve_conj()).sin().sum().backward()
        gradients.append(z.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("show", [str, repr, "{}".format, lambda x: f"of {x.sum():.2f}"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_computed_tensors_are_shown_as_text(show: Callable[[Any], str], requires_grad: bool) -> None:
    def program(x: torch.Tensor) -> Any:
        doubled = x * 2
        return show(doubled), doubled.is_neg(), torch._neg_view(doubled).is_neg()

    compiled = thunder.jit(program)
    for size in (3, 4, 5):
        x = torch.linspace(-1, 1, size, requires_grad=requires_grad)
        assert compiled(x) == program(x)
    assert thunder.compile_stats(compiled)["eager_calls"] == 0


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize(
    "program",
    [
        lambda z: torch.view_as_real(z.conj()) * 2,
        lambda z: z.conj().imag.view(torch.int32),
        lambda z: z.conj().view(torch.float32),
        lambda z: z.imag.view(dtype=torch.int32),
        lambda z: torch.view_as_real(z) * 2,
    ],
)
def test_views_of_other_bits_raise_as_in_eager(program: Callable[[torch.Tensor], Any]) -> None:
    def outcome(function: Callable[[torch.Tensor], Any], z: torch.Tensor) -> str:
        try:
            return str(function(z))
        except RuntimeError as error:
            return str(error).split("\n")[0]

    compiled = thunder.jit(program)
    for z in (number(), number().conj(), number()):
        assert outcome(compiled, z) == outcome(program, z)
