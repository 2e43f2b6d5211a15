"""Writes that eager refuses raise the same compiled, at the same place, and nothing else happens."""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import clone
from operator_samples import operators

import thunder

pytestmark = pytest.mark.filterwarnings(
    "ignore::thunder.EagerFallbackWarning", "ignore:Casting complex values", "ignore:Use of .* on expanded"
)

Program = Callable[[list[Any], torch.Tensor], Any]


def catching(write: Callable[[torch.Tensor], Any]) -> Program:
    """Return a program that notes what happens, and goes on after an error."""

    def program(log: list[Any], x: torch.Tensor) -> torch.Tensor:
        log.append("before")
        try:
            write(x)
        except Exception as error:
            log.append((type(error), str(error).split("\n")[0]))
            return x * 2
        log.append("after")
        return x + 0

    return program


def plain(write: Callable[[torch.Tensor], Any]) -> Program:
    def program(log: list[Any], x: torch.Tensor) -> None:
        log.append("before")
        write(x)
        log.append("after")

    return program


def outcome(program: Program, x: torch.Tensor) -> str:
    """Return all that a caller sees of one call, as text (NaN equals itself)."""
    log: list[Any] = []
    x = clone(x)
    torch.manual_seed(1)
    try:
        result = program(log, x)
    except Exception as error:
        result = (type(error), str(error).split("\n")[0])
    was_written = not x.is_inference() and x._version > 0
    return re.sub(r"grad_fn=<\w+>", "grad_fn", str((result, log, x, was_written)))


def assert_as_eager(write: Callable[[torch.Tensor], Any], x: torch.Tensor, forms: Any = (plain, catching)) -> None:
    for form in forms:
        compiled = thunder.jit(form(write))
        expected = outcome(form(write), x)
        assert outcome(compiled, x) == expected
        assert outcome(compiled, x) == expected


def numbers(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.arange(6).reshape(2, 3).contiguous().to(dtype)


def leaf() -> torch.Tensor:
    return torch.ones(2, 3, requires_grad=True)


def of_inference() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(2, 3)


def add(x: torch.Tensor) -> None:
    x += 1.5


def multiply_intermediate(x: torch.Tensor) -> None:
    y = x * 1
    y *= torch.tensor(1.5)


def write_to_leaf_made_inside(x: torch.Tensor) -> None:
    torch.ones(3, requires_grad=True).add_(x[0])


def write_to_part_of_leaf_made_inside(x: torch.Tensor) -> None:
    torch.zeros(2, 3).requires_grad_()[0] = x[0]


def write_to_part_of_view_that_became_a_leaf(x: torch.Tensor) -> None:
    view = torch.zeros(6).view(2, 3)
    view.requires_grad_()[0] = x[0]


def write_without_grad(x: torch.Tensor) -> None:
    with torch.no_grad():
        x.mul_(2)


def out(function: Callable[..., Any], *shape: int, dtype: torch.dtype = torch.int32) -> Callable[[torch.Tensor], Any]:
    return lambda x: function(x, out=torch.zeros(shape, dtype=dtype))


index = torch.tensor([0])
WRITES: dict[str, tuple[Callable[[torch.Tensor], Any], torch.Tensor]] = {
    "cast_of_number": (add, numbers(torch.int64)),
    "cast_of_bool": (add, numbers(torch.bool)),
    "cast_of_intermediate": (multiply_intermediate, numbers(torch.int64)),
    "cast_of_complex": (lambda x: x.add_(torch.ones(3, dtype=torch.complex64)), numbers()),
    "cast_to_part": (lambda x: x.real.add_(1j), numbers(torch.complex64)),
    "abs_of_complex": (lambda x: x.abs_(), numbers(torch.complex64)),
    "allowed_cast": (lambda x: x.add_(torch.ones(3, dtype=torch.float64)), numbers()),
    "shift_of_float": (lambda x: x.__ilshift__(1), numbers()),
    "random_integers": (lambda x: x.normal_(), numbers(torch.int64)),
    "out_of_sum": (out(lambda x, out: torch.add(x, 1.5, out=out), 2, 3), numbers()),
    "out_of_matmul": (out(lambda x, out: torch.matmul(x.t(), x, out=out), 3, 3, dtype=torch.float64), numbers()),
    "out_of_cat": (out(lambda x, out: torch.cat([x, x], out=out), 0), numbers()),
    "out_of_indices": (out(torch.argmax, 0), numbers()),
    "out_of_rows": (out(lambda x, out: torch.index_select(x, 0, index, out=out), 0), numbers()),
    "out_of_norm": (out(torch.linalg.norm, 0), numbers()),
    "out_with_gradients": (lambda x: torch.add(x, 1, out=torch.empty(2, 3)), leaf()),
    "out_that_requires_grad": (lambda x: torch.add(torch.ones(3), 1, out=x), leaf()),
    "leaf": (lambda x: x.zero_(), leaf()),
    "row_of_leaf": (lambda x: x[0].add_(1), leaf()),
    "resized_leaf": (lambda x: x.resize_(9), leaf()),
    "leaf_without_grad": (write_without_grad, leaf()),
    "leaf_made_inside": (write_to_leaf_made_inside, numbers()),
    "part_of_leaf_made_inside": (write_to_part_of_leaf_made_inside, numbers()),
    "part_of_view_that_became_a_leaf": (write_to_part_of_view_that_became_a_leaf, numbers()),
    "leaf_from_here_on": (lambda x: x.requires_grad_().add_(1), numbers()),
    "one_of_several_views": (lambda x: (x * 1).unbind()[0].add_(1), leaf()),
    "inference": (lambda x: x.add_(1), of_inference()),
    "view_of_inference": (lambda x: x.view(-1).zero_(), of_inference()),
    "expanded": (lambda x: x[0].expand(3, 3).add_(1), numbers()),
    "copy_to_expanded": (lambda x: x[0].expand(3, 3).copy_(torch.eye(3)), numbers()),
    "fill_expanded": (lambda x: x[0].expand(3, 3).fill_(7), numbers()),
    "row_of_expanded": (lambda x: x[0].expand(3, 3)[0].fill_(7), numbers()),
    "windows": (lambda x: x[0].unfold(0, 2, 1).add_(1), numbers()),
    "out_of_expanded": (lambda x: torch.add(x[0], 1, out=x[0].expand(3, 3)), numbers()),
    "shifted": (lambda x: x.view(-1)[1:].add_(x.view(-1)[:-1]), numbers()),
    "shifted_copy": (lambda x: x[:, 1:].copy_(x[:, :-1]), numbers()),
    "part_of_itself": (lambda x: x.mul_(x[0]), numbers()),
    "itself": (lambda x: x.add_(x), numbers()),
    "other_column": (lambda x: x[:, 0].add_(x[:, 2]), numbers()),
    "transposed": (lambda x: x[:, :2].add_(x[:, :2].t()), numbers()),
    "matmul_into_operand": (lambda x: torch.matmul(torch.eye(2), x, out=x), numbers()),
    "rows_of_itself": (lambda x: x.index_copy_(0, index, x[1:]), numbers()),
    "too_long": (lambda x: x.add_(torch.ones(2, 2, 3)), numbers()),
    "too_long_copy": (lambda x: x.copy_(torch.ones(2)), numbers()),
    "too_long_mask": (lambda x: x.masked_fill_(torch.ones(4) > 0, 1), numbers()),
    "too_long_item": (lambda x: x.__setitem__(0, torch.ones(2, 3)), numbers()),
    "too_long_product": (lambda x: x.addmm_(torch.ones(2, 2), torch.ones(2, 4)), numbers()),
}


@pytest.mark.parametrize("name", WRITES)
def test_write_is_refused_as_in_eager(name: str) -> None:
    assert_as_eager(*WRITES[name])


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "part": lambda base: base[:1],
    "all": lambda base: base[:],
    "turned": lambda base: base.t(),
    "expanded": lambda base: base[:1].expand(3, 2),
    "windows": lambda base: base.view(-1).unfold(0, 2, 1),
    "apart": lambda base: base.view(-1).unfold(0, 2, 2),
    "overlapping": lambda base: base.as_strided((2, 2), (1, 1)),
    "spread": lambda base: base.as_strided((2,), (2,)),
    "detached": lambda base: base.detach()[0],
}
VIEW_WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "add": lambda view, base: view.add_(1),
    "copy": lambda view, base: view.copy_(view * 2),
    "item": lambda view, base: operator.setitem(view, 0, 5.0),
    "mask": lambda view, base: operator.setitem(view, view > 2, 5.0),
    "out": lambda view, base: torch.mul(view.detach().clone(), 2, out=view),
    "base": lambda view, base: base.add_(view.sum()),
    "both": lambda view, base: torch._foreach_add_([view, base], 1),
}


