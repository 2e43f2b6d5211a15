"""Guards of a compiled function: each test changes one thing and states whether that traces anew."""

from __future__ import annotations

import abc
import builtins
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder

SCALE = 2.0


class Holder:
    """A user object with attributes."""

    factor = 3.0

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def retraces(compiled: Callable[..., Any], *arguments: Any, **keywords: Any) -> bool:
    """Call `compiled`, compare with the original, and return whether the call was traced."""
    before = thunder.cache_misses(compiled)
    result = compiled(*arguments, **keywords)
    expected = compiled.__wrapped__(*arguments, **keywords)
    torch.testing.assert_close(result, expected, rtol=0, atol=0)
    return thunder.cache_misses(compiled) > before


def compiled_once(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Callable[..., Any]:
    """Return `function`, compiled for these arguments, for which it hits."""
    compiled = thunder.jit(function)
    assert retraces(compiled, *arguments, **keywords)
    assert not retraces(compiled, *arguments, **keywords)
    return compiled


X = torch.arange(6.0).reshape(2, 3)


def test_equal_metadata_hits() -> None:
    f = compiled_once(lambda x: x + 1, X)
    assert not retraces(f, torch.ones(2, 3))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(torch.ones(2, 4), id="shape"),
        pytest.param(torch.ones(2, 3, dtype=torch.float64), id="dtype"),
        pytest.param(torch.ones(3, 2).t(), id="strides"),
        pytest.param(torch.ones(2, 3, requires_grad=True), id="requires_grad"),
        pytest.param(3.0, id="type"),
    ],
)
def test_other_metadata_of_an_argument_retraces(other: Any) -> None:
    f = compiled_once(lambda x: x + 1, X)
    assert retraces(f, other)
    assert not retraces(f, other)
    assert not retraces(f, X)


def test_number_argument_retraces_with_its_value() -> None:
    f = compiled_once(lambda x, n: x * n, X, 2)
    assert retraces(f, X, 3)
    assert retraces(f, X, 2.0)
    assert not retraces(f, X, 2)


def test_bool_and_int_differ() -> None:
    f = compiled_once(lambda x, n: x * n, X, 1)
    assert retraces(f, X, True)


def test_string_argument_retraces_with_its_value() -> None:
    f = compiled_once(lambda x, mode: x + 1 if mode == "add" else x - 1, X, "add")
    assert retraces(f, X, "subtract")


def test_keywords_are_bound_by_name() -> None:
    f = compiled_once(lambda x, y: x - y, X, y=X * 2)
    assert not retraces(f, X, y=X * 3)
    assert retraces(f, X, X * 3)


def test_global_change_retraces(monkeypatch: pytest.MonkeyPatch) -> None:
    f = compiled_once(lambda x: x * SCALE, X)
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    assert retraces(f, X)


def test_unrelated_global_change_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    f = compiled_once(lambda x: x * SCALE, X)
    monkeypatch.setitem(globals(), "UNRELATED", 1)
    assert not retraces(f, X)


def test_closure_change_retraces() -> None:
    factor = 2.0

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * factor

    f = compiled_once(function, X)
    factor = 3.0
    assert retraces(f, X)


def test_attribute_change_retraces() -> None:
    f = compiled_once(lambda x, holder: x * holder.scale, X, Holder(scale=2.0, unused=1))
    assert not retraces(f, X, Holder(scale=2.0, unused=2))
    assert retraces(f, X, Holder(scale=4.0, unused=1))


def test_absent_attribute_that_appears_retraces() -> None:
    holder = Holder()
    f = compiled_once(lambda x: x * getattr(holder, "scale", 1.0), X)
    holder.scale = 2.0
    assert retraces(f, X)


def test_instance_attribute_that_hides_a_method_retraces() -> None:
    holder = Holder()
    f = compiled_once(lambda x: holder.scaled(x), X)
    holder.scaled = lambda x: x + 10
    assert retraces(f, X)


def test_class_attribute_change_retraces(monkeypatch: pytest.MonkeyPatch) -> None:
    f = compiled_once(lambda x, holder: holder.scaled(x), X, Holder())
    monkeypatch.setattr(Holder, "factor", 4.0)
    assert retraces(f, X, Holder())


