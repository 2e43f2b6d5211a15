"""Transforms that replace and add parameters, and that change what computations take."""

from __future__ import annotations

import copy
import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_examples import example
from torch import nn

import thunder
from thunder import Trace
from thunder.transforms import Transform, add_parameter, override_parameter, overrides_of

Int8Weights = example("int8_weights").Int8Weights
Lora = example("lora").Lora
Bfloat16Parameters = example("bfloat16_parameters").Bfloat16Parameters


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 3))


def inputs(seed: int = 1, rows: int = 5) -> torch.Tensor:
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(seed)).requires_grad_()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8, 4)
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(tokens).tanh())


# --- int8: a parameter becomes two


def dequantized(original: nn.Module) -> nn.Module:
    """The model in eager with the weights that int8 stands for."""
    module = example("int8_weights")
    result = copy.deepcopy(original)
    for layer in result.modules():
        if isinstance(layer, nn.Linear):
            layer.weight = nn.Parameter(module.dequantize(*module.quantize(layer.weight.detach())), requires_grad=False)
    return result


def test_quantized_weights_compute_what_eager_does_with_their_values() -> None:
    original = model()
    compiled, eager = thunder.jit(original, transforms=[Int8Weights()]), dequantized(original)
    x = inputs()
    results = compiled(x), eager(x)
    torch.testing.assert_close(*results)
    gradients = [
        torch.autograd.grad(result.sin().sum(), [x, module[0].bias, module[2].bias])
        for result, module in zip(results, (compiled, eager), strict=True)
    ]
    torch.testing.assert_close(*gradients)
    assert compiled[0].weight.dtype == torch.int8
    assert original[0].weight.dtype == torch.float32
    assert thunder.cache_misses(compiled) == 1


def test_prologue_checks_what_the_module_holds() -> None:
    compiled = thunder.jit(model(), transforms=[Int8Weights()])
    compiled(inputs())
    prologue = str(thunder.last_prologue_traces(compiled)[-1])
    assert "[6, 4], [4, 1], torch.int8" in prologue
    assert "[6, 1], [1, 1], torch.float32" in prologue
    taken = [str(value.dtype) for value in thunder.last_traces(compiled)[0].inputs]
    assert taken.count("torch.int8") == 2


def test_names_are_those_of_the_transformed_module() -> None:
    compiled = thunder.jit(model(), transforms=[Int8Weights()])
    names = ["0.weight", "0.bias", "0.weight_scale", "2.weight", "2.bias", "2.weight_scale"]
    assert list(compiled.state_dict()) == names
    assert [name for name, _ in compiled.named_buffers()] == ["0.weight_scale", "2.weight_scale"]
    assert {name: override.dtype for name, override in overrides_of(compiled).items()} == {
        "0.weight": torch.float32,
        "2.weight": torch.float32,
    }


def test_quantized_state_dict_goes_both_ways() -> None:
    original = model()
    compiled = thunder.jit(original, transforms=[Int8Weights()])
    restored = compiled.original_state_dict()
    assert list(restored) == list(original.state_dict())
    torch.testing.assert_close(restored, dequantized(original).state_dict())
    torch.manual_seed(5)
    other = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 3))
    compiled.load_original_state_dict(other.state_dict())
    torch.testing.assert_close(compiled(inputs()), dequantized(other)(inputs()))
    saved = compiled.state_dict()
    fresh = thunder.jit(model(), transforms=[Int8Weights()])
    fresh.load_state_dict(saved)
    torch.testing.assert_close(fresh(inputs()), compiled(inputs()), rtol=0, atol=0)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_copies_keep_what_programs_see(duplicate: Callable[[Any], Any]) -> None:
    compiled = thunder.jit(Tied(), transforms=[Bfloat16Parameters()])
    tokens = torch.arange(4)
    made = duplicate(compiled)
    assert made.head.weight is made.embedding.weight
    assert made.head.weight is not compiled.head.weight
    torch.testing.assert_close(made(tokens), compiled(tokens), rtol=0, atol=0)
    assert overrides_of(made)["head.weight"].dtype == torch.float32


