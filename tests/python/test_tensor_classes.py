"""Tensors of subclasses: what their classes define may change between two calls, and results have them as in eager."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_same
from torch import Tensor, nn

import thunder

# A function, and changes between its calls.
Changing = tuple[Callable[[], Any], list[Callable[[], Any]]]


def plain(x: Tensor) -> Tensor:
    return x.as_subclass(Tensor)


def make_class(**members: Any) -> Any:
    return type("Own", (Tensor,), members)


def of_attribute(read: Callable[[Any], Any]) -> Callable[[], Changing]:
    def make() -> Changing:
        base = make_class(k=1.0)
        kind: Any = type("Derived", (base,), {})
        x = torch.ones(2).as_subclass(kind)
        return lambda: plain(x) * read(x), [
            lambda: setattr(base, "k", 2.0),
            lambda: setattr(kind, "k", 3.0),
            lambda: setattr(x, "k", 4.0),
            lambda: delattr(x, "k"),
            lambda: delattr(kind, "k"),
        ]

    return make


def method() -> Changing:
    kind = make_class(m=lambda self: plain(self) * 2)
    x = torch.ones(2).as_subclass(kind)
    return lambda: x.m(), [
        lambda: setattr(kind, "m", lambda self: plain(self) * 3),
        lambda: setattr(x, "m", lambda: torch.ones(2) * 7),
        lambda: delattr(x, "m"),
        lambda: setattr(kind, "m", classmethod(lambda _: torch.ones(1))),
        lambda: setattr(kind, "m", staticmethod(lambda: torch.ones(2))),
    ]


def property_of_class() -> Changing:
    kind = make_class(k=property(lambda _: 2.0))
    x = torch.ones(2).as_subclass(kind)
    return lambda: plain(x) * x.k, [
        lambda: setattr(kind, "k", property(lambda _: 3.0)),
        lambda: setattr(kind, "k", 4.0),
    ]


def method_of_pytorch() -> Changing:
    kind = make_class()
    x = torch.ones(2).as_subclass(kind)
    return lambda: plain(x.mul(2)), [
        lambda: setattr(kind, "mul", lambda *_: torch.ones(2) * 7),
        lambda: delattr(kind, "mul"),
    ]


def operator_of_class() -> Changing:
    kind = make_class()
    x = torch.ones(2).as_subclass(kind)
    return lambda: plain(x * 2), [
        lambda: setattr(kind, "__mul__", lambda *_: torch.ones(2) * 7),
        lambda: delattr(kind, "__mul__"),
    ]


def attribute_that_is_missing() -> Changing:
    kind = make_class()
    x = torch.ones(2).as_subclass(kind)
    return lambda: plain(x) * (x.k if hasattr(x, "k") else getattr(x, "j", 5)), [
        lambda: setattr(kind, "k", 2.0),
        lambda: delattr(kind, "k"),
        lambda: setattr(kind, "j", 3.0),
        lambda: setattr(kind, "k", property(lambda _: 8.0)),
    ]


def torch_function() -> Changing:
    kind = make_class()

    def hook(cls: Any, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return function(*arguments, **(keywords or {})) + 1

    x = torch.ones(2).as_subclass(kind)
    return lambda: plain(x * 2), [lambda: setattr(kind, "__torch_function__", classmethod(hook))]


def parameter_of_a_module() -> Changing:
    class Own(nn.Parameter):
        bits = 4.0

        @classmethod
        def of_class(cls) -> float:
            return cls.bits

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w: Any = Own(torch.ones(2, 2))

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.w * self.w.bits + self.w.of_class() + getattr(self.w, "off", 0)

    model, x = Model(), torch.ones(1, 2)
    return lambda: model(x), [
        lambda: setattr(Own, "bits", 8.0),
        lambda: setattr(Own, "of_class", staticmethod(lambda: 3.0)),
        lambda: setattr(model.w, "off", 2.0),
        lambda: setattr(model.w, "bits", 2.0),
    ]


def method_of_a_plain_tensor() -> Changing:
    x = torch.ones(2)
    return lambda: x.sum() * 2, [
        lambda: setattr(x, "sum", lambda: torch.ones(1) * 7),
        lambda: delattr(x, "sum"),
        lambda: x.__dict__.update(sum=lambda: torch.ones(1) * 8),
    ]


def method_of_a_parameter() -> Changing:
    x: Any = nn.Parameter(torch.ones(2))
    x.tag = 1
    return lambda: x.mean() * 2, [
        lambda: setattr(x, "mean", lambda: torch.ones(1) * 7),
        lambda: setattr(x, "tag", 2),
        lambda: delattr(x, "mean"),
    ]


def method_of_one_of_many_parameters() -> Changing:
    """So many that guards are told by words of memory."""
    model: Any = nn.Sequential(*(nn.Linear(2, 2) for _ in range(12)))
    x = torch.ones(2)
    return lambda: sum(p.mul(2).sum() for p in model.parameters()) * model(x), [
        lambda: setattr(model[7].bias, "mul", lambda other: torch.ones(1) * 7),
        lambda: delattr(model[7].bias, "mul"),
        lambda: setattr(model[3].weight, "sum", lambda: torch.ones(1)),
        lambda: setattr(model[3].weight, "mul", lambda other: torch.ones(1) * 3),
    ]


CHANGES: dict[str, Callable[[], Changing]] = {
    "attribute": of_attribute(lambda x: x.k),
    "attribute by getattr": of_attribute(lambda x: getattr(x, "k", 7)),
    "attribute by attrgetter": of_attribute(operator.attrgetter("k")),
    "attribute of the class": of_attribute(lambda x: type(x).k),
    **{
        each.__name__: each
        for each in (
            method,
            property_of_class,
            method_of_pytorch,
            operator_of_class,
            attribute_that_is_missing,
            torch_function,
            parameter_of_a_module,
            method_of_a_plain_tensor,
            method_of_a_parameter,
            method_of_one_of_many_parameters,
        )
    },
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("name", CHANGES)
def test_change_of_what_a_tensor_gets_from_its_class_is_seen(name: str) -> None:
    program, changes = CHANGES[name]()
    compiled = thunder.jit(program)
    for change in (lambda: None, *changes):
        change()
        for _ in range(2):
            assert_same(compiled(), program(), name)
    stats = thunder.compile_stats(compiled)
    assert stats["cache_hits"] > 0


class Own(Tensor):
    """A subclass without behaviour of its own."""


class Told(Tensor):
    calls = 0

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        result = super().__torch_function__(function, types, arguments, keywords or {})
        return result * 1 if function is Tensor.exp else result


RESULTS: dict[str, Callable[[Any], Any]] = {
    "product": lambda x: x * 2,
    "several": lambda x: (x + 1, [x.sin() * x], {"a": x.sum()}),
    "view": lambda x: x.t(),
    "views of one": lambda x: (lambda y: (y, y[0], y.view(-1)))(x * 3),
    "itself": lambda x: (x, x * 1),
    "plain beside": lambda x: (x * 2, plain(x) * 2),
    "made inside": lambda x: (plain(x) * 2).as_subclass(Own),
    "input made another": lambda x: plain(x).as_subclass(Own),
    "mixed": lambda x: torch.cat([x, torch.ones(2, 2)]),
    "split": lambda x: (x * 2).split(1),
    "integers": lambda x: (x > 0, x.argmax()),
    "empty": lambda x: x[:0] * 2,
    "exp": lambda x: x.exp(),
    "detached": lambda x: (x * 2).detach(),
    "no gradients": lambda x: torch.no_grad()(lambda: x * 2)(),
}


@pytest.mark.parametrize("kind", [Own, Told])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", RESULTS)
def test_results_have_their_class(name: str, requires_grad: bool, kind: Any) -> None:
    program = RESULTS[name]
    compiled = thunder.jit(program, fullgraph=True)
    for size in (2, 2, 3):
        x = torch.linspace(-1.0, 1.0, size * 2).view(2, size).as_subclass(kind).requires_grad_(requires_grad)
        if name in ("mixed", "split") and size == 3:
            continue
        y = plain(x).detach().clone().as_subclass(kind).requires_grad_(requires_grad)
        got, expected = compiled(x), program(y)
        assert_same(got, expected, name)
        first = [each[0] if isinstance(each, tuple) else each for each in (got, expected)]
        if not isinstance(first[0], Tensor) or first[0] is x or not first[0].requires_grad:
            continue
        assert first[0]._is_view() == first[1]._is_view()
        for each in first:
            each.sum().backward()
        assert_same(x.grad, y.grad, name)


def test_attribute_of_an_object_keeps_the_class_of_a_result() -> None:
    class Box:
        kept: Any = None

    box = Box()

    def program(x: Tensor) -> Tensor:
        box.kept = x * 2
        return x + 1

    x = torch.ones(2).as_subclass(Own)
    compiled = thunder.jit(program, fullgraph=True)
    for _ in range(2):
        assert type(compiled(x)) is Own
        assert type(box.kept) is Own
        torch.testing.assert_close(box.kept, x * 2)


def set_attribute(x: Any) -> Any:
    y = x * 2
    y.tag = 1
    return y


def of_class_made_inside(x: Any) -> Any:
    class Made(Tensor):
        pass

    return plain(x).as_subclass(Made)


class Ended(Tensor):
    def __del__(self) -> None:
        pass


@pytest.mark.parametrize(
    "program",
    [set_attribute, of_class_made_inside, lambda x: plain(x).as_subclass(Ended) * 2],
    ids=["attribute", "class made inside", "finalizer"],
)
def test_result_that_needs_more_than_its_class_is_refused(program: Callable[[Any], Any]) -> None:
    x = torch.ones(2).as_subclass(Own)
    with pytest.raises(NotImplementedError, match="subclass"):
        thunder.jit(program, fullgraph=True)(x)


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_tensors_are_swapped_inside() -> None:
    def program(a: Tensor, b: Tensor) -> Tensor:
        torch.utils.swap_tensors(a, b)
        return a * 2

    compiled = thunder.jit(program)
    a, b = torch.ones(2), torch.zeros(3)
    for expected in (torch.zeros(3), torch.ones(2) * 2, torch.zeros(3)):
        torch.testing.assert_close(compiled(a, b), expected)


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_weak_references_of_an_input_are_those_of_eager() -> None:
    compiled = thunder.jit(lambda x: x * (weakref.getweakrefcount(x) + len(weakref.getweakrefs(x)) + 1))
    x = torch.ones(2)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), x)
    kept = weakref.ref(x)
    torch.testing.assert_close(compiled(x), x * 3)
    assert kept() is x


def test_attributes_that_hide_no_method_make_no_specialization() -> None:
    compiled = thunder.jit(lambda x: x.sum() * x.mean())
    x: Any = torch.ones(3)
    for tag in range(3):
        compiled(x)
        x.tag = tag
        setattr(x, f"tag{tag}", tag)
        x.__dict__[f"other{tag}"] = tag
    assert thunder.cache_misses(compiled) == 1


def test_explanation_of_a_hidden_method() -> None:
    compiled = thunder.jit(lambda x: x.sum() * 2)
    x: Any = torch.ones(3)
    compiled(x)
    x.sum = lambda: torch.ones(1)
    compiled(x)
    assert "attributes that hide ('sum',)" in str(thunder.explain_misses(compiled))
