"""Random numbers of Python and NumPy are drawn by each call, from the generators that eager draws from."""

from __future__ import annotations

import copy
import io
import random
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import thunder

Tensor = torch.Tensor

pytestmark = pytest.mark.filterwarnings("error::thunder.EagerFallbackWarning")

OWN = random.Random(3)
OWN_OF_PYTORCH = torch.Generator()
OWN_OF_NUMPY = numpy.random.RandomState(3)
GENERATOR = numpy.random.default_rng(3)
SAME_BITS = numpy.random.Generator(GENERATOR.bit_generator)


class LayerDrop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if self.training and random.random() < 0.3:
                continue
            x = layer(x).tanh()
        return x


LAYERS = LayerDrop()


def flips(x: Tensor) -> Tensor:
    if random.random() < 0.5:
        x = x.flip(0)
    return x * 2 if numpy.random.rand() < 0.5 else x


def window(x: Tensor) -> Tensor:
    start = random.randint(0, x.shape[0] - 2)
    return x[start : start + 2] * 2


def mixup(x: Tensor) -> Tensor:
    weight = numpy.random.beta(0.4, 0.4)
    return weight * x + (1 - weight) * x[torch.randperm(x.shape[0])]


def shuffled(x: Tensor) -> Tensor:
    parts = [x, x * 2]
    random.shuffle(parts)
    return parts[0].sin()


def of_numpy(x: Tensor) -> Tensor:
    x = x * numpy.random.uniform(1, 2) + numpy.random.randint(0, 3) + numpy.random.normal()
    return x + numpy.random.randn() * numpy.random.random() + numpy.random.exponential(2.0)


def of_generator(x: Tensor) -> Tensor:
    x = x * GENERATOR.random() + SAME_BITS.normal(1.0, 2.0) * GENERATOR.beta(0.4, 0.4) + GENERATOR.poisson(3.0)
    return x + GENERATOR.uniform(-1, 1) + GENERATOR.standard_normal() * GENERATOR.lognormal() + GENERATOR.gamma(2.0)


#: Each with the most programs that it may have.
PROGRAMS: dict[str, tuple[Callable[[Tensor], Any], int]] = {
    "factor": (lambda x: x * random.random(), 1),
    "own generator": (lambda x: x * OWN.random() + OWN_OF_NUMPY.rand(), 1),
    "with PyTorch's": (lambda x: x + random.getrandbits(3) + torch.rand(()), 1),
    "uniform": (lambda x: x.mul(random.uniform(-1, 1)), 1),
    "gauss": (lambda x: x * random.gauss(0, 1), 2),
    "choice": (lambda x: x * random.choice([1.0, 2.0, 3.0]), 3),
    "returned": (lambda x: (random.random(), numpy.random.rand(), x * 2), 1),
    "not used": (lambda x: (random.random(), x * 2)[1], 1),
    "layer drop": (LAYERS, 4),
    "flips": (flips, 4),
    "window": (window, 3),
    "mixup": (mixup, 1),
    "shuffled": (shuffled, 2),
    "NumPy": (of_numpy, 1),
    "generator of NumPy": (of_generator, 1),
    "counts": (lambda x: x + numpy.random.poisson(2) + OWN_OF_NUMPY.binomial(4, 0.5) * numpy.random.lognormal(), 1),
}


def states() -> tuple[Any, ...]:
    numpy_states = [(state[2], state[1].tolist()) for state in (numpy.random.get_state(), OWN_OF_NUMPY.get_state())]
    bits = str(GENERATOR.bit_generator.state)
    return (random.getstate(), OWN.getstate(), numpy_states, bits, torch.get_rng_state().tolist())


