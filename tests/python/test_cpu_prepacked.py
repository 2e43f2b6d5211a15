"""`prepack_weights=True`: weights stay in oneDNN's layout until their version moves."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from profiled import operators_of
from test_cpu_matmuls import error_of, needs_onednn

import thunder

PACKING = {"mkldnn::_reorder_linear_weight", "aten::mkldnn_reorder_conv2d_weight"}
CALLS_UNTIL_KEPT = 2
WIDTH = 512  # of weights that are worth it
# oneDNN adds sums of float32 up in one go, MKL in parts.
ERRORS = {torch.float32: 2.5, torch.bfloat16: 1.5}


def needs_onednn_for(dtype: torch.dtype) -> None:
    if dtype == torch.float32:
        needs_onednn()
    elif not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN has no bfloat16 here")


def packs(call: Callable[[], Any]) -> bool:
    return bool(PACKING & operators_of(call))


def linear(dtype: torch.dtype = torch.bfloat16) -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(WIDTH, WIDTH).to(dtype)


def rows(count: int = 4, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(count, WIDTH).to(dtype)


def prepacked(target: Any) -> Any:
    return thunder.jit(target, prepack_weights=True)


PRODUCTS: dict[str, Callable[..., torch.Tensor]] = {
    "linear": lambda x, w, b: F.linear(x, w, b),
    "linear without bias": lambda x, w, b: F.linear(x, w),
    "linear of batches": lambda x, w, b: F.linear(x.unflatten(0, (1, -1)), w, b),
    "linear and gelu": lambda x, w, b: F.gelu(F.linear(x, w, b)),
    "addmm": lambda x, w, b: torch.addmm(b, x, w),
    "mm": lambda x, w, b: torch.mm(x, w),
    "matmul": lambda x, w, b: x.unflatten(0, (1, -1)) @ w,
}


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("count", [1, 3, 16, 70])
@pytest.mark.parametrize("name", PRODUCTS)
def test_results(name: str, count: int, dtype: torch.dtype) -> None:
    needs_onednn_for(dtype)
    torch.manual_seed(0)
    function = PRODUCTS[name]
    inputs = rows(count, dtype), torch.randn(WIDTH, WIDTH + 64).to(dtype), torch.randn(WIDTH + 64).to(dtype)
    if "linear" in name:
        inputs = inputs[0], inputs[1].t().contiguous(), inputs[2]
    compiled = prepacked(function)
    with torch.no_grad():
        expected = function(*inputs)
        exact = function(*(x.double() for x in inputs))
        compiled(*inputs)
        assert packs(lambda: compiled(*inputs))
        assert not packs(lambda: compiled(*inputs))
        for _ in range(2):
            got = compiled(*inputs)
            assert got.dtype == dtype
            assert got.stride() == expected.stride()
            assert error_of(got, exact) <= ERRORS[dtype] * error_of(expected, exact)


def test_a_transposed_weight() -> None:
    needs_onednn_for(torch.bfloat16)
    x, w = rows(), torch.randn(WIDTH, 2 * WIDTH).bfloat16().t()
    compiled = prepacked(F.linear)
    for _ in range(CALLS_UNTIL_KEPT + 1):
        torch.testing.assert_close(compiled(x, w), F.linear(x, w))


def replace(module: torch.nn.Module) -> None:
    module.weight = torch.nn.Parameter(torch.randn_like(module.weight))


def write(module: torch.nn.Module) -> None:
    with torch.no_grad():
        module.weight.mul_(2)


def write_a_view(module: torch.nn.Module) -> None:
    with torch.no_grad():
        module.weight.detach().view(-1)[5] = 10


def set_data(module: torch.nn.Module) -> None:
    module.weight.data = torch.randn_like(module.weight)


def set_storage(module: torch.nn.Module) -> None:
    with torch.no_grad():
        module.weight.set_(torch.randn_like(module.weight))


def load(module: torch.nn.Module) -> None:
    module.load_state_dict({name: torch.randn_like(value) for name, value in module.state_dict().items()})


def assign(module: torch.nn.Module) -> None:
    state = {name: torch.randn_like(value) for name, value in module.state_dict().items()}
    module.load_state_dict(state, assign=True)


def step(module: torch.nn.Module) -> None:
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.SGD(module.parameters(), lr=0.1).step()


def compiled_step(module: torch.nn.Module) -> None:
    step(module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, foreach=True)
    update = thunder.jit(optimizer.step)
    for _ in range(2):
        update()


def convolution() -> torch.nn.Conv2d:
    torch.manual_seed(0)
    return torch.nn.Conv2d(8, 16, 3)


MODULES: dict[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]] = {
    "linear": lambda: (linear(), rows()),
    "convolution": lambda: (convolution(), torch.randn(2, 8, 20, 20).to(memory_format=torch.channels_last)),
}
CHANGES = [
    replace,
    write,
    write_a_view,
    set_data,
    set_storage,
    load,
    assign,
    step,
    compiled_step,
]


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("change", CHANGES)
def test_weights_that_change(change: Callable[[torch.nn.Module], None], name: str) -> None:
    needs_onednn_for(torch.bfloat16)
    module, x = MODULES[name]()
    compiled = prepacked(module)
    with torch.no_grad():
        compiled(x)
        assert packs(lambda: compiled(x))
        before = compiled(x)
    change(module)
    with torch.no_grad():
        for _ in range(CALLS_UNTIL_KEPT + 1):
            got = compiled(x)
            torch.testing.assert_close(got, module(x))
            assert not torch.equal(got, before)


def test_programs_share_what_is_packed() -> None:
    needs_onednn_for(torch.bfloat16)
    module = linear()
    compiled, other = prepacked(module), prepacked(lambda x: F.linear(x, module.weight))
    with torch.no_grad():
        for _ in range(CALLS_UNTIL_KEPT):
            compiled(rows(4))
        for call in (lambda: compiled(rows(7)), lambda: other(rows(4))):
            call()
            assert not packs(call)
        torch.testing.assert_close(compiled(rows(7) * 0 + 1), module(rows(7) * 0 + 1))


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (lambda x, w: F.linear(x, w), True),
        (lambda x, w: F.linear(x, w).relu() + F.linear(x, w).sin(), True),
        (lambda x, w: F.linear(x, w * 2), False),
        (lambda x, w: F.linear(x, w[:128]), False),
        (lambda x, w: F.linear(x.double(), w.double()), False),
        (lambda x, w: torch.mv(w, x[0]), False),
    ],
)
def test_what_is_packed(function: Callable[..., torch.Tensor], kept: bool) -> None:
    needs_onednn_for(torch.bfloat16)
    x, w = rows(), torch.randn(WIDTH, WIDTH).bfloat16()
    compiled = prepacked(function)
    compiled(x, w)
    assert packs(lambda: compiled(x, w)) == kept
    for _ in range(2):
        torch.testing.assert_close(compiled(x, w), function(x, w), atol=0.05, rtol=0.02)


def test_what_is_new_in_each_call_is_not_packed() -> None:
    compiled = prepacked(F.linear)
    for _ in range(CALLS_UNTIL_KEPT + 1):
        w = torch.randn(WIDTH, WIDTH).bfloat16()
        assert not packs(lambda w=w: compiled(rows(), w))
        gc.collect()


def test_nothing_is_packed_without_the_option() -> None:
    module, x = linear(), rows()
    compiled = thunder.jit(module)
    with torch.no_grad():
        for _ in range(CALLS_UNTIL_KEPT + 1):
            assert not packs(lambda: compiled(x))


def test_inference_mode_and_flags() -> None:
    needs_onednn_for(torch.bfloat16)
    module, x = linear(), rows()
    compiled = prepacked(module)
    with torch.inference_mode():
        for _ in range(CALLS_UNTIL_KEPT + 1):
            torch.testing.assert_close(compiled(x), module(x))
        made_inside = torch.randn(WIDTH, WIDTH).bfloat16()
        function = prepacked(F.linear)
        for _ in range(CALLS_UNTIL_KEPT + 1):
            assert not packs(lambda: function(x, made_inside))
        made_inside.mul_(2)
        torch.testing.assert_close(function(x, made_inside), F.linear(x, made_inside))
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):
        torch.testing.assert_close(compiled(x), module(x))


def test_training_between() -> None:
    module, x = linear(torch.float32), rows(dtype=torch.float32)
    compiled = prepacked(module)
    reference = linear(torch.float32)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (module, reference)]
    for _ in range(3):
        with torch.no_grad():
            for _ in range(CALLS_UNTIL_KEPT):
                torch.testing.assert_close(compiled(x), reference(x))
        for m, optimizer in zip((compiled, reference), optimizers, strict=True):
            for _ in range(2):
                m(x).sin().sum().backward()
            optimizer.step()
            optimizer.zero_grad()


def test_many_threads() -> None:
    needs_onednn_for(torch.bfloat16)
    module = linear()
    compiled = prepacked(module)
    inputs = [rows(1 + i % 3) for i in range(64)]
    with torch.no_grad():
        expected = [module(x) for x in inputs]

    def call(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return compiled(x)

    with ThreadPoolExecutor(8) as pool:
        for got, right in zip(pool.map(call, inputs), expected, strict=True):
            torch.testing.assert_close(got, right)
