"""Parts and methods of modules whose parameters transforms replaced or added others beside, called by themselves."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_examples import example
from torch import nn

import thunder
from thunder.transforms import Transform, add_parameter, override_parameter
from thunder.transforms.overrides import see_on

Int8Weights = example("int8_weights").Int8Weights
AnyLora: Any = example("lora").Lora
Bfloat16Parameters = example("bfloat16_parameters").Bfloat16Parameters


class Lora(AnyLora):
    """That of the example, for pickles."""


class Model(nn.Module):
    """An encoder and a head, and methods that call them as `generate` does."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 4))
        self.again = self.encoder[0]
        self.head = nn.Linear(4, 3)
        self.scale = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x)) * self.scale

    def generate(self, x: torch.Tensor, steps: int) -> torch.Tensor:
        hidden = self.encoder(x)
        for _ in range(steps):
            hidden = self.encoder(hidden)
        return self.head(hidden)

    def roll(self, x: torch.Tensor) -> torch.Tensor:
        return self(x) + self.forward(x)

    def score(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.head.weight.t()


def adapted() -> tuple[Any, nn.Module]:
    """A module with LoRA whose matrices are not zero, and one in eager with the weights that it stands for."""
    torch.manual_seed(0)
    compiled: Any = thunder.jit(Model(), transforms=[Lora(rank=2)])
    for name, parameter in compiled.named_parameters():
        if "lora_b" in name:
            nn.init.normal_(parameter)
    return compiled, merged(compiled)


def merged(compiled: Any) -> nn.Module:
    eager = Model()
    eager.load_state_dict(compiled.original_state_dict())
    eager.scale = compiled.scale
    return eager


def inputs(*sizes: int) -> torch.Tensor:
    return torch.randn(*(sizes or (5, 4)), generator=torch.Generator().manual_seed(1))


CALLS: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "layer": lambda model, x: model.encoder[0](x),
    "layer by another name": lambda model, x: model.again(x),
    "layer by path": lambda model, x: model.get_submodule("encoder.2")(x.repeat(1, 2)[:, :6]),
    "container": lambda model, x: model.encoder(x),
    "part of a container": lambda model, x: model.encoder[:2](x),
    "forward of a layer": lambda model, x: model.head.forward(x),
    "forward": lambda model, x: model.forward(x),
    "method": lambda model, x: model.generate(x, steps=2),
    "method that calls the module": lambda model, x: model.roll(x),
    "other module": lambda model, x: nn.Sequential(nn.Tanh(), model.head)(x),
    "class's call": lambda model, x: nn.Module.__call__(model, x),
}


@pytest.mark.parametrize("what", CALLS)
def test_parts_compute_with_what_was_added(what: str) -> None:
    compiled, eager = adapted()
    x = inputs()
    expected = CALLS[what](eager, x)
    for _ in range(2):
        torch.testing.assert_close(CALLS[what](compiled, x), expected)
    CALLS[what](compiled, x).sum().backward()
    assert any(p.grad is not None for name, p in compiled.named_parameters() if "lora_a" in name)
    assert all(p.grad is None for name, p in compiled.named_parameters() if "lora_" not in name)


def test_parts_compute_with_what_was_replaced() -> None:
    torch.manual_seed(0)
    compiled: Any = thunder.jit(Model(), transforms=[Int8Weights()])
    eager, x = merged(compiled), inputs()
    for what, call in CALLS.items():
        torch.testing.assert_close(call(compiled, x), call(eager, x), msg=what)


def test_the_wrapped_module_never_runs_plain() -> None:
    compiled, eager = adapted()
    torch.testing.assert_close(compiled.__wrapped__(inputs()), eager(inputs()))


def test_the_original_module_stays_plain() -> None:
    torch.manual_seed(0)
    original = Model()
    compiled: Any = thunder.jit(original, transforms=[Lora(rank=2)])
    nn.init.ones_(compiled.head.lora_b)
    assert "forward" not in vars(original)
    assert "forward" not in vars(original.head)
    torch.testing.assert_close(original.head(inputs()), nn.functional.linear(inputs(), *original.head.parameters()))


def test_signatures_are_those_of_the_classes() -> None:
    compiled, eager = adapted()
    assert inspect.signature(compiled.forward) == inspect.signature(eager.forward)
    assert inspect.signature(compiled.head.forward) == inspect.signature(eager.head.forward)
    assert type(compiled.head) is nn.Linear
    assert compiled.state_dict().keys() == compiled.__wrapped__.state_dict().keys()


