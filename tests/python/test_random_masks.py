"""Random masks are drawn again in the backward, from the generator's state: numbers as in eager, in less memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import thunder

STATE = torch.get_rng_state().numel()  # bytes
COUNT = 2 * 16 * 32 * 32  # elements of what programs take
OURS = torch.Generator()

Program = Callable[[torch.Tensor], torch.Tensor]


def make_input(*, layout: torch.memory_format = torch.contiguous_format, dtype: Any = torch.float32) -> torch.Tensor:
    return torch.randn(2, 16, 32, 32, dtype=dtype).contiguous(memory_format=layout).requires_grad_()


def inputs_of_backward(compiled: Any) -> str:
    """Return the lines of the printed backward that say what it takes: cotangents, and what is saved for it."""
    text = str(thunder.last_backward_traces(compiled)[-1])
    return "\n".join(line for line in text.splitlines() if line.startswith("  # "))


def run(f: Program, x: torch.Tensor, seed: int = 3) -> list[torch.Tensor]:
    """Return result, gradient, the next random number, after the forward and after the backward."""
    torch.manual_seed(seed)
    OURS.manual_seed(seed)
    result = f(x)
    after = torch.get_rng_state()
    (gradient,) = torch.autograd.grad(result, x, torch.linspace(0, 1, result.numel(), dtype=x.dtype).view_as(result))
    return [result.detach(), gradient, after, torch.get_rng_state(), OURS.get_state()]


def attention(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x, x, dropout_p=0.3)


def own_mask(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * torch.bernoulli(torch.ones_like(x.detach()), 0.3)


def mask_of_given_generator(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * torch.empty_like(x).bernoulli_(0.3, generator=OURS)


def mask_of_own_generator(x: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator()
    generator.manual_seed(5)
    return x.sin() * torch.empty_like(x).bernoulli_(0.3, generator=generator)


def two_masks(x: torch.Tensor) -> torch.Tensor:
    y = F.dropout(x.exp(), 0.2)
    return F.dropout(y + torch.randn_like(y), 0.7) * torch.rand_like(y)


def native_dropout(x: torch.Tensor) -> torch.Tensor:
    return torch.native_dropout(x.sin(), 0.3, True)[0]


def read_mask(x: torch.Tensor) -> torch.Tensor:
    y, mask = torch.native_dropout(x.sin(), 0.3, None)
    return torch.where(mask, y, x.exp())


def two_native_dropouts(x: torch.Tensor) -> torch.Tensor:
    y = torch.native_dropout(x.exp(), 0.2, True)[0]
    return torch.native_dropout(y + torch.randn_like(y), 0.7, True)[0] * torch.rand_like(y)


def checkpointed_native_dropout(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda t: native_dropout(t).exp(), x, use_reentrant=False) * 2


def checkpointed(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda t: F.dropout(t.sin(), 0.4).exp(), x, use_reentrant=False) * 2


PROGRAMS: dict[str, Program] = {
    "dropout": lambda x: F.dropout(x.sin(), 0.1),
    "dropout of almost nothing": lambda x: F.dropout(x, 1e-7),
    "dropout of almost all": lambda x: F.dropout(x, 1 - 1e-7),
    "channel dropout": lambda x: F.dropout2d(x, 0.5),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.5, training=True),
    "attention": attention,
    "own mask": own_mask,
    "mask of a given generator": mask_of_given_generator,
    "mask of an own generator": mask_of_own_generator,
    "two masks": two_masks,
    "checkpointed": checkpointed,
    "native dropout": native_dropout,
    "native dropout whose mask is read": read_mask,
    "two native dropouts": two_native_dropouts,
    "checkpointed native dropout": checkpointed_native_dropout,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_gradients_and_generators_are_eagers(name: str, dtype: torch.dtype) -> None:
    program, x = PROGRAMS[name], make_input(dtype=dtype)
    compiled = thunder.jit(program)
    for _ in range(2):
        got, expected = run(compiled, x), run(program, x)
        tolerance = 6e-2 if dtype == torch.bfloat16 else 1e-5
        for ours, theirs in zip(got, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format], ids=str)
def test_masks_lie_in_memory_as_eagers_do(layout: torch.memory_format) -> None:
    x = make_input(layout=layout)
    for ours, theirs in zip(run(thunder.jit(PROGRAMS["dropout"]), x), run(PROGRAMS["dropout"], x), strict=True):
        torch.testing.assert_close(ours, theirs)
        assert ours.stride() == theirs.stride()


LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "channels last": lambda: make_input(layout=torch.channels_last),
    "transposed": lambda: torch.randn(150, 200).t(),
    "in the middle of other memory": lambda: torch.randn(30_001)[1:].view(150, 200),
    "with gaps": lambda: torch.randn(150, 400)[:, ::2],
    "expanded": lambda: torch.randn(150, 1).expand(150, 200),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_native_dropout_of_any_memory_is_eagers(name: str) -> None:
    x = LAYOUTS[name]().detach().requires_grad_()
    compiled = thunder.jit(native_dropout)
    for ours, theirs in zip(run(compiled, x), run(native_dropout, x), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert "_from_state" in str(thunder.last_backward_traces(compiled)[-1])


@pytest.mark.parametrize(("p", "train"), [(0.0, True), (0.3, False), (0.3, None), (1.0, True)])
@pytest.mark.parametrize("rows", [0, 200])
def test_a_native_dropout_of_any_kind_is_eagers(rows: int, p: float, train: bool | None) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.native_dropout(x, p, train)[0]

    x = torch.randn(rows, 100, requires_grad=True)
    for ours, theirs in zip(run(thunder.jit(program), x), run(program, x), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_mask_that_is_returned_is_eagers() -> None:
    x = make_input()
    results = []
    for f in (thunder.jit(lambda x: torch.native_dropout(x, 0.5, True)), lambda x: torch.native_dropout(x, 0.5, True)):
        torch.manual_seed(1)
        y, mask = f(x)
        results.append((y.detach(), mask, torch.autograd.grad(y, x, torch.ones_like(y)), torch.get_rng_state()))
    torch.testing.assert_close(*results, rtol=0, atol=0)


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - {"channel dropout"}))
def test_the_backward_draws_again(name: str) -> None:
    compiled = thunder.jit(PROGRAMS[name])
    run(compiled, make_input())
    backward = str(thunder.last_backward_traces(compiled)[-1])
    assert backward.count("_from_state.default(") == (2 if name.startswith("two") else 1)
    assert "b8[2, 16, 32, 32]" not in inputs_of_backward(compiled)
    assert f"ui8[{STATE}]" in inputs_of_backward(compiled)


@pytest.mark.parametrize(
    ("program", "operator"),
    [(lambda x: F.dropout(x, 0.5), "bernoulli_.float"), (native_dropout, "aten.native_dropout.default")],
    ids=["dropout", "native dropout"],
)
@pytest.mark.parametrize(
    ("count", "options"), [(STATE // 2, {}), (COUNT, {"rematerialize": False}), (COUNT, {"passes": []})]
)
def test_a_mask_is_saved_where_it_is_small_or_nothing_is_recomputed(
    program: Program, operator: str, count: int, options: dict[str, Any]
) -> None:
    compiled = thunder.jit(program, **options)
    x = torch.randn(count, requires_grad=True)
    compiled(x).sum().backward()
    forward = str(thunder.last_traces(compiled)[-1])
    assert operator in forward
    assert "state" not in forward


def test_a_retained_graph_draws_the_same_again() -> None:
    x = make_input()
    y = thunder.jit(PROGRAMS["dropout"])(x).sum()
    first = torch.autograd.grad(y, x, retain_graph=True)
    torch.rand(3)
    torch.testing.assert_close(first, torch.autograd.grad(y, x), rtol=0, atol=0)


def test_threads_that_draw_at_once_get_the_masks_of_their_forwards() -> None:
    compiled = thunder.jit(lambda x: F.dropout(x, 0.5))
    compiled(torch.ones(COUNT, requires_grad=True)).sum().backward()
    differ: list[int] = []

    def work() -> None:
        for i in range(20):
            x = torch.ones(COUNT, requires_grad=True)
            y = compiled(x)
            y.backward(torch.ones(COUNT))
            if not torch.equal(y.detach(), x.grad):
                differ.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not differ


@pytest.mark.parametrize(
    "program",
    [lambda x: F.dropout(x, 0.5), lambda x: torch.native_dropout(x, 0.5, True)[0]],
    ids=["dropout", "native dropout"],
)
def test_printed_traces_draw_what_the_program_draws(program: Program) -> None:
    compiled = thunder.jit(program)
    x = torch.randn(COUNT, requires_grad=True)
    torch.manual_seed(0)
    expected = compiled(x)
    (gradient,) = torch.autograd.grad(expected, x, torch.ones(COUNT))
    torch.manual_seed(0)
    result, *saved = thunder.last_traces(compiled)[-1].python_callable()(x)
    torch.testing.assert_close(result, expected.detach(), rtol=0, atol=0)
    (again,) = thunder.last_backward_traces(compiled)[-1].python_callable()(*saved, torch.ones(COUNT))
    torch.testing.assert_close(again, gradient, rtol=0, atol=0)


@pytest.mark.parametrize("p", [0.0, 1e-12, 0.5, 1 - 1e-12, 1.0])
@pytest.mark.parametrize("count", [0, 1, 311, 312, 313, 100_000])
@pytest.mark.parametrize("drawn", [0, 1, 623])
def test_blocks_of_numbers_are_what_bernoulli_draws(p: float, count: int, drawn: int) -> None:
    ours = torch.Generator().manual_seed(7)
    torch.randint(10, (drawn,), generator=ours)
    state = ours.get_state()
    theirs = torch.Generator()
    theirs.set_state(state)
    mask, kept = torch.ops.thunder.bernoulli_with_state([count], [1], torch.bool, torch.device("cpu"), p, ours)
    assert torch.equal(mask, torch.empty(count, dtype=torch.bool).bernoulli_(p, generator=theirs))
    assert torch.equal(kept, state)
    assert torch.equal(ours.get_state(), theirs.get_state())
    again = torch.ops.thunder.bernoulli_from_state(kept, [count], [1], torch.float16, torch.device("cpu"), p)
    assert torch.equal(again, mask.half())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("p", [1e-12, 0.3, 1 - 1e-12])
def test_native_dropout_with_state_is_eagers(p: float, dtype: torch.dtype) -> None:
    x = torch.randn(70, 30, dtype=dtype).t()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    expected = torch.native_dropout(x, p, True)
    after = torch.get_rng_state()
    torch.manual_seed(5)
    *results, kept = torch.ops.thunder.native_dropout_with_state(x, p)
    torch.testing.assert_close(tuple(results), expected, rtol=0, atol=0, equal_nan=True)
    assert [result.stride() for result in results] == [result.stride() for result in expected]
    assert torch.equal(kept, state)
    assert torch.equal(torch.get_rng_state(), after)
    mask = torch.ops.thunder.native_dropout_mask_from_state(kept, x.shape, x.stride(), dtype, x.device, p)
    assert torch.equal(mask, expected[1])
    assert mask.stride() == x.stride()
    assert torch.equal(torch.get_rng_state(), after)


# --- CUDA: F.dropout is native_dropout there


CUDA_LAYOUTS: dict[str, Callable[[torch.dtype], torch.Tensor]] = {
    "even": lambda dtype: torch.randn(64, 1000, device="cuda", dtype=dtype),
    "odd": lambda dtype: torch.randn(63, 999, device="cuda", dtype=dtype),
    "twice an odd number": lambda dtype: torch.randn(2, 31, 333, device="cuda", dtype=dtype),
    "transposed": lambda dtype: torch.randn(1000, 64, device="cuda", dtype=dtype).t(),
    "transposed, odd": lambda dtype: torch.randn(999, 63, device="cuda", dtype=dtype).t(),
    "not aligned": lambda dtype: torch.randn(64 * 1000 + 1, device="cuda", dtype=dtype)[1:].view(64, 1000),
    "aligned by half": lambda dtype: torch.randn(64 * 1000 + 8, device="cuda", dtype=dtype)[2:-6].view(64, 1000),
    "large": lambda dtype: torch.randn(3000, 1001, device="cuda", dtype=dtype),
}


def run_on_cuda(module: torch.nn.Module, f: Any, x: torch.Tensor) -> list[Any]:
    """Return result, gradients, the generator's state after the forward and after the backward."""
    torch.manual_seed(3)
    result = f(x)
    after = torch.cuda.get_rng_state()
    gradients = torch.autograd.grad(result, [x, *module.parameters()], torch.ones_like(result))
    return [result.detach(), *gradients, after, torch.cuda.get_rng_state()]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", CUDA_LAYOUTS)