# --- LoRA: parameters are added


class EagerLora(nn.Module):
    def __init__(self, layer: nn.Linear, a: torch.Tensor, b: torch.Tensor) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.a, self.b = nn.Parameter(a.detach().clone()), nn.Parameter(b.detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + x @ self.a.t() @ self.b.t()


def eager_lora(original: nn.Module, compiled: Any) -> nn.Module:
    layers = [
        EagerLora(layer, compiled[i].lora_a, compiled[i].lora_b) if isinstance(layer, nn.Linear) else layer
        for i, layer in enumerate(copy.deepcopy(original))
    ]
    return nn.Sequential(*layers)


def test_added_parameters_are_trained_as_in_eager() -> None:
    original = model()
    compiled = thunder.jit(original, transforms=[Lora(rank=2)])
    eager = eager_lora(original, compiled)
    modules = [compiled, eager]
    optimizers = [torch.optim.AdamW([p for p in each.parameters() if p.requires_grad], lr=0.1) for each in modules]
    assert [len(each.param_groups[0]["params"]) for each in optimizers] == [4, 4]
    for step in range(3):
        x = inputs(step).detach()
        losses = [(each(x) - 1).square().mean() for each in modules]
        torch.testing.assert_close(*losses)
        for loss, optimizer in zip(losses, optimizers, strict=True):
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(compiled[0].lora_a, eager[0].a)
    torch.testing.assert_close(compiled[2].lora_b, eager[2].b)
    assert compiled[0].weight.grad is None
    assert all(parameter.requires_grad for parameter in original.parameters())
    assert thunder.cache_misses(compiled) == 1


def test_gradients_go_to_added_parameters_alone() -> None:
    compiled = thunder.jit(model(), transforms=[Lora(rank=2)])
    nn.init.ones_(compiled[0].lora_b)
    eager = eager_lora(model(), compiled)
    for module in (compiled, eager):
        module(inputs().detach()).sum().backward()
    torch.testing.assert_close(compiled[0].lora_a.grad, eager[0].a.grad)
    torch.testing.assert_close(compiled[0].lora_b.grad, eager[0].b.grad)
    assert not compiled[0].weight.requires_grad


def test_a_program_is_traced_again_where_nothing_is_trained() -> None:
    compiled = thunder.jit(model(), transforms=[Lora(rank=2)])
    x = inputs().detach()
    assert compiled(x).requires_grad
    for parameter in compiled.parameters():
        parameter.requires_grad_(False)
    result = compiled(x)
    assert not result.requires_grad
    assert thunder.cache_misses(compiled) == 2


def test_merged_weights_compute_the_same() -> None:
    original = model()
    compiled = thunder.jit(original, transforms=[Lora(rank=2)])
    nn.init.normal_(compiled[0].lora_b)
    merged = model()
    merged.load_state_dict(compiled.original_state_dict())
    torch.testing.assert_close(compiled(inputs()), merged(inputs()))
    compiled.load_original_state_dict(merged.state_dict())
    torch.testing.assert_close(compiled(inputs()), merged(inputs()))


def test_added_parameters_are_used_under_autocast() -> None:
    compiled = thunder.jit(model(), transforms=[Lora(rank=2)])
    nn.init.normal_(compiled[0].lora_b)
    eager = eager_lora(model(), compiled)
    with torch.autocast("cpu", torch.bfloat16):
        results = [module(inputs()) for module in (compiled, eager)]
    torch.testing.assert_close(*results)
    for result in results:
        result.float().sum().backward()
    torch.testing.assert_close(compiled[0].lora_a.grad, eager[0].a.grad, rtol=2e-2, atol=2e-2)


def test_transforms_compose() -> None:
    original = model()
    compiled = thunder.jit(original, transforms=[Lora(rank=2), Int8Weights()])
    nn.init.ones_(compiled[0].lora_b)
    eager = eager_lora(dequantized(original), compiled)
    x = inputs().detach()
    results = compiled(x), eager(x)
    torch.testing.assert_close(*results)
    for result in results:
        result.sum().backward()
    torch.testing.assert_close(compiled[0].lora_a.grad, eager[0].a.grad)
    assert compiled[0].weight.dtype == torch.int8


# --- bfloat16 storage: another dtype, tied weights


def casted(module: nn.Module, *arguments: torch.Tensor) -> torch.Tensor:
    """Return the result of the module with its bfloat16 parameters as float32."""
    tied: dict[torch.Tensor, torch.Tensor] = {}
    floats = {
        name: tied.setdefault(parameter, parameter.float())
        for name, parameter in module.named_parameters(remove_duplicate=False)
    }
    return torch.func.functional_call(module, floats, arguments, tie_weights=False)


def test_tied_parameters_are_replaced_together() -> None:
    torch.manual_seed(0)
    original = Tied()
    compiled = thunder.jit(original, transforms=[Bfloat16Parameters()])
    assert compiled.head.weight is compiled.embedding.weight
    assert original.head.weight.dtype == torch.float32
    eager = copy.deepcopy(original).bfloat16()
    tokens = torch.tensor([1, 5, 1])
    results = compiled(tokens), casted(eager, tokens)
    torch.testing.assert_close(*results)
    for result in results:
        result.sin().sum().backward()
    assert compiled.head.weight.grad.dtype == torch.bfloat16
    torch.testing.assert_close(compiled.head.weight.grad, eager.head.weight.grad, rtol=2e-2, atol=2e-2)
    assert [name for name, _ in compiled.named_parameters()] == ["embedding.weight"]


def test_optimizers_update_what_the_module_holds() -> None:
    compiled = thunder.jit(model(), transforms=[Bfloat16Parameters()])
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.5)
    before = compiled(inputs()).detach()
    compiled(inputs()).sum().backward()
    optimizer.step()
    after = compiled(inputs())
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, casted(compiled.__wrapped__, inputs()))
    assert thunder.cache_misses(compiled) == 1