def test_hooks_of_parts_run() -> None:
    compiled, eager = adapted()
    seen: list[torch.Size] = []
    for model in (compiled, eager):
        model.head.register_forward_hook(lambda module, args, result: (seen.append(result.shape), result * 2)[1])
        model.head.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    x = inputs()
    torch.testing.assert_close(compiled.head(x), eager.head(x))
    torch.testing.assert_close(compiled(x), eager(x))
    assert len(seen) == 4


@pytest.mark.parametrize(
    "duplicate",
    [
        copy.deepcopy,
        lambda made: pickle.loads(pickle.dumps(made)),
        lambda made: torch.load(_saved(made), weights_only=False),
    ],
)
def test_copies_have_parts_of_their_own(duplicate: Callable[[Any], Any]) -> None:
    compiled, eager = adapted()
    x = inputs()
    compiled(x)
    made = duplicate(compiled)
    for call in CALLS.values():
        torch.testing.assert_close(call(made, x), call(eager, x))
    with torch.no_grad():
        made.head.lora_a.zero_()
        made.again.lora_a.zero_()
    torch.testing.assert_close(compiled.head(x), eager.head(x))
    torch.testing.assert_close(made.head(x), merged(made).head(x))
    torch.testing.assert_close(made.encoder(x), merged(made).encoder(x))


