"""Epilogues that transforms change: outputs stored in buffers, writes that are left out, other results."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_examples import example
from torch import nn

import thunder
from thunder import Trace
from thunder.transforms import Transform, add_parameter

AmaxHistory = example("amax_history").AmaxHistory


def inputs(seed: int = 1, rows: int = 5) -> torch.Tensor:
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(seed))


class Edit(Transform):
    """Edits the traces as it is told."""

    def __init__(self, change: Any) -> None:
        self.change = change

    def transform_traces_pre_prologue(
        self, prologue_trace: Trace, computation_trace: Trace, epilogue_trace: Trace, **kwargs: Any
    ) -> Any:
        return self.change(prologue_trace, computation_trace, epilogue_trace)


class Largest(nn.Module):
    """Has a buffer that the transforms below store the largest input in."""

    def __init__(self, use: Callable[[Any, torch.Tensor], Any] | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)
        self.register_buffer("largest", torch.zeros(()))
        self.use = use

    def forward(self, x: torch.Tensor) -> Any:
        return self.linear(x) if self.use is None else self.use(self, x)


def store_largest(name: str = "largest", note: Any = None, index: int | None = None) -> Any:
    def change(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
        edit, end = computation.edit("largest"), epilogue.edit("largest")
        first = next(symbol for symbol in computation.bound_symbols if symbol.name == "aten.linear.default").args[0]
        value = edit.insert_last(note or (lambda x: x.detach().abs().amax()), first)
        output = edit.add_output(value)
        end.store(name, output if index is None else index)
        return prologue, edit.finish(), end.finish()

    return change


# --- outputs stored in buffers


def test_histories_are_those_of_a_hook_in_eager() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 3))
    compiled = thunder.jit(model, transforms=[AmaxHistory(3)])
    histories = {index: torch.zeros(3) for index in (0, 2)}
    for index, history in histories.items():

        def note(module: nn.Module, args: Any, history: torch.Tensor = history) -> None:
            history.copy_(torch.cat([args[0].detach().abs().amax().reshape(1), history[:-1]]))

        model[index].register_forward_pre_hook(note)
    for step in range(5):
        x = inputs(step)
        results = compiled(x), model(x)
        torch.testing.assert_close(*results)
        for result in results:
            result.sum().backward()
        for index, history in histories.items():
            torch.testing.assert_close(compiled[index].amax_history, history)
            torch.testing.assert_close(compiled[index].weight.grad, model[index].weight.grad)
            model.zero_grad()
            compiled.zero_grad()
    assert thunder.cache_misses(compiled) == 1
    assert "prims.call" in str(thunder.last_epilogue_traces(compiled)[-1])


def test_histories_are_kept_in_state_dicts_and_copies() -> None:
    compiled = thunder.jit(nn.Linear(4, 3), transforms=[AmaxHistory(3)])
    compiled(inputs(1))
    made = copy.deepcopy(compiled)
    made(inputs(2))
    assert compiled.amax_history.count_nonzero() == 1
    assert made.amax_history.count_nonzero() == 2
    compiled.load_state_dict(made.state_dict())
    compiled(inputs(3))
    assert compiled.amax_history.count_nonzero() == 3
    assert list(compiled.original_state_dict()) == ["weight", "bias"]


def test_parts_store_too() -> None:
    compiled = thunder.jit(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), transforms=[AmaxHistory(2)])
    compiled[1](inputs())
    assert compiled[1].amax_history[0] == inputs().abs().max()
    assert compiled[0].amax_history.count_nonzero() == 0


def views_of_the_result(module: Any, x: torch.Tensor) -> Any:
    y = module.linear(x)
    return {"all": y, "part": y[1:], "input": x, "size": y.shape[0]}


def number(module: Any, x: torch.Tensor) -> Any:
    y = module.linear(x)
    return y * 2 if x.sum() > 0 else y * 3


def item(module: Any, x: torch.Tensor) -> Any:
    return module.linear(x), x[0, 0].item()


def writes_to_input(module: Any, x: torch.Tensor) -> Any:
    y = module.linear(x.detach().clone())
    x.add_(1)
    return y


USES = [None, views_of_the_result, number, item, writes_to_input]


@pytest.mark.parametrize("use", USES)
def test_programs_that_store_compute_the_same_otherwise(use: Any) -> None:
    module = Largest(use)
    eager = copy.deepcopy(module)
    compiled = thunder.jit(module, transforms=[Edit(store_largest())])
    for seed in range(4):
        ours, theirs = inputs(seed), inputs(seed)
        largest = theirs.abs().max()
        torch.testing.assert_close(compiled(ours), eager(theirs))
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(compiled.largest, largest)
    assert module.largest is compiled.largest


def test_outputs_are_stored_in_the_module_that_is_there() -> None:
    compiled = thunder.jit(nn.Sequential(Largest()), transforms=[Edit(store_largest("0.largest"))])
    first = compiled[0]
    compiled(inputs(1))
    compiled[0] = Largest()
    compiled(inputs(2))
    torch.testing.assert_close(first.largest, inputs(1).abs().max())
    torch.testing.assert_close(compiled[0].largest, inputs(2).abs().max())
    compiled[0] = nn.Linear(4, 4)


def test_calls_that_raise_store_nothing() -> None:
    module = Largest(lambda module, x: torch.linalg.cholesky(module.linear(x) * 0 - 1))
    compiled = thunder.jit(module, transforms=[Edit(store_largest())])
    with pytest.raises(RuntimeError, match="cholesky"):
        compiled(inputs(rows=4))
    assert module.largest == 0


def test_several_transforms_store() -> None:
    module = Largest()
    module.register_buffer("smallest", torch.zeros(()))
    smallest = store_largest("smallest", lambda x: x.detach().abs().amin())
    compiled = thunder.jit(module, transforms=[Edit(store_largest()), Edit(smallest)])
    compiled(inputs())
    assert module.largest == inputs().abs().max()
    assert module.smallest == inputs().abs().min()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (store_largest("nothing"), "'nothing': expected the name of a buffer of the module"),
        (store_largest("linear.weight"), "'linear.weight': expected the name of a buffer"),
        (store_largest(note=lambda x: x.detach().amax(0)), r"largest: expected a value like \(\(\), .*got \(\(4,\)"),
        (store_largest(note=lambda x: x.detach().double().amax()), "largest: expected a value like .*float64"),
        (store_largest(note=lambda x: x.amax()), "expected a tensor that does not require grad.*detach it"),
        (store_largest(index=0), "largest: expected an output that was added, got output 0"),
        (store_largest(index=7), "largest: expected an output that was added, got output 7"),
    ],
)
def test_what_is_stored_is_checked(change: Any, message: str) -> None:
    module = Largest()
    with pytest.raises(ValueError, match=message) as caught:
        thunder.jit(module, transforms=[Edit(change)])(inputs().requires_grad_())
    assert "Edit()" in str(caught.value) or "largest" in str(caught.value)
    assert module.largest == 0


def test_only_epilogues_store() -> None:
    def change(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
        computation.edit("wrong").store("largest", 0)

    with pytest.raises(ValueError, match="wrong: expected an epilogue, got a computation"):
        thunder.jit(Largest(), transforms=[Edit(change)])(inputs())


# --- writes that are left out


def remembers(module: Any, x: torch.Tensor) -> Any:
    y = module.linear(x)
    module.last = y.detach() * 2
    module.first = y.detach() * 3
    return y, module.last


def forget(name: str) -> Any:
    def change(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
        edit = epilogue.edit("forget")
        for symbol in epilogue.bound_symbols:
            if symbol.name == "prims.set_item" and symbol.args[1] == name:
                edit.remove(symbol)
        return prologue, computation, edit.finish()

    return change


def test_a_write_that_is_removed_is_not_made() -> None:
    module = Largest(remembers)
    compiled = thunder.jit(module, transforms=[Edit(forget("last"))])
    for seed in range(3):
        y, last = compiled(inputs(seed))
        torch.testing.assert_close(y, module.linear(inputs(seed)))
        torch.testing.assert_close(last, y * 2)
        torch.testing.assert_close(module.first, y * 3)
        assert not hasattr(module, "last")
    assert "'last'" not in str(thunder.last_epilogue_traces(compiled)[-1])


def counts(module: Any, x: torch.Tensor) -> Any:
    module.largest.add_(1)
    return module.linear(x)


def test_a_write_to_a_buffer_that_is_removed_is_not_made() -> None:
    def change(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
        edit = computation.edit("no write")
        for symbol in computation.bound_symbols:
            if symbol.name == "aten.copy_.default":
                edit.remove(symbol)
        return prologue, edit.finish(), epilogue

    module = Largest(counts)
    compiled = thunder.jit(module, transforms=[Edit(change)])
    version = module.largest._version
    for _ in range(2):
        torch.testing.assert_close(compiled(inputs()), module.linear(inputs()))
    assert module.largest == 0
    assert module.largest._version == version


def test_another_value_is_returned() -> None:
    def change(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
        edit = epilogue.edit("first of the results")
        (whole,) = [symbol for symbol in epilogue.bound_symbols if symbol.name == "prims.make_tuple"]
        edit.set_output(0, whole.args[0][0])
        return prologue, computation, edit.finish()

    module = Largest(remembers)
    result = thunder.jit(module, transforms=[Edit(change)])(inputs())
    torch.testing.assert_close(result, module.linear(inputs()))


def test_other_changes_are_refused() -> None:
    def insert(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
        edit = epilogue.edit("wrong")
        edit.insert_last(lambda: torch.ones(3))
        return prologue, computation, edit.finish()

    def swap(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
        return prologue, computation, prologue

    with pytest.raises(ValueError, match=r"transform Edit\(\): the epilogue: expected an edit that removes writes"):
        thunder.jit(Largest(), transforms=[Edit(insert)])(inputs())
    with pytest.raises(ValueError, match=r"transform Edit\(\): expected the epilogue, or an edit of it"):
        thunder.jit(Largest(), transforms=[Edit(swap)])(inputs())


def test_added_buffers_that_nothing_stores_must_be_read() -> None:
    class Adds(Edit):
        def transform_module(self, model: Any) -> None:
            add_parameter(model, "linear.seen", torch.zeros(()), beside="linear.weight")

    compiled = thunder.jit(Largest(), transforms=[Adds(lambda *traces: traces)])
    with pytest.raises(ValueError, match=r"Edit\(\)|Adds\(\): input linear.seen: nothing in the computation reads it"):
        compiled(inputs())
