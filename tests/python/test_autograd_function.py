"""`torch.autograd.Function` inside compiled programs: its backward is used, not that of its forward's operations."""

from __future__ import annotations

import math
import sys

import pytest
import torch
import torch.nn.functional as F
from beside_eager import assert_as_eager
from torch.utils.checkpoint import checkpoint

import thunder


class ScaledGradient(torch.autograd.Function):
    """The sine, with ten times its gradient, so that a wrong backward shows."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.cos() * 10 * ctx.factor, None


class TwoResults(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx, product, total):
        x, y = ctx.saved_tensors
        return product * y + 2 * total, product * x + 3 * total


class Coupled(torch.autograd.Function):
    """A backward that is not linear in its cotangents: all of them are needed at once."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x)
        return x * y, x.exp(), x > 0

    @staticmethod
    def backward(ctx, product, power, _):
        (x,) = ctx.saved_tensors
        return (product + 1) * power * x, power * power * x


def coupled(x, y):
    return Coupled.apply(x, y)[:2]


def coupled_after_write(x, y):
    product, power = coupled(x, y)
    power.mul_(2)
    return product * power


def coupled_by_data(x, y):
    product, power = coupled(x, y)
    return product.sin() * power if product.sum() < 1000 else power


def coupled_with_hook(x, y):
    product, power = coupled(x, y)
    power.register_hook(lambda gradient: gradient * 3)
    return product * power


def gradients_of(function, *inputs):
    inputs = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    result = function(*inputs)
    result.square().sum().backward()
    return result.detach(), [x.grad for x in inputs]