def _saved(made: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(made, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_a_copied_part_computes_the_same(duplicate: Callable[[Any], Any]) -> None:
    compiled, eager = adapted()
    head = duplicate(compiled.head)
    torch.testing.assert_close(head(inputs()), eager.head(inputs()))
    with torch.no_grad():
        compiled.head.lora_a.zero_()
    torch.testing.assert_close(head(inputs()), eager.head(inputs()))


def test_a_shallow_copy_has_attributes_of_its_own() -> None:
    compiled, eager = adapted()
    made = copy.copy(compiled)
    made.scale = 3.0
    x = inputs()
    for call in (lambda m: m(x), lambda m: m.forward(x), lambda m: m.head(x) * m.scale):
        torch.testing.assert_close(call(compiled), eager(x) if call(eager).shape != (5, 3) else call(eager))
    torch.testing.assert_close(made(x), eager(x) * 3)
    torch.testing.assert_close(made.forward(x), eager(x) * 3)
    torch.testing.assert_close(compiled.forward(x), eager(x))


def test_a_part_jitted_again_keeps_its_transforms() -> None:
    compiled, eager = adapted()
    x = inputs()
    for fn, expected in [
        (compiled.head, eager.head),
        (compiled.head.forward, eager.head),
        (compiled.generate, eager.generate),
        (compiled.score, eager.score),
        (compiled, eager),
    ]:
        arguments = (x, 2) if fn == compiled.generate else (x,)
        if fn == compiled.score:  # a product that the transform does not know
            with pytest.raises(ValueError, match=r"Lora\(rank=2\): input head.lora_a: nothing in the computation"):
                thunder.jit(fn)(*arguments)
            continue
        torch.testing.assert_close(thunder.jit(fn)(*arguments), expected(*arguments))
    torch.testing.assert_close(compiled(x), eager(x))
    torch.testing.assert_close(compiled.head(x), eager.head(x))


def test_a_method_jitted_computes_with_what_was_replaced() -> None:
    torch.manual_seed(0)
    compiled: Any = thunder.jit(Model(), transforms=[Int8Weights()])
    torch.testing.assert_close(thunder.jit(compiled.score)(inputs()), merged(compiled).score(inputs()))


def test_other_transforms_are_for_the_whole_module() -> None:
    compiled, _ = adapted()
    with pytest.raises(ValueError, match=r"Bfloat16Parameters\(\) changes modules, and this is a part"):
        thunder.jit(compiled.head, transforms=[Bfloat16Parameters()])


class Doubled(Transform):
    """Doubles what the program returns; replaces nothing."""

    def transform_traces_pre_prologue(self, prologue_trace: Any, computation_trace: Any, epilogue_trace: Any, **_: Any):
        edit = computation_trace.edit("doubled")
        edit.set_output(0, edit.insert_last(lambda y: y * 2, computation_trace.outputs[0]))
        return prologue_trace, edit.finish(), epilogue_trace


def test_transforms_of_the_program_do_not_hold_for_its_parts() -> None:
    torch.manual_seed(0)
    compiled: Any = thunder.jit(Model(), transforms=[Int8Weights(), Doubled()])
    eager, x = merged(compiled), inputs()
    torch.testing.assert_close(compiled(x), eager(x) * 2)
    torch.testing.assert_close(compiled.forward(x), eager(x) * 2)
    torch.testing.assert_close(compiled.head(x), eager.head(x))


def test_parts_follow_changes_of_the_module() -> None:
    compiled, _ = adapted()
    x = inputs()
    compiled.encoder(x)
    with torch.no_grad():
        compiled.again.lora_b.mul_(2)
    torch.testing.assert_close(compiled.encoder(x), merged(compiled).encoder(x))
    compiled.requires_grad_(False)
    assert not compiled.head(x).requires_grad
    compiled.head.lora_a.requires_grad_(True)
    assert compiled.head(x).requires_grad
    compiled.double()
    torch.testing.assert_close(compiled.encoder(x.double()), merged(compiled).double().encoder(x.double()))
    compiled.eval()
    assert not compiled.encoder.training
    state = {name: tensor + 1 for name, tensor in compiled.state_dict().items()}
    compiled.load_state_dict(state, strict=True)
    torch.testing.assert_close(compiled.encoder(x.double()), merged(compiled).double().encoder(x.double()))


def test_parts_follow_conversions_of_what_was_replaced() -> None:
    torch.manual_seed(0)
    compiled: Any = thunder.jit(Model(), transforms=[Int8Weights()])
    x = inputs()
    compiled.head(x)
    compiled.double()
    assert compiled.head(x.double()).dtype == torch.float64
    torch.testing.assert_close(compiled.head(x.double()), merged(compiled).double().head(x.double()))


def test_optimizers_train_what_parts_compute_with() -> None:
    compiled, _ = adapted()
    optimizer = torch.optim.SGD([p for p in compiled.parameters() if p.requires_grad], lr=0.1)
    before = compiled.head(inputs()).detach()
    compiled.head(inputs()).square().sum().backward()
    optimizer.step()
    after = compiled.head(inputs())
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, merged(compiled).head(inputs()))


class Failing(Transform):
    def transform_module(self, model: Any) -> None:
        override_parameter(model, "head.weight", model.head.weight.detach().half())
        add_parameter(model, "head.gain", nn.Parameter(torch.ones(3)), beside="head.weight")
        model.head.bias = None
        raise KeyError("half-way")


def test_a_transform_that_fails_leaves_the_module_as_it_was() -> None:
    original = Model()
    before, x = copy.deepcopy(original), inputs()
    with pytest.raises(KeyError, match="half-way"):
        thunder.jit(original, transforms=[Lora(rank=2), Failing()])
    torch.testing.assert_close(original.state_dict(), before.state_dict(), rtol=0, atol=0)
    assert all(parameter.requires_grad for parameter in original.parameters())
    torch.testing.assert_close(original.encoder(x), before.encoder(x))
    compiled, eager = adapted()
    with pytest.raises(KeyError, match="half-way"):
        thunder.jit(compiled, transforms=[Failing()])
    torch.testing.assert_close(compiled.head(x), eager.head(x))
    torch.testing.assert_close(compiled(x), eager(x))


# --- in other programs, and below transforms of torch.func


@pytest.mark.parametrize("what", ["module", "layer", "method"])
def test_parts_inside_of_another_program_run_for_themselves(what: str) -> None:
    compiled, eager = adapted()
    call: Any = {"module": lambda m, x: m(x), "layer": CALLS["layer"], "method": CALLS["method"]}[what]
    x = inputs()
    with pytest.warns(thunder.EagerFallbackWarning, match=r"transforms replaced.*\(Lora\(rank=2\)\)"):
        result = thunder.jit(lambda x: call(compiled, x) * 2)(x)
    torch.testing.assert_close(result, call(eager, x) * 2)
    with pytest.raises(NotImplementedError, match="transforms replaced"):
        thunder.jit(lambda x: call(compiled, x) * 2, fullgraph=True)(x)
    outer = nn.Sequential(compiled.head, nn.Tanh())
    with pytest.warns(thunder.EagerFallbackWarning):
        result = thunder.jit(outer)(x)
    torch.testing.assert_close(result, eager.head(x).tanh())


@pytest.mark.parametrize("transform", [torch.func.vmap, lambda f: torch.func.grad(lambda x: f(x).sum())])
@pytest.mark.parametrize("what", ["module", "layer", "method"])
def test_below_torch_func_parts_are_refused_by_name(transform: Any, what: str) -> None:
    compiled, _ = adapted()
    call: Any = {"module": lambda m, x: m(x), "layer": CALLS["layer"], "method": CALLS["method"]}[what]
    with pytest.raises(RuntimeError, match=r"\(Lora\(rank=2\)\).*a transform of torch.func"):
        transform(lambda x: call(compiled, x))(inputs())


@pytest.mark.parametrize("transform", [thunder.vmap, lambda f: thunder.grad(lambda x: f(x).sum())])
def test_below_thunders_transforms_parts_are_refused_by_name(transform: Any) -> None:
    compiled, _ = adapted()
    for f in (compiled, compiled.head, lambda x: compiled.head(x)):
        with pytest.raises((RuntimeError, NotImplementedError), match=r"Lora\(rank=2\)"):
            transform(f)(inputs())


def test_functional_call_computes_with_what_it_is_given() -> None:
    compiled, _ = adapted()
    x = inputs()
    other = {name: tensor.detach() + 0.5 for name, tensor in compiled.named_parameters()}
    for path in ("", "head", "encoder"):
        prefix = f"{path}." if path else ""
        given = {name.removeprefix(prefix): tensor for name, tensor in other.items() if name.startswith(prefix)}
        result = torch.func.functional_call(compiled.get_submodule(path), given, (x,))
        changed = copy.deepcopy(compiled)
        changed.load_state_dict(other, strict=False)
        torch.testing.assert_close(result, merged(changed).get_submodule(path)(x))
    torch.testing.assert_close(compiled(x), merged(compiled)(x))


# --- tensors that cannot take the place of a parameter


class Subclassed(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented

    def to_local(self) -> torch.Tensor:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        (torch.ones(3, 4)._make_subclass(Subclassed, torch.ones(3, 4)), "got a Subclassed; take its local part"),
        (torch.ones(3, 4).to_sparse(), "got a tensor of layout torch.sparse_coo"),
        (torch.quantize_per_tensor(torch.ones(3, 4), 1.0, 0, torch.qint8), "got a quantized tensor"),
    ],
)
def test_only_plain_tensors_take_the_place_of_parameters(replacement: torch.Tensor, message: str) -> None:
    class Replace(Transform):
        def transform_module(self, model: Any) -> None:
            override_parameter(model, "weight", replacement)

    with pytest.raises(TypeError, match=rf"Replace\(\): weight: expected .*{message}"):
        thunder.jit(nn.Linear(4, 3), transforms=[Replace()])


