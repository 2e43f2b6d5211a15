"""Arrays of NumPy over tensors that a function computes, which it returns without looking into them."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import thunder

compiled_only = pytest.mark.filterwarnings("error::thunder.EagerFallbackWarning")
# Where an array is looked into and returned, too, the call runs in eager.
may_run_in_eager = pytest.mark.filterwarnings("ignore::thunder.EagerFallbackWarning")


@dataclasses.dataclass
class Step:
    """Holds an action and its value."""

    action: Any
    value: Any


def act(x: Tensor) -> tuple[Any, Tensor]:
    with torch.no_grad():
        policy = torch.distributions.Categorical(logits=x)
        action = policy.sample()
        return action.cpu().numpy(), policy.log_prob(action)


def written_later(x: Tensor) -> Any:
    y = x.sin()
    array = y.numpy()
    y.add_(1)
    return array


def of_two(x: Tensor) -> tuple[Any, ...]:
    y = x.sin()
    array = y.numpy()
    return array, array, y.numpy(), y, y[0], y.view(-1).numpy()


RETURNED: dict[str, Callable[[Tensor], Any]] = {
    "numpy": lambda x: x.sin().numpy(),
    "cpu": lambda x: x.argmax(-1).cpu().numpy(),
    "detached": lambda x: (x * 2).detach().cpu().numpy(),
    "beside its tensor": lambda x: (lambda y: (y.numpy(), y))(x.sin()),
    "beside what is computed of it": lambda x: (lambda y: (y.numpy(), y * 2))(x.sin()),
    "asarray": lambda x: np.asarray(x.sin()),
    "copy": lambda x: x.sin().numpy().copy(),
    "copy of a view": lambda x: x.sin().t().numpy().copy(),
    "tolist": lambda x: x.argmax(-1).numpy().tolist(),
    "item": lambda x: x.sum().numpy().item(),
    "one element": lambda x: x.sum().numpy(),
    "view": lambda x: x.sin().t()[1:].numpy(),
    "an input": lambda x: x.numpy(),
    "view of an input": lambda x: x[:, 1].numpy(),
    "in containers": lambda x: {"a": [x.sin().numpy(), (x.cos().numpy(), 1)]},
    "in an object": lambda x: Step(x.argmax(-1).numpy(), x.sum(-1)).__dict__,
    "bool": lambda x: (x > 0).numpy(),
    "double": lambda x: x.double().numpy(),
    "half": lambda x: x.half().numpy(),
    "complex": lambda x: torch.complex(x, x).numpy(),
    "empty": lambda x: x[:0].sin().numpy(),
    "written later": written_later,
    "several of one tensor": of_two,
}

LOOKS: dict[str, Callable[[Any], Any]] = {
    "item": lambda a: a[0, 0],
    "slice": lambda a: a[:1],
    "sum": lambda a: a + 1,
    "reversed sum": lambda a: 1 + a,
    "negative": lambda a: -a,
    "comparison": lambda a: a > 0,
    "in place": lambda a: (b := a.copy(), b.__iadd__(1))[1],
    "attribute": lambda a: a.T.copy(),
    "shape": lambda a: a.shape,
    "size": lambda a: a.size,
    "dtype": lambda a: str(a.dtype),
    "length": len,
    "iteration": lambda a: [row.sum() for row in a],
    "unpacking": lambda a: (lambda first, *rest: first.copy())(*a),
    "list": list,
    "truth": lambda a: bool(a.any()),
    "method": lambda a: a.sum(),
    "function": np.exp,
    "in a list": lambda a: np.stack([a, a]),
    "torch": lambda a: torch.from_numpy(a) * 2,
    "tensor": lambda a: torch.tensor(a) * 2,
    "text": lambda a: f"{a}",
    "repr": repr,
    "percent": lambda a: "%s" % a,  # noqa: UP031
    "format": lambda a: "{}".format(a.tolist()),  # noqa: UP032
    "contains": lambda a: 0.5 in a,
    "bytes": lambda a: a.tobytes(),
    "memory": lambda a: bytes(memoryview(a)),
    "sorted": lambda a: sorted(a[0]),
    "max": lambda a: max(a[0]),
    "item assignment": lambda a: (lambda b: (b.__setitem__(0, a), b)[1])(np.zeros((2, 3, 4), np.float32)),
    "slice assignment": lambda a: assigned(a),
    "attribute by name": lambda a: getattr(a, "flat")[0],  # noqa: B009
    "equal containers": lambda a: [a.tolist()] == [a.tolist()],
    "called from C": lambda a: list(map(np.sum, [a])),
    "returned to C": lambda a: np.array(Holder(a)),
    "float": lambda a: float(a[0][0]),
    "match": lambda a: matched(a),
}


class Holder:
    """Hands an array to code in C."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


def assigned(a: Any) -> Any:
    b = np.zeros(a.shape, np.float32)
    b[:] = a
    return b


def matched(a: Any) -> Any:
    match a:
        case np.ndarray(size=12):
            return a.copy()
    return None


def plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return ("tensor", value.detach().clone().numpy().tolist(), value.dtype)
    if isinstance(value, np.ndarray):
        return ("array", value.tolist(), value.dtype, value.shape, value.strides)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return value


