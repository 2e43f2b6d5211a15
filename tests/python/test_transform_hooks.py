"""`thunder.transforms.Transform`: modules, traces and state dicts changed on their way."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager
from torch import nn

import thunder
from thunder import Trace
from thunder.transforms import Transform


class ReluToClamp(Transform):
    """Replaces relu before differentiation."""

    def transform_traces_pre_prologue(
        self, prologue_trace: Trace, computation_trace: Trace, epilogue_trace: Trace, **kwargs: Any
    ) -> Any:
        edit = computation_trace.edit("relu to clamp")
        for symbol in computation_trace.bound_symbols:
            if symbol.name == "aten.relu.default":
                edit.replace(symbol, lambda x: torch.clamp(x, min=0))
        return prologue_trace, edit.finish(), epilogue_trace


class Watch(Transform):
    """Keeps the final traces."""

    def __init__(self) -> None:
        self.seen: list[Trace] = []

    def transform_trace_post_optimization(self, computation_trace: Trace, **kwargs: Any) -> Trace:
        self.seen.append(computation_trace)
        return computation_trace


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def inputs() -> torch.Tensor:
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()


def test_computation_is_transformed_before_it_is_differentiated() -> None:
    compiled = assert_as_eager(model(), inputs(), options={"transforms": [ReluToClamp()]})
    assert "aten.clamp" in str(thunder.last_traces(compiled)[0])
    assert "relu" not in str(thunder.last_traces(compiled)[-1]).split("import torch")[1]
    assert "threshold_backward" not in str(thunder.last_backward_traces(compiled)[-1])


def test_transforms_are_listed_in_the_header() -> None:
    compiled = thunder.jit(model(), transforms=[ReluToClamp(), Watch()])
    compiled(inputs())
    header = str(thunder.last_traces(compiled)[0]).splitlines()[0]
    assert "ReluToClamp()" in header
    for trace in (thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1]):
        assert "Watch()" in str(trace).splitlines()[0]


def test_post_optimization_sees_forward_then_backward_and_what_is_saved() -> None:
    watch = Watch()
    compiled = thunder.jit(model(), transforms=[watch])
    compiled(inputs()).sum().backward()
    forward, backward = watch.seen
    assert (forward.name, backward.name) == ("forward", "backward")
    assert [value.shape for value in forward.saved] == [value.shape for value in backward.saved]
    assert len(forward.saved) == len(forward.outputs) - 1
    with torch.no_grad():
        compiled(inputs())
    assert watch.seen[-1].name == "computation"
    assert watch.seen[-1].saved == []


def test_transforms_are_applied_in_order_and_for_each_specialization() -> None:
    class Add(Transform):
        def __init__(self, number: float) -> None:
            self.number = number

        def transform_trace_post_optimization(self, computation_trace: Trace, **kwargs: Any) -> Trace:
            edit = computation_trace.edit(f"add {self.number}")
            output = computation_trace.outputs[0]
            edit.set_output(0, edit.insert_last(lambda y: (y + self.number) * 2, output))
            return edit.finish()

    compiled = thunder.jit(lambda x: x.sin(), transforms=[Add(1.0), Add(10.0)])
    for size in (2, 3):
        torch.testing.assert_close(compiled(torch.zeros(size)), torch.full((size,), 24.0))


def test_transforms_and_programs_that_look_at_data() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        return torch.relu(y - 1) if y.sum() > 2 else y * 3

    compiled = thunder.jit(program, transforms=[ReluToClamp()])
    for x in (torch.ones(2), torch.full((2,), 3.0), torch.ones(2)):
        torch.testing.assert_close(compiled(x), program(x))
    assert thunder.cache_misses(compiled) == 2


# --- modules and state dicts


class HalfWeights(Transform):
    """Keeps linear weights in bfloat16, and computes with them as float32."""

    def transform_module(self, model: Any) -> None:
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight = nn.Parameter(module.weight.detach().bfloat16())

    def transform_traces_pre_prologue(
        self, prologue_trace: Trace, computation_trace: Trace, epilogue_trace: Trace, **kwargs: Any
    ) -> Any:
        return prologue_trace, computation_trace, epilogue_trace

    def transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        if isinstance(model.get_submodule(submodule_name), nn.Linear):
            state_dict = {**state_dict, "weight": state_dict["weight"].bfloat16()}
        return state_dict

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        if isinstance(model.get_submodule(submodule_name), nn.Linear):
            state_dict = {**state_dict, "weight": state_dict["weight"].float()}
        return state_dict


class CastedLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.inner.weight.to(x.dtype), self.inner.bias)


def test_module_is_transformed_and_the_original_stays() -> None:
    original = CastedLinear()
    compiled = thunder.jit(original, transforms=[HalfWeights()])
    assert original.inner.weight.dtype == torch.float32
    assert compiled.inner.weight.dtype == torch.bfloat16
    assert compiled.inner.bias is original.inner.bias
    assert isinstance(compiled, CastedLinear)
    x = torch.randn(2, 4)
    expected = nn.functional.linear(x, original.inner.weight.bfloat16().float(), original.inner.bias)
    torch.testing.assert_close(compiled(x), expected)
    compiled(x).sum().backward()
    assert compiled.inner.weight.grad.dtype == torch.bfloat16
    assert original.inner.weight.grad is None


def test_state_dict_goes_through_transforms_in_both_directions() -> None:
    original = CastedLinear()
    compiled = thunder.jit(original, transforms=[HalfWeights()])
    assert compiled.state_dict()["inner.weight"].dtype == torch.bfloat16
    restored = compiled.original_state_dict()
    assert list(restored) == list(original.state_dict())
    assert restored["inner.weight"].dtype == torch.float32
    other = CastedLinear().state_dict()
    compiled.load_original_state_dict(other)
    torch.testing.assert_close(compiled.inner.weight.detach(), other["inner.weight"].bfloat16())
    torch.testing.assert_close(compiled.inner.bias.detach(), other["inner.bias"])
    with pytest.raises(RuntimeError, match=r"no_such.weight"):
        compiled.load_original_state_dict({**other, "no_such.weight": torch.ones(1)})


def test_copies_of_a_transformed_module_are_not_transformed_again() -> None:
    compiled = thunder.jit(CastedLinear(), transforms=[HalfWeights()])
    with torch.no_grad():
        compiled.inner.weight.zero_()
    x = torch.randn(2, 4)
    for made in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert made.inner.weight.dtype == torch.bfloat16
        torch.testing.assert_close(made(x), compiled(x))
        assert made.inner.weight is not compiled.inner.weight


# --- errors


class Broken(Transform):
    def __init__(self, change: Any) -> None:
        self.change = change

    def transform_traces_pre_prologue(
        self, prologue_trace: Trace, computation_trace: Trace, epilogue_trace: Trace, **kwargs: Any
    ) -> Any:
        return self.change(prologue_trace, computation_trace, epilogue_trace)


def _two_outputs(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
    return prologue, Trace.of_function(lambda x: (x, x), torch.ones(3)), epilogue


def _other_shape(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
    return prologue, Trace.of_function(lambda x: x.sum(), torch.ones(3)), epilogue


def _raises(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
    raise KeyError("no such thing")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda p, c, e: c, TypeError, "expected a tuple of three traces"),
        (lambda p, c, e: None, TypeError, "expected a tuple of three traces, got None"),
        (lambda p, c, e: (p, c), TypeError, "expected a tuple of three traces"),
        (lambda p, c, e: (p, 3, e), TypeError, "expected a trace as the computation, got 3"),
        (lambda p, c, e: (p, None, e), TypeError, "expected a trace as the computation, got None"),
        (lambda p, c, e: (None, c, e), TypeError, "expected a trace as the prologue, got None"),
        (lambda p, c, e: (p, c.edit("step"), e), TypeError, r"as the computation, got .*finish\(\) returns the trace"),
        (lambda p, c, e: (c, c, e), ValueError, "expected the prologue, or an edit of it"),
        (lambda p, c, e: (p, c, c), ValueError, "expected the epilogue, or an edit of it"),
        (_two_outputs, ValueError, "expected 1 outputs, got 2"),
        (_other_shape, ValueError, r"output 0 of computation: expected cpu f32\[3\], got cpu f32\[\]"),
        (_raises, KeyError, "no such thing"),
    ],
)
def test_wrong_traces_name_the_transform(change: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        thunder.jit(torch.sin, transforms=[Broken(change)])(torch.ones(3))
    assert error is KeyError or "transform Broken()" in str(caught.value)


def test_none_stands_for_the_epilogue_as_it_was() -> None:
    f = thunder.jit(torch.sin, transforms=[Broken(lambda p, c, e: (p, c, None))])
    assert torch.equal(f(torch.ones(3)), torch.ones(3).sin())


def test_forward_and_backward_that_disagree_are_refused() -> None:
    class OnlyForward(Transform):
        def transform_trace_post_optimization(self, computation_trace: Trace, **kwargs: Any) -> Trace:
            if computation_trace.name != "forward":
                return computation_trace
            edit = computation_trace.edit("half")
            half = edit.insert_last(lambda x: x.bfloat16(), computation_trace.saved[0])
            edit.set_output(1, half)
            return edit.finish()

    with pytest.raises(ValueError, match=r"transform OnlyForward\(\): saved value 0.*expected cpu bf16.*got cpu f32"):
        thunder.jit(torch.sin, transforms=[OnlyForward()])(torch.ones(3, requires_grad=True))


@pytest.mark.parametrize("transforms", [3, [3], [Transform]])
def test_what_is_no_transform_is_refused(transforms: Any) -> None:
    with pytest.raises(TypeError, match=r"thunder.jit: transforms: expected"):
        thunder.jit(torch.sin, transforms=transforms)