def test_conversions_are_seen() -> None:
    compiled = thunder.jit(model(), transforms=[Int8Weights()])
    compiled(inputs())
    compiled.double()
    result = compiled(inputs().double())
    assert result.dtype == torch.float64
    assert compiled[0].weight.dtype == torch.int8
    torch.testing.assert_close(result, dequantized(model()).double()(inputs().double()), rtol=1e-4, atol=1e-4)


def test_a_parameter_that_is_set_later_takes_the_place() -> None:
    compiled = thunder.jit(nn.Linear(4, 3), transforms=[Bfloat16Parameters()])
    x = inputs()
    compiled(x)
    compiled.weight = nn.Parameter(torch.zeros(3, 4, dtype=torch.bfloat16))
    torch.testing.assert_close(compiled(x), compiled.bias.float().expand(5, 3))


# --- what a program may not do with a replaced parameter


class Misuse(nn.Module):
    def __init__(self, use: Callable[[nn.Module, torch.Tensor], Any]) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.use = use

    def forward(self, x: torch.Tensor) -> Any:
        return self.use(self, x)


def _write(module: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        module.inner.weight.mul_(2)
    return module.inner(x)


def _store(module: Any, x: torch.Tensor) -> torch.Tensor:
    module.last = module.inner.weight
    return x


def _look(module: Any, x: torch.Tensor) -> torch.Tensor:
    return module.inner(x) * (2 if module.inner.weight.sum() > 0 else 3)


MISUSES: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "returns or stores": lambda module, x: module.inner.weight,
    "returns or stores inner.weight": lambda module, x: module.inner.weight.t(),
    "or stores inner.weight": _store,
    "writes to": _write,
    "look at data that it computes from inner.weight": _look,
    "inner.weight.grad": lambda module, x: x if module.inner.weight.grad is None else x + 1,
    r"calls requires_grad_\(\) on inner.bias": lambda module, x: module.inner.bias.requires_grad_() + x,
}


