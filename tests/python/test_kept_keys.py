"""Objects that are keys of dicts, or members of sets: which they are is guarded, and nothing keeps them alive."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder


class Holder:
    def __init__(self, factor: float = 3.0) -> None:
        self.tensor = torch.full((2,), factor)


def sum_of_items(x: torch.Tensor, key: Any, table: Any) -> Any:
    for each, factor in table.items():
        x = x + (each if isinstance(each, torch.Tensor) else each.tensor) * factor
    return x


def sum_of_members(x: torch.Tensor, key: Any, table: Any) -> Any:
    return x + sum(each if isinstance(each, torch.Tensor) else each.tensor for each in set(table))


def store(x: torch.Tensor, key: Any, table: Any) -> Any:
    table[key] = table.get(key, 0.0) + 1.0
    return x * table[key]


def write_to_keys(x: torch.Tensor, key: Any, table: Any) -> Any:
    for each in table:
        each.seen = getattr(each, "seen", 0.0) + 1.0
        x = x * each.seen
    return x


READS: dict[str, Callable[[torch.Tensor, Any, Any], Any]] = {
    "item": lambda x, key, table: x * table[key],
    "get": lambda x, key, table: x * table.get(key, 2.0),
    "absent": lambda x, key, table: x * (2.0 if (key, 0) in table else 5.0),
    "in": lambda x, key, table: x * (key in table),
    "in set": lambda x, key, table: x * (key in frozenset(table)),
    "tuple": lambda x, key, table: x * {(key, 1): table[key]}[key, 1],
    "keys": lambda x, key, table: x * sum(table[each] for each in table),
    "pairs": lambda x, key, table: x * sum(each[1] for each in [*table.items()]),
    **{each.__name__: each for each in (sum_of_items, sum_of_members, store, write_to_keys)},
}
MAKE: dict[str, Callable[[], Any]] = {
    "object": Holder,
    "tensor": lambda: torch.full((2,), 3.0),
    "parameter": lambda: torch.nn.Parameter(torch.full((2,), 3.0)),
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("read", READS)
def test_keys_are_those_of_each_call_and_die(read: str, kind: str) -> None:
    if read == "write_to_keys" and kind != "object":
        pytest.skip("attributes of tensors are not written to")
    runs = []
    for function in (READS[read], thunder.jit(READS[read])):
        run: list[Any] = []
        references = []
        for number in range(3):
            keys = [MAKE[kind]() for _ in range(3)]
            references += [weakref.ref(key) for key in keys]
            for table in ({keys[0]: 2.0}, {keys[0]: 2.0, keys[1]: 4.0}, {keys[1]: 4.0, keys[0]: 2.0}):
                for key in (keys[0], keys[number], keys[0]):
                    try:
                        run.append(function(torch.ones(2), key, table).tolist())
                    except KeyError:
                        run.append("KeyError")
            del keys, key, table
        gc.collect()
        assert not any(reference() is not None for reference in references)
        runs.append(run)
    assert runs[0] == runs[1]


def test_a_set_of_objects_in_a_global_is_read_through_its_members() -> None:
    holders = {Holder(2.0)}

    def f(x: torch.Tensor) -> Any:
        return x + sum(holder.tensor for holder in holders)

    compiled = thunder.jit(f)
    for factor in range(4):
        for _ in range(3):
            next(iter(holders)).tensor = torch.full((2,), float(factor))
            assert torch.equal(compiled(torch.ones(2)), f(torch.ones(2)))
        if factor % 2:
            reference = weakref.ref(holders.pop())
            holders.add(Holder(7.0))
            gc.collect()
            assert reference() is None
    assert thunder.cache_misses(compiled) == 2


def test_optimizers_that_are_gone_leave_room_for_new_ones() -> None:
    def step(parameter: Any, optimizer: Any, x: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = (parameter * x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = thunder.jit(step)
    references = []
    for _ in range(36):
        losses = []
        for function in (step, compiled):
            parameter = torch.nn.Parameter(torch.ones(2))
            references.append(weakref.ref(parameter))
            optimizer = torch.optim.Adam([parameter], 0.1)
            losses.append([function(parameter, optimizer, torch.ones(2)) for _ in range(3)])
            del parameter, optimizer
        torch.testing.assert_close(*losses)
    gc.collect()
    assert not any(reference() is not None for reference in references)
    assert thunder.compile_stats(compiled)["eager_calls"] == 0
