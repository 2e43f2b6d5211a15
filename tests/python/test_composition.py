"""Compiled callables among others: inside eager models, inside each other, in several threads."""

from __future__ import annotations

import copy
import threading
from typing import Any

import torch
from beside_eager import assert_as_eager, assert_module_as_eager, assert_same, in_threads
from small_modules import mlp, picture, resnet, sequence
from torch import nn

import thunder


def test_compiled_submodule_of_an_eager_model() -> None:
    module = resnet()
    eager = copy.deepcopy(module)
    module[4] = thunder.jit(module[4])
    x = picture()
    for _ in range(2):
        results = [model(x) for model in (module, eager)]
        assert_same(*results, "result")
        for result in results:
            result.square().sum().backward()
        assert_module_as_eager(module, eager)
    assert list(module.state_dict()) == list(eager.state_dict())


def test_compiled_function_calls_a_compiled_function() -> None:
    inner = thunder.jit(lambda x: torch.sin(x) * 2)
    assert_as_eager(lambda x: inner(x) + inner(x * 2), sequence())


def test_functional_call_with_other_parameters() -> None:
    module = nn.Linear(4, 4)
    other = {name: torch.ones_like(p, requires_grad=True) for name, p in module.named_parameters()}
    assert_as_eager(lambda p, x: torch.func.functional_call(module, p, (x,)), other, sequence())


def test_recursion_between_compiled_functions() -> None:
    @thunder.jit
    def power(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 1 else x * power(x, n - 1)

    torch.testing.assert_close(power(torch.tensor([2.0, 3.0]), 4), torch.tensor([16.0, 81.0]))


def test_eight_threads_with_retraces() -> None:
    module = mlp()
    compiled = thunder.jit(module)

    def work(number: int) -> None:
        for step in range(12):
            x = torch.randn(1 + (number + step) % 5, 4)
            torch.testing.assert_close(compiled(x), module.__class__.forward(module, x))

    in_threads(8, work)


def test_threads_have_their_own_grad_mode() -> None:
    compiled, results = thunder.jit(mlp()), {}

    def work(enabled: bool) -> None:
        with torch.set_grad_enabled(enabled):
            results[enabled] = [compiled(torch.randn(2, 4)).requires_grad for _ in range(5)]

    threads = [threading.Thread(target=work, args=(enabled,)) for enabled in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {True: [True] * 5, False: [False] * 5}


def test_backward_in_another_thread() -> None:
    module = mlp()
    loss = thunder.jit(module)(sequence()).sum()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    assert module[0].weight.grad is not None


def test_state_dict_travels_both_ways(tmp_path: Any) -> None:
    compiled, plain = thunder.jit(resnet()), resnet()
    compiled(picture())
    torch.save(compiled.state_dict(), tmp_path / "model.pt")
    plain.load_state_dict(torch.load(tmp_path / "model.pt"))
    x = picture()
    torch.testing.assert_close(compiled.eval()(x), plain.eval()(x))
    with torch.no_grad():
        plain[0].weight.mul_(2)
    compiled.load_state_dict(plain.state_dict())
    torch.testing.assert_close(compiled(x), plain(x))