def test_dropout_on_cuda_is_drawn_again(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = CUDA_LAYOUTS[name](dtype).detach().requires_grad_()
    width = x.shape[-1]
    module = torch.nn.Sequential(
        torch.nn.Dropout(0.2),
        torch.nn.Linear(width, 128),
        torch.nn.GELU(),
        torch.nn.Dropout(0.4),
        torch.nn.Linear(128, width),
        torch.nn.Dropout(0.5),
    ).to("cuda", dtype)
    compiled = thunder.jit(module)
    tolerance = 1e-4 if dtype in (torch.float32, torch.float64) else 4e-2
    for _ in range(2):
        got, expected = run_on_cuda(module, compiled, x), run_on_cuda(module, module, x)
        for ours, theirs in zip(got[:2], expected[:2], strict=True):  # the first and last masks
            assert ((ours == 0) != (theirs == 0)).double().mean() < 1e-3
        for ours, theirs in zip(got, expected, strict=True):
            # A gradient of weights adds thousands of rounded numbers, and is rounded at their size.
            size = max(1.0, theirs.double().abs().mean().item())
            torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * size)
    # PyTorch's kernel goes over a transposed input of the caller in an order that is not known.
    by_pytorch = 3 if dtype == torch.float64 else int(not x.is_contiguous())
    backward = str(thunder.last_backward_traces(compiled)[-1])
    assert backward.count("native_dropout_mask_from_state") == by_pytorch
    assert backward.count("thunder.dropout_mask") == 3 - by_pytorch
    assert inputs_of_backward(compiled).count('"cpu ui8[16]"') == by_pytorch
    assert inputs_of_backward(compiled).count("i64[4]") == 3 - by_pytorch
    assert " b8[" not in inputs_of_backward(compiled)


@pytest.mark.gpu
@pytest.mark.parametrize("program", [F.dropout, F.alpha_dropout], ids=["dropout", "alpha dropout"])
def test_each_replay_of_a_captured_graph_has_one_mask(program: Any) -> None:
    def step(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = compiled(x)
        (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
        return y.detach(), gradient

    compiled = thunder.jit(lambda x: program(x, 0.5, training=True))
    x = torch.full((300, 100), 2.0, device="cuda", requires_grad=True)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, gradient = step(x)
    drawn = []
    for _ in range(2):
        graph.replay()
        assert torch.equal(y == y.min(), gradient == 0)
        drawn.append(y.clone())
    assert not torch.equal(*drawn)
