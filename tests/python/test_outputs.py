"""The result of a compiled function is built as the function would build it."""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import thunder


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Record:
    value: Any
    label: str = "none"


class Table(OrderedDict):
    """A dict with attributes, whose constructor has an effect."""

    constructed = 0

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        type(self).constructed += 1
        super().__init__(*arguments, **keywords)
        self.loss = self.get("loss")


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


X = torch.arange(3.0)


def same(left: Any, right: Any) -> bool:
    """Return whether two nests of containers are equal in types, order and tensors."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, tuple | list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: (x + 1, x * 2), id="tuple"),
        pytest.param(lambda x: [x + 1, [x * 2]], id="list"),
        pytest.param(lambda x: {"a": x + 1, "b": {"c": x}}, id="dict"),
        pytest.param(lambda x: OrderedDict(b=x + 1, a=x), id="ordered dict"),
        pytest.param(lambda x: Pair(x + 1, 2), id="named tuple"),
        pytest.param(lambda x: (x.shape, x.dtype, None, 1.5, "text"), id="constants"),
        pytest.param(lambda x: slice(1, x.shape[0]), id="slice"),
        pytest.param(lambda x: {1, 2}, id="set"),
        pytest.param(lambda x: None, id="none"),
    ],
)
def test_containers(function: Any) -> None:
    compiled = thunder.jit(function)
    for _ in range(2):
        result, expected = compiled(X), function(X)
        assert same(result, expected)


def test_input_comes_back_as_itself() -> None:
    f = thunder.jit(lambda x: (x, x + 1))
    f(X)
    other = X * 2
    assert f(other)[0] is other


def test_outside_object_comes_back_as_itself() -> None:
    settings = {"a": 1}
    f = thunder.jit(lambda x, option: (settings, option, x + 1))
    option = [1]
    for _ in range(2):
        result = f(X, option)
        assert result[0] is settings
        assert result[1] is option


def test_new_containers_at_each_call() -> None:
    f = thunder.jit(lambda x: [x + 1])
    assert f(X) is not f(X)


NEW_AT_EACH_CALL: dict[str, Any] = {
    "numbers": lambda x: (x.dim(), 2),
    "shape of an input": lambda x: x.shape,
    "shape of a result": lambda x: (x + 1).shape,
    "strides": lambda x: x.stride(),
    "shape in a list": lambda x: [x.shape][0],
    "function": lambda x: lambda: 1,
}


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a tensor"])
@pytest.mark.parametrize("make", NEW_AT_EACH_CALL.values(), ids=NEW_AT_EACH_CALL)
def test_tuple_that_the_program_makes_is_another_one_at_each_call(make: Any, beside: bool) -> None:
    def program(x: torch.Tensor) -> Any:
        made = make(x)
        return (x * 2, made, made) if beside else made

    f = thunder.jit(program)
    x = torch.ones(2, 3)
    first, second = ((each[1] if beside else each) for each in (f(x), f(x)))
    assert type(first) is type(make(x))
    assert first == make(x) or callable(first)
    assert first is not second
    if beside:
        _, one, other = f(x)
        assert one is other
    assert thunder.cache_misses(f) == 1


def test_tuple_in_the_code_is_the_same_one_at_each_call() -> None:
    def constants(nested: tuple[Any, ...] = ((1, 2), 3)) -> Any:
        return (4, 5), nested[0], ()

    f = thunder.jit(constants)
    assert all(one is other for one, other in zip(f(), constants(), strict=True))


def test_shared_parts_stay_shared() -> None:
    def function(x):
        part = [x + 1]
        return part, part

    f = thunder.jit(function)
    f(X)
    first, second = f(X)
    assert first is second


def test_cycle() -> None:
    def function(x):
        node = {"value": x + 1}
        node["self"] = node
        return node

    f = thunder.jit(function)
    for _ in range(2):
        node = f(X)
        assert node["self"] is node


def test_dataclass() -> None:
    f = thunder.jit(lambda x: Record(x + 1, label="sum"))
    for _ in range(2):
        result = f(X)
        assert type(result) is Record
        assert result.label == "sum"
        torch.testing.assert_close(result.value, X + 1)


def test_dict_subclass_with_attributes_and_effects_of_its_constructor() -> None:
    f = thunder.jit(lambda x: Table(loss=x.sum(), logits=x))
    f(X)
    constructed = Table.constructed
    result = f(X)
    assert Table.constructed == constructed + 1
    assert list(result) == ["loss", "logits"]
    assert result.loss is result["loss"]


def test_slots() -> None:
    f = thunder.jit(lambda x: Slotted(x + 1))
    for _ in range(2):
        torch.testing.assert_close(f(X).value, X + 1)


def test_same_tensor_twice_is_one_object() -> None:
    def function(x):
        y = x + 1
        return y, y

    f = thunder.jit(function)
    for _ in range(2):
        first, second = f(X)
        assert first is second


def test_generator_is_refused() -> None:
    f = thunder.jit(lambda x: (x + i for i in range(2)), fullgraph=True)
    with pytest.raises(NotImplementedError, match="generator"):
        f(X)


def test_epilogue_runs_as_python() -> None:
    f = thunder.jit(lambda x: {"a": (x + 1, x)})
    expected = f(X)
    epilogue = thunder.last_epilogue_traces(f)[-1].python_callable()
    (result,) = epilogue([expected["a"][0]], [X], [])
    assert result["a"][0] is expected["a"][0]
    assert result["a"][1] is X


def test_function_keeps_its_description() -> None:
    def described(scale: int) -> int:
        """Return twice the scale."""
        return 2 * scale

    def f(x: torch.Tensor) -> Any:
        y = x.cos()

        @functools.wraps(described)
        def made() -> torch.Tensor:
            return y

        return made

    compiled = thunder.jit(f)
    for _ in range(2):
        made, expected = compiled(X), f(X)
        assert torch.equal(made(), expected())
        for name in (*functools.WRAPPER_ASSIGNMENTS, "__wrapped__"):
            assert getattr(made, name) == getattr(expected, name), name


@pytest.mark.parametrize("is_returned", [False, True])
def test_views_of_one_data_share_a_version_counter(is_returned: bool) -> None:
    def program(x: torch.Tensor) -> list[torch.Tensor]:
        data, other = x.data, x.data
        views = [data.movedim(0, -1), data.unsqueeze(-1), data[0][1:], other.t(), other[1]]
        return views + [data] * is_returned

    def versions(function: Callable[..., list[torch.Tensor]]) -> list[list[int]]:
        x = torch.rand(2, 3, requires_grad=True)
        results, seen = function(x), []
        for written in (0, 2, 3):
            results[written].add_(1)
            seen.append([result._version for result in results] + [x._version])
        return seen

    assert versions(thunder.jit(program)) == versions(program)


def _write_to_copy(x: torch.Tensor) -> torch.Tensor:
    copy = x.clone()
    copy[0] = 0
    return copy


def _write_to_part(x: torch.Tensor) -> torch.Tensor:
    part = (x * 1)[1:]
    part.mul_(3)
    return part


SAME_VALUES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "casts": lambda x: x.double().float(),
    "casts of parts": lambda x: x.double()[1:].float(),
    "times one": lambda x: x * 1,
    "negated twice": lambda x: x.neg().neg(),
    "copy": lambda x: x.clone(),
    "written copy": _write_to_copy,
    "written part": _write_to_part,
    "strided": lambda x: (x * 1).as_strided((2,), (1,), 0),
}
VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "all": lambda x: x,
    "rows": lambda x: x[2:],
    "transposed": lambda x: x[1:].t(),
    "reshaped": lambda x: x.view(6, 7),
    "expanded": lambda x: x[None].expand(3, -1, -1)[1],
    "windows": lambda x: x.unfold(0, 3, 2)[1],
    "part of a result": lambda x: x.tanh()[2:],
    "split": lambda x: x.tanh().split([3, 4])[1],
}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("operation", SAME_VALUES)
def test_results_that_equal_a_view_lie_in_memory_as_eager_makes_them(
    operation: str, view: str, requires_grad: bool
) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return SAME_VALUES[operation](VIEWS[view](x))

    memory = torch.arange(60.0).view(10, 6) / 60
    compiled = thunder.jit(function)
    for rows in (memory[:7], memory[:7].clone()):
        x = rows.detach().requires_grad_(requires_grad)
        expected, result = function(x), compiled(x)
        assert torch.allclose(result, expected)
        for got in ("stride", "storage_offset"):
            assert getattr(result, got)() == getattr(expected, got)()
        assert result.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
        before = x.detach().clone()
        if expected.untyped_storage().data_ptr() != x.untyped_storage().data_ptr():
            result.detach().zero_()
        assert torch.equal(x, before)


def leaf_of(q: torch.Tensor) -> torch.Tensor:
    return (q * 2).detach().requires_grad_()


def step_of_leaf(q: torch.Tensor, show: Callable[[torch.Tensor], Any]) -> Any:
    z = leaf_of(q)
    (gradient,) = torch.autograd.grad(z.pow(4).sum(), z)
    with torch.no_grad():
        z -= gradient * 0.01
    return show(z), gradient


@pytest.mark.parametrize(
    "show",
    [
        lambda z: z.detach(),
        lambda z: z.detach()[1:].t(),
        lambda z: z.detach().requires_grad_(),
        lambda z: (z.detach(), z.detach()),
        lambda z: (z, z.detach()),
        lambda z: z.mul(3).detach(),
    ],
    ids=["detached", "views", "leaf", "twice", "beside", "computed"],
)
@pytest.mark.parametrize("make", [leaf_of, lambda q: torch.nn.Parameter(q * 2)], ids=["detached", "parameter"])
def test_what_is_detached_from_a_leaf_made_inside_is_returned(make: Any, show: Any) -> None:
    compiled = thunder.jit(lambda q: (show(make(q)), step_of_leaf(q, show)), fullgraph=True)
    function = compiled.__wrapped__
    for i in range(3):
        runs = []
        for called in (function, compiled):
            (first, (second, gradient)) = called(torch.ones(2, 2) + i)
            run = [gradient]
            for each in (first, second):
                tensors = each if isinstance(each, tuple) else (each,)
                run += [
                    [t.detach().clone(), t.requires_grad, t.is_leaf, t._version, t.stride(), t.data_ptr() % 8]
                    for t in tensors
                ]
                with torch.no_grad():
                    tensors[-1].add_(1)
                run += [[t.detach().clone(), t._version] for t in tensors]
            runs.append(run)
        torch.testing.assert_close(*runs)
