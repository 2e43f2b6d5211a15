"""A function that is made anew for each call is guarded by its parts, and by its identity where that is asked for."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import thunder

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="numbers that change need Python 3.11")

Unary = Callable[[Tensor], Tensor]
Program = Callable[[Any, Tensor], Any]


def scaled(factor: Any) -> Unary:
    return lambda t: t * factor


def with_default(factor: Any) -> Unary:
    return lambda t, factor=factor: t * factor  # type: ignore[misc]


def with_keyword(factor: Any) -> Unary:
    def function(t: Tensor, *, factor: Any = factor) -> Tensor:
        result: Tensor = t * factor
        return result

    return function


def counting(start: int) -> Unary:
    count = start

    def function(t: Tensor) -> Tensor:
        nonlocal count
        count += 2
        return t * count

    return function


def call(function: Any, x: Tensor) -> Any:
    return function(x)


def call_attribute(holder: Any, x: Tensor) -> Any:
    return holder.act(x)


def call_first(functions: Any, x: Tensor) -> Any:
    return functions[0](functions[-1](x))


def call_from_c(function: Any, x: Tensor) -> Any:
    return sum(map(function, [x, x + 1]))


def row(i: int) -> Tensor:
    return torch.full((3,), i + 0.5)


# A program, its argument for each call, and how often it is traced: at a second function, at a second one in
# that, and at a second number.
REPEATED: dict[str, tuple[Program, Callable[[int], Any], int]] = {
    "a number": (call, lambda i: scaled(i + 0.5), 3),
    "a tensor": (call, lambda i: scaled(row(i)), 2),
    "a tensor as default": (call, lambda i: with_default(row(i)), 2),
    "a tensor as keyword default": (call, lambda i: with_keyword(row(i)), 2),
    "written variable": (call, counting, 3),
    "called by C": (call_from_c, lambda i: scaled(i + 0.5), 3),
    "attribute": (call_attribute, lambda i: types.SimpleNamespace(act=scaled(i + 0.5)), 3),
    "partial": (call, lambda i: functools.partial(scaled(i + 0.5)), 3),
    "method": (call, lambda i: types.MethodType(lambda self, t: t * self[0], [row(i)]), 2),
    "list": (call_first, lambda i: [scaled(i + 0.5), with_default(row(i))], 3),
    "in a function": (call, lambda i: scaled_by(scaled(i + 0.5)), 4),
}


def scaled_by(inner: Unary) -> Unary:
    return lambda t: inner(t) - 1


@pytest.mark.parametrize("name", REPEATED)
def test_fresh_function_of_one_code_is_not_traced_again(name: str) -> None:
    program, make, traces = REPEATED[name]
    compiled = thunder.jit(program)
    x = torch.arange(3.0)
    for i in range(8):
        torch.testing.assert_close(compiled(make(i), x), program(make(i), x), rtol=0, atol=0)
    assert thunder.cache_misses(compiled) == traces


def test_variables_of_fresh_function_are_written() -> None:
    compiled = thunder.jit(call)
    x = torch.arange(3.0)
    for i in range(8):
        function = counting(i)
        for count in (2, 4):
            assert torch.equal(compiled(function, x), x * (i + count))


def test_fresh_hook_has_its_own_variables() -> None:
    def program(hook: Any, x: Tensor) -> Tensor:
        y = x * 2
        y.register_hook(hook)
        return y.sum()

    compiled = thunder.jit(program)
    for i in range(6):
        x = torch.ones(3, requires_grad=True)
        compiled(scaled(i + 0.5), x).backward()
        assert torch.equal(x.grad, torch.full((3,), 2 * (i + 0.5)))
    assert thunder.cache_misses(compiled) == 2


def test_returned_and_stored_function_is_that_of_the_call() -> None:
    kept: list[Any] = []

    def program(function: Any, x: Tensor) -> Any:
        kept.append(function)
        return function, {"f": function}, x * 2

    compiled = thunder.jit(program)
    x = torch.ones(3)
    for i in range(6):
        function = scaled(i + 0.5)
        first, second, _ = compiled(function, x)
        assert all(each is function for each in (first, second["f"], kept[-1]))
    assert thunder.cache_misses(compiled) == 2


GLOBAL = scaled(1.0)
IN_TUPLE = (scaled(1.0), scaled(1.0))
IN_DICT = {scaled(1.0): 1.0, scaled(1.0): 2.0}
IN_SET = {scaled(1.0)}
IN_LIST = [scaled(1.0), scaled(1.0)]


class OfClass:
    function = staticmethod(scaled(1.0))


def stores(function: Any, x: Tensor) -> Any:
    IN_LIST.append(function)
    count = IN_LIST.count(function)
    IN_LIST.pop()
    return count, x


def wraps(function: Any, x: Tensor) -> Any:
    @functools.wraps(function)
    def wrapper(t: Tensor) -> Any:
        return function(t)

    return wrapper.__name__, wrapper(x)


QUESTIONS: dict[str, Program] = {
    "is": lambda f, x: x * (2 if f is GLOBAL else 3),
    "==": lambda f, x: x * (2 if f == GLOBAL else 3),
    "in a tuple": lambda f, x: x * (2 if f in IN_TUPLE else 3),
    "is of a tuple": lambda f, x: x * (2 if IN_TUPLE[0] is f else 3),
    "count in a tuple": lambda f, x: x * IN_TUPLE.count(f),
    "in a list": lambda f, x: x * (2 if f in IN_LIST else 3),
    "key": lambda f, x: x * IN_DICT.get(f, 5.0),
    "is among keys": lambda f, x: x * sum(i for i, key in enumerate(IN_DICT, 2) if key is f),
    "member": lambda f, x: x * (2 if f in IN_SET else 3),
    "is among members": lambda f, x: x * (2 if any(each is f for each in IN_SET) else 3),
    "as text": lambda f, x: (f"{f}", str(f), repr([f]), x * 2),
    "id": lambda f, x: (id(f), hash(f), x * 2),
    "is of a class": lambda f, x: x * (2 if f is OfClass.function else 3),
    "name": lambda f, x: (f.__name__, f.__qualname__, x * 2),
    "attribute": lambda f, x: (getattr(f, "tag", None), x * 2),
    "signature": lambda f, x: (str(inspect.signature(f)), x * 2),
    "lists": lambda f, x: x * (2 if [f] == [GLOBAL] else 3),
    "tuples": lambda f, x: x * (2 if (f, 1) == (GLOBAL, 1) else 3),
    "new key": lambda f, x: (len({f: 1, GLOBAL: 2}), x * 2),
    "wraps": wraps,
    "stores": stores,
    "calls": call,
}


def candidates() -> Iterator[Unary]:
    """Functions of one code, of which the program may know some by other ways."""
    yield from (scaled(2.0) for _ in range(3))
    yield from (GLOBAL, *IN_TUPLE, *IN_DICT, *IN_SET, *IN_LIST, OfClass.function)
    yield from (scaled(3.0), scaled(4), scaled(row(1)))
    for name, value in {"__name__": "other", "tag": 3, "__annotations__": {"t": int}, "__doc__": "text"}.items():
        function = scaled(2.0)
        setattr(function, name, value)
        yield function
    inner: Any = scaled(2.0)
    yield types.FunctionType(inner.__code__, {}, "inner", None, inner.__closure__)
    yield from (scaled(2.0), GLOBAL, scaled(2.0), IN_TUPLE[0])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", QUESTIONS)
def test_identity_of_fresh_function_is_guarded_where_it_is_asked(name: str) -> None:
    program = QUESTIONS[name]
    compiled = thunder.jit(program)
    x = torch.arange(3.0)
    for function in candidates():
        actual, expected = compiled(function, x), program(function, x)
        if isinstance(expected, tuple):
            assert actual[:-1] == expected[:-1]
            actual, expected = actual[-1], expected[-1]
        assert torch.equal(actual, expected)


def test_globals_of_fresh_function_are_guarded() -> None:
    source = compile("lambda t: t * factor", "functions", "eval")
    compiled = thunder.jit(call)
    x = torch.arange(3.0)
    for factor in (2.0, 3.0, 4.0, 2.0):
        assert torch.equal(compiled(eval(source, {"factor": factor}), x), x * factor)


def test_parts_of_fresh_function_that_are_replaced_are_guarded() -> None:
    compiled = thunder.jit(call)
    x = torch.arange(3.0)
    for i in range(4):
        compiled(with_default(row(i)), x)
    function: Any = with_default(row(1))
    function.__defaults__ = (torch.ones(3),)
    assert torch.equal(compiled(function, x), x)
    function.__code__ = (lambda t, factor: t - factor).__code__
    assert torch.equal(compiled(function, x), x - 1)
    function.__defaults__ = None
    with pytest.raises(TypeError):
        compiled(function, x)


def test_functions_that_torch_disables_are_called_by_code_in_c() -> None:
    @torch._disable_dynamo
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    class Made:
        @torch._disable_dynamo
        def __init__(self, x: torch.Tensor) -> None:
            self.x = x * 2

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return doubled(x), *map(doubled, [x, x + 1]), Made(x).x, next(map(Made, [x])).x

    compiled = thunder.jit(program)
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.ones(2)), program(torch.ones(2)))
    assert thunder.cache_misses(compiled) <= 2  # the wrapper keeps something in its first call from C


def product(x: Tensor, y: Any, *rest: Any, factor: int = 1) -> Tensor:
    result: Tensor = x * y * factor + len(rest)
    return result


class Holds(torch.nn.Module):
    def forward(self, x: Tensor, factor: float = 2.0) -> Tensor:
        return x * factor


@pytest.mark.parametrize("nested", [False, True])
def test_parts_of_a_compiled_partial_function_that_change_are_seen(nested: bool) -> None:
    x = torch.ones(2)
    partial: Any = functools.partial(product, x)
    if nested:
        partial = functools.partial(partial)
    compiled = thunder.jit(partial)
    states: list[tuple[Any, ...]] = [
        (product, (x * 3,), {}, {}),
        (product, (x * 3, x), {"factor": 4}, {}),
        (torch.add, (x,), {}, {}),
        (Holds(), (), {}, {}),
        (Holds(), (), {"factor": 3.0}, {"tag": 1}),
        (product, (2.0,), {}, {}),
    ]
    for state in states:
        partial.__setstate__(state)
        for _ in range(2):
            assert torch.equal(compiled(x * 2), partial(x * 2))
    partial.keywords["factor"] = 9
    assert torch.equal(compiled(x * 2), partial(x * 2))


def test_compiled_partial_function_that_stays_has_one_program() -> None:
    w = torch.ones(2, requires_grad=True)
    partial = functools.partial(product, w, factor=3)
    compiled = thunder.jit(partial)
    for number in range(3):
        (gradient,) = torch.autograd.grad(compiled(torch.ones(2) * number).sum(), w)
        assert gradient.tolist() == [3.0 * number] * 2
    assert thunder.cache_misses(compiled) == 1