def test_method_change_retraces(monkeypatch: pytest.MonkeyPatch) -> None:
    f = compiled_once(lambda x, holder: holder.scaled(x), X, Holder())
    monkeypatch.setattr(Holder, "scaled", lambda self, x: x - 1)
    assert retraces(f, X, Holder())


def test_module_attribute_change_retraces() -> None:
    module = types.ModuleType("settings")
    module.scale = 2.0
    f = compiled_once(lambda x: x * module.scale, X)
    module.scale = 3.0
    assert retraces(f, X)


def test_other_class_retraces() -> None:
    class Other(Holder):
        pass

    f = compiled_once(lambda x, holder: x * holder.scale, X, Holder(scale=2.0))
    assert retraces(f, X, Other(scale=2.0))


def test_list_length_change_retraces() -> None:
    values = [1.0, 2.0]
    f = compiled_once(lambda x: x * len(values), X)
    values[0] = 7.0
    assert not retraces(f, X)
    values.append(3.0)
    assert retraces(f, X)


def test_list_item_change_retraces() -> None:
    values = [1.0, 2.0]
    f = compiled_once(lambda x: x * values[1], X)
    values[0] = 7.0
    assert not retraces(f, X)
    values[1] = 3.0
    assert retraces(f, X)


def test_iterated_list_change_retraces() -> None:
    values = [1.0, 2.0]

    def function(x: torch.Tensor) -> torch.Tensor:
        for value in values:
            x = x + value
        return x

    f = compiled_once(function, X)
    values.append(3.0)
    assert retraces(f, X)


def test_tensors_of_a_list_are_inputs() -> None:
    tensors = [torch.ones(3), torch.zeros(3)]
    f = compiled_once(lambda x: x + torch.stack(tensors).sum(0), X)
    tensors[0] = torch.full((3,), 5.0)
    assert not retraces(f, X)
    tensors.append(torch.ones(3))
    assert retraces(f, X)


def test_dict_item_change_retraces() -> None:
    settings = {"scale": 2.0, "other": 1.0}
    f = compiled_once(lambda x: x * settings["scale"], X)
    settings["other"] = 2.0
    assert not retraces(f, X)
    settings["scale"] = 3.0
    assert retraces(f, X)


def test_dict_keys_change_retraces() -> None:
    settings = {"a": 1.0}

    def function(x: torch.Tensor) -> torch.Tensor:
        for value in settings.values():
            x = x + value
        return x

    f = compiled_once(function, X)
    settings["b"] = 2.0
    assert retraces(f, X)


def test_copied_view_is_guarded_by_its_parts() -> None:
    table = {"a": Holder(scale=2.0)}

    def function(x: torch.Tensor) -> torch.Tensor:
        for holder in list(table.values()):
            x = x * holder.scale
        return x

    f = compiled_once(function, X)
    table["a"].scale = 3.0
    assert retraces(f, X)


def test_nested_arguments_are_guarded_by_their_parts() -> None:
    f = compiled_once(lambda batch: batch["x"] * batch["options"][0], {"x": X, "options": [2.0]})
    assert not retraces(f, {"x": X + 1, "options": [2.0]})
    assert retraces(f, {"x": X + 1, "options": [3.0]})


def test_set_change_retraces() -> None:
    flags = {"fast"}
    f = compiled_once(lambda x: x + 1 if "fast" in flags else x, X)
    flags.clear()
    assert retraces(f, X)


def test_tied_weights_that_are_untied_retrace() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    holder = Holder(first=weight, second=weight)
    f = compiled_once(lambda x: x * holder.first + holder.second, X)
    holder.second = torch.nn.Parameter(torch.zeros(3))
    assert retraces(f, X)


def test_replaced_parameter_of_equal_metadata_hits() -> None:
    module = torch.nn.Linear(3, 2)
    f = compiled_once(lambda x: module(x), X)
    module.weight = torch.nn.Parameter(torch.ones(2, 3))
    assert not retraces(f, X)


def test_training_flag_retraces() -> None:
    module = torch.nn.Dropout(0.5).eval()
    f = thunder.jit(lambda x: module(x))
    torch.testing.assert_close(f(X), X)
    module.train()
    f(X)
    module.eval()
    f(X)
    assert (thunder.cache_misses(f), thunder.cache_hits(f)) == (2, 1)