def seed(number: int) -> None:
    for each in (random.seed, OWN.seed, numpy.random.seed, OWN_OF_NUMPY.seed, torch.manual_seed):
        each(number)
    GENERATOR.bit_generator.state = numpy.random.PCG64(number).state


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_gradients_and_states_are_those_of_eager(name: str) -> None:
    program, most = PROGRAMS[name]
    compiled = thunder.jit(program)
    for number in range(12):
        found = []
        for call in (program, compiled):
            seed(number)
            x = torch.randn(4, requires_grad=True)
            result = call(x)
            tensor = result[-1] if isinstance(result, tuple) else result
            (gradient,) = torch.autograd.grad(tensor.sum(), x)
            found.append(((result, gradient), states()))
        torch.testing.assert_close(found[1][0], found[0][0])
        assert found[1][1] == found[0][1]
    assert thunder.cache_misses(compiled) <= most


def test_generator_that_is_replaced_is_seen() -> None:
    class Noise:
        source = random.Random(0)

    noise = Noise()
    compiled = thunder.jit(lambda x: x * noise.source.random())
    for number in range(3):
        noise.source = random.Random(number)
        twin = random.Random(number)
        for _ in range(2):
            assert compiled(torch.ones(2))[0].item() == pytest.approx(twin.random())