PROGRAMS = {
    "alone": lambda x, y: ScaledGradient.apply(x, 2.0),
    "inside": lambda x, y: F.gelu(ScaledGradient.apply(x * y, 0.5)) @ y,
    "chained": lambda x, y: ScaledGradient.apply(ScaledGradient.apply(x, 1.0), 1.0) + y,
    "used_twice": lambda x, y: (lambda z: ScaledGradient.apply(z, 1.0) * z)(ScaledGradient.apply(x, 1.0)),
    "two_results": lambda x, y: sum(TwoResults.apply(x * 2, y)),
    "one_of_two_results": lambda x, y: TwoResults.apply(x, y.exp())[1],
    "coupled": lambda x, y: (lambda pair: pair[0].sin() * pair[1])(coupled(x, y)),
    "coupled_twice": lambda x, y: sum(coupled(*coupled(x, y))),
    "coupled_one_result": lambda x, y: coupled(x, y)[1] * 2,
    "coupled_after_write": coupled_after_write,
    "coupled_by_data": coupled_by_data,
    "coupled_with_hook": coupled_with_hook,
    "coupled_in_checkpoint": lambda x, y: checkpoint(lambda x, y: sum(coupled(x, y)), x, y, use_reentrant=False),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_backward_of_function_is_used(name):
    torch.manual_seed(0)
    x, y = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    expected = gradients_of(PROGRAMS[name], x, y)
    actual = gradients_of(thunder.jit(PROGRAMS[name]), x, y)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("used", [(True, False), (False, True), (True, True)], ids=str)
def test_results_of_a_function_get_their_cotangents_together(used):
    gradients = []
    for function in (coupled, thunder.jit(coupled)):
        torch.manual_seed(0)
        x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
        results = [result for result, is_used in zip(function(x, y), used, strict=True) if is_used]
        torch.autograd.backward(results, [torch.full((3,), i + 2.0) for i in range(len(results))])
        gradients.append((x.grad, y.grad))
    torch.testing.assert_close(gradients[1], gradients[0])


def test_function_without_gradient_runs_its_forward():
    x = torch.randn(3)
    assert torch.equal(thunder.jit(PROGRAMS["alone"])(x, x), x.sin())


def test_backward_of_function_is_in_backward_trace():
    compiled = thunder.jit(PROGRAMS["alone"])
    compiled(torch.randn(3, requires_grad=True), torch.randn(3))
    assert "aten.cos" in str(thunder.last_backward_traces(compiled)[-1])


class KeepsAnswer(torch.autograd.Function):
    """Its gradient is a tensor that the forward saved, as it is."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.cos())
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.saved_tensors[0]


def test_backward_that_returns_a_saved_tensor():
    x = torch.randn(3, requires_grad=True)
    for _ in range(2):
        x.grad = None
        thunder.jit(lambda a: KeepsAnswer.apply(a * 2) * 5)(x).sum().backward()
        torch.testing.assert_close(x.grad, 2 * (2 * x).cos().detach())


def test_grad_of_a_function_whose_forward_takes_ctx_uses_its_backward():
    x = torch.randn(3, 4)
    leaf = x.clone().requires_grad_()
    ScaledGradient.apply(leaf, 1.0).sum().backward()
    torch.testing.assert_close(thunder.grad(lambda a: ScaledGradient.apply(a, 1.0).sum())(x), leaf.grad)


class Rules(torch.autograd.Function):
    """The sine; ten times its gradient in reverse mode and seven times in forward mode, so that both show."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].cos() * 10

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * ctx.saved_tensors[0].cos() * 7


class BatchedOtherwise(torch.autograd.Function):
    """Its batches are doubled, so that the rule shows."""

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3

    @staticmethod
    def vmap(info, in_dims, x):
        return BatchedOtherwise.apply(x) * 2, in_dims[0]


class WithoutForwardMode(BatchedOtherwise):
    pass


def _squares(x):
    return (Rules.apply(x * 2) ** 2).sum()


TRANSFORMED = {
    "jvp": lambda module, x: module.jvp(lambda a: Rules.apply(a * 2), (x,), (x.cos(),)),
    "grad": lambda module, x: module.grad(_squares)(x),
    "vjp": lambda module, x: module.vjp(lambda a: Rules.apply(a * 2), x)[1](x),
    "vmap": lambda module, x: module.vmap(Rules.apply)(x),
    "grad_of_vmap": lambda module, x: module.grad(lambda a: (module.vmap(Rules.apply)(a) ** 2).sum())(x),
    "vmap_of_grad": lambda module, x: module.vmap(module.grad(_squares))(x),
    "vmap_of_jvp": lambda module, x: module.vmap(lambda a: module.jvp(Rules.apply, (a,), (a.cos(),)))(x),
    "jvp_of_vmap": lambda module, x: module.jvp(module.vmap(Rules.apply), (x,), (x.cos(),)),
    "jvp_of_grad": lambda module, x: module.jvp(module.grad(_squares), (x,), (x.cos(),)),
    "jacrev": lambda module, x: module.jacrev(Rules.apply)(x[0]),
    "jacfwd": lambda module, x: module.jacfwd(Rules.apply)(x[0]),
    "hessian": lambda module, x: module.hessian(_squares)(x[0]),
    "rule": lambda module, x: module.vmap(BatchedOtherwise.apply)(x),
    "grad_of_rule": lambda module, x: module.grad(lambda a: module.vmap(BatchedOtherwise.apply)(a).sum())(x),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transforms_call_the_methods_of_a_function(name):
    program = TRANSFORMED[name]
    x = torch.randn(3, 4)
    expected = program(torch.func, x)
    torch.testing.assert_close(program(thunder, x), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(thunder.jit(lambda a: program(thunder, a))(x), expected)
    torch.testing.assert_close(thunder.jit(lambda a: program(torch.func, a))(x), expected)


def test_gradient_goes_through_vmap_of_a_function_with_a_rule():
    x = torch.randn(3, 4, requires_grad=True)
    thunder.vmap(lambda a: Rules.apply(a * 2).sum())(x).sum().backward()
    torch.testing.assert_close(x.grad, 20 * (2 * x).cos().detach())


def test_autocast_of_a_function_uses_its_backward():
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5)
    thunder.autocast(lambda a: ScaledGradient.apply(a, 1.0) @ w)(x).float().sum().backward()
    expected = x.detach().clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        result = ScaledGradient.apply(expected, 1.0) @ w
    result.float().sum().backward()
    torch.testing.assert_close(x.grad, expected.grad)


def test_tracing_again_for_a_function_repeats_no_side_effect():
    seen = []

    def program(x):
        seen.append(1)
        return Rules.apply(x)

    x = torch.randn(3)
    thunder.jvp(program, (x,), (x,))
    assert seen == [1]


@pytest.mark.parametrize("module", [thunder, torch.func])
def test_forward_mode_of_a_function_without_jvp_is_an_error_with_its_name_and_line(module):
    x = torch.randn(3)
    program = thunder.jit(lambda a: module.jvp(lambda b: WithoutForwardMode.apply(b), (a,), (a,)), fullgraph=True)
    with pytest.raises(NotImplementedError, match=r"WithoutForwardMode: .* a jvp staticmethod(?s:.*), line \d+"):
        program(x)


@pytest.mark.parametrize("transform", ["jvp of thunder's", "vmap of thunder's", "grad of torch.func's"])
def test_function_whose_forward_takes_ctx_is_refused_with_its_name_and_line(transform):
    x = torch.randn(3)
    program = {
        "jvp of thunder's": lambda a: thunder.jvp(lambda b: ScaledGradient.apply(b, 1.0), (a,), (a,)),
        "vmap of thunder's": lambda a: thunder.vmap(lambda b: ScaledGradient.apply(b, 1.0))(a),
        "grad of torch.func's": lambda a: torch.func.grad(lambda b: ScaledGradient.apply(b, 1.0).sum())(a),
    }[transform]
    with pytest.raises(RuntimeError, match=r"ScaledGradient: .* override the setup_context(?s:.*), line \d+"):
        thunder.jit(program, fullgraph=True)(x)


@pytest.mark.parametrize("method", ["forward", "backward"])
def test_method_of_a_function_that_is_replaced_between_calls_is_traced_again(method):
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    def check(factor, gradient_factor):
        x = torch.ones(3, requires_grad=True)
        result = f(x)
        result.sum().backward()
        torch.testing.assert_close(result.detach(), torch.full((3,), factor))
        torch.testing.assert_close(x.grad, torch.full((3,), gradient_factor))

    f = thunder.jit(lambda x: Doubled.apply(x))
    check(2.0, 2.0)
    setattr(Doubled, method, staticmethod(lambda ctx, each: each * 5))
    check(*((5.0, 2.0) if method == "forward" else (2.0, 5.0)))
    check(*((5.0, 2.0) if method == "forward" else (2.0, 5.0)))
    assert thunder.cache_misses(f) == 2


def reversing(forward, backward):
    class Reversing(torch.autograd.Function):
        pass

    Reversing.forward = staticmethod(forward)
    Reversing.backward = staticmethod(backward)
    return lambda x, number: Reversing.apply(x * 3, number).sum()


def _keep(ctx, x, number):
    ctx.number = number
    return x.view_as(x)


def _keep_and_scale(ctx, x, number):
    assert type(number) is float
    ctx.number = math.exp(number)
    return x * number


def _keep_tensor(ctx, x, number):
    ctx.save_for_backward(torch.tensor(number))
    return x * 1


def _keep_data(ctx, x, number):
    ctx.number = (x * number).sum().item()
    return x * 1


SEEN_BY_BACKWARD = []


def _scale_and_note(ctx, grad):
    SEEN_BY_BACKWARD.append(float(ctx.number))
    return grad * ctx.number, None


# Functions of a tensor and a number, with the traces for seven numbers: who looks at the number has one for each.
WITH_NUMBER = {
    "unused": (reversing(lambda ctx, x, number: x * 1, lambda ctx, grad: (grad * 2, None)), 2),
    "kept": (reversing(_keep, lambda ctx, grad: (-ctx.number * grad, None)), 2),
    "kept and used": (reversing(_keep_and_scale, lambda ctx, grad: (grad * ctx.number, None)), 2),
    "tensor": (reversing(_keep_tensor, lambda ctx, grad: (grad * ctx.saved_tensors[0], None)), 2),
    "data": (reversing(_keep_data, lambda ctx, grad: (grad * ctx.number, None)), 2),
    "compared": (reversing(_keep, lambda ctx, grad: (grad * (2 if ctx.number > 0.25 else 3), None)), 7),
    "data, compared": (reversing(_keep_data, lambda ctx, grad: (grad * (2 if ctx.number > 2 else 3), None)), 7),
    "backward in Python": (reversing(_keep, _scale_and_note), 7),
}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="numbers that change need Python 3.11")
@pytest.mark.parametrize("name", WITH_NUMBER)
def test_number_that_a_function_is_given_is_an_input(name):
    program, traces = WITH_NUMBER[name]
    compiled = thunder.jit(program)
    results = {}
    for function in (program, compiled):
        SEEN_BY_BACKWARD.clear()
        inputs = [torch.arange(3.0, requires_grad=True) for _ in range(7)]
        outputs = [function(x, 0.1 * i + 0.05) for i, x in enumerate(inputs)]
        for output in outputs:  # after calls with other numbers
            output.backward()
        values = [value.item() for value in outputs]
        results[function] = (values, [x.grad.tolist() for x in inputs], list(SEEN_BY_BACKWARD))
    assert results[compiled] == results[program]
    assert thunder.cache_misses(compiled) == traces


class DoublesInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


@pytest.mark.parametrize(
    "program",
    [DoublesInPlace.apply, lambda x: DoublesInPlace.apply(x) * x, lambda x: DoublesInPlace.apply(x * 1) + x],
    ids=["returned", "used", "made inside"],
)
def test_function_that_writes_to_an_argument_with_a_history(program):
    results = []
    for function in (program, thunder.jit(program)):
        leaf = torch.arange(3.0, requires_grad=True)
        argument = leaf * 2
        result = function(argument)
        (result.sum() + argument.sum()).backward()
        results.append((result.detach(), argument.detach(), leaf.grad, result is argument))
    torch.testing.assert_close(results[1], results[0])


def test_view_of_what_a_function_wrote_to_has_its_gradient():
    def program(x):
        a = x * 3
        view = a[:2]
        DoublesInPlace.apply(a)
        return view * x[:2] + a.sum()

    assert_same_gradients(program)


def test_function_that_writes_to_a_view_is_refused():
    def program(x):
        a = x * 3
        DoublesInPlace.apply(a[:2])
        return a

    with pytest.raises(NotImplementedError, match="mark_dirty: expected tensors that are no views"):
        thunder.jit(program, fullgraph=True)(torch.ones(3, requires_grad=True))


def assert_same_gradients(program):
    gradients = []
    for function in (program, thunder.jit(program)):
        x = torch.arange(3.0, requires_grad=True)
        function(x).sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[1], gradients[0])


