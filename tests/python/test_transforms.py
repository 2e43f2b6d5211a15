"""Function transforms give what `torch.func`'s give, alone, composed and inside of a jitted function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_eager import assert_same
from small_modules import mlp, resnet, sequence
from torch import func as theirs
from torch import nn

import thunder

TRANSFORMS = ("grad", "value_and_grad", "vjp", "jvp", "vmap", "jacrev", "jacfwd", "hessian")
Program = Callable[[Any], Any]


def x(*shape: int) -> torch.Tensor:
    return torch.randn(shape or (3, 4), generator=torch.Generator().manual_seed(sum(shape)))


def scalar(a: torch.Tensor) -> torch.Tensor:
    return (a.sin() * a).sum()


def pytree(a: dict[str, Any]) -> dict[str, Any]:
    return {"sum": a["left"] + a["right"][0], "rest": [a["left"].cos(), a["right"][0] * 2]}


def tree() -> dict[str, Any]:
    return {"left": x(3, 4), "right": (x(3, 4).exp(),)}


def branches(a: torch.Tensor) -> torch.Tensor:
    return a * 2 if a.shape[0] == 3 else a


def in_place(a: torch.Tensor) -> torch.Tensor:
    b = a * 2
    b[1:] = a[1:].sin()
    b.mul_(3)
    return b


def write_to_detached(a: torch.Tensor) -> torch.Tensor:
    b = a.exp()
    b.detach().copy_(a * 2)
    return b * a


def shared(a: torch.Tensor) -> torch.Tensor:
    return a @ WEIGHT


WEIGHT, INDEX = x(4, 2), torch.tensor([0, 2])

# Each is called with a namespace: `torch.func` or `thunder`.
PROGRAMS: dict[str, Program] = {
    "grad": lambda f: f.grad(scalar)(x()),
    "grad_argnums": lambda f: f.grad(lambda a, b: (a * b.exp()).sum(), argnums=(1, 0))(x(), x()),
    "grad_has_aux": lambda f: f.grad(lambda a: ((a * a).sum(), {"a": a * 2}), has_aux=True)(x()),
    "grad_of_containers": lambda f: f.grad(lambda a: (a["left"] * a["right"][0]).sum())(tree()),
    "grad_keywords": lambda f: f.grad(lambda a, *, scale: (a * scale).sum())(x(), scale=x()),
    "grad_unused": lambda f: f.grad(lambda a, b: (a * 2).sum(), argnums=(0, 1))(x(), x()),
    "grad_constant": lambda f: f.grad(lambda a: torch.zeros(()) + a.detach().sum())(x()),
    "value_and_grad": lambda f: f.grad_and_value(scalar)(x())[::-1] if f is theirs else f.value_and_grad(scalar)(x()),
    "vjp": lambda f: pulled(f.vjp(in_place, x()), x()),
    "vjp_has_aux": lambda f: pulled(f.vjp(lambda a: (a.sin(), a.cos()), x(), has_aux=True), x()),
    "vjp_of_containers": lambda f: pulled(f.vjp(pytree, tree()), pytree(tree())),
    "vjp_twice": lambda f: (lambda pair: (pair[1](x()), pair[1](x(3, 4) * 2)))(f.vjp(torch.tanh, x())),
    "vjp_of_an_identity": lambda f: f.vjp(lambda a: a, x())[1](x(4, 3).t()),
    "vjp_for_another_order_of_memory": lambda f: f.vjp(lambda a: a * 2, x())[1](x(4, 3).t()),
    "vjp_of_a_view_for_another_order": lambda f: f.vjp(lambda a: a.view(4, 3) * 2, x())[1](x().t()),
    "jvp": lambda f: f.jvp(in_place, (x(),), (x(3, 4) * 2,)),
    "jvp_of_a_part_of_memory": lambda f: f.jvp(lambda a: a.as_strided((2, 2), (1, 2), 0), (x(20)[10:],), (x(10),)),
    "jvp_of_memory_after_a_write": lambda f: f.jvp(lambda a: in_place(a).as_strided((2, 3), (1, 3)), (x(),), (x(),)),
    "jvp_of_a_write_without_a_gradient": lambda f: f.jvp(write_to_detached, (x(),), (x(),)),
    "jvp_of_an_embedding_of_limited_norm": lambda f: f.jvp(
        lambda a: nn.functional.embedding(INDEX, a * 2, max_norm=0.5), (x(),), (x(3, 4).exp(),)
    ),
    "jvp_has_aux": lambda f: f.jvp(lambda a: (a.sin(), a), (x(),), (x(),), has_aux=True),
    "jvp_of_containers": lambda f: f.jvp(pytree, (tree(),), (tree(),)),
    "jvp_of_a_constant": lambda f: f.jvp(lambda a: (a * 2, torch.ones(2)), (x(),), (x(),)),
    "jvp_integers": lambda f: f.jvp(lambda a: (a > 0, a.argmax(), a), (x(),), (x(),)),
    "vmap": lambda f: f.vmap(lambda a: a / a.norm())(x()),
    "vmap_in_dims": lambda f: f.vmap(lambda a, b, c: (a * b + c).sum(), in_dims=(0, 1, None))(x(), x(4, 3), x(4)),
    "vmap_negative_dims": lambda f: f.vmap(lambda a: a.cumsum(0), in_dims=-1, out_dims=-1)(x(3, 4, 5)),
    "vmap_out_dims": lambda f: f.vmap(lambda a: (a, a.sum()), out_dims=(1, 0))(x()),
    "vmap_of_containers": lambda f: f.vmap(pytree, in_dims=({"left": 1, "right": (0,)},))(
        {"left": x(4, 3), "right": (x(3, 4),)}
    ),
    "vmap_keywords": lambda f: f.vmap(lambda a, *, b: a + b)(x(), b=x(3, 4)),
    "vmap_same_result_for_all": lambda f: f.vmap(lambda a: torch.ones(2))(x()),
    "vmap_matmul": lambda f: f.vmap(shared)(x()),
    "vmap_nested": lambda f: f.vmap(f.vmap(lambda a, b: a * b, in_dims=(0, None)), in_dims=(None, 0))(x(3), x(4)),
    "vmap_writes": lambda f: f.vmap(in_place)(x(2, 3, 4)),
    "vmap_chunks": lambda f: f.vmap(torch.sin, chunk_size=2)(x(5, 3)),
    "vmap_shape_branch": lambda f: f.vmap(branches)(x(2, 3)),
    "vmap_layer_norm": lambda f: f.vmap(lambda a: nn.functional.layer_norm(a, (4,)))(x(2, 3, 4)),
    "vmap_attention": lambda f: f.vmap(nn.functional.scaled_dot_product_attention)(
        x(2, 3, 4, 5), x(2, 3, 4, 5), x(2, 3, 4, 5)
    ),
    "jacrev": lambda f: f.jacrev(lambda a: a.sin() @ WEIGHT)(x()),
    "jacrev_containers": lambda f: f.jacrev(pytree)(tree()),
    "jacrev_argnums": lambda f: f.jacrev(lambda a, b: (a * b, a.sum()), argnums=(0, 1))(x(), x()),
    "jacrev_chunks": lambda f: f.jacrev(torch.sin, chunk_size=3)(x()),
    "jacrev_has_aux": lambda f: f.jacrev(lambda a: (a.sin(), a), has_aux=True)(x()),
    "jacfwd": lambda f: f.jacfwd(lambda a: a.sin() @ WEIGHT)(x()),
    "jacfwd_containers": lambda f: f.jacfwd(pytree)(tree()),
    "jacfwd_argnums": lambda f: f.jacfwd(lambda a, b: a * b, argnums=(1, 0))(x(), x()),
    "jacfwd_has_aux": lambda f: f.jacfwd(lambda a: (a.sin(), a), has_aux=True)(x()),
    "hessian": lambda f: f.hessian(lambda a: (a**3).sum())(x()),
    "hessian_argnums": lambda f: f.hessian(lambda a, b: (a**2 * b).sum(), argnums=(0, 1))(x(2), x(2)),
    "hessian_of_products": lambda f: f.hessian(lambda a, b: (a.relu() * a @ b.exp()).sum(), argnums=(0, 1))(
        x(2, 3), x(3, 3)
    ),
    "hessian_of_layers": lambda f: f.hessian(lambda a, b, c: (a.relu() * a @ b.sin() @ c).sum(), argnums=(0, 1, 2))(
        x(2, 3), x(3, 3), x(3, 5)
    ),
    "grad_of_grad": lambda f: f.grad(lambda a: f.grad(lambda b: (b**3).sum())(a).sum())(x()),
    "grad_of_vmap": lambda f: f.grad(lambda a: f.vmap(scalar)(a).sum())(x()),
    "vmap_of_grad": lambda f: f.vmap(f.grad(scalar))(x()),
    "vmap_of_grad_with_shared": lambda f: f.vmap(f.grad(lambda w, a: (a @ w).tanh().sum()), in_dims=(None, 0))(
        WEIGHT, x()
    ),
    "grad_of_jvp": lambda f: f.grad(lambda a: f.jvp(torch.sin, (a,), (a,))[1].sum())(x()),
    "jvp_of_grad": lambda f: f.jvp(f.grad(scalar), (x(),), (x(),)),
    "jvp_of_jvp": lambda f: f.jvp(lambda a: f.jvp(torch.sin, (a,), (a * 2,))[1], (x(),), (x(),)),
    "jvp_of_vmap": lambda f: f.jvp(f.vmap(scalar), (x(),), (x(),)),
    "vmap_of_jvp": lambda f: f.vmap(lambda a, t: f.jvp(torch.tanh, (a,), (t,)))(x(), x()),
    "vmap_of_vjp": lambda f: f.vmap(lambda a, t: pulled(f.vjp(torch.tanh, a), t))(x(), x()),
    "vjp_of_vmap": lambda f: pulled(f.vjp(f.vmap(torch.tanh), x()), x()),
    "vmap_of_hessian": lambda f: f.vmap(f.hessian(lambda a: (a**3).sum()))(x()),
    "jacfwd_of_jacfwd": lambda f: f.jacfwd(f.jacfwd(lambda a: (a**3).sum()))(x(3)),
    "grad_three_times": lambda f: f.grad(f.grad(f.grad(lambda a: a**5)))(x(1)[0]),
}


def pulled(result: tuple[Any, ...], cotangents: Any) -> Any:
    output, pull_back, *aux = result
    return output, pull_back(cotangents), aux


@pytest.mark.parametrize("name", PROGRAMS)
def test_transform_equals_torch_func(name: str) -> None:
    expected = PROGRAMS[name](theirs)
    for call in range(2):
        assert_same(PROGRAMS[name](thunder), expected, f"call {call}", rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_thunders_transform_inside_of_a_jitted_function(name: str) -> None:
    got = thunder.jit(lambda: PROGRAMS[name](thunder))()
    assert_same(got, PROGRAMS[name](theirs), "result", rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_torch_func_inside_of_a_jitted_function(name: str) -> None:
    compiled = thunder.jit(lambda: PROGRAMS[name](theirs))
    for call in range(2):
        assert_same(compiled(), PROGRAMS[name](theirs), f"call {call}", rtol=1e-5, atol=1e-6)
    assert thunder.cache_misses(compiled) == 1


# --- randomness


@pytest.mark.parametrize("randomness", ["same", "different"])
@pytest.mark.parametrize("draw", [torch.rand_like, nn.functional.dropout], ids=lambda f: f.__name__)
def test_vmap_draws_as_torch_func(randomness: str, draw: Callable[..., torch.Tensor]) -> None:
    values = torch.rand(3, 5)
    torch.manual_seed(0)
    expected = theirs.vmap(draw, randomness=randomness)(values)
    torch.manual_seed(0)
    torch.testing.assert_close(thunder.vmap(draw, randomness=randomness)(values), expected)


def test_vmap_refuses_randomness_unless_told() -> None:
    with pytest.raises(RuntimeError, match="randomness"):
        thunder.vmap(torch.rand_like)(x())


# --- programs that look at data


def test_vmap_reads_what_is_the_same_for_all_examples() -> None:
    flag = torch.tensor(True)
    doubled = thunder.vmap(lambda a, f: a * 2 if f else a, in_dims=(0, None))
    torch.testing.assert_close(doubled(x(), flag), x() * 2)
    torch.testing.assert_close(doubled(x(), ~flag), x())


@pytest.mark.parametrize("read", [lambda a: a * 2 if a.sum() > 0 else a, lambda a: a[a > 0]], ids=["branch", "mask"])
def test_vmap_refuses_a_look_at_an_example(read: Callable[..., torch.Tensor]) -> None:
    with pytest.raises(RuntimeError, match=r"differs between examples|dynamic shape|vmap"):
        thunder.vmap(read)(x())


def test_grad_and_jvp_follow_branches_on_data() -> None:
    def f(a: torch.Tensor) -> torch.Tensor:
        return (a * 2 if a.sum() > 0 else a.sin()).sum()

    gradient = thunder.grad(f)
    for values in (x().abs(), -x().abs(), x().abs() + 1):
        torch.testing.assert_close(gradient(values), theirs.grad(f)(values))
        assert_same(thunder.jvp(f, (values,), (x(),)), theirs.jvp(f, (values,), (x(),)), "jvp")


def test_jvp_of_a_shape_that_follows_from_data() -> None:
    def f(a: torch.Tensor) -> torch.Tensor:
        return a[a > 0].sin()

    for values in (x(), -x()):
        assert_same(thunder.jvp(f, (values,), (x(),)), theirs.jvp(f, (values,), (x(),)), "jvp")


# --- modules


def test_gradients_of_a_module_by_functional_call() -> None:
    module, a = mlp(), sequence()
    parameters = dict(module.named_parameters())

    def loss(p: dict[str, torch.Tensor]) -> torch.Tensor:
        return theirs.functional_call(module, p, (a,)).square().sum()

    detached = {name: p.detach() for name, p in parameters.items()}
    assert_same(thunder.grad(loss)(detached), theirs.grad(loss)(detached), "gradient", rtol=1e-4, atol=1e-5)


def test_gradients_for_each_example() -> None:
    module = resnet().eval()
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    pictures = torch.randn(2, 3, 8, 8)

    def loss(p: dict[str, torch.Tensor], picture: torch.Tensor) -> torch.Tensor:
        return theirs.functional_call(module, p, (picture[None],)).square().sum()

    def run(f: Any) -> Any:
        return f.vmap(f.grad(loss), in_dims=(None, 0))(parameters, pictures)

    assert_same(run(thunder), run(theirs), "gradients", rtol=1e-3, atol=1e-4)


def test_ensemble_of_modules() -> None:
    modules = [nn.Linear(4, 2) for _ in range(3)]
    parameters, buffers = theirs.stack_module_state(modules)

    def call(p: Any, b: Any, a: torch.Tensor) -> torch.Tensor:
        return theirs.functional_call(modules[0], (p, b), (a,))

    got = thunder.vmap(call, in_dims=(0, 0, None))(parameters, buffers, x(2, 4))
    torch.testing.assert_close(got, torch.stack([module(x(2, 4)) for module in modules]))


def test_results_of_transforms_take_part_in_autograd() -> None:
    a = x().requires_grad_()
    thunder.vmap(torch.sin)(a).sum().backward()
    torch.testing.assert_close(a.grad, a.detach().cos())
    b = x().requires_grad_()
    thunder.grad(lambda v: (v**3).sum())(b).sum().backward()
    torch.testing.assert_close(b.grad, 6 * b.detach())


# --- what a transform came to


@pytest.mark.parametrize(
    "make",
    [
        lambda: thunder.grad(scalar),
        lambda: thunder.vmap(lambda a: a / a.norm()),
        lambda: thunder.jacfwd(torch.sin),
        lambda: thunder.vmap(thunder.grad(scalar)),
    ],
    ids=["grad", "vmap", "jacfwd", "vmap_of_grad"],
)
def test_trace_of_a_transform_runs_as_python(make: Callable[[], Any]) -> None:
    transformed = make()
    expected = transformed(x())
    for trace in thunder.last_traces(transformed):
        values = trace.python_callable()(x())
        # A result that is a view is made of what the trace gives.
        torch.testing.assert_close(values[0].reshape(expected.shape), expected)


def test_trace_of_vmap_has_no_loop_and_no_batched_tensors() -> None:
    batched = thunder.vmap(lambda a, w: a @ w, in_dims=(0, None))
    batched(x(), WEIGHT)
    text = str(thunder.last_traces(batched)[0])
    assert "f32[3, 4]" in text
    assert text.count("torch.ops.aten") <= 4


def test_transformed_function_is_compiled_once() -> None:
    transformed = thunder.vmap(thunder.grad(scalar))
    for _ in range(3):
        transformed(x())
    assert (thunder.cache_misses(transformed), thunder.cache_hits(transformed)) == (1, 2)


# --- errors

LEAKED: list[torch.Tensor] = []

WRONG: dict[str, Program] = {
    "grad_of_a_vector": lambda f: f.grad(torch.sin)(x()),
    "grad_of_no_tensor": lambda f: f.grad(lambda a: 1.0)(x()),
    "grad_of_a_number": lambda f: f.grad(scalar)(1.0),
    "grad_argnums": lambda f: f.grad(scalar, argnums=1)(x()),
    "grad_argnums_twice": lambda f: f.grad(lambda a, b: scalar(a), argnums=(0, 0))(x(), x()),
    "grad_has_aux": lambda f: f.grad(scalar, has_aux=True)(x()),
    "grad_in_place_on_a_captured_tensor": lambda f: f.grad(lambda a: CAPTURED.copy_(a).sum())(x()),
    "grad_requires_grad": lambda f: f.grad(lambda a: a.sin().requires_grad_().sum())(x()),
    "grad_retain_grad": lambda f: f.grad(lambda a: (a * 2).retain_grad() or a.sum())(x()),
    "grad_of_an_error": lambda f: f.grad(lambda a: (a @ a).sum())(x()),
    "vjp_of_integers": lambda f: f.vjp(lambda a: a > 0, x()),
    "vjp_shape": lambda f: f.vjp(torch.sin, x())[1](x(2)),
    "jvp_structure": lambda f: f.jvp(torch.sin, (x(),), (x(), x())),
    "jvp_shape": lambda f: f.jvp(torch.sin, (x(),), (x(2),)),
    "jvp_tuple": lambda f: f.jvp(torch.sin, x(), x()),
    "jvp_strict": lambda f: f.jvp(lambda a: (a, torch.ones(2)), (x(),), (x(),), strict=True),
    "vmap_sizes": lambda f: f.vmap(torch.add)(x(3), x(4)),
    "vmap_dim": lambda f: f.vmap(torch.sin, in_dims=2)(x()),
    "vmap_no_dim": lambda f: f.vmap(torch.sin, in_dims=None)(x()),
    "vmap_structure": lambda f: f.vmap(torch.sin, in_dims=(0, 0))(x()),
    "vmap_number": lambda f: f.vmap(torch.add)(x(), 1),
    "vmap_no_arguments": lambda f: f.vmap(lambda: x())(),
    "vmap_out_dim": lambda f: f.vmap(torch.sin, out_dims=2)(x()),
    "vmap_out_none": lambda f: f.vmap(torch.sin, out_dims=None)(x()),
    "vmap_out_number": lambda f: f.vmap(lambda a: 1.0)(x()),
    "vmap_item": lambda f: f.vmap(lambda a: a.sum().item() * a)(x()),
    "vmap_branch": lambda f: f.vmap(lambda a: a if a.sum() > 0 else -a)(x()),
    "vmap_randomness": lambda f: f.vmap(torch.sin, randomness="no")(x()),
    "vmap_random": lambda f: f.vmap(torch.rand_like)(x()),
    "vmap_chunk_size": lambda f: f.vmap(torch.sin, chunk_size=0),
    "jacrev_complex": lambda f: f.jacrev(torch.sin)(x() + 1j),
    "jacrev_argnums": lambda f: f.jacrev(torch.sin, argnums=())(x()),
    "jacfwd_argnums": lambda f: f.jacfwd(torch.sin, argnums=2)(x()),
}
CAPTURED = x()


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_raises_what_torch_func_raises(name: str) -> None:
    with pytest.raises(Exception) as expected:
        WRONG[name](theirs)
    with pytest.raises(expected.type) as got:
        WRONG[name](thunder)
    assert str(expected.value).rstrip("\n.") in str(got.value)
    assert torch.equal(CAPTURED, x())


def test_vjp_refuses_cotangents_of_another_structure() -> None:
    with pytest.raises(RuntimeError, match="Expected pytree structure of cotangents"):
        thunder.vjp(torch.sin, x())[1]((x(), x()))


# --- functions that reach out of a transform


def test_tensor_that_leaves_vmap_through_a_list_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="left a function under vmap"):
        thunder.jit(theirs.vmap(lambda a: (LEAKED.append(a), a * 2)[1]), fullgraph=True)(x())
    LEAKED.clear()


@pytest.mark.parametrize("module", [thunder, theirs], ids=["thunder", "torch"])
def test_tensor_that_leaves_grad_through_a_list_keeps_its_value(module: Any) -> None:
    kept: list[torch.Tensor] = []
    module.grad(lambda a: (kept.append(a.sin()), scalar(a))[1])(x())
    torch.testing.assert_close(kept[0] * 1, x().sin())
    kept.clear()
    thunder.jit(lambda b: module.grad(lambda a: (kept.append(a.sin()), scalar(a))[1])(b) + kept[0])(x())


def test_function_with_a_gradient_of_its_own_inside_of_grad() -> None:
    def f(a: torch.Tensor) -> torch.Tensor:
        b = a.detach().requires_grad_()
        return (a * torch.autograd.grad((b**3).sum(), b)[0]).sum()

    def g(a: torch.Tensor) -> torch.Tensor:
        return (a * torch.autograd.grad((a**3).sum(), a, create_graph=True)[0]).sum()

    with pytest.raises(RuntimeError, match=r"requires_grad_\(\)"):
        thunder.grad(f)(x())
    torch.testing.assert_close(thunder.grad(g)(x()), theirs.grad(g)(x()))


def test_grad_does_not_follow_no_grad_around_it() -> None:
    with torch.no_grad():
        gradient = thunder.grad(scalar)(x())
    torch.testing.assert_close(gradient, theirs.grad(scalar)(x()))


def test_grad_in_inference_mode_is_refused() -> None:
    with torch.inference_mode():
        if not theirs.grad(scalar)(x()).any():
            pytest.skip("this version of torch.func takes derivatives for zeros in inference mode")
    with torch.inference_mode(), pytest.raises(NotImplementedError, match="inference mode"):
        thunder.jit(lambda a: thunder.grad(scalar)(a), fullgraph=True)(x())


# --- gradients of what lies outside of vmap

OUTSIDE: dict[str, Callable[..., Any]] = {
    "leaf": lambda f, w: f.vmap(lambda v: torch.autograd.grad((w * w.sin()), w, v)[0])(torch.eye(4)),
    "two_leaves": lambda f, w: f.vmap(lambda v: torch.autograd.grad(w @ (w * 2)[:, None], w, v))(x(3, 1)),
    "rule": lambda f, w: f.vmap(lambda v: torch.autograd.grad(w.tanh().cumprod(0), w, v)[0])(torch.eye(4)),
    "unused": lambda f, w: f.vmap(
        lambda v: torch.autograd.grad((w * 2), [w, w.new_ones(1, requires_grad=True)], v, allow_unused=True)[0]
    )(torch.eye(4)),
    "second": lambda f, w: f.vmap(
        lambda v: torch.autograd.grad(
            torch.autograd.grad((w**3).sum(), w, create_graph=True)[0], w, v, create_graph=True
        )[0]
    )(torch.eye(4)),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_gradient_of_an_outside_leaf_under_vmap(name: str) -> None:
    w = x(4).requires_grad_()
    expected = OUTSIDE[name](theirs, w)
    assert_same(thunder.jit(lambda w: OUTSIDE[name](theirs, w))(w), expected, "inside", rtol=1e-5, atol=1e-6)
    assert_same(OUTSIDE[name](thunder, w), expected, "around", rtol=1e-5, atol=1e-6)


BATCHED: dict[str, Callable[[torch.Tensor], Any]] = {
    "is_grads_batched": lambda a: torch.autograd.grad(a.sin() * a, a, torch.eye(4), is_grads_batched=True),
    "unused": lambda a: torch.autograd.grad(
        [a.sin()], [a, torch.ones(2, requires_grad=True)], [torch.eye(4)], is_grads_batched=True, allow_unused=True
    ),
    "jacobian": lambda a: torch.autograd.functional.jacobian(torch.sin, a, vectorize=True),
    "jacobian_of_two": lambda a: torch.autograd.functional.jacobian(
        lambda a, b: (a * b, a.sum()), (a, a), vectorize=True
    ),
    "hessian": lambda a: torch.autograd.functional.hessian(lambda a: (a**3).sum(), a, vectorize=True),
}


@pytest.mark.parametrize("name", BATCHED)
def test_batched_gradients_inside_of_a_jitted_function(name: str) -> None:
    a = x(4).requires_grad_()
    compiled = thunder.jit(BATCHED[name], fullgraph=True)
    for _ in range(2):
        assert_same(compiled(a), BATCHED[name](a), name, rtol=1e-5, atol=1e-6)


AROUND: dict[str, Callable[[Callable[..., Any], torch.Tensor], Any]] = {
    "is_grads_batched": lambda g, a: torch.autograd.grad(g(a), a, torch.eye(4), is_grads_batched=True),
    "jacobian": lambda g, a: torch.autograd.functional.jacobian(g, a, vectorize=True),
    "vmap": lambda g, a: (lambda out: theirs.vmap(lambda v: torch.autograd.grad(out, a, v)[0])(torch.eye(4)))(g(a)),
    "vmap_of_vmap": lambda g, a: (
        lambda out: theirs.vmap(
            theirs.vmap(lambda v, w: torch.autograd.grad(out, a, v * w, retain_graph=True)[0], in_dims=(0, None)),
            in_dims=(None, 0),
        )(x(2, 4), x(3, 4))
    )(g(a)),
    "kept_graph": lambda g, a: (
        lambda out: [torch.autograd.grad(out, a, x(2, 4), is_grads_batched=True, retain_graph=k) for k in (True, False)]
    )(g(a)),
}


@pytest.mark.parametrize("name", AROUND)
def test_batched_gradients_of_what_a_jitted_function_returned(name: str) -> None:
    def g(a: torch.Tensor) -> torch.Tensor:
        return a.sin() * a.sum()

    a = x(4).requires_grad_()
    assert_same(AROUND[name](thunder.jit(g), a), AROUND[name](g, a), name, rtol=1e-5, atol=1e-6)


def test_vmap_of_an_operator_without_a_batching_rule_is_a_loop_up_to_a_size() -> None:
    def f(a: torch.Tensor) -> torch.Tensor:
        return torch.histc(a, 4, -1, 1)

    assert_same(thunder.vmap(f)(x(20, 5)), theirs.vmap(f)(x(20, 5)), "loop")
    with pytest.raises(NotImplementedError, match="histc has no batching rule"):
        thunder.jit(theirs.vmap(f), fullgraph=True)(x(1000, 5))


@pytest.mark.parametrize("strategy", ["make_dual", "jacobian"])
def test_forward_mode_of_autograd_inside_is_refused(strategy: str) -> None:
    def dual(a: torch.Tensor) -> Any:
        if strategy == "jacobian":
            return torch.autograd.functional.jacobian(torch.sin, a, vectorize=True, strategy="forward-mode")
        with torch.autograd.forward_ad.dual_level():
            tangent = torch.autograd.forward_ad.make_dual(a, a)
            return torch.autograd.forward_ad.unpack_dual(tangent.sin()).tangent

    with pytest.raises((NotImplementedError, RuntimeError), match=r"forward_ad|_make_dual"):
        thunder.jit(dual, fullgraph=True)(x(4))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transform_has_a_documentation(name: str) -> None:
    assert getattr(thunder, name).__doc__
    assert getattr(thunder, name) is getattr(thunder.transforms, name)


def test_a_view_of_an_input_is_overwritten_by_a_comparison() -> None:
    """Two histories that the trace takes over, of the view and of the input, one while the other is walked."""

    def function(x: torch.Tensor) -> torch.Tensor:
        v = x.movedim(0, -2)
        v.gt_(x)
        return v

    x = torch.ones(1, 1)
    out, pull_back = thunder.vjp(function, x)
    assert (out.item(), pull_back(torch.ones(1, 1))[0].item(), x.item()) == (0, 0, 0)