# --- tied weights


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8, 4)
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(tokens).tanh())


def test_a_part_need_not_use_what_was_added_to_another() -> None:
    torch.manual_seed(0)
    original = Tied()
    compiled: Any = thunder.jit(original, transforms=[Lora(rank=2)])
    nn.init.ones_(compiled.head.lora_b)
    tokens = torch.arange(4)
    torch.testing.assert_close(compiled.embedding(tokens), original.embedding(tokens))
    hidden = original.embedding(tokens).tanh()
    adapted_head = original.head.weight + compiled.head.lora_b @ compiled.head.lora_a
    torch.testing.assert_close(compiled.head(hidden), hidden @ adapted_head.t())
    torch.testing.assert_close(compiled(tokens), compiled.head(hidden))


# --- state that changes between calls


def test_parameters_that_were_added_and_are_gone_are_missed() -> None:
    compiled, _ = adapted()
    compiled(inputs())
    del compiled.head.lora_a
    for call in (compiled, compiled.head):
        with pytest.raises(ValueError, match=r"Lora\(rank=2\): input head.lora_b: nothing in the computation reads it"):
            call(inputs())


def test_a_layer_that_is_replaced_later_is_the_new_one() -> None:
    compiled, eager = adapted()
    x = inputs()
    compiled(x)
    compiled.head = nn.Linear(4, 3)
    torch.testing.assert_close(compiled(x), compiled.head(eager.encoder(x)))
    del compiled.head
    torch.testing.assert_close(compiled.encoder(x), eager.encoder(x))


def test_no_warning_tells_of_anything_in_ordinary_use() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled, _ = adapted()
        for call in CALLS.values():
            call(compiled, inputs())


class SeenOnMeta(Transform):
    """Keeps a parameter on the CPU that programs see on the meta device."""

    def transform_module(self, model: Any) -> None:
        override_parameter(model, "weight", torch.nn.Parameter(torch.ones(3, 4)))
        see_on(model, "weight", torch.device("meta"))

    def transform_traces_pre_prologue(self, prologue: Any, computation: Any, epilogue: Any, **kwargs: Any) -> Any:
        edit = computation.edit(repr(self))
        value = computation.parameters["weight"]
        assert value.device.type == "meta"
        stored = edit.take_stored(value)
        edit.substitute(value, edit.insert_first(torch.ops.aten._to_copy.default, stored, device=torch.device("meta")))
        return prologue, edit.finish(), epilogue


def test_a_parameter_is_seen_on_another_device_than_it_is_stored_on() -> None:
    model = thunder.jit(torch.nn.Linear(4, 3, bias=False, device="meta"), transforms=[SeenOnMeta()])
    with torch.no_grad():
        result = model(torch.ones(2, 4, device="meta"))
    assert (result.device.type, result.shape, model.weight.device.type) == ("meta", (2, 3), "cpu")