class Saving(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


class SavingResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


class SavingAndReading(Saving):
    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0] * (1 if gradient.sum() > 0 else 2)


class Keeping(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.kept = x.detach()
        return x.exp()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.kept


class SavingForNothing(Saving):
    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def writes(target):
    with torch.no_grad():
        target.add_(1)


@pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")
@pytest.mark.parametrize("write", [writes, lambda target: target.detach().add_(1), lambda target: target.data.add_(1)])
@pytest.mark.parametrize("function", [Saving, SavingResult, SavingAndReading, Keeping, SavingForNothing])
def test_function_whose_backward_reads_what_is_written_to_afterwards(function, write):
    def program(x, made):
        argument = x * 1 if made else x
        result = function.apply(argument)
        write(result if function is SavingResult else argument)
        return result * 3

    def outcome(program, made):
        x = torch.ones(3, requires_grad=True)
        result = program(x, made)
        try:
            result.sum().backward()
        except RuntimeError as error:
            return str(error).split(":")[0], x.tolist()
        return result.tolist(), x.tolist(), x.grad.tolist()

    compiled = thunder.jit(program)
    for made in (True, False, True):
        assert outcome(compiled, made) == outcome(program, made)


def test_function_whose_backward_has_run_inside_stays_compiled():
    weight = torch.ones(3, requires_grad=True)

    def step(x):
        loss = Saving.apply(weight * x).sum()
        (gradient,) = torch.autograd.grad(loss, weight)
        with torch.no_grad():
            weight.sub_(gradient)
        return loss

    compiled = thunder.jit(step, fullgraph=True)
    assert compiled(torch.ones(3)).tolist() == pytest.approx(3 * 2.718281828)


class MatmulOfFloats(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        if torch.is_autocast_enabled("cpu"):
            return None, None
        return grad.float() @ w.t(), x.t() @ grad.float()


class CastingMatmul(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return (grad @ w.t()).to(x.dtype), (x.t() @ grad).to(w.dtype)


def under_autocast(f):
    def program(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            return f(x, w)

    return program


@pytest.mark.parametrize("function", [MatmulOfFloats, CastingMatmul])
@pytest.mark.parametrize("where", ["inside", "around"])
def test_backward_of_a_function_under_autocast_runs_without_it(function, where):
    def gradients(compile):
        program = lambda x, w: function.apply(x, w) @ w.t()  # noqa: E731
        f = compile(under_autocast(program)) if where == "inside" else under_autocast(compile(program))
        generator = torch.Generator().manual_seed(0)
        x, w = (torch.randn(4, 4, generator=generator, requires_grad=True) for _ in range(2))
        for _ in range(2):
            f(x, w).float().square().sum().backward()
        return x.grad, w.grad

    compiled = gradients(lambda f: thunder.jit(f, fullgraph=function is MatmulOfFloats))
    torch.testing.assert_close(compiled, gradients(lambda f: f), rtol=1e-5, atol=1e-5)


def test_hook_on_a_gradient_under_autocast_runs_without_it():
    def gradient(f):
        x = torch.ones(3, 3).mul(1.001).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            result = f(x)
        result.sum().backward()
        return x.grad

    def program(x):
        y = x * 1.003
        y.register_hook(lambda grad: grad * 1.001 @ x)
        return y * 2

    assert torch.equal(gradient(thunder.jit(program)), gradient(program))


@pytest.mark.filterwarnings("error::UserWarning")
def test_writes_that_give_a_computed_tensor_another_history_warn_of_nothing():
    x = torch.ones(2, 3, requires_grad=True)
    for program in (lambda x: (x * 2).detach_(), lambda x: (x * 2).swapaxes_(0, 1), lambda x: (x * 2).squeeze_()):
        assert torch.equal(thunder.jit(program, fullgraph=True)(x), program(x))


@torch.library.custom_op("thunder_tests::twice_in_memory", mutates_args=())
def twice_in_memory(x: torch.Tensor) -> torch.Tensor:
    """Goes by memory, as kernels do that are given contiguous tensors."""
    return torch.as_strided(x, (x.numel(),), (1,)).view(x.shape) * 2


@twice_in_memory.register_fake
def _(x):
    return torch.empty(x.shape)


class TwiceInMemory(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return twice_in_memory(x.contiguous())

    @staticmethod
    def backward(ctx, gradient):
        return twice_in_memory(gradient.contiguous())


@pytest.mark.parametrize("read", [torch.t, lambda y: torch.cat([y, y.detach()], 1)])
def test_backward_that_goes_by_memory(read):
    def program(x):
        y = read(TwiceInMemory.apply(x))
        return (y * torch.arange(float(y.numel())).reshape(y.shape)).sum()

    assert_as_eager(program, torch.ones(3, 4, requires_grad=True))
