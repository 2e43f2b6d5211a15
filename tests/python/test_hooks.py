"""Hooks of modules and parameters, compiled."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager, assert_module_as_eager
from small_modules import mlp, sequence
from torch import nn

import thunder


class Recorder:
    """Hooks that write down what they see, in order."""

    def __init__(self, module: nn.Module) -> None:
        self.seen: list[Any] = []
        module.register_forward_pre_hook(lambda m, args: self.seen.append(("pre", args[0].shape)))
        module.register_forward_hook(lambda m, args, out: self.seen.append(("forward", out.shape)))


def test_hooks_that_record_python_values_run_at_each_call() -> None:
    module = mlp()
    recorder = Recorder(module[0])
    compiled = thunder.jit(module)
    for _ in range(3):
        compiled(sequence())
    assert recorder.seen == [("pre", (2, 3, 4)), ("forward", (2, 3, 8))] * 3


def test_hook_that_keeps_activations() -> None:
    module, kept = mlp(), []
    eager = copy.deepcopy(module)
    module[0].register_forward_hook(lambda m, args, out: kept.append(out.detach()))
    compiled = thunder.jit(module)
    for _ in range(2):
        x = sequence()
        compiled(x)
        torch.testing.assert_close(kept[-1], eager[0](x).detach())


def double_gradient(parameter: nn.Parameter) -> None:
    parameter.grad.mul_(2)


@pytest.mark.parametrize(
    "register",
    [
        lambda m: m.register_forward_pre_hook(lambda m, args: (args[0] * 2,)),
        lambda m: m.register_forward_hook(lambda m, args, out: out * 3),
        lambda m: m.register_forward_hook(lambda m, args, keywords, out: out * 3, with_kwargs=True),
        lambda m: m.weight.register_hook(lambda gradient: gradient * 2),
        lambda m: m.weight.register_post_accumulate_grad_hook(double_gradient),
    ],
    ids=["pre", "forward", "kwargs", "tensor", "accumulated"],
)
def test_hook_that_changes_values(register: Callable[[nn.Module], Any]) -> None:
    module = mlp()
    eager = copy.deepcopy(module)
    register(module[2]), register(eager[2])
    compiled = thunder.jit(module)
    for _ in range(2):
        x = sequence().detach().requires_grad_()
        results = [model(x * 2) for model in (compiled, eager)]
        torch.testing.assert_close(*results)
        for result in results:
            result.sum().backward()
        assert_module_as_eager(module, eager)


def test_retain_grad_inside() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 2
        y.retain_grad()
        return y * 3

    assert_as_eager(program, sequence())


def removed_inside(module: nn.Module, x: torch.Tensor) -> Any:
    handle = module.register_forward_hook(lambda m, args, out: out * 2)
    result = module(x)
    handle.remove()
    return result


def features(module: nn.Module, x: torch.Tensor) -> Any:
    kept: list[torch.Tensor] = []
    with module.register_forward_hook(lambda m, args, out: kept.append(out.detach()), prepend=True):
        result = module(x)
    return result, kept


def backward_inside(module: nn.Module, x: torch.Tensor) -> Any:
    module(x).sum().backward()
    return module.weight.grad


def left_registered(module: nn.Module, x: torch.Tensor) -> Any:
    module.register_forward_hook(lambda m, args, out: out * 2)
    return module(x)


def kept_handle(module: nn.Module, x: torch.Tensor) -> Any:
    module.handles = [*getattr(module, "handles", []), module.register_forward_pre_hook(lambda m, args: (args[0] + 1,))]
    return module(x), module.handles[-1].id


def number_in_text(module: nn.Module, x: torch.Tensor) -> Any:
    with module.register_forward_hook(lambda m, args, out: out * 2) as handle:
        result = module(x)
    module.names = [*getattr(module, "names", []), f"hook {handle.id}"]
    assert len({*module.names}) == len(module.names)
    return result


HOOKED: dict[str, tuple[Callable[[nn.Module], Any], Callable[[nn.Module, torch.Tensor], Any], bool]] = {
    "removed": (lambda m: None, removed_inside, True),
    "features": (lambda m: None, features, True),
    "full backward, forward alone": (
        lambda m: m.register_full_backward_hook(lambda *a: None),
        lambda m, x: m(x),
        True,
    ),
    "full backward": (
        lambda m: m.register_full_backward_hook(lambda m, grads, out: (grads[0],)),
        backward_inside,
        True,
    ),
    "full backward before": (
        lambda m: m.register_full_backward_pre_hook(lambda m, out: (out[0] * 2,)),
        backward_inside,
        True,
    ),
    "left": (lambda m: None, left_registered, False),
    "kept": (lambda m: None, kept_handle, False),
    "number in text": (lambda m: None, number_in_text, False),
}


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("name", HOOKED)
def test_handles_of_hooks_that_are_made_inside_are_not_traced_for(name: str) -> None:
    register, function, is_compiled = HOOKED[name]
    runs, compiled = [], thunder.jit(function)
    for called in (function, compiled):
        torch.manual_seed(0)
        module, run = nn.Linear(4, 4), []
        register(module)
        numbers = []
        for i in range(8):
            if i == 5:  # another handle gets the next number
                module.register_forward_hook(lambda m, args, out: out + 3)
            result = called(module, torch.full((2, 4), float(i)))
            if name == "kept":
                result, number = result
                numbers.append(number)
            run.append((result, len(module._forward_hooks), len(module._forward_pre_hooks)))
            assert len({*numbers}) == len(numbers)
            module.zero_grad(set_to_none=i > 2)
        runs.append(run)
    torch.testing.assert_close(*runs)
    if is_compiled:
        assert thunder.cache_misses(compiled) <= 5
        assert thunder.compile_stats(compiled)["eager_calls"] == 0


class Seen:
    """A hook with state of its own."""

    def __init__(self, scale: float) -> None:
        self.scale, self.shape = scale, torch.Size()

    def hook(self, module: nn.Module, arguments: Any, output: torch.Tensor) -> torch.Tensor:
        self.shape = output.shape
        return output * self.scale

    def before(self, module: nn.Module, arguments: Any) -> Any:
        return (arguments[0] * self.scale,)

    def with_keywords(self, module: nn.Module, arguments: Any, keywords: Any, output: torch.Tensor) -> torch.Tensor:
        return output * self.scale

    def backward(self, module: nn.Module, gradients: Any, outputs: Any) -> Any:
        return (gradients[0] * self.scale,)


twice = Seen(2.0)
REGISTRATIONS: dict[str, Callable[[nn.Module], Any]] = {
    "forward": lambda module: module.register_forward_hook(twice.hook),
    "prepended": lambda module: module.register_forward_hook(twice.hook, prepend=True),
    "pre": lambda module: module.register_forward_pre_hook(twice.before),
    "backward": lambda module: module.register_full_backward_hook(twice.backward),
    "new_object": lambda module: module.register_forward_hook(Seen(3.0).hook),
    "new_function": lambda module: module.register_forward_hook(lambda module, arguments, output: output * 2),
    "global": lambda _: nn.modules.module.register_module_forward_hook(twice.hook),
}


def outcome_of(module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    result = module(x)
    return [result.detach(), *torch.autograd.grad(result.sum(), [x, *module.parameters()])]


@pytest.mark.parametrize("kind", REGISTRATIONS)
def test_a_hook_that_is_registered_for_each_call_is_traced_once(kind: str) -> None:
    module = mlp()
    eager, compiled = copy.deepcopy(module), thunder.jit(module)
    counts = []
    for _ in range(6):
        for with_hook in (True, False):
            x = sequence()
            outcomes = []
            for each in (eager, compiled):
                handle = REGISTRATIONS[kind](each[0]) if with_hook else None
                outcomes.append(outcome_of(each, x))
                if handle is not None:
                    handle.remove()
            torch.testing.assert_close(outcomes[1], outcomes[0])
        counts.append(thunder.compile_stats(compiled)["cache_misses"])
    assert thunder.compile_stats(compiled)["eager_calls"] == 0
    assert counts[2] == counts[-1], thunder.explain_misses(compiled)


def test_hooks_in_another_order_or_number_are_others() -> None:
    module = mlp()
    eager, compiled = copy.deepcopy(module), thunder.jit(module)
    more = Seen(1.0)
    x = sequence()
    one, two = twice.hook, lambda module, arguments, output: output + 1
    for hooks in ((one,), (two,), (one, two), (two, one), (one, one), (), (one, more.hook, two), (two, one)):
        outcomes = []
        for each in (eager, compiled):
            handles = [each[0].register_forward_hook(hook) for hook in hooks]
            outcomes.append(outcome_of(each, x))
            for handle in handles:
                handle.remove()
        torch.testing.assert_close(outcomes[1], outcomes[0])


def test_a_hook_that_takes_the_place_of_another_one_runs_instead() -> None:
    module, calls = mlp(), []
    compiled = thunder.jit(module)
    x = sequence()
    for number in (2.0, 3.0, 2.0):
        hook = Seen(number).hook
        handle = module[0].register_forward_hook(hook)
        for _ in range(4):
            calls.append(compiled(x))
        module[0]._forward_hooks[handle.id] = lambda module, arguments, output: output + 100
        replaced = compiled(x)
        assert not torch.equal(replaced, calls[-1])
        torch.testing.assert_close(replaced, module(x))
        handle.remove()
        torch.testing.assert_close(compiled(x), nn.Sequential(*module)(x))
    assert not torch.equal(calls[0], calls[4])
    assert torch.equal(calls[0], calls[8])


def test_hooks_that_take_keywords_or_are_always_called_are_told_apart() -> None:
    module = mlp()
    eager, compiled = copy.deepcopy(module), thunder.jit(module)
    x = sequence()
    plain, keyword = Seen(3.0), Seen(5.0)
    for options in ("plain", "keyword", "plain", "always", "both", "keyword", "plain", "crossed"):
        outcomes = []
        for each in (eager, compiled):
            handles = []
            if options in ("plain", "both", "crossed"):
                handles.append(each[0].register_forward_hook(plain.hook))
            if options in ("keyword", "both", "crossed"):
                prepend = options == "crossed"
                handles.append(each[0].register_forward_hook(keyword.with_keywords, with_kwargs=True, prepend=prepend))
            if options == "always":
                handles.append(each[0].register_forward_hook(plain.hook, always_call=True))
            outcomes.append(outcome_of(each, x))
            for handle in handles:
                handle.remove()
        torch.testing.assert_close(outcomes[1], outcomes[0])


def test_a_program_that_looks_at_the_keys_of_hooks_sees_those_of_the_call() -> None:
    module = mlp()

    def keys(x: torch.Tensor) -> Any:
        return module(x).sum(), list(module[0]._forward_hooks), [key for key, _ in module[0]._forward_hooks.items()]

    compiled = thunder.jit(keys)
    for _ in range(3):
        handle = module[0].register_forward_hook(twice.hook)
        _, listed, iterated = compiled(sequence())
        assert listed == iterated == [handle.id]
        handle.remove()


def test_a_copy_of_a_module_has_the_hooks_of_the_call() -> None:
    module = mlp()
    compiled = thunder.jit(lambda x: (module(x).sum(), copy.copy(module[0]._forward_hooks)))
    for _ in range(3):
        handle = module[0].register_forward_hook(twice.hook)
        assert list(compiled(sequence())[1]) == [handle.id]
        handle.remove()


def test_a_hook_that_is_removed_by_itself_runs_once() -> None:
    module, calls = mlp(), []
    compiled = thunder.jit(module)

    def once(module: nn.Module, arguments: Any, output: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        handle.remove()
        return output * 2

    x = sequence()
    plain = compiled(x)
    for _ in range(3):
        handle = module[0].register_forward_hook(once)
        assert not torch.equal(compiled(x), plain)
        assert torch.equal(compiled(x), plain)
    assert len(calls) == 3


class Installs(nn.Module):
    """Installs a hook in its first call, as libraries do that capture the outputs of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.is_ready = False
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> Any:
        if not self.is_ready:
            self.layer.register_forward_hook(lambda module, arguments, output: self.seen.append(output))
            self.layer.register_forward_pre_hook(lambda module, arguments: (arguments[0] * 2,), prepend=True)
            self.is_ready = True
        self.seen.clear()
        return self.layer(x), list(self.seen)