def base_of_kind(kind: str) -> torch.Tensor:
    base = torch.arange(1.0, 7.0).view(3, 2)
    if kind == "leaf that is a view":
        return base.requires_grad_()
    base = base.clone().requires_grad_(kind != "plain")
    return base * 1 if kind == "result" else base


def seen(tensors: Any) -> list[Any]:
    try:
        return [(tensor.tolist(), tensor.requires_grad, tensor.is_leaf, tensor.stride()) for tensor in tensors]
    except RuntimeError as error:  # a view with several results whose memory was written to
        return [str(error).split("\n")[0]]


def outcome_for_view(jit: Any, base: torch.Tensor, view: str, write: str, is_inside: bool) -> Any:
    def program(base: torch.Tensor, outside: torch.Tensor | None) -> Any:
        shown = VIEWS[view](base) if outside is None else outside
        try:
            VIEW_WRITES[write](shown, base)
        except Exception as error:
            return type(error), shown, base * 2
        return None, shown, base * 2

    error, *results = jit(program)(base, None if is_inside else VIEWS[view](base))
    return error, seen([*results, base])


@pytest.mark.parametrize("kind", ["plain", "leaf", "leaf that is a view", "result"])
@pytest.mark.parametrize("is_inside", [True, False])
@pytest.mark.parametrize("write", VIEW_WRITES)
@pytest.mark.parametrize("view", VIEWS)
def test_write_through_a_view_is_as_in_eager(view: str, write: str, is_inside: bool, kind: str) -> None:
    expected = outcome_for_view(lambda program: program, base_of_kind(kind), view, write, is_inside)
    assert outcome_for_view(thunder.jit, base_of_kind(kind), view, write, is_inside) == expected


@pytest.mark.parametrize("name", ["allowed_cast", "itself", "other_column", "leaf_without_grad"])
def test_write_that_eager_allows_is_compiled(name: str) -> None:
    write, x = WRITES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome(thunder.jit(plain(write)), x)


@pytest.mark.parametrize(
    "op",
    [op for op in operators() if op.get_inplace() and torch.float32 in op.dtypes and "dropout" not in op.name],
    ids=lambda op: f"{op.name}{op.variant_test_name}",
)
def test_operator_on_a_target_of_integers_is_as_in_eager(op: Any) -> None:
    sample = next(iter(op.sample_inputs("cpu", torch.float32)))
    method = op.get_inplace()
    integers = sample.input.detach().to(torch.int32)
    assert_as_eager(lambda x: method(x, *sample.args, **sample.kwargs), integers, forms=(catching,))
