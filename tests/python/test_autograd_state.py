"""The state of autograd after a call (views, versions, leaves, modes around) is as in eager, or is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from programs import parametrize, x
from torch import nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

import thunder

Program = Callable[..., Any]


def tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for item in value for tensor in tensors_in(item)] if isinstance(value, list | tuple) else []


def history_of(tensor: torch.Tensor) -> Any:
    try:
        return tensor.is_leaf, tensor.grad_fn is not None
    except RuntimeError as error:  # a view that must not be used any more
        return str(error)


def state_of(tensor: torch.Tensor, others: list[torch.Tensor]) -> dict[str, Any]:
    """Return what autograd and the allocator tell about a tensor."""
    base = tensor._base
    storages = [other.untyped_storage()._cdata for other in others]
    return {
        "type": type(tensor),
        "value": tensor.tolist(),
        "requires_grad": tensor.requires_grad,
        "history": history_of(tensor),
        "is_inference": tensor.is_inference(),
        "version": None if tensor.is_inference() else tensor._version,
        "is_view": tensor._is_view(),
        "base": None if base is None else [i for i, other in enumerate(others) if other is base],
        "strides": (tensor.stride(), tensor.storage_offset()),
        "shares memory": [storage == tensor.untyped_storage()._cdata for storage in storages],
        "attributes": vars(tensor),
    }


def outcome(function: Program, make: Callable[[], list[torch.Tensor]], after: Program) -> Any:
    """Call, and then do something to the results; return what was seen of all tensors."""
    arguments = make()
    result = function(*arguments)
    tensors = tensors_in([arguments, result])
    seen = [state_of(tensor, tensors) for tensor in tensors]
    try:
        gradients = after(arguments, result)
    except RuntimeError as error:
        gradients = str(error).split("\n")[0][:60]
    tensors = tensors_in([arguments, result])
    return (seen, [state_of(tensor, tensors) for tensor in tensors], gradients), [
        tensor.grad for tensor in tensors if history_of(tensor)[0] is True and not tensor.is_inference()
    ]


def nothing(arguments: list[torch.Tensor], result: Any) -> None:
    pass


def assert_state_as_eager(program: Program, make: Callable[[], list[torch.Tensor]], after: Program = nothing) -> None:
    compiled = thunder.jit(program, fullgraph=True)
    for _ in range(2):
        got, expected = outcome(compiled, make, after), outcome(program, make, after)
        assert got[0] == expected[0]
        torch.testing.assert_close(got[1], expected[1])
    assert thunder.cache_hits(compiled) >= 1


def leaf() -> list[torch.Tensor]:
    return [x()]


def plain() -> list[torch.Tensor]:
    return [x(grad=False)]


# ------------------------------------------------------------------------------------------------ views

VIEWS = [
    ("row", lambda b: b[0]),
    ("transposed", lambda b: b.t()),
    ("slice_of_flat", lambda b: b.view(-1)[2:5]),
    ("same_shape", lambda b: b.view_as(b)),
    ("expanded", lambda b: b.expand(2, 3, 4)[0]),
    ("reshaped", lambda b: b.reshape(12)),
    ("unbound", lambda b: b.unbind(0)[1]),
    ("chunk", lambda b: b.chunk(2, 1)[1]),
    ("as_strided", lambda b: b.as_strided((2, 2), (4, 1), 1)),
    ("diagonal", lambda b: b.diagonal()),
    ("detached", lambda b: b.detach()),
    ("view_of_detached", lambda b: b.detach()[1:]),
    ("data", lambda b: b.data),
    ("row_without_grad", torch.no_grad()(lambda b: b[0])),
    ("other_dtype", lambda b: b.detach().view(torch.int32)),
]


def write_first(arguments: list[torch.Tensor], result: Any) -> Any:
    result[0].mul_(3)
    return backward_of_all(arguments, result)


def write_last(arguments: list[torch.Tensor], result: Any) -> Any:
    result[-1].mul_(3)
    return backward_of_all(arguments, result)


def write_with_gradient(arguments: list[torch.Tensor], result: Any) -> Any:
    weight = torch.ones((), requires_grad=True)
    result[-1].mul_(weight)
    backward_of_all(arguments, result)
    return None if weight.grad is None else weight.grad.tolist()


def backward_of_all(arguments: list[torch.Tensor], result: Any) -> None:
    for tensor in tensors_in([arguments, result]):
        if tensor.requires_grad and tensor.grad_fn is not None:
            (tensor * tensor).sum().backward(retain_graph=True)


@parametrize(VIEWS)
@pytest.mark.parametrize("after", [nothing, write_first, write_last, write_with_gradient])
@pytest.mark.parametrize("make", [leaf, plain])
def test_view_of_a_tensor_made_inside_is_written_after_the_call(
    program: Program, after: Program, make: Callable[[], list[torch.Tensor]]
) -> None:
    def both(a: torch.Tensor) -> Any:
        b = a * 2
        return b, program(b)

    assert_state_as_eager(both, make, after)


@parametrize(VIEWS)
@pytest.mark.parametrize("after", [nothing, write_last, write_with_gradient])
@pytest.mark.parametrize("made_by_autograd", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_view_of_an_input_is_written_after_the_call(
    program: Program, after: Program, made_by_autograd: bool, grad: bool
) -> None:
    def make() -> list[torch.Tensor]:
        return [x(grad=grad) * 2] if made_by_autograd else [x(grad=grad)]

    assert_state_as_eager(lambda a: [program(a)], make, after)


@parametrize(VIEWS)
def test_view_of_a_tensor_that_the_caller_does_not_get(program: Program) -> None:
    assert_state_as_eager(lambda a: [program(a * 2)], leaf, write_with_gradient)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
        return a.view(-1)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.view(3, 4) * 2


def test_view_that_an_autograd_function_gives_has_the_gradient_of_the_function() -> None:
    gradients = []
    for function in (thunder.jit(lambda a: Doubled.apply(a * 3)[1:]), lambda a: Doubled.apply(a * 3)[1:]):
        a = x()
        function(a).sum().backward()
        gradients.append(a.grad)
    torch.testing.assert_close(*gradients)


def test_view_of_an_input_that_an_autograd_function_gives_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="share memory"):
        thunder.jit(Doubled.apply, fullgraph=True)(x())


def test_two_views_of_one_tensor_that_was_written_to() -> None:
    def program(a: torch.Tensor) -> Any:
        b = a * 2
        row, column = b[0], b[:, 0]
        row.mul_(3)
        b.add_(1)
        return row, column, b, row[1:]

    assert_state_as_eager(program, leaf, write_first)


def test_view_made_in_inference_mode_of_a_tensor_that_requires_grad() -> None:
    def program(a: torch.Tensor) -> Any:
        b = a * 2
        with torch.inference_mode():
            view = b[0]
        return b, view

    assert_state_as_eager(program, leaf)


def test_views_under_inference_mode() -> None:
    compiled = thunder.jit(lambda a: (a[0], (a * 2)[1]))
    for _ in range(2):
        with torch.inference_mode():
            a = x(grad=False)
            got, expected = compiled(a), (a[0], (a * 2)[1])
        assert [state_of(t, list(got)) for t in got] == [state_of(t, list(expected)) for t in expected]


def test_view_after_a_branch_on_data() -> None:
    def program(a: torch.Tensor) -> Any:
        b = a * 2
        if b.sum() > 100:
            return b
        b.add_(1)
        return b, b[0]

    compiled = thunder.jit(program)
    for _ in range(2):
        got, expected = outcome(compiled, leaf, write_last), outcome(program, leaf, write_last)
        assert got[0] == expected[0]


# ------------------------------------------------------------------------------------------------ versions

WRITES = [
    ("three", lambda a: (a.add_(1), a.mul_(2), a[0].add_(1))[0]),
    ("of_result", lambda a: (a * 2).add_(1).mul_(2)),
    ("detached", lambda a: (lambda b: (b, b.detach().mul_(2)))(a * 2)),
    ("data", lambda a: a.data.mul_(2)),
    ("data_of_result", lambda a: (lambda b: (b.data.mul_(2), b))(a * 2)),
    ("resize", lambda a: a.resize_(2, 3)),
    ("fill", lambda a: (a.zero_(), torch.empty(3).fill_(2))),
    ("out", lambda a: torch.add(a, 1, out=torch.empty(3, 4))),
    ("turned", lambda a: a.t_()),
]


@parametrize(WRITES)
def test_version_counters_after_writes(program: Program) -> None:
    assert_state_as_eager(program, plain)


def test_tensor_that_is_filled_with_a_number_of_data_has_not_been_written_to() -> None:
    def program(a: torch.Tensor) -> tuple[int, ...]:
        made = torch.full_like(a, float(a.sum())), torch.full((2,), int(a.sum())), torch.tensor(a.sum().item())
        return tuple(tensor._version for tensor in made)

    a = torch.ones(3)
    assert thunder.jit(program)(a) == program(a) == (0, 0, 0)


def test_version_counter_of_a_turned_tensor_and_its_view() -> None:
    def program(a: torch.Tensor) -> Any:
        b = a * 2
        b.t_()
        return b, b[0]

    assert_state_as_eager(program, leaf)


def test_version_counter_of_an_input_and_its_view_as_another_input() -> None:
    def program(a: torch.Tensor, row: torch.Tensor) -> None:
        a.add_(1)
        row.mul_(2).add_(1)

    def make() -> list[torch.Tensor]:
        a = x(grad=False)
        return [a, a[0]]

    assert_state_as_eager(program, make)


def test_written_result_has_its_gradient() -> None:
    assert_state_as_eager(lambda a: [(a * a).mul_(2).add_(1)], leaf, backward_of_all)


def test_input_saved_for_backward_and_written_afterwards_raises_as_in_eager() -> None:
    def after(arguments: list[torch.Tensor], result: torch.Tensor) -> None:
        with torch.no_grad():
            arguments[1].mul_(2)
        result.sum().backward()

    assert_state_as_eager(lambda a, b: [a * b], lambda: [x(), x()], lambda a, r: after(a, r[0]))


# ------------------------------------------------------------------------------------------------ grad modes


def enable_grad_inside(a: torch.Tensor) -> Any:
    with torch.enable_grad():
        b = a * 2
    return b, a * 3


def set_grad_enabled_and_left(a: torch.Tensor) -> Any:
    torch.set_grad_enabled(True)
    return a * 2


@parametrize([("enabled_inside", enable_grad_inside), ("left_enabled", set_grad_enabled_and_left)])
def test_gradients_switched_on_inside_of_no_grad(program: Program) -> None:
    compiled = thunder.jit(program)
    for _ in range(2):
        seen = []
        for function in (compiled, program):
            a = x()
            with torch.no_grad():
                result = tensors_in([function(a)])
                mode = torch.is_grad_enabled()
            sum(t.sum() for t in result if t.requires_grad).backward()
            seen.append((mode, [t.requires_grad for t in result], a.grad.tolist()))
        assert seen[0] == seen[1]


# ------------------------------------------------------------------------------------------------ leaves, parameters


def test_parameter_made_inside_is_a_parameter() -> None:
    module = nn.Linear(4, 4)

    def program(a: torch.Tensor) -> torch.Tensor:
        module.weight = nn.Parameter(a.detach() * 2, requires_grad=False)
        return a

    compiled = thunder.jit(program, fullgraph=True)
    for _ in range(2):
        a = x(4, 4)
        compiled(a)
        assert type(module.weight) is nn.Parameter
        torch.testing.assert_close(module.weight.data, a.detach() * 2)
        assert [name for name, _ in module.named_parameters()] == ["weight", "bias"]


def test_parameters_of_a_module_made_inside() -> None:
    def program(a: torch.Tensor) -> Any:
        torch.manual_seed(0)
        return list(nn.Linear(4, 2).parameters())

    compiled = thunder.jit(program, fullgraph=True)
    for _ in range(2):
        for got, expected in zip(compiled(x()), program(x()), strict=True):
            assert type(got) is nn.Parameter
            assert got.is_leaf
            assert got.requires_grad
            torch.testing.assert_close(got, expected)


def test_attributes_of_tensors_made_inside() -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        b = a * 2
        b.tag = ["made", 1]
        b.other = a
        return b

    compiled = thunder.jit(program, fullgraph=True)
    for _ in range(2):
        a = x()
        b = compiled(a)
        assert b.tag == ["made", 1]
        assert b.other is a


def test_buffer_made_inside_is_a_buffer() -> None:
    compiled = thunder.jit(lambda a: nn.Buffer(a * 2))
    assert isinstance(compiled(x(grad=False)), nn.Buffer)
    assert isinstance(compiled(x(grad=False)), nn.Buffer)


def test_retain_grad_on_an_input() -> None:
    def program(b: torch.Tensor) -> torch.Tensor:
        b.retain_grad()
        return b * b

    compiled = thunder.jit(program, fullgraph=True)
    for _ in range(2):
        b = x() * 2
        compiled(b).sum().backward()
        torch.testing.assert_close(b.grad, 2 * b)


# ------------------------------------------------------------------------------------------------ refusals


def leaf_and_what_is_computed_from_it(a: torch.Tensor) -> Any:
    weight = torch.ones(4, requires_grad=True)
    return weight, (a * weight).sum()


def retained_and_returned(a: torch.Tensor) -> Any:
    b = a * 2
    b.retain_grad()
    return b, b * b


def hooks_on_saved_tensors(a: torch.Tensor) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 0 + 2, lambda t: t):
        return a * a


def set_data(a: torch.Tensor) -> Any:
    a.data = a.data * 2
    return a * 3


def set_data_inside(a: torch.Tensor) -> Any:
    b = a * 2
    b.data = torch.ones(3, 4)
    return b * b


def write_to_data_after_use(a: torch.Tensor) -> Any:
    b = a * 2
    c = b * b
    b.data.mul_(3)
    return c


def write_to_data_of_input_after_use(a: torch.Tensor) -> Any:
    c = a * a
    a.data[0].mul_(3)
    return c


def write_after_use(a: torch.Tensor) -> Any:
    b = a.exp()
    c = b * 2
    b.mul_(2)
    return c


def write_through_detached_after_use(a: torch.Tensor) -> Any:
    b = a * 2
    c = b * b
    b.detach().zero_()
    return c


def write_under_no_grad_after_use(a: torch.Tensor) -> Any:
    b = a * 2
    c = b * b
    with torch.no_grad():
        b.mul_(2)
    return c


def write_to_view_made_under_no_grad(a: torch.Tensor) -> Any:
    b = a * 2
    with torch.no_grad():
        row = b[0]
    row.mul_(3)
    return b


def write_to_one_of_several_views(a: torch.Tensor) -> Any:
    b = a * 2
    b.unbind(0)[0].mul_(3)
    return b


def use_view_made_under_no_grad(a: torch.Tensor) -> Any:
    with torch.no_grad():
        row = a[0]
    return row * 2


def detach_view(a: torch.Tensor) -> Any:
    b = a * 2
    b[0].detach_()
    return b


def detach_after_use(a: torch.Tensor) -> Any:
    b = a * 2
    c = b * b
    b.detach_()
    return c


def set_memory(a: torch.Tensor) -> Any:
    b = torch.zeros(3, 4)
    b.set_(a.detach())
    return b


def write_to_inference_tensor(a: torch.Tensor) -> Any:
    with torch.inference_mode():
        b = torch.ones(3)
    return b.add_(1)


def anomaly_in_backward(a: torch.Tensor) -> Any:
    with torch.autograd.detect_anomaly(check_nan=True):
        (a * 0).sqrt().sum().backward()


REFUSED = [
    leaf_and_what_is_computed_from_it,
    retained_and_returned,
    hooks_on_saved_tensors,
    set_data,
    set_data_inside,
    write_to_data_after_use,
    write_to_data_of_input_after_use,
    write_to_view_made_under_no_grad,
    write_to_one_of_several_views,
    use_view_made_under_no_grad,
    detach_view,
    detach_after_use,
    set_memory,
    write_to_inference_tensor,
    anomaly_in_backward,
]


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@parametrize([(program.__name__, program) for program in REFUSED])
def test_what_a_trace_cannot_tell_autograd_is_refused(program: Program) -> None:
    a = x()
    with pytest.raises(NotImplementedError):
        thunder.jit(program, fullgraph=True)(a)
    torch.testing.assert_close(a, x())
    assert a.grad is None


@pytest.mark.parametrize(
    "program",
    [write_after_use, write_through_detached_after_use, write_under_no_grad_after_use],
    ids=lambda p: p.__name__,
)
def test_a_backward_that_needs_what_was_written_over_raises_as_in_eager(program: Program) -> None:
    compiled = thunder.jit(program, fullgraph=True)
    for _ in range(2):
        a = x()
        result, expected = compiled(a), program(x())
        assert result.requires_grad
        torch.testing.assert_close(result.detach(), expected.detach())
        for each in (result, expected):
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                each.sum().backward()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(result.sum(), a)
        assert a.grad is None


def written_before_use(a: torch.Tensor) -> Any:
    b = a * 2
    b.mul_(3)
    return b * b


def overwritten_though_not_needed(a: torch.Tensor) -> Any:
    b = a * 2
    c = b + 1
    b.mul_(2)
    return c, b


def product_in_place(a: torch.Tensor) -> Any:
    return (a * 2).mul_(a).square_()


def step_of_a_user(a: torch.Tensor) -> Any:
    (a * a).sum().backward()
    a.data.add_(a.grad.data, alpha=-0.1)
    a.grad = None


def no_grad_views_of_what_needs_none(a: torch.Tensor) -> Any:
    with torch.no_grad():
        b = (a * 2).view(-1)
        top, bottom = b.chunk(2)
    return a.view(-1)[:6] * top + bottom


def rows_of_what_needs_no_gradient(a: torch.Tensor) -> Any:
    b = torch.zeros(3, 4)
    for row, source in zip(b.unbind(0), a.detach().unbind(0), strict=True):
        row.copy_(source)
    return b


COMPILED = [
    written_before_use,
    overwritten_though_not_needed,
    product_in_place,
    step_of_a_user,
    no_grad_views_of_what_needs_none,
    rows_of_what_needs_no_gradient,
]


@parametrize([(program.__name__, program) for program in COMPILED])
def test_writes_that_autograd_allows_are_compiled(program: Program) -> None:
    assert_state_as_eager(program, leaf, backward_of_all)


# ------------------------------------------------------------------------------------------------ around calls


@pytest.mark.parametrize(
    "context",
    [
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t * 0 + 2, lambda t: t),
        torch.autograd.graph.save_on_cpu,
        torch.autograd.graph.allow_mutation_on_saved_tensors,
        torch.autograd.detect_anomaly,
    ],
    ids=["saved_tensors_hooks", "save_on_cpu", "allow_mutation", "anomaly"],
)
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("is_compiled", [False, True])
def test_what_observes_autograd_around_a_call(
    context: Callable[[], contextlib.AbstractContextManager[Any]], is_compiled: bool
) -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        return (a * a).exp()

    compiled, gradients = thunder.jit(program), []
    if is_compiled:
        compiled(x())
    for function in (compiled, program):
        a = x()
        with context():
            result = function(a)
            result.sum().backward()
        gradients.append(a.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_hooks_that_are_disabled_around_a_checkpoint_raise(is_compiled: bool) -> None:
    def program(a: torch.Tensor) -> Any:
        return checkpoint(torch.tanh, a, use_reentrant=False)

    compiled = thunder.jit(program)
    if is_compiled:
        compiled(x())
    disabled = torch.autograd.graph.disable_saved_tensors_hooks("no hooks here")
    with disabled, pytest.raises(RuntimeError, match="no hooks here"):
        compiled(x())
    torch.testing.assert_close(compiled(x()), program(x()))


def test_hooks_around_a_call_are_run_once_for_each_saved_tensor() -> None:
    def program(a: torch.Tensor) -> torch.Tensor:
        return (a * a).exp()

    compiled, counts = thunder.jit(program), []
    compiled(x())
    for function in (compiled, program):
        packed: list[torch.Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, packed=packed: packed.append(t) or t, lambda t: t):
            function(x())
        counts.append(len(packed))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("is_compiled", [False, True])
def test_forward_mode_around_a_call(is_compiled: bool) -> None:
    compiled = thunder.jit(lambda a: (a * a).sin())
    if is_compiled:
        compiled(x(grad=False))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x(grad=False), torch.ones(3, 4))
        got, expected = (forward_ad.unpack_dual(f(dual)) for f in (compiled, lambda a: (a * a).sin()))
    torch.testing.assert_close(got.tangent, expected.tangent)


# ------------------------------------------------------------------------------------------------ backward, again


def test_backward_of_results_that_have_an_input_in_common() -> None:
    def program(a: torch.Tensor) -> Any:
        return (a * a).sum(), a.sin().sum(), (a * 3).sum()

    gradients = []
    for function in (thunder.jit(program), program):
        a = x()
        for result in function(a):
            result.backward()
        gradients.append(a.grad)
    torch.testing.assert_close(*gradients)


def test_backward_of_one_result_twice_raises() -> None:
    first, second = thunder.jit(lambda a: ((a * a).sum(), a.sin().sum()))(x())
    first.backward()
    second.backward()
    with pytest.raises(RuntimeError, match="second time"):
        first.backward()


def retain(tensor: torch.Tensor, loss: torch.Tensor) -> None:
    tensor.retain_grad()
    loss.backward()


def register(tensor: torch.Tensor, loss: torch.Tensor) -> None:
    tensor.register_hook(lambda gradient: gradient * 2)
    loss.backward()


@pytest.mark.parametrize(
    "ask",
    [retain, register, lambda tensor, loss: torch.autograd.grad(loss, tensor, allow_unused=True)],
    ids=["retain_grad", "register_hook", "grad"],
)
def test_gradient_of_a_result_by_way_of_another_is_refused(ask: Program) -> None:
    def program(a: torch.Tensor) -> Any:
        b = a * 2
        return b, (b * b).sum()

    with pytest.raises(RuntimeError, match="another result"):
        ask(*thunder.jit(program)(x()))


def view_of_a_result(a: torch.Tensor) -> Any:
    b = (a * 2).view(4, 3)
    return b, (b * b).sum()


def view_of_an_input(a: torch.Tensor) -> Any:
    b = a.view(4, 3)
    return b, (b * b).sum()


@pytest.mark.parametrize("program", [view_of_a_result, view_of_an_input])
def test_gradient_of_a_view_that_is_returned_by_way_of_another_result_is_refused(program: Program) -> None:
    a = x()
    view, loss = thunder.jit(program)(a)
    with pytest.raises(RuntimeError, match="another result"):
        torch.autograd.grad(loss, view, allow_unused=True)
    view, loss = thunder.jit(program)(a)
    assert torch.autograd.grad(view.sum(), loss, allow_unused=True) == (None,)
    view, loss = thunder.jit(program)(a)
    expected = torch.autograd.grad(sum(part.sum() for part in program(a)), a)
    torch.testing.assert_close(torch.autograd.grad(loss + view.sum(), a), expected)


@pytest.mark.parametrize("asked", ["view", "base", "leaf"])
def test_gradient_of_a_view_that_was_written_to_is_no_silent_none(asked: str) -> None:
    def program(view: torch.Tensor) -> torch.Tensor:
        view.mul_(2)
        return view.sum()

    leaf = x()
    tensors = {"leaf": leaf, "base": leaf * 1}
    tensors["view"] = tensors["base"][:2]
    loss = thunder.jit(program)(tensors["view"])
    if asked == "leaf":
        expected = torch.tensor([2.0, 2.0, 0.0])[:, None].expand(3, 4)
        torch.testing.assert_close(torch.autograd.grad(loss, leaf)[0], expected)
        return
    with pytest.raises(RuntimeError, match="another result"):
        torch.autograd.grad(loss, tensors[asked], allow_unused=True)


def test_hooks_on_results_that_no_other_is_computed_from() -> None:
    a, seen = x(), []
    logits, loss = thunder.jit(lambda a: ((a * 2), (a * a).sum()))(a)
    logits.retain_grad()
    logits.register_hook(lambda gradient: seen.append(gradient))
    loss.register_hook(lambda gradient: gradient * 2)
    (loss + logits.sum()).backward()
    assert len(seen) == 1
    torch.testing.assert_close(logits.grad, torch.ones(3, 4))
    torch.testing.assert_close(a.grad, 4 * a + 2)


def test_hook_on_a_result_that_is_computed_from_another() -> None:
    a = x()
    _, loss = thunder.jit(lambda a: (lambda b: (b, (b * b).sum()))(a * 2))(a)
    loss.register_hook(lambda gradient: gradient * 2)
    loss.backward()
    torch.testing.assert_close(a.grad, 16 * a)


# ------------------------------------------------------------------------------------------------ new leaves


def new_leaf_after_a_write(a: torch.Tensor, b: torch.Tensor) -> Any:
    a.zero_()
    a.requires_grad_()
    return b


def new_leaf_after_a_write_and_used(a: torch.Tensor, b: torch.Tensor) -> Any:
    a.zero_()
    a.requires_grad_()
    return a * 2


def new_leaf_with_a_view_outside(a: torch.Tensor, b: torch.Tensor) -> Any:
    a.requires_grad_()
    return b * 2


def new_leaf_for_a_while(a: torch.Tensor, b: torch.Tensor) -> Any:
    a.requires_grad_()
    c = a * 2
    a.requires_grad_(False)
    return c


def new_leaf_no_more_before_a_backward(a: torch.Tensor, b: torch.Tensor) -> None:
    a.requires_grad_()
    c = (a * 2).sum()
    a.requires_grad_(False)
    c.backward()


def new_leaf_before_an_error(a: torch.Tensor, b: torch.Tensor) -> None:
    a.requires_grad_(not a.requires_grad)
    b.gather(0, torch.full((4,), 60))


def new_leaf_after_an_error(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.linalg.inv(torch.zeros(2, 2))
    a.requires_grad_()


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@parametrize([(name, f) for name, f in sorted(globals().items()) if name.startswith("new_leaf_")])
def test_input_on_which_requires_grad_is_called(program: Program) -> None:
    outcomes = []
    for function in (program, thunder.jit(program)):
        for _ in range(2):
            a = torch.tensor([1.0, 2.0])
            b, result = a.view(-1), None
            with contextlib.suppress(RuntimeError):
                result = function(a, b)
            if result is not None and result.requires_grad:
                result.sum().backward()
            gradient = None if not a.is_leaf or a.grad is None else a.grad.tolist()
            flags = [getattr(tensor, "requires_grad", None) for tensor in (a, b, result)]
            outcomes.append((flags, a.is_leaf, gradient))
    assert outcomes[2:] == outcomes[:2]


def requires_grad_by_method(base: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    view.requires_grad_()
    return (view * base).sum()


def requires_grad_by_attribute(base: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    view.requires_grad = True
    return (view * base).sum()


def does_not_require_grad_itself(base: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    return (view * base).sum() * view.requires_grad


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning", "ignore::UserWarning")
@pytest.mark.parametrize("program", [requires_grad_by_method, requires_grad_by_attribute, does_not_require_grad_itself])
def test_view_that_was_made_before_its_base_required_grad(program: Callable[..., torch.Tensor]) -> None:
    gradients: list[list[torch.Tensor | None]] = []
    for function in (program, thunder.jit(program)):
        for _ in range(2):
            base = torch.ones(3, 3)
            view = base[0]
            base.requires_grad_()
            function(base, view).backward()
            gradients.append([base.grad, view.grad])
    for compiled in gradients[2:]:
        torch.testing.assert_close(compiled, gradients[0])


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("reads_data", [False, True])
def test_requires_grad_on_an_input_that_was_used_before(reads_data: bool) -> None:
    def program(x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = x * scale
        x.requires_grad_()
        if reads_data and (x > 0).any():
            return before, x
        return before, x * x

    gradients = []
    for function in (program, thunder.jit(program)):
        x, scale = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0], requires_grad=True)
        results = function(x, scale)
        torch.autograd.backward(results, [torch.ones_like(result) for result in results])
        gradients.append((x.grad, scale.grad))
    assert torch.equal(gradients[0][0], gradients[1][0])
    assert torch.equal(gradients[0][1], gradients[1][1])


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
def test_a_detached_leaf_that_is_written_to_takes_part_in_autograd() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> None:
        y.detach_()
        y.sub_(x)

    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    thunder.jit(program)(x, y)
    assert not y.is_leaf
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [-1, -1]
