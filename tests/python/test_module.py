"""A compiled module stays a module."""

from __future__ import annotations

import copy
import gc
import inspect
import io
import pickle
import weakref

import pytest
import torch
from torch import nn

import thunder


class Net(nn.Module):
    """A module with what modules have: submodules, a buffer, attributes, a method beside `forward`."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 2)
        self.register_buffer("offset", torch.ones(2))
        self.factor = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.head(self.body(x)) * self.factor + self.offset
        return y if self.training else y.tanh()

    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return self(x) * 2


@pytest.fixture
def pair() -> tuple[Net, Net]:
    """A module and, compiled, an equal one."""
    original = Net()
    return original, thunder.jit(copy.deepcopy(original))


def test_compiled_module_is_of_its_class(pair) -> None:
    _, compiled = pair
    assert isinstance(compiled, Net)
    assert isinstance(compiled, thunder.ThunderModule)
    assert compiled.__class__.__name__ == "Net"
    assert repr(compiled).startswith("ThunderModule(Net(")


def test_output_gradients_and_buffers_equal_eager(pair) -> None:
    original, compiled = pair
    for _ in range(3):
        x = torch.randn(6, 4)
        outputs = [model(x) for model in pair]
        torch.testing.assert_close(outputs[1], outputs[0])
        for output in outputs:
            output.square().sum().backward()
    for one, other in zip(original.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad)
    for one, other in zip(original.buffers(), compiled.buffers(), strict=True):
        torch.testing.assert_close(other, one)
    assert compiled.body[1].num_batches_tracked == 3
    assert thunder.cache_misses(compiled) == 1


def test_names_have_no_prefix(pair) -> None:
    original, compiled = pair
    assert list(compiled.state_dict()) == list(original.state_dict())
    for names in ("named_parameters", "named_buffers", "named_modules", "named_children"):
        assert [name for name, _ in getattr(compiled, names)()] == [name for name, _ in getattr(original, names)()]


def test_state_dict_loads_both_ways(pair) -> None:
    original, compiled = pair
    with torch.no_grad():
        compiled.head.weight.fill_(3.0)
    original.load_state_dict(compiled.state_dict())
    assert torch.equal(original.head.weight, compiled.head.weight)
    compiled.load_state_dict(Net().state_dict())
    original.load_state_dict(compiled.state_dict())
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled(x), original(x))


def test_attributes_are_the_originals_to_read_and_write() -> None:
    original = Net()
    compiled = thunder.jit(original)
    assert compiled.head is original.head
    compiled.factor = 5.0
    assert original.factor == 5.0
    original.extra = nn.Linear(1, 1)
    assert "extra.weight" in compiled.state_dict()
    del compiled.extra
    assert not hasattr(original, "extra")


def test_changed_attribute_retraces(pair) -> None:
    original, compiled = pair
    x = torch.randn(3, 4)
    compiled(x), original(x)
    original.factor = compiled.factor = 7.0
    torch.testing.assert_close(compiled(x), original(x))


def test_train_and_eval_reach_the_original_and_retrace(pair) -> None:
    original, compiled = pair
    x = torch.randn(3, 4)
    for mode in (True, False, True):
        assert compiled.train(mode) is compiled
        original.train(mode)
        assert all(module.training == mode for module in compiled.__wrapped__.modules())
        torch.testing.assert_close(compiled(x), original(x))
    assert thunder.cache_misses(compiled) == 2


def test_to_dtype_retraces(pair) -> None:
    original, compiled = pair
    x = torch.randn(3, 4)
    compiled(x), original(x)
    assert compiled.to(torch.float64) is compiled
    original.to(torch.float64)
    assert compiled(x.double()).dtype == torch.float64
    torch.testing.assert_close(compiled(x.double()), original(x.double()))


def test_replaced_parameter_is_noticed(pair) -> None:
    original, compiled = pair
    x = torch.randn(3, 4)
    compiled(x), original(x)
    weight = torch.randn(2, 8)
    original.head.weight = nn.Parameter(weight.clone())
    compiled.head.weight = nn.Parameter(weight.clone())
    torch.testing.assert_close(compiled(x), original(x))
    compiled(x).sum().backward()
    assert compiled.head.weight.grad is not None


def test_frozen_parameter_gets_no_gradient(pair) -> None:
    _, compiled = pair
    x = torch.randn(3, 4)
    compiled(x).sum().backward()
    compiled.zero_grad()
    compiled.head.weight.requires_grad_(False)
    compiled(x).sum().backward()
    assert compiled.head.weight.grad is None
    assert compiled.head.bias.grad is not None


def test_gradients_accumulate(pair) -> None:
    original, compiled = pair
    for model in (original.eval(), compiled.eval()):
        torch.manual_seed(1)
        for _ in range(3):
            model(torch.randn(3, 4)).sum().backward()
    torch.testing.assert_close(compiled.head.weight.grad, original.head.weight.grad)


def test_tied_weights_share_one_gradient() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10, 4)
            self.head = nn.Linear(4, 10, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.embedding(ids))

    original = Tied()
    compiled = thunder.jit(copy.deepcopy(original))
    assert compiled.head.weight is compiled.embedding.weight
    ids = torch.tensor([1, 2, 3])
    for model in (original, compiled):
        model(ids).square().sum().backward()
    torch.testing.assert_close(compiled.head.weight.grad, original.head.weight.grad)


def test_forward_hooks_run_at_every_call(pair) -> None:
    _, compiled = pair
    x = torch.randn(3, 4)
    before = compiled.eval()(x)
    calls = []
    handle = compiled.register_forward_hook(lambda module, arguments, output: calls.append(1) or output + 1)
    torch.testing.assert_close(compiled(x), before + 1)
    torch.testing.assert_close(compiled(x), before + 1)
    assert calls == [1, 1]
    handle.remove()
    torch.testing.assert_close(compiled(x), before)


def test_submodule_pre_hook_runs(pair) -> None:
    original, compiled = pair
    x = torch.randn(3, 4)
    for model in pair:
        model.head.register_forward_pre_hook(lambda module, arguments: (arguments[0] * 2,))
    torch.testing.assert_close(compiled(x), original(x))


def test_methods_call_the_compiled_module(pair) -> None:
    original, compiled = pair
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled.twice(x), original.twice(x))
    assert thunder.cache_misses(compiled) == 1


def test_deepcopy_is_compiled_and_independent(pair) -> None:
    _, compiled = pair
    x = torch.randn(3, 4)
    compiled.eval()(x)
    other = copy.deepcopy(compiled)
    assert isinstance(other, thunder.ThunderModule)
    assert other.head.weight is not compiled.head.weight
    assert other.head.weight is other.__wrapped__.head.weight
    torch.testing.assert_close(other(x), compiled(x))
    assert thunder.cache_misses(other) == 1


def test_pickle_is_compiled_on_arrival(pair) -> None:
    _, compiled = pair
    x = torch.randn(3, 4)
    other = pickle.loads(pickle.dumps(compiled.eval()))
    assert isinstance(other, thunder.ThunderModule)
    assert other.__options__ == compiled.__options__
    torch.testing.assert_close(other(x), compiled(x))


def test_torch_save_keeps_the_module(pair) -> None:
    _, compiled = pair
    file = io.BytesIO()
    torch.save(compiled.eval(), file)
    file.seek(0)
    x = torch.randn(3, 4)
    torch.testing.assert_close(torch.load(file, weights_only=False)(x), compiled(x))


def test_slice_of_a_compiled_sequential_is_a_plain_one() -> None:
    compiled = thunder.jit(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)))
    part = compiled[:2]
    assert type(part) is nn.Sequential
    x = torch.randn(3, 2)
    assert torch.equal(part(x), compiled[1](compiled[0](x)))


def test_jit_of_a_compiled_module_compiles_the_original(pair) -> None:
    _, compiled = pair
    again = thunder.jit(compiled, compile="eager")
    assert again.__wrapped__ is compiled.__wrapped__


def test_compiled_submodule_in_an_eager_module() -> None:
    block = nn.Linear(3, 3)
    model = nn.Sequential(thunder.jit(block), nn.ReLU())
    x = torch.randn(2, 3)
    assert torch.equal(model(x), torch.relu(block(x)))
    assert list(model.state_dict()) == ["0.weight", "0.bias"]


def test_compiled_submodule_in_a_compiled_module() -> None:
    block = nn.Linear(3, 3)
    model = thunder.jit(nn.Sequential(thunder.jit(block), nn.ReLU()))
    x = torch.randn(2, 3)
    assert torch.equal(model(x), torch.relu(block(x)))


def test_compiled_module_is_freed() -> None:
    original = Net()
    compiled = thunder.jit(original)
    compiled(torch.randn(3, 4))
    gone = weakref.ref(compiled), weakref.ref(original)
    del compiled, original
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def test_compiled_module_equals_its_original(pair) -> None:
    original, compiled = pair
    assert compiled == compiled.__wrapped__
    assert compiled.__wrapped__ == compiled
    assert compiled == thunder.jit(compiled)
    assert compiled != original
    assert {compiled: 1}[compiled.__wrapped__] == 1


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("make", [Net, lambda: nn.Linear(4, 2)])
def test_fx_traces_a_module_that_holds_a_compiled_one(make) -> None:
    def code(jit) -> str:
        return torch.fx.symbolic_trace(nn.Sequential(nn.ReLU(), jit(make()))).code

    assert code(thunder.jit) == code(lambda module: module)


class Scaled(nn.Module):
    """A module that also hands on to its own `forward`."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        """Return the scaled layer."""
        return self.layer(x).sin() * scale

    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return self.forward(x) + self(x)


def test_forward_is_compiled_and_runs_no_hooks() -> None:
    module, calls = Scaled(), []
    compiled = thunder.jit(module, fullgraph=True)
    module.register_forward_hook(lambda *_: calls.append(1))
    x = torch.randn(2, 4, requires_grad=True)
    ours, theirs = compiled.forward(x, scale=2.0), module.forward(x, scale=2.0)
    assert torch.equal(ours, theirs)
    assert "ThunderBackward" in ours.grad_fn.name()
    assert calls == []
    torch.testing.assert_close(compiled.twice(x), module.twice(x))
    assert calls == [1, 1]
    assert torch.equal(thunder.jit(lambda x: compiled.forward(x) + 1)(x), module.forward(x) + 1)


def test_forward_looks_like_that_of_the_class() -> None:
    compiled = thunder.jit(Scaled())
    assert inspect.ismethod(compiled.forward)
    assert inspect.signature(compiled.forward) == inspect.signature(Scaled().forward)
    assert inspect.getsource(type(compiled).forward) == inspect.getsource(Scaled.forward)
    assert compiled.forward.__doc__ == "Return the scaled layer."


def test_forward_follows_copies_and_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = thunder.jit(Scaled())
    x = torch.randn(2, 4)
    compiled.forward(x)
    copied = copy.deepcopy(compiled)
    with torch.no_grad():
        copied.layer.weight.zero_()
    assert torch.equal(copied.forward(x), copied.__wrapped__.forward(x))
    assert not torch.equal(copied.forward(x), compiled.forward(x))
    monkeypatch.setattr(Scaled, "forward", lambda self, x: x + 1)
    assert torch.equal(compiled.forward(x), x + 1)
    compiled.forward = lambda x: x + 2
    assert torch.equal(compiled.forward(x), x + 2)
    assert torch.equal(compiled(x), x + 2)
