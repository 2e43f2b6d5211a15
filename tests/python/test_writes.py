"""Writes in place, inside a program and to its inputs, do compiled what they do in eager."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager
from programs import Function, named, parametrize, x

import thunder


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
def test_write_to_an_input(program: Function, layout: str) -> None:
    a = {"contiguous": x(3, 4, grad=False), "transposed": x(4, 3, grad=False).t(), "slice": x(3, 8, grad=False)[:, ::2]}
    assert_as_eager(program, a[layout])


def test_write_to_an_input_that_is_given_twice() -> None:
    def program(pair: list[torch.Tensor]) -> torch.Tensor:
        pair[0].add_(1)
        return pair[1] * 2

    a = x(grad=False)
    assert_as_eager(program, [a, a])


def test_write_to_an_input_seen_through_another_input() -> None:
    def program(a: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return view * 2

    a, b = x(grad=False), x(grad=False)
    torch.testing.assert_close(thunder.jit(program)(a, a[0]), program(b, b[0]))
    torch.testing.assert_close(a, b)


def test_write_to_a_leaf_that_requires_grad_raises_as_in_eager() -> None:
    assert_as_eager(lambda a: a.add_(1), x())


def test_write_to_a_leaf_under_no_grad() -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            a.mul_(0.5)
        return a * a

    assert_as_eager(program, x())


def test_write_to_an_input_that_autograd_made() -> None:
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


VIEWS = {
    "transposed": lambda base: base.t(),
    "row": lambda base: base[:1],
    "base": lambda base: base,
}


def writes(a: torch.Tensor) -> torch.Tensor:
    a.mul_(2)
    return a * 1


def writes_unseen(a: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        a.mul_(3)
    return a * 1


def writes_unseen_first(a: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        a.mul_(3)
    a.mul_(2)
    return a * 1


@pytest.mark.parametrize("program", [writes, writes_unseen, writes_unseen_first])
@pytest.mark.parametrize("view", VIEWS)
def test_write_to_a_view_gives_it_and_its_base_the_history(view: str, program: Any) -> None:
    outcomes = []
    for function in (program, thunder.jit(program)):
        leaf = torch.arange(1.0, 7.0).view(2, 3).requires_grad_()
        base = leaf * 1
        a = VIEWS[view](base)
        result = function(a)
        gradients = [torch.autograd.grad((t * t).sum(), leaf, retain_graph=True)[0] for t in (result, a, base)]
        outcomes.append((gradients, result, a, base))
    torch.testing.assert_close(outcomes[1], outcomes[0])


@pytest.mark.parametrize("view", VIEWS)
def test_write_of_what_requires_grad_to_a_view_that_does_not(view: str) -> None:
    def program(a: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        a.mul_(scale)
        return a * 1

    outcomes = []
    for function in (program, thunder.jit(program)):
        base = torch.arange(1.0, 10.0).view(3, 3)
        a, scale = VIEWS[view](base), torch.tensor([1.0, 3.0, 4.0], requires_grad=True)
        result = function(a, scale)
        gradients = [torch.autograd.grad((t * t).sum(), scale, retain_graph=True)[0] for t in (result, a, base)]
        outcomes.append((gradients, result, a, base))
    torch.testing.assert_close(outcomes[1], outcomes[0])


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_write_of_what_requires_grad_to_inputs_that_share_memory() -> None:
    def program(a: torch.Tensor, b: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        b.mul_(scale)
        return a * 2

    outcomes = []
    for function in (program, thunder.jit(program)):
        a, scale = torch.arange(1.0, 7.0).view(2, 3), torch.tensor([1.0, 3.0, 4.0], requires_grad=True)
        b = a[:1]
        result = function(a, b, scale)
        gradients = [torch.autograd.grad((t * t).sum(), scale, retain_graph=True)[0] for t in (result, a, b)]
        outcomes.append((gradients, result, a, b))
    torch.testing.assert_close(outcomes[1], outcomes[0])


def test_leaf_that_cannot_be_written_to_and_then_a_tensor_that_can() -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        with contextlib.suppress(RuntimeError):
            a.add_(1)
        return a * 2

    compiled = thunder.jit(program)
    for make in (lambda: x(), lambda: -x(), lambda: x()):
        a, b = make(), make()
        torch.testing.assert_close((compiled(a), a), (program(b), b))


def writes_and_looks(a: torch.Tensor, b: torch.Tensor) -> None:
    a.copy_(a)
    while a.sum() > 50:
        pass


def looks_and_writes_both(a: torch.Tensor, b: torch.Tensor) -> None:
    if b.sum() > 0:
        b.relu_()
    a.add_(1)


@pytest.mark.parametrize("program", [writes_and_looks, looks_and_writes_both])
@pytest.mark.parametrize("share", [lambda a: a[0], lambda a: a.data, lambda a: a.clone()])
def test_versions_of_inputs_that_share_memory_move_where_data_is_looked_at(program: Any, share: Any) -> None:
    outcomes = []
    for function in (program, thunder.jit(program)):
        a = torch.ones(2, 3)
        b = share(a)
        seen = a._version, b._version
        function(a, b)
        outcomes.append((a._version > seen[0], b._version > seen[1]))
    assert outcomes[1] == outcomes[0]


POSITIONS: dict[str, Any] = {
    "windows": lambda a: a.unfold(0, 2, 2),
    "strided": lambda a: a.as_strided((2, 2), (1, 3), 1),
    "windows of a transposed": lambda a: a.t().unfold(0, 2, 2),
    "windows of a part": lambda a: a[1:].unfold(0, 2, 2),
    "windows of columns": lambda a: a[:, 1:].unfold(0, 2, 2),
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("order", ["contiguous", "transposed", "part"])
@pytest.mark.parametrize("source", ["result", "zeros"])
@pytest.mark.parametrize("view", POSITIONS)
def test_gradients_of_writes_by_positions(view: str, source: str, order: str) -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        if source == "result":
            b = a.sin()
            POSITIONS[view](b).mul_(2)
        else:
            b = torch.zeros(3, 4).t() if order == "transposed" else torch.zeros(4, 3)
            POSITIONS[view](b).copy_(POSITIONS[view](a.cos()))
        return b

    layouts = {
        "contiguous": torch.randn(4, 3),
        "transposed": torch.randn(3, 4).t(),
        "part": torch.randn(5, 3)[1:],
    }
    assert_as_eager(program, layouts[order].detach().requires_grad_(), misses=None)


A = torch.arange(9.0).view(3, 3)
INTO_OWN_ARGUMENT: dict[str, Any] = {
    "addmm": lambda a: torch.addmm(a, A[:, :2], A[:2], out=a),
    "addmm_beta": lambda a: torch.addmm(a, A[:, :2], A[:2], beta=0.0, alpha=0.5, out=a),
    "baddbmm": lambda a: torch.baddbmm(b := a[None], A[None], A[None], beta=0.5, out=b),
    "addmv": lambda a: torch.addmv(b := a[0], A, A[1], out=b),
    "addr": lambda a: torch.addr(a, A[0], A[1], out=a),
    "cumsum": lambda a: torch.cumsum(a, 1, out=a),
    "cumprod": lambda a: torch.cumprod(a, 0, out=a),
    "tril": lambda a: torch.tril(a, out=a),
    "lerp": lambda a: torch.lerp(a, A, 0.25, out=a),
    "index_add": lambda a: torch.index_add(a, 0, torch.tensor([0, 2, 0]), A, out=a),
    "scatter": lambda a: torch.scatter(a, 1, torch.tensor([[0, 2], [1, 0]]), A, out=a),
    "scatter_value": lambda a: torch.scatter(a, 1, torch.tensor([[0, 2], [1, 0]]), 7.0, out=a),
}


@pytest.mark.parametrize("from_outside", [True, False])
@pytest.mark.parametrize("name", INTO_OWN_ARGUMENT)
def test_result_into_the_first_argument_is_as_in_place(name: str, from_outside: bool) -> None:
    def program(a: torch.Tensor) -> Any:
        a = a if from_outside else a + 1
        return INTO_OWN_ARGUMENT[name](a) * 2, a

    jitted = thunder.jit(program, fullgraph=True)
    for fill in (0.5, float("nan")):
        given, expected = torch.full((3, 3), fill), torch.full((3, 3), fill)
        torch.testing.assert_close(jitted(given), program(expected), equal_nan=True)
        torch.testing.assert_close(given, expected, equal_nan=True)


@pytest.mark.parametrize("laid_out", [torch.empty(0), torch.empty(3, 3), torch.empty(3, 3).t(), torch.empty(1)])
@pytest.mark.parametrize(
    "program",
    [
        lambda a, out: torch.conj_physical(a, out=out),
        lambda a, out: torch.conj_physical(a.t(), out=out),
        lambda a, out: torch.chain_matmul(a, out=out),
        lambda a, out: torch.conj_physical(out, out=out),
    ],
)
@pytest.mark.filterwarnings("ignore:An output with one or more elements:UserWarning", "ignore:torch.chain_matmul")
def test_argument_as_the_result_is_copied_into_out(program: Any, laid_out: torch.Tensor) -> None:
    def write_after(a: torch.Tensor) -> Any:
        out = torch.empty_strided(laid_out.shape, laid_out.stride()).fill_(2)
        result = program(a, out)
        a.add_(1)
        out.mul_(3)
        return result, out

    jitted = thunder.jit(write_after, fullgraph=True)
    for _ in range(2):
        given = torch.randn(3, 3)
        expected = given.clone()
        torch.testing.assert_close(jitted(given), write_after(expected), check_stride=True)
        torch.testing.assert_close(given, expected)


@pytest.mark.parametrize(
    "program",
    [lambda a: torch.addmm(a, a, A, out=a), lambda a: torch.addmm(A, a, A, out=a), lambda a: torch.mm(a, A, out=a)],
)
def test_result_into_an_argument_that_is_read_as_a_whole_is_left_to_eager(program: Any) -> None:
    with pytest.warns(thunder.EagerFallbackWarning, match="that it reads"):
        thunder.jit(program)(torch.ones(3, 3))