def test_hooks_that_the_first_call_registers_stay() -> None:
    eager = Installs()
    outer = Installs()
    outer.layer.load_state_dict(eager.layer.state_dict())
    compiled = thunder.jit(outer, fullgraph=True)
    for rows in (2, 2, 4):
        torch.testing.assert_close(compiled(torch.ones(rows, 3)), eager(torch.ones(rows, 3)))
        assert len(outer.layer._forward_hooks) == len(outer.layer._forward_pre_hooks) == 1
    assert thunder.compile_stats(compiled)["eager_calls"] == 0
    with outer.layer.register_forward_hook(lambda module, arguments, output: output * 2) as handle:
        assert [*outer.layer._forward_hooks][1] == handle.id  # numbers are not given twice
        torch.testing.assert_close(compiled(torch.ones(2, 3))[0], 2 * eager(torch.ones(2, 3))[0])


@pytest.mark.parametrize("keeps", ["returned", "stored"])
def test_a_handle_that_is_kept_is_told_with_its_line(keeps: str) -> None:
    module, handles = nn.Linear(3, 3), []

    def program(x: torch.Tensor) -> Any:
        handle = module.register_forward_hook(lambda module, arguments, output: None)
        if keeps == "stored":
            handles.append(handle)
        return module(x), handle if keeps == "returned" else None

    with pytest.raises(NotImplementedError, match="returns or stores the handle of a hook"):
        thunder.jit(program, fullgraph=True)(torch.ones(2, 3))
    assert not handles
    assert not module._forward_hooks


def test_a_hook_that_each_call_registers_is_told_with_its_line() -> None:
    module = nn.Linear(3, 3)

    def program(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = module(x)
        module.register_forward_hook(lambda module, arguments, output: output * 2)
        return result

    compiled = thunder.jit(program)
    x = torch.ones(2, 3)
    first = compiled(x)
    with pytest.warns(thunder.EagerFallbackWarning, match=r"leaves a hook registered[^\n]*\n[^\n]*\n *module.register"):
        second = compiled(x)
    torch.testing.assert_close(second, 2 * first)
    torch.testing.assert_close(compiled(x), 4 * first)
    assert len(module._forward_hooks) == 3
