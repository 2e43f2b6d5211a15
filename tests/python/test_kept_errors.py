"""Operations that raise errors for data raise them also where nobody needs their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder


def beyond(x: torch.Tensor) -> torch.Tensor:
    """Return positions that no dimension of `x` has; as data, so that only kernels know."""
    return (x[0] * 0).long() + 70


FAILING: dict[str, Callable[[torch.Tensor], Any]] = {
    "cholesky": lambda x: torch.linalg.cholesky(x - 10 * torch.eye(3)),
    "cholesky_that_feeds_dead_code": lambda x: torch.linalg.cholesky(x - 10 * torch.eye(3)) * 2 + 1,
    "inverse": lambda x: (x * 0).inverse(),
    "solve": lambda x: torch.linalg.solve(x * 0, x),
    "matrix_power": lambda x: torch.linalg.matrix_power(x * 0, -1),
    "eigh": lambda x: torch.linalg.eigh(x * float("nan")),
    "index": lambda x: x[beyond(x)],
    "write_by_index": lambda x: x.clone().__setitem__(beyond(x), 1.0),
    "gather": lambda x: x.gather(0, beyond(x)[None]),
    "scatter": lambda x: x.scatter(0, beyond(x)[None], 1.0),
    "index_add": lambda x: x.index_add(0, beyond(x), x),
    "embedding": lambda x: F.embedding(beyond(x), x),
    "one_hot": lambda x: F.one_hot(beyond(x), 3),
    "nll_loss": lambda x: F.nll_loss(x, beyond(x)),
    "cross_entropy": lambda x: F.cross_entropy(x, beyond(x)),
    "binary_cross_entropy": lambda x: F.binary_cross_entropy(x * 0 + 5, x * 0),
    "masked_scatter": lambda x: x.masked_scatter(x == x, x[0, :0]),
    "integer_division": lambda x: (x.long() * 0 + 1) // (x.long() * 0),
    "remainder": lambda x: x.long() % (x.long() * 0),
    "bitwise_and_of_floats": lambda x: torch.bitwise_and(x, x),
    "gcd_of_floats": lambda x: torch.gcd(x, x),
    "lcm_of_floats": lambda x: torch.lcm(x, x),
    "floor_of_complex_numbers": lambda x: torch.floor(x + 1j),
    "linspace_of_integers": lambda x: torch.linspace(x[0, 0] * float("nan"), 3, 5, dtype=torch.int64),
    "logspace_of_integers": lambda x: torch.logspace(0, x[0, 0] * float("nan"), 5, dtype=torch.int64),
    "matmul_of_bools": lambda x: (x > 0) @ (x > 0),
}


def outcome(program: Callable[[torch.Tensor], Any], requires_grad: bool) -> Any:
    x = (torch.arange(9.0).reshape(3, 3) + torch.eye(3)).requires_grad_(requires_grad)
    try:
        return program(x).tolist()
    except Exception as error:
        return type(error), str(error).split("\n")[0]


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("requires_grad", [False, True], ids=["data", "leaf"])
@pytest.mark.parametrize("name", FAILING)
def test_error_of_an_unused_operation_is_raised(name: str, requires_grad: bool) -> None:
    def plain(x: torch.Tensor) -> torch.Tensor:
        FAILING[name](x)
        return x + 1

    def catching(x: torch.Tensor) -> torch.Tensor:
        try:
            FAILING[name](x)
        except (RuntimeError, IndexError):
            return x * 2
        return x + 1

    for program in (plain, catching):
        compiled = thunder.jit(program)
        expected = outcome(program, requires_grad)
        assert outcome(compiled, requires_grad) == expected
        assert outcome(compiled, requires_grad) == expected


MORE_FAILING: dict[str, Callable[[torch.Tensor], Any]] = {
    "nll_loss_of_images": lambda x: F.nll_loss(x[None, :, :, None], beyond(x)[None, :, None]),
    "embedding_bag": lambda x: F.embedding_bag(beyond(x)[None], x),
    "multi_margin_loss": lambda x: F.multi_margin_loss(x, beyond(x)),
    "multilabel_margin_loss": lambda x: F.multilabel_margin_loss(x, beyond(x)[None].expand(3, 3)),
    "determinant_of_nothing": lambda x: torch.linalg.inv(x * 0).logdet(),
    "svd": lambda x: torch.linalg.svd(x * float("nan")),
    "ctc_loss": lambda x: F.ctc_loss(x[:, None], beyond(x)[None], [3], [3]),
    "poisson": lambda x: torch.poisson(-x),
    "multinomial": lambda x: torch.multinomial(-x, 1),
    "bernoulli": lambda x: torch.bernoulli(x + 2),
    "normal": lambda x: torch.normal(x, -x),
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning", "ignore::UserWarning")
@pytest.mark.parametrize("requires_grad", [False, True], ids=["data", "leaf"])
@pytest.mark.parametrize("name", [*FAILING, *MORE_FAILING])
def test_error_that_a_program_catches_behind_a_write(name: str, requires_grad: bool) -> None:
    fails = {**FAILING, **MORE_FAILING}[name]
    steps = torch.zeros(())

    def program(x: torch.Tensor) -> torch.Tensor:
        steps.add_(1)
        result = x @ x
        try:
            fails(x)
        except (RuntimeError, IndexError):
            return result * 2
        return result + 1

    outcomes = []
    for function in (program, thunder.jit(program)):
        steps.zero_()
        torch.manual_seed(0)
        results = [outcome(function, requires_grad) for _ in range(2)]
        outcomes.append([*results, steps.item(), int(torch.get_rng_state().sum())])
    assert outcomes[0] == outcomes[1]


def test_used_result_needs_nothing_besides() -> None:
    compiled = thunder.jit(lambda x: torch.linalg.cholesky(x @ x.T + 4 * torch.eye(3)))
    compiled(torch.rand(3, 3))
    assert "assert" not in str(thunder.last_traces(compiled)[0])


def test_unused_operation_that_raises_nothing_is_removed() -> None:
    compiled = thunder.jit(lambda x: (x.exp() @ x, x + 1)[1])
    compiled(torch.rand(3, 3))
    assert "matmul" not in str(thunder.last_traces(compiled)[-1])


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("name", ["index_select", "inverse"])
def test_error_that_a_program_catches_before_it_writes(name: str) -> None:
    raises = {
        "index_select": lambda x: (-x).index_select(0, torch.tensor([50])),
        "inverse": lambda x: torch.linalg.inv(torch.zeros(2, 2)),
    }[name]

    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            raises(x)
        except (RuntimeError, IndexError):
            return x * 3
        x.add_(1)
        return x * 2

    x = torch.ones(2)
    assert torch.equal(thunder.jit(program)(x), torch.full((2,), 3.0))
    assert torch.equal(x, torch.ones(2))


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("convert", [float, int, bool, complex, round, hex])
@pytest.mark.parametrize("x", [torch.ones(2), torch.ones(0), torch.tensor(1j), torch.tensor([[2]])], ids=str)
def test_conversion_that_a_tensor_does_not_allow(convert: Any, x: torch.Tensor) -> None:
    def program(x: torch.Tensor) -> Any:
        try:
            return convert(x)
        except (TypeError, ValueError, RuntimeError) as error:
            return type(error), str(error)

    compiled = thunder.jit(program)
    for _ in range(2):
        assert compiled(x) == program(x)


def fails_beside(x: torch.Tensor, weight: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    result = F.embedding(index, weight).sum() * 2
    x.mul_(2).add_(1)
    return result


def fails_in_the_same_rows(x: torch.Tensor, weight: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    x.add_(F.embedding(index, weight))
    return x * 2


def fails_after_a_sum(x: torch.Tensor, weight: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    total = x.sum()
    rows = weight[index].exp() * total
    x.sub_(total)
    return rows.sum()


@pytest.mark.parametrize("program", [fails_beside, fails_in_the_same_rows, fails_after_a_sum])
@pytest.mark.parametrize("rows", [4, 64])
def test_inputs_after_an_error_of_a_fusion_are_those_of_eager(program: Callable[..., Any], rows: int) -> None:
    compiled = thunder.jit(program)
    weight = torch.rand(rows, 8)
    good = torch.arange(rows)
    for index in (good, good, torch.where(good == rows - 1, rows, good), good):
        left, right = torch.ones(rows, 8), torch.ones(rows, 8)
        outcomes: list[Any] = []
        for function, x in ((compiled, left), (program, right)):
            try:
                outcomes.append(function(x, weight, index))
            except IndexError:
                outcomes.append(IndexError)
        torch.testing.assert_close(left, right)
        if index is good:
            torch.testing.assert_close(*outcomes)
        else:
            assert outcomes == [IndexError, IndexError]


LOOKS: dict[str, Callable[[torch.Tensor], Any]] = {
    "number": lambda x: x.sum().item() > 0,
    "truth": lambda x: bool((x > 0).all()),
    "list": lambda x: x.tolist(),
    "array": lambda x: x.numpy(),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
}
RAISING: dict[str, Callable[[torch.Tensor], Any]] = {
    "cholesky": torch.linalg.cholesky,
    "index": lambda x: x[x[0].long() - 1],
    "repeat_interleave": lambda x: x.repeat_interleave(x[0].long()),
    "bincount": lambda x: x[0].long().bincount(),
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", RAISING)
def test_error_for_data_before_the_program_looks_at_data(name: str, look: str) -> None:
    """The call that is traced raises, is caught, and a later one does not, and the other way round."""

    def program(x: torch.Tensor) -> Any:
        try:
            RAISING[name](x)
            seen = LOOKS[look](x)
        except (RuntimeError, IndexError):
            return "raised"
        return seen.tolist() if hasattr(seen, "tolist") else seen

    for signs in ((-9.0, 1.0, 1.0, -9.0, 1.0), (1.0, -9.0, 1.0, -9.0, -9.0)):
        compiled = thunder.jit(program)
        for sign in signs:
            x = torch.eye(1) * sign
            assert compiled(x) == program(x)