def require_alike(expected: Any, given: Any) -> None:
    """Compare numbers up to rounding, and all else exactly."""
    if isinstance(expected, (list, tuple)):
        assert type(expected) is type(given)
        for first, second in zip(expected, given, strict=True):
            require_alike(first, second)
    elif isinstance(expected, dict):
        require_alike(list(expected.items()), list(given.items()))
    elif isinstance(expected, float):
        assert given == pytest.approx(expected, rel=1e-6, abs=1e-7)
    else:
        assert expected == given


@compiled_only
@pytest.mark.parametrize("name", RETURNED)
def test_an_array_that_is_returned_has_one_program(name: str) -> None:
    function = RETURNED[name]
    compiled = thunder.jit(function)
    for step in range(4):
        x = torch.linspace(-1 - step, 2, 12).reshape(3, 4).exp2_().sub_(step)
        require_alike(plain(function(x.clone())), plain(compiled(x.clone())))
    assert thunder.compile_stats(compiled)["specializations"] == 1


@compiled_only
def test_actions_of_a_policy() -> None:
    compiled = thunder.jit(act)
    for step in range(5):
        x = torch.randn(6, 3)
        torch.manual_seed(step)
        action, log_prob = act(x)
        torch.manual_seed(step)
        compiled_action, compiled_log_prob = compiled(x)
        assert (action == compiled_action).all()
        torch.testing.assert_close(log_prob, compiled_log_prob)
    assert thunder.compile_stats(compiled)["specializations"] == 1


@compiled_only
def test_batches_of_other_sizes_have_one_program() -> None:
    compiled = thunder.jit(lambda x: (x.argmax(-1).numpy(), x * 2))
    for size in (2, 5, 3, 7, 11):
        x = torch.randn(size, 4)
        assert (compiled(x)[0] == x.argmax(-1).numpy()).all()
    assert thunder.compile_stats(compiled)["specializations"] <= 2


@may_run_in_eager
@pytest.mark.parametrize("name", LOOKS)
def test_an_array_that_is_looked_into(name: str) -> None:
    look = LOOKS[name]

    def program(x: Tensor) -> tuple[Any, Tensor]:
        return look((x * 2).numpy()), x + 1

    compiled = thunder.jit(program)
    for step in range(3):
        x = torch.linspace(-1, 2 + step, 12).reshape(3, 4)
        assert str(plain(compiled(x))) == str(plain(program(x)))


@may_run_in_eager
def test_a_branch_on_an_array() -> None:
    def program(x: Tensor) -> Any:
        array = x.sin().numpy()
        return (array, x * 2) if array[0] > 0 else x * 3

    compiled = thunder.jit(program)
    for sign in (1.0, -1.0):
        x = torch.full((3,), sign)
        assert str(plain(compiled(x))) == str(plain(program(x)))


@compiled_only
def test_the_memory_is_that_of_the_tensor() -> None:
    compiled = thunder.jit(lambda x: (lambda y: (y.numpy(), y))(x.sin()))
    for _ in range(2):
        array, tensor = compiled(torch.ones(3))
        array[0] = 7.0
        assert tensor[0].item() == 7.0


@compiled_only
def test_two_calls_give_two_arrays() -> None:
    compiled = thunder.jit(lambda x: x.sin().numpy())
    first = compiled(torch.ones(3))
    second = compiled(torch.zeros(3))
    assert first.tolist() != second.tolist()
    assert first.base is not second.base


@compiled_only
def test_an_array_that_is_stored() -> None:
    kept: dict[str, Any] = {}

    def program(x: Tensor) -> Tensor:
        kept["last"] = x.sin().numpy()
        return x + 1

    compiled = thunder.jit(program)
    for value in (1.0, 2.0, 3.0):
        x = torch.full((2,), value)
        compiled(x)
        assert kept["last"].tolist() == x.sin().tolist()
    assert thunder.compile_stats(compiled)["specializations"] == 1


@may_run_in_eager
def test_what_is_printed_and_logged(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    def program(x: Tensor) -> Tensor:
        print((x * 2).numpy())
        return x + 1

    compiled = thunder.jit(program)
    for value in (1.0, 2.0):
        compiled(torch.full((2,), value))
        assert capsys.readouterr().out == f"{np.full(2, 2 * value, np.float32)}\n"

    def logged(x: Tensor) -> Tensor:
        logging.getLogger("thunder.test").warning("%s", (x * 2).numpy())
        return x + 1

    compiled = thunder.jit(logged, sharp_edges="allow")
    compiled(torch.ones(2))
    assert [record.getMessage() for record in caplog.records] == ["[2. 2.]"]


def test_a_tensor_that_requires_grad_raises() -> None:
    compiled = thunder.jit(lambda x: (x * 2).numpy())
    with pytest.raises(RuntimeError, match="detach"):
        compiled(torch.ones(2, requires_grad=True))


@compiled_only
def test_gradients_beside_an_array() -> None:
    def program(x: Tensor) -> tuple[Any, Tensor]:
        y = x.sin()
        return y.detach().numpy(), (y * 2).sum()

    compiled = thunder.jit(program)
    for value in (1.0, 2.0):
        x = torch.full((3,), value, requires_grad=True)
        array, total = compiled(x)
        total.backward()
        torch.testing.assert_close(torch.from_numpy(array), x.detach().sin())
        torch.testing.assert_close(x.grad, 2 * x.detach().cos())
    assert thunder.compile_stats(compiled)["specializations"] == 1