def test_hook_added_later_retraces() -> None:
    module = torch.nn.Linear(3, 2)
    f = compiled_once(lambda x: module(x), X)
    module.register_forward_hook(lambda module, arguments, output: output + 1)
    assert retraces(f, X)


def test_grad_mode_retraces() -> None:
    weight = torch.ones(3, requires_grad=True)
    f = compiled_once(lambda x: x * weight, X)
    with torch.no_grad():
        assert retraces(f, X)
        assert not f(X).requires_grad
    assert not retraces(f, X)


def test_autocast_retraces() -> None:
    weight = torch.ones(3, 3)
    f = compiled_once(lambda x: x @ weight, X)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert retraces(f, X)
        assert f(X).dtype == torch.bfloat16
    assert not retraces(f, X)


def test_default_dtype_retraces() -> None:
    f = compiled_once(lambda x: x + torch.ones(3), X)
    torch.set_default_dtype(torch.float64)
    try:
        assert retraces(f, X)
    finally:
        torch.set_default_dtype(torch.float32)


def test_no_caching_traces_each_call() -> None:
    f = thunder.jit(lambda x: x + 1, cache="no caching")
    f(X)
    f(X)
    assert thunder.cache_misses(f) == 2


def test_prologue_runs_as_python() -> None:
    holder = Holder(scale=2.0)
    f = compiled_once(lambda x, n: x * holder.scale + n, X, 3)
    prologue = thunder.last_prologue_traces(f)[-1].python_callable()
    inputs = prologue((X, 3), {})
    assert [i is X for i in inputs] == [True]


@pytest.mark.parametrize("change", ["attribute", "value", "shape"])
def test_prologue_fails_as_the_guards_do(change: str) -> None:
    from thunder import prims

    holder = Holder(scale=2.0)
    f = compiled_once(lambda x, n: x * holder.scale + n, X, 3)
    prologue = thunder.last_prologue_traces(f)[-1].python_callable()
    if change == "attribute":
        holder.scale = 3.0
    arguments = (X[:1] if change == "shape" else X, 4 if change == "value" else 3)
    with pytest.raises(prims.GuardFailed):
        prologue(arguments, {})


def test_property_that_is_written_in_c_is_guarded() -> None:
    info = torch._C._dynamo.guards.GuardDebugInfo

    def f(x: torch.Tensor, record: Any) -> torch.Tensor:
        return x.cos() if record.result else x.sin()

    compiled = thunder.jit(f)
    for record in (info(True, [], 0), info(False, [], 0), info(True, [], 0)):
        assert torch.equal(compiled(X, record), f(X, record))


def test_identity_of_a_tensor_is_that_of_the_tensor_of_the_call() -> None:
    def f(x: torch.Tensor, address: int) -> torch.Tensor:
        return x + 1 if id(x) == address else x + 2

    compiled, other = thunder.jit(f), X.clone()
    for x, address in ((X, id(X)), (other, id(other)), (X, id(other)), (X, id(X))):
        assert torch.equal(compiled(x, address), f(x, address))


def accumulate(total: torch.Tensor = torch.zeros(2), *, count: torch.Tensor = torch.zeros(1)) -> torch.Tensor:  # noqa: B008
    total.add_(1)
    count.add_(2)
    return total * count


def test_default_arguments_of_an_inner_function_are_written_to_at_every_call() -> None:
    compiled = thunder.jit(lambda x: x + accumulate())
    for calls in range(1, 4):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 1.0 + calls * 2 * calls))


@pytest.mark.parametrize("key", [None, abs])
def test_key_that_is_none_sorts_by_the_values(key: Any) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, list[int], int]:
        return x + 1, sorted([1, 10, 3, 0], key=key, reverse=True), max([1, 3, 2], key=key)

    assert thunder.jit(f)(X)[1:] == f(X)[1:]


def test_whether_the_profiler_runs_is_guarded() -> None:
    compiled = thunder.jit(lambda x: x + 1 if torch.autograd._profiler_enabled() else x - 1)
    assert torch.equal(compiled(X), X - 1)
    with torch.autograd.profiler.profile():
        assert torch.equal(compiled(X), X + 1)
    assert torch.equal(compiled(X), X - 1)


def imported(x: torch.Tensor) -> torch.Tensor:
    import math

    return x + math.pi


