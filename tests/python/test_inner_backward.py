"""Gradients that a program takes itself: `backward()`, `torch.autograd.grad`, and whole training steps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_as_eager, assert_same
from programs import Function, named, parametrize, x
from small_modules import mlp
from torch import nn
from torch.nn import functional as F

import thunder


def sees_history(a: torch.Tensor) -> Any:
    b = (a * 2).exp()
    c = b.detach()
    d = b.view(-1).sum()
    return [
        (t.requires_grad, t.is_leaf, t.grad_fn is None, t.output_nr, t.grad_fn and t.grad_fn.name())
        for t in (a, b, c, d, *b.unbind(0))
    ]


def sees_next_functions(a: torch.Tensor) -> Any:
    node = (a.sin() * a.cos()).sum().grad_fn
    names = []
    while node is not None:
        names.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    return names


def sees_versions(a: torch.Tensor) -> Any:
    b = a.detach().clone()
    view = b[0]
    before = b._version
    view.mul_(2)
    b.add_(1).zero_()
    return before, b._version, view._version, b


def sees_history_after_a_write(a: torch.Tensor) -> Any:
    b = torch.zeros_like(a, requires_grad=False)
    seen = [b.requires_grad, b.is_leaf]
    b[0] = a[0] * 2
    return [*seen, b.requires_grad, b.is_leaf, b.grad_fn is None], b


def sees_detach_in_place(a: torch.Tensor) -> Any:
    b = a * 2
    b.detach_()
    return b.requires_grad, b.is_leaf, b


def sees_no_grad(a: torch.Tensor) -> Any:
    with torch.no_grad():
        b = a * 2
    return b.requires_grad, b.is_leaf, b.grad_fn is None, b


HISTORIES = [f for name, f in sorted(globals().items()) if name.startswith("sees_")]


@parametrize([named(f) for f in HISTORIES])
def test_history_inside_is_that_of_eager(program: Function) -> None:
    assert_as_eager(program, x())


def takes_grad(a: torch.Tensor) -> Any:
    return torch.autograd.grad((a.exp() * a).sum(), a)[0]


def takes_grad_of_intermediate(a: torch.Tensor) -> Any:
    b = a.sin()
    return torch.autograd.grad((b * b * a).sum(), [b, a])


def takes_grad_of_softmax_and_norm(a: torch.Tensor) -> Any:
    b = F.layer_norm(F.linear(a, a).softmax(-1), (a.shape[0],))
    return torch.autograd.grad(F.gelu(b).square().sum(), a)


def takes_grad_with_cotangent(a: torch.Tensor) -> Any:
    b = a.tanh()
    return torch.autograd.grad(b, a, grad_outputs=torch.ones_like(b) * 3)


def takes_grad_of_dropout(a: torch.Tensor) -> Any:
    b = F.dropout(a * 2, 0.5)
    return b.detach(), torch.autograd.grad(b.sum(), a)


def takes_unused_grad(a: torch.Tensor) -> Any:
    return torch.autograd.grad(a.sum(), [a, (a * 2)], allow_unused=True)


def takes_grad_twice(a: torch.Tensor) -> Any:
    b = a.exp()
    first = torch.autograd.grad(b.sum(), a, retain_graph=True)
    return first, torch.autograd.grad((b * b).sum(), a)


def takes_second_derivative(a: torch.Tensor) -> Any:
    (first,) = torch.autograd.grad((a.exp() * a).sum(), a, create_graph=True)
    return torch.autograd.grad(first.square().sum(), a)[0]


def takes_second_derivative_of_softmax(a: torch.Tensor) -> Any:
    (first,) = torch.autograd.grad((a.softmax(-1) * a).square().sum(), a, create_graph=True)
    return torch.autograd.grad(first.square().sum(), a)[0]


def takes_second_derivative_through_slices_of_complex_numbers(a: torch.Tensor) -> Any:
    b = torch.complex(a, a.sin())
    (first,) = torch.autograd.grad((b[1:, ::2] * b[0, 0]).abs().square().sum(), a, create_graph=True)
    return torch.autograd.grad(first.square().sum(), a)[0]


def penalizes_gradient_of_spectrogram(a: torch.Tensor) -> Any:
    spectrum = torch.stft(a.flatten(), 4, window=torch.hann_window(4), return_complex=True)
    loss = spectrum.abs().square().sum()
    (gradient,) = torch.autograd.grad(loss, a, create_graph=True)
    return loss + gradient.square().sum()


def penalizes_gradient(a: torch.Tensor) -> Any:
    loss = F.softplus(a @ a.t()).sum()
    (gradient,) = torch.autograd.grad(loss, a, create_graph=True)
    return loss + gradient.square().sum()


def uses_grad_and_stays_differentiable(a: torch.Tensor) -> Any:
    b = a.sigmoid()
    (gradient,) = torch.autograd.grad(b.sum(), a, retain_graph=True)
    return (b * gradient).sum()


def differentiates_new_leaf(a: torch.Tensor) -> Any:
    b = (a.detach() * 2).requires_grad_()
    (b.square().sum()).backward()
    return b.grad


def keeps_grad_of_intermediate(a: torch.Tensor) -> Any:
    b = a * 3
    b.retain_grad()
    (b * b).sum().backward()
    return b.grad


GRADIENTS = [f for name, f in sorted(globals().items()) if name.split("_")[0] in {"takes", "penalizes", "uses"}]
GRADIENTS += [differentiates_new_leaf, keeps_grad_of_intermediate]


@parametrize([named(f) for f in GRADIENTS])
def test_gradient_taken_inside(program: Function) -> None:
    assert_as_eager(program, x())


def adds_to_grad(a: torch.Tensor) -> Any:
    loss = (a * a.exp()).sum()
    loss.backward()
    return loss.detach()


@pytest.mark.parametrize("has_grad", [False, True], ids=["none", "tensor"])
def test_backward_accumulates_as_in_eager(has_grad: bool) -> None:
    a, b = x(), x()
    if has_grad:
        a.grad, b.grad = torch.ones_like(a), torch.ones_like(b)
    kept = a.grad
    compiled = thunder.jit(adds_to_grad)
    for _ in range(3):
        assert_same(compiled(a), adds_to_grad(b), "result")
        torch.testing.assert_close(a.grad, b.grad)
        kept = a.grad if kept is None else kept
        assert a.grad is kept
    assert a.grad.is_leaf
    assert not a.grad.requires_grad


def test_two_leaves_with_one_gradient_get_memory_of_their_own() -> None:
    def program(a: torch.Tensor, b: torch.Tensor) -> None:
        (a + b).sum().backward()

    a, b = x(), x()
    thunder.jit(program)(a, b)
    a.grad.add_(1)
    assert torch.equal(b.grad, torch.ones_like(b))


def test_loss_that_was_differentiated_inside_says_so() -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        loss = a.exp().sum()
        loss.backward()
        return loss * 2

    loss = thunder.jit(program)(x())
    assert loss.requires_grad
    assert loss.grad_fn is not None
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


class Regularizer:
    term: torch.Tensor | None = None


TERMS = {
    "square": lambda w: w.pow(2).sum(),
    "norm": lambda w: w.norm(),
    "view": lambda w: w.square().view(-1)[1:],
    "unread": lambda w: w.sin().detach() + w.sum(),
    "copied": lambda w: (w * 3)[[0, 1]].square().sum(),
    "constant": lambda w: w.square().detach(),
}


@pytest.mark.parametrize("keep", ["stored", "returned"])
@pytest.mark.parametrize("term", TERMS)
def test_a_kept_term_is_differentiated_after_the_step_as_in_eager(term: str, keep: str) -> None:
    def outcome(jit: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(0)
        weight = nn.Parameter(torch.randn(6, 4))
        optimizer, kept = torch.optim.SGD([weight], 0.1), Regularizer()

        def step(index: torch.Tensor) -> Any:
            optimizer.zero_grad()
            kept.term = TERMS[term](weight)
            loss = weight[index].sin().sum()
            loss.backward()
            optimizer.step()
            return (loss.detach(), kept.term) if keep == "returned" else loss.detach()

        compiled = jit(step)
        seen: list[Any] = []
        for _ in range(3):
            result = compiled(torch.tensor([0, 1]))
            seen += [result[0] if keep == "returned" else result, kept.term.detach().clone(), kept.term.requires_grad]
            for differentiate in (
                lambda: kept.term.sum().backward(),
                lambda: torch.autograd.grad(kept.term.sum(), weight),
            ):
                before = weight.grad.clone()
                try:
                    seen.append(differentiate())
                except RuntimeError as error:
                    seen.append("modified by an inplace operation" in str(error) or str(error)[:30])
                seen.append(weight.grad - before)
        if jit is not plain:
            assert thunder.compile_stats(compiled)["eager_calls"] == 0
        return seen

    def plain(function: Any) -> Any:
        return function

    assert_same(outcome(thunder.jit), outcome(plain), "kept")


def test_a_kept_term_that_is_differentiated_in_part_is_refused_with_its_line() -> None:
    weight, other = (nn.Parameter(torch.ones(3)) for _ in range(2))
    kept = Regularizer()

    def step() -> None:
        kept.term = weight.square().sum() + other.sum()
        with torch.no_grad():
            weight.add_(1)

    compiled = thunder.jit(step)
    with pytest.warns(thunder.errors.EagerFallbackWarning, match="weight.square") as caught:
        compiled()
    assert "is written to after it was used" in str(caught[0].message)
    (gradient,) = torch.autograd.grad(kept.term, other)
    assert torch.equal(gradient, torch.ones(3))


@pytest.mark.filterwarnings("ignore:thunder")
def test_a_kept_term_that_another_result_lies_behind_raises_as_in_eager() -> None:
    weight = nn.Parameter(torch.ones(3))

    def step() -> tuple[torch.Tensor, torch.Tensor]:
        hidden = weight.sin()
        term = (hidden * weight).sum()
        with torch.no_grad():
            weight.add_(1)
        return hidden, term

    compiled = thunder.jit(step)
    for _ in range(2):
        hidden, term = compiled()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(term + hidden.sum(), hidden, allow_unused=True)


@pytest.mark.filterwarnings("ignore:thunder")
def test_a_kept_term_whose_tensor_is_written_through_data_is_differentiated_as_in_eager() -> None:
    def outcome(jit: Callable[..., Any]) -> torch.Tensor:
        weight = nn.Parameter(torch.ones(3))

        def step() -> torch.Tensor:
            term = weight.square().sum()
            weight.data.add_(1)
            return term

        jit(step)().backward()
        return weight.grad

    assert_same(outcome(thunder.jit), outcome(lambda function: function), "kept")


def test_second_backward_inside_raises_as_in_eager() -> None:
    def program(a: torch.Tensor) -> None:
        loss = a.exp().sum()
        loss.backward()
        loss.backward()

    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        thunder.jit(program)(x())


def test_write_between_forward_and_backward_raises_as_in_eager() -> None:
    def program(a: torch.Tensor) -> None:
        b = a * 1
        c = b.square()
        b.add_(1)
        c.sum().backward()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        thunder.jit(program)(x())


def test_backward_past_the_trace_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="history of its own"):
        thunder.jit(lambda a: a.sum().backward(), fullgraph=True)(x() * 2)


def test_zero_grad_inside() -> None:
    def program(module: nn.Module, a: torch.Tensor) -> torch.Tensor:
        module.zero_grad()
        loss = module(a).square().mean()
        loss.backward()
        return loss.detach()

    module = mlp()
    eager = copy.deepcopy(module)
    compiled = thunder.jit(program)
    for _ in range(3):
        a = torch.randn(3, 4)
        torch.testing.assert_close(compiled(module, a), program(eager, a))
        assert_same([p.grad for p in module.parameters()], [p.grad for p in eager.parameters()], "gradient")


OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, 0.01),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01, amsgrad=True),
    "adamw foreach": lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01),
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_training_step_in_one_program(make: Callable[[Any], torch.optim.Optimizer]) -> None:
    module = mlp()
    eager = copy.deepcopy(module)
    optimizers = {id(m): make(m.parameters()) for m in (module, eager)}

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, a: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(a).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = thunder.jit(step)
    for seed in range(5):
        a = torch.randn(6, 4, generator=torch.Generator().manual_seed(seed))
        got, expected = compiled(module, optimizers[id(module)], a), step(eager, optimizers[id(eager)], a)
        torch.testing.assert_close(got, expected)
    assert_same(list(module.parameters()), list(eager.parameters()), "parameter", rtol=1e-5, atol=1e-6)
    assert thunder.cache_misses(compiled) <= 3


def test_update_of_each_parameter_is_one_fusion() -> None:
    module = nn.Linear(256, 256)
    eager = copy.deepcopy(module)
    optimizers = {id(m): torch.optim.AdamW(m.parameters(), 0.01, foreach=True) for m in (module, eager)}

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, a: torch.Tensor) -> None:
        model(a).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    compiled = thunder.jit(step)
    for _ in range(4):
        a = torch.randn(8, 256)
        compiled(module, optimizers[id(module)], a)
        step(eager, optimizers[id(eager)], a)
    assert_same(list(module.parameters()), list(eager.parameters()), "parameter", rtol=1e-5, atol=1e-6)
    updates = [f.operations for f in thunder.fusions(compiled) if "aten.addcdiv.default" in f.operations]
    assert len(updates) >= 1
    for name in ("lerp.Scalar", "addcmul.default", "sqrt.default", "div.Tensor"):
        assert all(f"aten.{name}" in operations for operations in updates)
    final = str(thunder.last_traces(compiled)[-1])
    assert "_foreach" not in final
    assert "prims.custom_gradient" not in final


@pytest.mark.filterwarnings("ignore")
def test_backward_of_a_leaf_and_then_of_a_tensor_that_is_none() -> None:
    outcomes = []
    for function in (torch.Tensor.backward, thunder.jit(lambda a: a.backward())):
        leaf = torch.tensor([0.5], requires_grad=True)
        function(leaf)
        function(leaf.clone())
        outcomes.append(leaf.grad)
    assert_same(outcomes[1], outcomes[0], "gradient")


@pytest.mark.filterwarnings("ignore")
def test_grad_that_a_program_sets_on_a_result() -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        b = a * 2
        b.grad = a.detach().clone()
        return b

    outcomes = []
    for function in (program, thunder.jit(program)):
        result = function(torch.tensor([0.5, 3.0], requires_grad=True))
        result.retain_grad()
        result.sum().backward()
        outcomes.append(result.grad)
    assert_same(outcomes[1], outcomes[0], "gradient")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_retained_inside", [False, True])
def test_derivative_by_an_input_that_retains_its_gradient(is_retained_inside: bool) -> None:
    def program(a: torch.Tensor) -> Any:
        if is_retained_inside:
            a.retain_grad()
        return torch.autograd.grad((a * a).sum(), [a])

    outcomes = []
    for function in (program, thunder.jit(program)):
        a, seen = torch.tensor([0.5, 3.0], requires_grad=True) * 1, []
        if not is_retained_inside:
            a.retain_grad()
            a.register_hook(lambda gradient, seen=seen: seen.append(gradient))
        outcomes.append((function(a), a.grad, seen))
    assert_same(outcomes[1], outcomes[0], "gradient")


def test_data_that_is_read_behind_a_backward_inside_leaves_the_statistics_as_in_eager() -> None:
    """The trace is run as far as the read, and then as a program: both must not count."""

    def make() -> tuple[nn.BatchNorm2d, Callable[[Any], Any]]:
        norm = nn.BatchNorm2d(2)

        def step(images: torch.Tensor) -> int:
            result = norm(images)
            result.sum().backward()
            return int((result > 0).sum().item())

        return norm, step

    (norm, step), (own_norm, own_step) = make(), make()
    compiled = thunder.jit(own_step)
    for i in range(3):
        images = torch.randn(4, 2, 6, 6 + i % 2)
        assert compiled(images) == step(images)
        torch.testing.assert_close(dict(own_norm.named_buffers()), dict(norm.named_buffers()))


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("is_made_inside", [False, True])
@pytest.mark.parametrize("accumulates", [False, True])
@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float64, None), (torch.float64, torch.float32)])
def test_gradients_of_another_dtype(dtypes: Any, *, accumulates: bool, is_made_inside: bool) -> None:
    def run(*, compile_it: bool) -> Any:
        leaf = torch.ones(2, requires_grad=True)

        def program(dtype: torch.dtype | None) -> Any:
            p = torch.ones(2, requires_grad=True) if is_made_inside else leaf
            if is_made_inside:
                p.grad_dtype = dtype
            if not accumulates:
                return torch.autograd.grad((p * 2).sum(), p)[0]
            (p * 2).sum().backward()
            return p.grad

        called = thunder.jit(program) if compile_it else program
        found = []
        for dtype in dtypes:
            leaf.grad = None
            leaf.grad_dtype = dtype
            found += [called(dtype).dtype, None if leaf.grad is None else leaf.grad.dtype]
        return found

    assert run(compile_it=True) == run(compile_it=False)


@pytest.mark.parametrize("position", [0, 1])
def test_an_unused_input_is_told_as_by_pytorch(position: int) -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> str:
        try:
            torch.autograd.grad((x * 2).sum(), [w, x] if position == 0 else [x, w])
        except RuntimeError as error:
            return str(error)
        return ""

    x, w = (torch.ones(2, requires_grad=True) for _ in range(2))
    compiled = thunder.jit(program)
    assert "not have been used" in program(x, w)
    for _ in range(2):
        assert compiled(x, w) == program(x, w)