@pytest.mark.parametrize("what", MISUSES)
def test_a_replaced_module_does_not_run_in_eager(what: str) -> None:
    original = Misuse(MISUSES[what])
    original.inner.bias.requires_grad_(False)
    compiled = thunder.jit(original, transforms=[Bfloat16Parameters()])
    for _ in range(2):
        with pytest.raises(RuntimeError, match=what) as caught:
            compiled(inputs())
        assert "Misuse cannot run in eager, as transforms replaced parameters: inner.weight" in str(caught.value)
        assert "Bfloat16Parameters()" in str(caught.value)


def test_data_that_is_read_before_is_read() -> None:
    def use(module: Any, x: torch.Tensor) -> torch.Tensor:
        return module.inner(x) if x.sum() > 0 else module.inner(x) * 2

    compiled = thunder.jit(Misuse(use), transforms=[Bfloat16Parameters()])
    for x in (torch.ones(2, 4), -torch.ones(2, 4), torch.ones(3, 4)):
        torch.testing.assert_close(compiled(x), casted(compiled.__wrapped__.inner, x) * (1 if x.sum() > 0 else 2))


def test_data_beside_replaced_parameters_is_read() -> None:
    def use(module: Any, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.dropout(module.inner(x), 0.5)
        return y if x.sum() > 0 else y * int(x.size(0) + x[0, 0].item())

    compiled = thunder.jit(Misuse(use), transforms=[Bfloat16Parameters()])
    eager = Misuse(use)
    eager.inner.forward = lambda x: casted(compiled.__wrapped__.inner, x)
    for x in (torch.ones(2, 4), -torch.ones(2, 4), torch.full((2, 4), -3.0)):
        results = []
        for program in (compiled, eager):
            torch.manual_seed(3)
            results.append(program(x))
        torch.testing.assert_close(*results)


def test_random_numbers_behind_what_is_not_known_are_not_read() -> None:
    def use(module: Any, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.dropout(module.inner(x), 0.5)
        return y if torch.rand(()) > 0.5 else y * 2

    with pytest.raises(RuntimeError, match=r"look at data that it computes from inner\."):
        thunder.jit(Misuse(use), transforms=[Bfloat16Parameters()])(torch.ones(2, 4))


def test_errors_of_the_program_are_its_own() -> None:
    def use(module: Any, x: torch.Tensor) -> torch.Tensor:
        raise KeyError("no such key")

    with pytest.raises(KeyError, match="no such key"):
        thunder.jit(Misuse(use), transforms=[Bfloat16Parameters()])(inputs())
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        thunder.jit(model(), transforms=[Bfloat16Parameters()])(torch.ones(2, 5))


def test_a_mode_that_programs_do_not_follow_is_refused() -> None:
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    compiled = thunder.jit(model(), transforms=[Int8Weights()])
    compiled(inputs())
    with Mode(), pytest.raises(RuntimeError, match=r"0.weight \(Int8Weights\(\)\) and 1 more.*mode of PyTorch"):
        compiled(inputs())


def test_inside_of_another_program_it_runs_for_itself() -> None:
    inner = thunder.jit(model(), transforms=[Lora(rank=2)])
    nn.init.ones_(inner[0].lora_b)
    outer = thunder.jit(lambda x: inner(x) * 2)
    with pytest.warns(thunder.EagerFallbackWarning, match=r"0.weight \(Lora\(rank=2\)\)"):
        result = outer(inputs())
    torch.testing.assert_close(result, inner(inputs()) * 2)
    with pytest.raises(NotImplementedError, match="transforms replaced"):
        thunder.jit(lambda x: inner(x) * 2, fullgraph=True)(inputs())


def test_layers_behind_one_another_are_adapted() -> None:
    compiled = thunder.jit(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3)), transforms=[Lora(rank=2)])
    for layer in compiled:
        nn.init.ones_(layer.lora_b)
    merged = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
    merged.load_state_dict(compiled.original_state_dict())
    torch.testing.assert_close(compiled(inputs()), merged(inputs()))


