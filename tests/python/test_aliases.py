"""Two ways that lead to one object in some calls and to two in others, where the program writes to the object."""

from __future__ import annotations

import collections
import contextlib
import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder

X = torch.arange(4.0)
COUNT = 1


class Slotted:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 1


class Plain:
    def __init__(self, value: Any = 1) -> None:
        self.value = value


class WithMethod(Plain):
    def get(self) -> Any:
        return self.value


def increase() -> None:
    global COUNT
    COUNT = COUNT + 1


def set_count(value: int) -> int:
    global COUNT
    COUNT = value
    return value


def module() -> Any:
    made = types.ModuleType("made")
    made.value = 1  # type: ignore[attr-defined]
    return made


def tensor_with(cfg: Any) -> torch.Tensor:
    made = torch.ones(4)
    made.cfg = cfg  # type: ignore[attr-defined]
    return made


def partial() -> Any:
    return functools.partial(lambda **k: sum(k.values()), a=1)


Objects = tuple[Any, ...]
# Each case: a use of two objects, a pair of objects that are one or share one, and another pair of objects that do not.
CASES: dict[str, tuple[Callable[..., Any], Callable[[], Objects], Callable[[], Objects]]] = {}


def add(
    name: str, use: Callable[..., Any], make: Callable[[], Any], view: Callable[[Any], Any] = lambda made: made
) -> None:
    def same() -> Objects:
        made = make()
        return made, view(made)

    CASES[name] = (use, same, lambda: (make(), view(make())))


add("list", lambda a, b: (a.append(1), len(b)), lambda: [1])
add("list, read first", lambda a, b: (len(b), a.append(1), len(b)), lambda: [1])
add("item", lambda a, b: (a.__setitem__(0, X), b[0]), lambda: [1])
add("both written", lambda a, b: (a.append(1), b.append(2), len(a)), lambda: [1])
add("cleared", lambda a, b: (a.__setitem__(slice(None), b[::-1]), b.clear(), len(a)), lambda: [1, 2])
add("nested", lambda a, b: (a[0].append(3), len(b[0])), lambda: [[1]])
add("inside of itself", lambda a, b: (b.append(1), len(a[0])), lambda: [[1]], lambda made: made[0])
add("attribute", lambda a, b: (setattr(a, "value", 5), b.value), Plain)
add("attribute of a child", lambda a, b: (setattr(a.value, "value", 5), b.value.value), lambda: Plain(Plain()))
add("slot", lambda a, b: (setattr(a, "value", 5), b.value), Slotted)
add("dict", lambda a, b: (a.__setitem__("k", 5), b.get("k", 2), len(b)), dict)
add("set", lambda a, b: (a.add(5), 5 in b, len(b)), set)
add("deque", lambda a, b: (a.appendleft(5), b[0], len(b)), lambda: collections.deque([1]))
add("ordered dict", lambda a, b: (a.move_to_end("p"), list(b)), lambda: collections.OrderedDict(p=1, q=2))
add("dict of an object", lambda a, d: (setattr(a, "value", 7), d["value"]), Plain, vars)
add("object of a dict", lambda a, d: (d.__setitem__("value", 7), a.value), Plain, vars)
add("dict of a module", lambda a, d: (d.update(value=7), a.value), module, vars)
add("module", lambda a, b: (setattr(a, "value", 7), b.value), module)
add("proxy", lambda d, p: (d.update(a=6), p["a"], len(p)), lambda: {"a": 1}, types.MappingProxyType)
add("keys", lambda d, k: (d.update(a=6, b=8), "b" in k, len(k)), lambda: {"a": 1}, dict.keys)
add("values", lambda d, v: (d.update(a=6, b=8), sum(v)), lambda: {"a": 1}, dict.values)
add(
    "chain",
    lambda d, c: (d.update(a=6), c["a"], len(c)),
    lambda: {"a": 1},
    lambda made: collections.ChainMap(made, {"z": 1}),
)
add("keywords", lambda p, k: (k.update(a=5), p()), partial, lambda made: made.keywords)
add("bound method", lambda a, m: (setattr(a, "value", 5), m()), WithMethod, lambda made: made.get)
add("submodule", lambda m, n: (setattr(m, "scale", 5), n(X) * getattr(n, "scale", 1)), torch.nn.Identity)
add("attribute of a tensor", lambda c, t: (setattr(c, "value", 5), t.cfg.value), Plain, tensor_with)
add("globals", lambda m, _: (increase(), m["COUNT"], set_count(1)), lambda: {"COUNT": 1})
CASES["globals"] = (CASES["globals"][0], lambda: (globals(), None), CASES["globals"][2])
CASES["globals, written as a dict"] = (
    lambda m, _: (m.__setitem__("COUNT", 6), COUNT, set_count(1)),
    *CASES["globals"][1:],
)


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("order", ["ds", "sd", "dsd"])
@pytest.mark.parametrize("name", CASES)
def test_one_object_by_two_ways_is_told_from_two_objects(name: str, order: str) -> None:
    use, same, different = CASES[name]

    def program(x: torch.Tensor, *objects: Any) -> tuple[torch.Tensor, Any]:
        return x + 1, use(*objects)

    def told(found: Any) -> str:
        with contextlib.suppress(AttributeError):
            found = found.tolist()
        return str(found)

    runs = []
    for called in (program, thunder.jit(program)):
        run = []
        for each in order:
            objects = (same if each == "s" else different)()
            for _ in range(2):
                run.append([told(part) for part in called(X, *objects)[1]])
        runs.append(run)
    assert runs[0] == runs[1]


