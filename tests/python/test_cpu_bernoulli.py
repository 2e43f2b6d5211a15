"""Random numbers of the CPU executor: eager's, to the bit, and the generator left as eager leaves it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import thunder

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
DTYPES += [torch.float16, torch.bfloat16, torch.float32, torch.float64]

Function = Callable[..., torch.Tensor]


def assert_draws_as_eager(function: Function, *arguments: object, words_before: int = 0) -> None:
    """Run eager and compiled from the same state; compare the numbers, and those that come after."""
    compiled = thunder.jit(function)
    compiled(*arguments)
    generators = [a for a in arguments if isinstance(a, torch.Generator)] or [torch.default_generator]
    drawn = []
    for each in (function, compiled):
        for generator in generators:
            generator.manual_seed(7)
            torch.empty(words_before, dtype=torch.int32).random_(generator=generator)
        drawn.append((each(*arguments), [generator.get_state() for generator in generators]))
    (expected, states), (got, states_after) = drawn
    assert got.dtype == expected.dtype
    assert got.stride() == expected.stride()
    assert torch.equal(got, expected)
    assert all(torch.equal(a, b) for a, b in zip(states, states_after, strict=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("p", [0.0, 5e-324, 1e-9, 0.1, 0.5, 0.9, 1.0])
def test_numbers_of_each_dtype_and_probability(dtype: torch.dtype, p: float) -> None:
    assert_draws_as_eager(lambda: torch.empty(5000, dtype=dtype).bernoulli_(p))
    assert_draws_as_eager(lambda x: torch.bernoulli(x, p), torch.zeros(5000, dtype=dtype))


@pytest.mark.parametrize("count", [0, 1, 311, 312, 313, 623, 624, 625, 9984, 10**6])
@pytest.mark.parametrize("words_before", [0, 1, 2, 311, 622, 623, 624, 625])
def test_numbers_from_the_middle_of_a_block(count: int, words_before: int) -> None:
    assert_draws_as_eager(lambda: torch.empty(count, dtype=torch.bool).bernoulli_(0.3), words_before=words_before)


def test_numbers_of_a_given_generator() -> None:
    def draw(generator: torch.Generator) -> torch.Tensor:
        return torch.empty(3000).bernoulli_(0.3, generator=generator)

    assert_draws_as_eager(draw, torch.Generator())


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_numbers_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert_draws_as_eager(lambda: torch.empty(300_001).bernoulli_(0.7))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(4, 5, 60, 7, memory_format=torch.channels_last).bernoulli_(0.4),
        lambda: torch.empty_strided((50, 70), (1, 50)).bernoulli_(0.4),
        lambda: torch.empty_strided((50, 70), (140, 2)).bernoulli_(0.4),
        lambda: torch.zeros(50, 70)[:, ::2].bernoulli_(0.4),
        lambda: torch.zeros(50, 1).expand(50, 1).bernoulli_(0.4),
        lambda: torch.empty(3, 4)[1].bernoulli_(0.4),
    ],
    ids=["channels_last", "transposed", "with_gaps", "strided", "expanded", "row"],
)
def test_numbers_of_other_strides(make: Function) -> None:
    assert_draws_as_eager(make)


def test_drawing_into_an_input_is_seen_by_its_caller() -> None:
    x = torch.zeros(1000)
    version = x._version
    draw = thunder.jit(lambda x: x.bernoulli_(0.5).sum())
    for _ in range(2):
        torch.manual_seed(1)
        total = draw(x)
        torch.manual_seed(1)
        assert torch.equal(x, torch.empty(1000).bernoulli_(0.5))
        assert total == x.sum()
    assert x._version > version


@pytest.mark.parametrize("p", [1.5, -0.1, float("nan")])
def test_what_is_no_probability_raises_eagers_error(p: float) -> None:
    with pytest.raises(RuntimeError, match="to be in"):
        thunder.jit(lambda: torch.empty(10).bernoulli_(p))()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("grad", [True, False])
def test_dropout_draws_what_eager_draws(dtype: torch.dtype, grad: bool) -> None:
    x = torch.randn(64, 1000, dtype=dtype)

    def program(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.dropout(x, 0.1) * 2, 0.5)

    compiled = thunder.jit(program)
    results = []
    for each in (program, compiled, compiled):
        copy = x.clone().requires_grad_(grad)
        torch.manual_seed(3)
        result = each(copy)
        if grad:
            result.sum().backward()
        results.append((result.detach(), copy.grad, torch.get_rng_state()))
    for result, gradient, state in results[1:]:
        torch.testing.assert_close(result, results[0][0], rtol=0.02 if dtype == torch.bfloat16 else 1e-6, atol=0)
        assert torch.equal(result == 0, results[0][0] == 0)
        assert torch.equal(state, results[0][2])
        if grad:
            torch.testing.assert_close(gradient, results[0][1])


@pytest.mark.parametrize("p", [0.0, 0.1, 1.0])
def test_native_dropout_gives_eagers_mask(p: float) -> None:
    assert_draws_as_eager(lambda x: torch.native_dropout(x, p, True)[1], torch.randn(1000))
    assert_draws_as_eager(lambda x: torch.native_dropout(x, p, True)[0], torch.randn(1000))


def test_dropout_without_gradients_is_eagers_to_the_bit() -> None:
    assert_draws_as_eager(lambda x: F.dropout(x, 0.3), torch.randn(30, 5000).t())
    assert_draws_as_eager(lambda x: F.dropout(x, 0.3), torch.randn(3000, dtype=torch.bfloat16))
    assert_draws_as_eager(lambda x: F.dropout(x, 0.3, training=False) + F.dropout(x, 1.0), torch.randn(3000))


def test_mask_is_read_inside_the_fusion_that_scales_it() -> None:
    f = thunder.jit(lambda x: F.gelu(F.dropout(x, 0.1)))
    f(torch.randn(64, 1000, requires_grad=True))
    (forward,) = [fusion for fusion in thunder.fusions(f) if fusion.trace == "forward"]
    assert forward.bytes_read == 64 * 1000 * (4 + 1)