def test_calls_in_two_threads_draw_from_one_generator() -> None:
    compiled = thunder.jit(lambda x: x.double() * OWN.random())
    compiled(torch.ones(1))
    OWN.seed(0)
    drawn: list[float] = []

    def draw() -> None:
        for _ in range(20):
            drawn.append(compiled(torch.ones(1)).item())

    threads = [threading.Thread(target=draw) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    twin = random.Random(0)
    assert sorted(drawn) == sorted(twin.random() for _ in range(40))


def test_subclass_that_draws_otherwise_does_so() -> None:
    class Halved(random.Random):
        def random(self) -> float:
            return super().random() / 2

    source, twin = Halved(1), Halved(1)
    compiled = thunder.jit(lambda x: x * source.random())
    for _ in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", thunder.EagerFallbackWarning)
            assert compiled(torch.ones(1)).item() == pytest.approx(twin.random())


def test_failed_call_draws_as_eager() -> None:
    def program(x: Tensor) -> Tensor:
        y = x * random.random()
        if y.sum() > 0:
            raise ValueError(random.random())
        return y * random.random()

    compiled = thunder.jit(program)
    for number, x in enumerate((-torch.ones(2), torch.ones(2), -torch.ones(2), torch.ones(2))):
        seen = []
        for call in (program, compiled):
            seed(number)
            try:
                seen.append(call(x).tolist())
            except ValueError as error:
                seen.append(error.args)
            seen.append(random.getstate())
        assert seen[2:] == seen[:2]


def test_numbers_inside_of_vmap_and_grad() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.func.vmap(torch.func.grad(lambda row: (row * random.random()).pow(2).sum()))(x)

    compiled = thunder.jit(program)
    for number in range(3):
        seed(number)
        theirs = program(torch.ones(3, 2))
        seed(number)
        torch.testing.assert_close(compiled(torch.ones(3, 2)), theirs)


@pytest.mark.parametrize("draw", [lambda: numpy.random.rand(2), lambda: random.seed(1), lambda: random.getrandbits(70)])
def test_draws_that_are_no_numbers_run_in_eager(draw: Callable[[], Any]) -> None:
    def program(x: Tensor) -> tuple[Tensor, Any]:
        return x * random.random(), draw()

    compiled = thunder.jit(program)
    for number in range(3):
        seed(number)
        theirs = program(torch.ones(2))
        seed(number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", thunder.EagerFallbackWarning)
            ours = compiled(torch.ones(2))
        assert torch.equal(ours[0], theirs[0])
        assert str(ours[1]) == str(theirs[1])


REFUSED: dict[str, Callable[[], Any]] = {
    "exponential": lambda: numpy.random.exponential(-1.0),
    "randint": lambda: numpy.random.randint(3, 2),
    "normal": lambda: numpy.random.normal(0, -1),
    "uniform": lambda: numpy.random.uniform(0, float("inf")),
    "getrandbits": lambda: OWN.getrandbits(-1),
    "randbelow": lambda: random.randrange(0),
}


@pytest.mark.parametrize("is_caught", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_arguments_that_a_generator_refuses_raise_as_in_eager(name: str, is_caught: bool) -> None:
    def program(x: Tensor) -> Tensor:
        x = x * random.random()
        try:
            return x * REFUSED[name]()
        except (ValueError, OverflowError):
            if not is_caught:
                raise
            return x * numpy.random.rand()

    def outcome(function: Callable[[Tensor], Tensor]) -> Any:
        random.seed(5)
        numpy.random.seed(5)
        found: list[Any] = []
        for _ in range(3):
            try:
                found.append(function(torch.ones(2)).tolist())
            except (ValueError, OverflowError) as error:
                found.append((type(error), str(error).splitlines()[0]))
        return found, random.random(), numpy.random.rand()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", thunder.EagerFallbackWarning)
        assert outcome(thunder.jit(program)) == outcome(program)


@pytest.mark.parametrize("source", [OWN, OWN_OF_NUMPY, GENERATOR])
def test_stored_traces_draw_from_the_generator_that_is_given(source: Any) -> None:
    def program(x: Tensor) -> Tensor:
        return x * (
            source.random() if source is OWN else source.random_sample() if source is OWN_OF_NUMPY else source.normal()
        )

    compiled = thunder.jit(program)
    compiled(torch.ones(2))
    file = io.BytesIO()
    thunder.last_traces(compiled)[-1].save(file)

    def load(generator: Any) -> thunder.Trace:
        (name,) = thunder.Trace.load(io.BytesIO(file.getvalue())).missing_objects
        return thunder.Trace.load(io.BytesIO(file.getvalue()), objects={name: generator})

    given = copy.deepcopy(source)
    (result,) = load(given).python_callable()(torch.ones(2))
    assert torch.equal(result, program(torch.ones(2)))
    assert given.random() == source.random()
    with pytest.raises(TypeError, match="expected a generator of Python or NumPy, got PyTorch's"):
        load(torch.Generator()).python_callable()(torch.ones(2))
    with pytest.raises(TypeError, match="expected a generator of torch, random or numpy"):
        load(random.SystemRandom())


def test_generators_of_python_are_refused_by_operators_of_pytorch() -> None:
    compiled = thunder.jit(lambda x: torch.rand(2, generator=OWN_OF_PYTORCH) + x)
    compiled(torch.ones(2))
    file = io.BytesIO()
    thunder.last_traces(compiled)[0].save(file)
    (name,) = thunder.Trace.load(io.BytesIO(file.getvalue())).missing_objects
    loaded = thunder.Trace.load(io.BytesIO(file.getvalue()), objects={name: random.Random(1)})
    with pytest.raises(RuntimeError, match="device type for generator"):
        loaded.python_callable()(torch.ones(2))


def sets_bits(x: Tensor) -> Tensor:
    x = x * GENERATOR.random()
    GENERATOR.bit_generator.state = BITS
    return x + GENERATOR.random()


def sets_bits_of_a_state(x: Tensor) -> Tensor:
    x = x * OWN_OF_NUMPY.rand()
    OWN_OF_NUMPY._bit_generator.state = BITS_OF_STATE
    return x + OWN_OF_NUMPY.rand()


def raises(x: Tensor) -> Tensor:
    try:
        return x * numpy.random.beta(-1.0, 2.0) * GENERATOR.random()
    except ValueError as error:
        return x * len(str(error))


BITS = numpy.random.PCG64(9).state
BITS_OF_STATE = numpy.random.MT19937(9).state


@pytest.mark.parametrize("program", [sets_bits, sets_bits_of_a_state, raises])
def test_draws_that_run_in_eager(program: Callable[[Tensor], Tensor]) -> None:
    compiled = thunder.jit(program)
    for number in range(3):
        found = []
        for call in (program, compiled):
            seed(number)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", thunder.EagerFallbackWarning)
                found.append((call(torch.ones(3)).tolist(), states()))
        assert found[0] == found[1]
