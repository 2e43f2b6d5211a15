"""Function transforms inside of programs whose sizes change: one program for all of them, equal to eager."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils import _pytree as pytree

import thunder

ROWS = (2, 4, 5, 6, 9, 33)

torch.manual_seed(0)
NETWORK = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
PARAMETERS = {name: parameter.detach().clone() for name, parameter in NETWORK.named_parameters()}
WEIGHT = torch.randn(3, requires_grad=True)


def _loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    target = (x.sum(-1) > 0).long()
    return nn.functional.cross_entropy(functional_call(NETWORK, parameters, (x,)), target)


def _step(x: Tensor) -> Any:
    gradients, value = grad_and_value(_loss)(PARAMETERS, x)
    return {name: PARAMETERS[name] - 0.1 * gradients[name] for name in PARAMETERS}, value


def _adapt(x: Tensor) -> Any:
    def after_a_step(parameters: dict[str, Tensor]) -> Tensor:
        gradients = grad(_loss)(parameters, x)
        return _loss({name: parameters[name] - 0.1 * gradients[name] for name in parameters}, x)

    return grad_and_value(after_a_step)(PARAMETERS)


def _per_example(x: Tensor) -> Any:
    return vmap(grad(lambda parameters, row: _loss(parameters, row[None])), in_dims=(None, 0))(PARAMETERS, x)


def _vjp_of_two(x: Tensor) -> Any:
    output, pull_back, aux = vjp(lambda a, b: ((a * b.sin(), a.sum()), a + 1), x, x * 2, has_aux=True)
    return output, pull_back((x, x.mean())), aux


def _laplacian(x: Tensor) -> Tensor:
    return vmap(lambda row: torch.trace(jacfwd(grad(lambda q: (q**4).sum() * q[0]))(row)))(x)


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "step": _step,
    "adapt": _adapt,
    "live_parameters": lambda x: grad(_loss)(dict(NETWORK.named_parameters()), x),
    "aux": lambda x: grad(lambda x: ((x**2).sum(), {"a": x * 2, "b": x}), has_aux=True)(x),
    "two_arguments": lambda x: grad(lambda a, b: (a * b.sin()).sum(), argnums=(0, 1))(x, x * 2),
    "second": lambda x: grad(lambda x: grad(lambda x: (x**3).sum())(x).sum())(x),
    "captured": lambda x: grad(lambda x: ((x * WEIGHT) ** 2).sum())(x),
    "captured_without_gradients": torch.no_grad()(lambda x: grad(lambda x: ((x * WEIGHT) ** 2).sum())(x)),
    "unused": lambda x: grad(lambda y: x.sum())(x * 2),
    "size_inside": lambda x: grad(lambda x: (x / x.shape[0]).pow(2).sum() * len(x))(x),
    "in_place": lambda x: grad(lambda x: (x * 2).add_(x).mul_(x).sum())(x),
    "written": lambda x: grad(lambda v, u: (v * u.add_(1)).sum())(x, x.clone()),
    "vjp": _vjp_of_two,
    "thunder_grad": lambda x: thunder.grad(lambda x: thunder.grad(lambda x: (x**3).sum())(x).sum())(x),
    "thunder_value_and_grad": lambda x: thunder.value_and_grad(lambda x: (x.sin() ** 2).sum())(x),
    "thunder_vmap": lambda x: thunder.vmap(lambda row: row.softmax(0))(x),
    "per_example": _per_example,
    "nested_vmap": lambda x: vmap(lambda a: vmap(lambda b: (a * b).sum())(x))(x),
    "written_in_vmap": lambda x: vmap(lambda row: row.clone().mul_(2).add_(row))(x),
    "out_dims": lambda x: vmap(lambda row: (row, row.sum()), out_dims=(1, 0))(x),
    "no_batch_in_result": lambda x: vmap(lambda row: torch.ones(2) * 3)(x),
    "outer_tensor": lambda x: vmap(lambda row: row @ WEIGHT.detach() + x.mean())(x),
    "size_in_vmap": lambda x: vmap(lambda row: row / x.shape[0])(x),
    "module_in_vmap": lambda x: vmap(NETWORK[0])(x),
    "convolution": lambda x: vmap(lambda row: nn.functional.conv1d(row[None, None], torch.ones(1, 1, 2)))(x),
    "index": lambda x: vmap(lambda row, at: row.gather(0, at))(x, (x > 0).long()),
    "jacobian_per_example": lambda x: vmap(jacrev(lambda row: row**3 * row.sum()))(x),
    "hessian_per_example": lambda x: vmap(hessian(lambda row: (row**3).sum()))(x),
    "tangent_per_example": lambda x: vmap(lambda row: jvp(torch.sin, (row,), (row * 2,))[1])(x),
    "laplacian": _laplacian,
    "gradient_of_vmap": lambda x: grad(lambda x: vmap(lambda row: (row**2).sum())(x).prod())(x),
}  # fmt: skip

# A level of `torch.func` sees sizes that change: there is a program for each.
PROGRAMS_OF_ONE_SIZE: dict[str, Callable[[Tensor], Any]] = {
    "columns": lambda x: vmap(lambda column: column.softmax(0), in_dims=1)(x),
    "length_of_columns": lambda x: vmap(lambda column: column * column.shape[0], in_dims=1)(x),
    "slice_of_columns": lambda x: vmap(lambda column: column[:4] * 2, in_dims=1)(x),
    "tangent": lambda x: jvp(lambda x: x / len(x), (x,), (x,))[1],
    "jacobian": lambda x: jacrev(lambda x: x.sum(0) * x.shape[0])(x),
    "number_that_is_saved": lambda x: vmap(jacrev(lambda row: (row / len(x)).cumsum(-1)))(x),
    "number_in_grad_in_vmap": lambda x: vmap(grad(lambda row: (row * len(x)).sum()))(x),
    "batch_below": lambda x: jacrev(lambda w: vmap(lambda row: row.sum() * 0 + w)(x).sum())(WEIGHT[0].detach()),
    "batch_below_in_vmap": lambda x: vmap(jacrev(lambda w: vmap(lambda row: row.sum() + w)(x).sum()))(x[:, 0]),
    "vjp_in_inference_mode": torch.inference_mode()(lambda x: vjp(lambda x: x**2, x.clone())[1](x)),
    "random": lambda x: vmap(lambda row: row + torch.rand(3), randomness="different")(x),
}


def require_equal_to_eager(program: Callable[[Tensor], Any], compiled: Any, x: Tensor) -> None:
    torch.manual_seed(1)
    expected = pytree.tree_leaves(program(x))
    torch.manual_seed(1)
    found = pytree.tree_leaves(compiled(x))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    facts = [[(t.requires_grad, t.is_leaf, t.stride()) for t in tensors] for tensors in (found, expected)]
    assert facts[0] == facts[1]


@pytest.mark.parametrize("needs_gradient", [False, True], ids=["plain", "requires_grad"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_transforms_have_one_program_for_many_sizes(name: str, needs_gradient: bool) -> None:
    program = PROGRAMS[name]
    compiled: Any = thunder.jit(program)
    for rows in ROWS:
        require_equal_to_eager(program, compiled, torch.randn(rows, 3, requires_grad=needs_gradient))
    assert thunder.cache_misses(compiled) <= 3


@pytest.mark.parametrize("name", PROGRAMS_OF_ONE_SIZE)
def test_sizes_that_a_level_sees_are_those_of_each_call(name: str) -> None:
    program = PROGRAMS_OF_ONE_SIZE[name]
    compiled: Any = thunder.jit(program)
    for rows in ROWS:
        require_equal_to_eager(program, compiled, torch.randn(rows, 3))


# Parts of random programs: {} is what a part is made of.
PARTS = (
    "({}).sin()",
    "({}).softmax(-1)",
    "({}).cumsum(-1)",
    "({}) + x.mean()",
    "({}) @ MATRIX",
    "torch.where(({}) > 0, ({}), 0.5)",
    "({}).roll(1, -1)",
    "torch.cat([({}), ({})], -1)[..., ::2]",
    "({}) / n",
    "({}).clone().mul_(0.5)",
    "({}).square().sum(-1, keepdim=True) * ({})",
    "nn.functional.pad(({}), (1, 0))[..., :3]",
    "({}).reshape(-1, 3).sum(0)",
)
TEMPLATES = (
    "vmap(lambda r: {})(x)",
    "vmap(grad(lambda r: ({}).sum() * n))(x)",
    "vmap(lambda r: vmap(lambda r: {})(r[None].expand(2, 3)))(x)",
    "grad(lambda r: vmap(lambda r: {})(r).square().sum())(x)",
    "vmap(jacrev(lambda r: {}))(x)",
    "vjp(lambda r: {}, x)[1](vjp(lambda r: {}, x)[0])",
    "vmap(lambda r: jvp(lambda r: {}, (r,), (r * 0.5,))[1])(x)",
    "grad(lambda r: grad(lambda r: ({}).sum())(r).square().sum())(x)",
    "jacrev(lambda w: vmap(lambda r: {} * w)(x).sum(0))(x[0])",
    "vmap(lambda r: grad(lambda w: (({}) * w).sum() * n)(MATRIX[0]))(x)",
    "vmap(hessian(lambda r: ({}).sum()))(x)",
)
MATRIX = torch.randn(3, 3, dtype=torch.float64)


@pytest.mark.parametrize("seed", range(40))
def test_random_transforms_equal_eager_at_many_sizes(seed: int) -> None:
    chosen = random.Random(seed)
    part = "r"
    for _ in range(chosen.randint(1, 3)):
        part = chosen.choice(PARTS).replace("{}", part)
    text = "lambda x, n: " + chosen.choice(TEMPLATES).replace("{}", part)
    function = eval(text, globals())

    def program(x: Tensor) -> Any:
        return function(x, x.shape[0])

    compiled: Any = thunder.jit(program)
    for rows in chosen.choices((2, 4, 5, 6, 7, 8, 9, 12, 16, 33), k=6):
        x = torch.randn(rows, 3, dtype=torch.float64)
        torch.testing.assert_close(compiled(x), program(x), rtol=1e-4, atol=1e-5, equal_nan=True, msg=text)


@pytest.mark.parametrize("transform", [thunder.grad, thunder.value_and_grad, thunder.vmap])
def test_transformed_functions_have_one_program_for_many_sizes(transform: Callable[..., Any]) -> None:
    transformed = transform(lambda x: (x**3).sum())
    theirs = {thunder.grad: grad, thunder.vmap: vmap}.get(transform, lambda f: lambda x: grad_and_value(f)(x)[::-1])
    for rows in ROWS:
        x = torch.randn(rows, 3)
        torch.testing.assert_close(transformed(x), theirs(lambda x: (x**3).sum())(x))
    assert thunder.cache_misses(transformed) <= 3


@pytest.mark.parametrize("name", ["hessian_per_example", "tangent_per_example", "laplacian"])
def test_derivatives_per_example_of_many_examples_are_compiled(name: str) -> None:
    compiled = thunder.jit(PROGRAMS[name], fullgraph=True)
    require_equal_to_eager(PROGRAMS[name], compiled, torch.randn(500, 3))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda x: grad(lambda x: x.sum(0))(x) if len(x) > 4 else x, "scalar"),
        (lambda x: grad(lambda x: (x.sum(), 3), has_aux=True)(x) if len(x) > 4 else x, "Expected tensors"),
        (lambda x: grad(lambda x: x.sum(), argnums=1)(x) if len(x) > 4 else x, "argnum"),
        (lambda x: grad(lambda x: x.sum())(x.long()) if len(x) > 4 else x, "floating point"),
        (lambda x: vjp(lambda x: x > 0, x)[0] if len(x) > 4 else x, "floating-point or complex"),
    ],
)
def test_errors_are_those_of_pytorch(program: Callable[[Tensor], Any], message: str) -> None:
    compiled: Any = thunder.jit(program)
    for rows in (3, 4):
        compiled(torch.randn(rows, 3))
    for rows in (5, 6, 7):
        with pytest.raises(Exception, match=message) as theirs:
            program(torch.randn(rows, 3))
        with pytest.raises(type(theirs.value), match=message):
            compiled(torch.randn(rows, 3))