def imported_from(x: torch.Tensor) -> torch.Tensor:
    from math import pi

    return x + pi


def imported_if_there(x: torch.Tensor) -> torch.Tensor:
    try:
        import not_there_yet as module
    except ImportError:
        return x
    return x + module.pi


@pytest.mark.parametrize("function", [imported, imported_from])
def test_import_function_that_is_replaced_is_followed(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compiled_once(function, X)
    plain = builtins.__import__
    other = types.SimpleNamespace(pi=1.0)
    monkeypatch.setattr(builtins, "__import__", lambda name, *rest: other if name == "math" else plain(name, *rest))
    assert retraces(compiled, X)
    monkeypatch.undo()
    assert not retraces(compiled, X)


@pytest.mark.parametrize("function", [imported, imported_from, imported_if_there])
def test_modules_that_are_loaded_are_followed(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compiled_once(function, X)
    for name in ("math", "not_there_yet"):
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(pi=1.0))
    assert retraces(compiled, X)
    monkeypatch.undo()
    assert not retraces(compiled, X)


def test_classes_that_are_registered_later_are_followed() -> None:
    Shape = abc.ABCMeta("Shape", (), {})

    class Circle:
        pass

    circle = Circle()
    compiled = compiled_once(lambda x: x * (2 if isinstance(circle, Shape) else 3), X)
    other = compiled_once(lambda x: x * (2 if issubclass(Circle, (int, Shape)) else 3), X)
    Shape.register(Circle)
    assert retraces(compiled, X)
    assert retraces(other, X)
    assert not retraces(compiled, X)


class Kept:
    """Something that a program reads and stores to."""

    value: Any = None


def fresh_tuple() -> tuple[int, ...]:
    return tuple(int(digit) for digit in "12")


@pytest.mark.parametrize("make", [fresh_tuple, lambda: "a b".upper(), lambda: float("1.5"), lambda: int("9999")])
def test_equal_constants_of_each_call_are_returned_and_stored(make: Callable[[], Any]) -> None:
    kept = Kept()

    def f(x: torch.Tensor, given: Any) -> Any:
        read, kept.value = kept.value, given
        return x + 1, given, [read], {given: given}

    compiled = thunder.jit(f)
    for _ in range(3):
        given = make()
        before = kept.value = make()
        _, first, (read,), pairs = compiled(X, given)
        assert first is given
        assert read is before
        assert kept.value is given
        assert next(iter(pairs)) is given
    assert thunder.cache_misses(compiled) == 1


def test_parts_of_equal_tuples_of_each_call_are_returned() -> None:
    compiled = thunder.jit(lambda x, given: (x, given[1], given[1][0], given[0]))
    for _ in range(3):
        given = (float("2.5"), (float("3.5"), "a b".upper()))
        _, inner, number, first = compiled(X, given)
        assert inner is given[1]
        assert number is given[1][0]
        assert first is given[0]
    assert thunder.cache_misses(compiled) == 1


def test_whether_two_tuples_are_one_is_guarded() -> None:
    compiled = thunder.jit(lambda x, a, b: x + 1 if a is b else x - 1)
    first, second = fresh_tuple(), fresh_tuple()
    for a, b in ((first, first), (first, second), (second, second), (second, first)):
        assert torch.equal(compiled(X, a, b), X + 1 if a is b else X - 1)
    assert thunder.cache_misses(compiled) == 2


def test_equal_tuples_that_lie_at_two_places_are_told_apart() -> None:
    kept: list[Any] = []

    def f(x: torch.Tensor, given: Any) -> torch.Tensor:
        kept[:] = [given[1]]
        return x + 1

    compiled = thunder.jit(f)
    first, *rest = ((float("1.5"), (int("300"), 2)) for _ in range(3))
    for given in (first, first, *rest):
        compiled(X, given)
        assert kept[0] is given[1]


class WithDefault:
    """Has an attribute whose value is that of its class."""

    limit = 1000

    def __init__(self) -> None:
        self.limit = WithDefault.limit


def test_number_that_an_object_and_its_class_hold_is_followed() -> None:
    holder = WithDefault()
    compiled = compiled_once(lambda x: x * WithDefault.limit + holder.limit, X)
    holder.limit = int("1000")
    assert not retraces(compiled, X)
    holder.limit = 1001
    assert retraces(compiled, X)