def leaf() -> torch.Tensor:
    return torch.arange(1.0, 4.0).requires_grad_()


def set_grad(a: torch.Tensor, b: torch.Tensor) -> Any:
    a.grad = torch.ones(3)
    return b.grad is None


def backward(a: torch.Tensor, b: torch.Tensor) -> Any:
    (a * 2 + b * 3).sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    return a.grad.tolist(), b.grad.tolist()


TENSOR_USES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "grad": set_grad,
    "requires_grad": lambda a, b: (a.detach_(), b.requires_grad)[1],
    "backward": backward,
    "gradient of one": lambda a, b: torch.autograd.grad((a * 2 + b * 3).sum(), a)[0].tolist(),
    "gradients": lambda a, b: [g.tolist() for g in torch.autograd.grad((a * 2 + b * 3).sum(), [a, b])],
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("order", ["ds", "sd"])
@pytest.mark.parametrize("name", TENSOR_USES)
def test_one_tensor_by_two_ways_is_told_from_two_tensors(name: str, order: str) -> None:
    def run(called: Callable[..., Any]) -> list[Any]:
        found = []
        for each in order:
            first = leaf()
            second = first if each == "s" else leaf()
            found += [called(first, second) for _ in range(1 if name == "requires_grad" else 2)]
        return found

    assert run(TENSOR_USES[name]) == run(thunder.jit(TENSOR_USES[name]))


def test_sizes_that_are_set_by_another_way_are_seen() -> None:
    def f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.unsqueeze_(0)
        return b * 2

    compiled = thunder.jit(f)
    assert compiled(torch.ones(3), torch.ones(3)).shape == (3,)
    one = torch.ones(3)
    assert compiled(one, one).shape == (1, 3)


def test_a_miss_names_both_ways() -> None:
    compiled = thunder.jit(lambda x, a, b: (a.append(1), x * len(b))[1])
    compiled(X, [1], [1])
    one = [1]
    compiled(X, one, one)
    assert "a was another object of type list" in str(thunder.explain_misses(compiled))
    assert "is the same object as b" in str(thunder.explain_misses(compiled))


def test_many_objects_that_are_written_and_read_cost_one_guard_each() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x + self.calls

    def guards(depth: int) -> int:
        model = thunder.jit(torch.nn.Sequential(*(Layer() for _ in range(depth))))
        model(X)
        return thunder.compile_stats(model)["guards"]

    assert guards(32) - guards(16) < 2.5 * (guards(16) - guards(8))
