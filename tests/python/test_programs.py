"""Python inside a program, and inputs of many kinds: results are as in eager."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager
from programs import Function, parametrize, x

Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Point:
    """A plain dataclass."""

    x: torch.Tensor
    y: Any = None


def add_all(*tensors: torch.Tensor, scale: float = 1.0, **more: torch.Tensor) -> torch.Tensor:
    return (sum(tensors) + sum(more.values())) * scale


def with_default(a: torch.Tensor, b: int = 2, *, c: tuple[float, ...] = (1.0, 2.0)) -> Any:
    return a * b + sum(c)


def closure(a: torch.Tensor) -> Any:
    total = []

    def visit(t: torch.Tensor, depth: int) -> None:
        nonlocal total
        total = [*total, t * depth]
        if depth:
            visit(t + 1, depth - 1)

    visit(a, 3)
    return total


def generator(a: torch.Tensor) -> Any:
    def rows() -> Any:
        for index, row in enumerate(a):
            yield index * row

    return torch.stack(list(rows()))


def match_on_shape(a: torch.Tensor) -> Any:
    match a.shape:
        case (3, n):
            return a * n
        case _:
            return a


def exception_inside(a: torch.Tensor) -> Any:
    try:
        return a @ torch.ones(9)
    except RuntimeError:
        return a * 2
    finally:
        a = None


def sorted_by_key(a: torch.Tensor) -> Any:
    return sorted([a, a[:1], a[:2]], key=lambda t: t.shape[0])


STRUCTURES = [
    ("tuple", lambda a: (a * 2, 1, None, "s", 2.5, True)),
    ("nested", lambda a: {"a": [a * 2, (a, {"b": a + 1})], 3: None}),
    ("ordered_dict", lambda a: OrderedDict(x=a * 2, y=a)),
    ("namedtuple", lambda a: Pair(a * 2, [a])),
    ("dataclass", lambda a: Point(a * 2, y=Point(a + 1))),
    ("none", lambda a: None),
    ("int_of_shape", lambda a: a.shape[0] * 2),
    ("shape", lambda a: (a.shape, a.size(), a.dim(), a.numel(), a.dtype, a.device, a.stride(), a.ndim)),
    ("same_tensor_twice", lambda a: [a * 2] * 2),
    ("empty", lambda a: ()),
    ("torch_return_type", lambda a: torch.max(a, 1)),
    ("dict_comprehension", lambda a: {f"{i}": row for i, row in enumerate(a)}),
    ("formatted_shape", lambda a: f"{a.shape} {a.dtype}"),
    ("isinstance", lambda a: (isinstance(a, torch.Tensor), type(a) is torch.Tensor, torch.is_tensor(a))),
    ("is_floating_point", lambda a: (a.is_floating_point(), torch.is_floating_point(a), a.is_complex(), a.is_cuda)),
    ("len_bool", lambda a: (len(a), bool(a.shape), a is not None)),
    ("hasattr", lambda a: (hasattr(a, "shape"), hasattr(a, "nothing"), getattr(a, "other", 3))),
    ("attribute_on_tensor", lambda a: setattr(t := a * 2, "tag", 4) or t.tag * t),
    ("in_list", lambda a: any(t is a for t in [a * 2, a])),
    ("closure", closure),
    ("generator", generator),
    ("match_on_shape", match_on_shape),
    ("exception_inside", exception_inside),
    ("sorted_by_key", sorted_by_key),
    ("partial", functools.partial(torch.add, alpha=2, other=torch.ones(4))),
    ("deepcopy_of_tensor", lambda a: a.detach().clone()),
    ("torch_function", torch.sin),
    ("method", torch.Tensor.sigmoid),
]


@parametrize(STRUCTURES)
def test_python(program: Function) -> None:
    assert_as_eager(program, x())


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [((x(),), {}), ((x(), x()), {"scale": 2}), ((), {"more": x()}), ((x(),), {"p": x(), "q": x(), "scale": 0.5})],
)
def test_star_arguments(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    assert_as_eager(add_all, *arguments, **keywords)


@pytest.mark.parametrize("keywords", [{}, {"b": 3}, {"c": (4.0,)}])
def test_default_arguments(keywords: dict[str, Any]) -> None:
    assert_as_eager(with_default, x(), **keywords)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64]
)
def test_input_dtype(dtype: torch.dtype) -> None:
    assert_as_eager(lambda a: (a + 1, a * a, a.sum()), x(grad=False).to(dtype))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (1, 1, 1), (2, 3, 4, 5)])
def test_input_shape(shape: tuple[int, ...]) -> None:
    assert_as_eager(lambda a: (a * 2, a.sum(), a.flatten(), a.softmax(-1)), torch.randn(shape, requires_grad=True))


@pytest.mark.parametrize(
    "view",
    [lambda a: a.t(), lambda a: a[:, ::2], lambda a: a[None].expand(2, -1, -1), lambda a: a[1:], lambda a: a[0, 0]],
    ids=["transposed", "strided", "expanded", "offset", "scalar"],
)
def test_input_layout(view: Function) -> None:
    assert_as_eager(lambda a: (a * 2, a.contiguous(), a.reshape(-1), a.clone()), view(x(grad=False)).requires_grad_())


def test_parameter_subclass_input_keeps_its_gradient() -> None:
    assert_as_eager(lambda p: p * 2, torch.nn.Parameter(x(grad=False)))


def test_nan_and_infinity_as_numbers() -> None:
    assert_as_eager(lambda a, b: (a * b, b), x(), math.nan, misses=None)


def test_numpy_input_is_a_constant_of_python() -> None:
    import numpy

    assert_as_eager(lambda a, n: a * torch.from_numpy(n), x(), numpy.ones(4, numpy.float32), misses=None)