@pytest.mark.parametrize("transform", [Lora(rank=2), Int8Weights()])
def test_jitted_again_it_keeps_its_transforms(transform: Transform) -> None:
    compiled = thunder.jit(model(), transforms=[transform])
    for again in (thunder.jit(compiled), thunder.jit(compiled, executors=["aten"])):
        torch.testing.assert_close(again(inputs()), compiled(inputs()))
    with_both = thunder.jit(thunder.jit(model(), transforms=[Lora(rank=2)]), transforms=[Int8Weights()])
    nn.init.ones_(with_both[0].lora_b)
    eager = eager_lora(dequantized(model()), with_both)
    torch.testing.assert_close(with_both(inputs()), eager(inputs()))


def test_more_shapes_than_specializations_are_compiled_each_time() -> None:
    compiled = thunder.jit(nn.Linear(4, 3), transforms=[Bfloat16Parameters()])
    compiled.requires_grad_(False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = 0
        while not caught:
            rows += 1
            result = compiled(torch.ones(rows, 4))
    assert "are traced for themselves" in str(caught[0].message)
    torch.testing.assert_close(result, casted(compiled.__wrapped__, torch.ones(rows, 4)))


# --- what transforms do wrong


class Edit(Transform):
    """Replaces the weight of one linear layer, and edits the traces as it is told."""

    def __init__(self, change: Any, replace: Any = None) -> None:
        self.change, self.replace = change, replace

    def __repr__(self) -> str:
        return "Edit()"

    def transform_module(self, model: Any) -> None:
        if self.replace is not None:
            self.replace(model)

    def transform_traces_pre_prologue(
        self, prologue_trace: Trace, computation_trace: Trace, epilogue_trace: Trace, **kwargs: Any
    ) -> Any:
        return self.change(prologue_trace, computation_trace, epilogue_trace)


def _halve(module: Any) -> None:
    override_parameter(module, "weight", module.weight.detach().half())


def _add(module: Any) -> None:
    add_parameter(module, "gain", nn.Parameter(torch.ones(3)), beside="weight")


def _unchanged(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
    return prologue, computation, epilogue


def _forget_stored(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
    edit = computation.edit("forget")
    weight = computation.parameters["weight"]
    edit.substitute(weight, edit.insert_first(lambda: torch.ones(3, 4)))
    return prologue, edit.finish(), epilogue


def _forget_use(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
    edit = computation.edit("forget")
    weight = computation.parameters["weight"]
    edit.take_stored(weight)
    edit.substitute(weight, edit.insert_first(lambda: torch.ones(3, 4)))
    return prologue, edit.finish(), epilogue


def _wrong_metadata(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
    edit = computation.edit("wrong")
    weight = computation.parameters["weight"]
    index = computation.inputs.index(weight)
    packed = edit.set_input(index, torch.ones(4, 3, dtype=torch.half))
    edit.substitute(weight, edit.insert_first(lambda x: x.t().float(), packed))
    return prologue, edit.finish(), epilogue


def _not_substituted(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
    edit = computation.edit("wrong")
    edit.take_stored(computation.parameters["weight"])
    return prologue, edit.finish(), epilogue


def _input_without_prologue(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
    edit = computation.edit("wrong")
    edit.add_input(torch.ones(3))
    return prologue, edit.finish(), epilogue


def _other_prologue(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
    return computation, computation, epilogue


def _needs_grad(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
    edit = computation.edit("wrong")
    gain = computation.parameters["gain"]
    first = computation.inputs[0]
    edit.substitute(first, edit.insert_first(lambda x, gain: x * gain.sum(), first, gain))
    return prologue, edit.finish(), epilogue


def _type_of(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
    computation.edit("wrong").take_stored(computation.bound_symbols[0].results[0])


@pytest.mark.parametrize(
    ("replace", "change", "message"),
    [
        (_halve, _unchanged, r"input weight: the prologue gives cpu f16\[3, 4\], .* sees, cpu f32\[3, 4\]"),
        (_halve, _forget_stored, r"input weight: the prologue gives cpu f16\[3, 4\]"),
        (_halve, _forget_use, r"input weight: nothing in the computation reads it"),
        (_halve, _wrong_metadata, r"input weight of computation: expected cpu f16\[3, 4\], got cpu f16\[4, 3\]"),
        (_halve, _not_substituted, r"is used before it is made"),
        (_add, _unchanged, r"input gain: nothing in the computation reads it"),
        (_add, _needs_grad, r"expected a value that does not require grad"),
        (None, _input_without_prologue, r"expected 3 inputs, as the prologue returns, got 4"),
        (None, _other_prologue, r"expected the prologue, or an edit of it"),
        (None, _type_of, r"expected an input behind which"),
    ],
)
def test_traces_that_do_not_agree_name_transform_and_input(replace: Any, change: Any, message: str) -> None:
    compiled = thunder.jit(nn.Linear(4, 3), transforms=[Edit(change, replace)])
    with pytest.raises(ValueError, match=message) as caught:
        compiled(inputs().detach())
    assert re.search(r"transform Edit\(\)|wrong|forget", str(caught.value))


def _twice(module: Any) -> None:
    _halve(module)
    _halve(module)


def _tied(module: Any) -> None:
    override_parameter(module, "head.weight", module.head.weight.detach().half())
    override_parameter(module, "embedding.weight", module.head.weight.detach())


@pytest.mark.parametrize(
    ("original", "replace", "message"),
    [
        (nn.Linear(4, 3), lambda m: override_parameter(m, "weigth", torch.ones(3)), "'weigth': expected the name of"),
        (nn.Linear(4, 3), _twice, r"weight is replaced already, by Edit\(\)"),
        (Tied(), _tied, r"embedding.weight is replaced already, by Edit\(\) \(it is the same tensor as head.weight\)"),
        (nn.Linear(4, 3), lambda m: override_parameter(m, "weight", m.weight * 2), "weight: expected a leaf"),
        (nn.Linear(4, 3), lambda m: add_parameter(m, "bias", m.bias, beside="weight"), "there is one already"),
        (nn.Linear(4, 3), lambda m: add_parameter(m, "a.b", m.bias, beside="weight"), "no such submodule"),
        (nn.Linear(4, 3), lambda m: add_parameter(m, "c", m.bias, beside="d"), "'d': expected the name of"),
    ],
)
def test_what_cannot_be_replaced_names_transform_and_parameter(original: Any, replace: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        thunder.jit(original, transforms=[Edit(_unchanged, replace)])
    assert "transform Edit()" in str(caught.value)


def test_two_transforms_do_not_replace_one_parameter() -> None:
    with pytest.raises(ValueError, match=r"Bfloat16Parameters\(\): 0.weight is replaced already, by Int8Weights\(\)"):
        thunder.jit(model().float(), transforms=[Int8Weights(), _AnyDtype()])


class _AnyDtype(Bfloat16Parameters):
    def __repr__(self) -> str:
        return "Bfloat16Parameters()"

    def transform_module(self, model: Any) -> None:
        override_parameter(model, "0.weight", torch.ones(2))


def test_parameters_are_replaced_by_transforms_only() -> None:
    module = model()
    with pytest.raises(RuntimeError, match=r"expected to be called in Transform\.transform_module"):
        override_parameter(thunder.jit(module), "0.weight", torch.ones(2))
    assert module[0].weight.shape == (6, 4)


# --- inputs of the program's own, and inputs that go


def _with_held(tensor: torch.Tensor) -> Any:
    def change(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
        prologue_edit, edit = prologue.edit("held"), computation.edit("held")
        prologue_edit.add_tensor(tensor)
        value = edit.add_input(tensor)
        edit.set_output(0, edit.insert_last(lambda y, held: y * held, computation.outputs[0], value))
        return prologue_edit.finish(), edit.finish(), epilogue

    return change


def test_a_tensor_of_the_transform_becomes_an_input() -> None:
    held = torch.full((3,), 2.0, requires_grad=True)
    linear = nn.Linear(4, 3)
    compiled = thunder.jit(linear, transforms=[Edit(_with_held(held))])
    x = inputs()
    for _ in range(2):
        torch.testing.assert_close(compiled(x), linear(x) * held)
    compiled(x).sum().backward()
    torch.testing.assert_close(held.grad, linear(x).sum(0))
    with torch.no_grad():
        held.mul_(2)
    torch.testing.assert_close(compiled(x), linear(x) * held)
    prologue = str(thunder.last_prologue_traces(compiled)[-1])
    assert "prims.tensor_constant" in prologue
    assert thunder.cache_misses(compiled) == 1


def test_running_statistics_are_written_beside_inputs_of_the_transform() -> None:
    module = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))
    eager = copy.deepcopy(module)
    held = torch.full((3,), 2.0)
    compiled = thunder.jit(module, transforms=[Edit(_with_held(held))])
    for seed in range(3):
        torch.testing.assert_close(compiled(inputs(seed)), eager(inputs(seed)) * held)
    torch.testing.assert_close(dict(module.named_buffers()), dict(eager.named_buffers()))
    assert module[0].running_mean._version == eager[0].running_mean._version


def test_an_input_that_nothing_reads_can_go() -> None:
    def without_bias(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
        index = computation.inputs.index(computation.parameters["0.bias"])
        prologue_edit, edit = prologue.edit("no bias"), computation.edit("no bias")
        prologue_edit.remove_output(index)
        edit.remove_input(index)
        (first, *_) = [s for s in computation.bound_symbols if s.name == "aten.linear.default"]
        edit.replace(first, lambda x, weight, bias: nn.functional.linear(x, weight))
        return prologue_edit.finish(), edit.finish(), epilogue

    module = model()
    compiled = thunder.jit(module, transforms=[Edit(without_bias)])
    x = inputs()
    expected = module[2](module[1](nn.functional.linear(x, module[0].weight)))
    for _ in range(2):
        torch.testing.assert_close(compiled(x), expected)
    gradients = [torch.autograd.grad(y.sum(), [x, module[0].weight, module[2].bias]) for y in (compiled(x), expected)]
    torch.testing.assert_close(*gradients)
    assert len(thunder.last_traces(compiled)[0].inputs) == 4


def test_an_added_buffer_is_written_at_each_call() -> None:
    def note_largest(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
        edit = computation.edit("largest")
        largest = computation.parameters["largest"]
        edit.insert_last(
            lambda seen, x: seen.copy_(torch.maximum(seen, x.detach().abs().amax())), largest, computation.inputs[0]
        )
        return prologue, edit.finish(), epilogue

    compiled = thunder.jit(
        nn.Linear(4, 3),
        transforms=[
            Edit(note_largest, lambda module: add_parameter(module, "largest", torch.zeros(()), beside="weight"))
        ],
    )
    expected = torch.zeros(())
    for seed in range(3):
        x = inputs(seed)
        compiled(x).sum().backward()
        expected = torch.maximum(expected, x.detach().abs().max())
        torch.testing.assert_close(compiled.largest, expected, rtol=0, atol=0)
    assert thunder.cache_misses(compiled) == 1


def test_inputs_are_not_added_to_programs_that_look_at_data() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x * 3

    with pytest.raises(ValueError, match=r"transform Edit\(\): adds inputs .* looks at the data .*\.py:\d+\)"):
        thunder.jit(program, transforms=[Edit(_with_held(torch.ones(3)))])(torch.ones(3))


def test_parameters_of_a_function_have_no_names() -> None:
    seen: list[dict[str, Any]] = []

    def look(prologue: Trace, computation: Trace, epilogue: Trace) -> Any:
        seen.append(computation.parameters)
        return prologue, computation, epilogue

    thunder.jit(torch.sin, transforms=[Edit(look)])(torch.ones(3))
    assert seen == [{}]
    thunder.jit(Tied(), transforms=[Edit(look)])(torch.arange(3))
    assert list(seen[1]) == ["embedding.weight", "head.weight"]
    assert seen[1]["head.weight"] == seen[1]["embedding.weight"]
