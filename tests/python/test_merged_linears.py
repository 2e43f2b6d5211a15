"""Linear layers of one input that run as one: results and all gradients beside eager's and those of float64."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import thunder

Tensor = torch.Tensor
REFERENCE = ["reference", "aten"]


class Attention(nn.Module):
    """Attention whose keys and values may have fewer heads than its queries."""

    def __init__(self, width: int = 24, heads: int = 6, groups: int = 6, bias: bool = True, dropout: float = 0.0):
        super().__init__()
        self.size = width // heads
        self.dropout = dropout
        self.query = nn.Linear(width, heads * self.size, bias)
        self.key = nn.Linear(width, groups * self.size, bias)
        self.value = nn.Linear(width, groups * self.size, bias)
        self.out = nn.Linear(heads * self.size, width, bias)
        self.norm = nn.LayerNorm(width)

    def heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.size).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        query, key, value = self.heads(self.query(y)), self.heads(self.key(y)), self.heads(self.value(y))
        mixed = F.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout, enable_gqa=key.shape[1] != query.shape[1]
        )
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Gated(nn.Module):
    """The feed-forward network of Llama."""

    def __init__(self, width: int = 10, inner: int = 35):
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Tied(Attention):
    """Queries and keys share a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.key.weight = self.query.weight


class Reused(nn.Module):
    """Layers that run twice."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(self.attention(x))


MODULES: dict[str, Callable[[], nn.Module]] = {
    "attention": Attention,
    "groups": lambda: Attention(groups=2),
    "without biases": lambda: Attention(bias=False),
    "gated": Gated,
    "tied": Tied,
    "reused": Reused,
}


def step(module: nn.Module, call: Callable[..., Tensor], x: Tensor, autocast: bool) -> list[Tensor | None]:
    """Return the result, and the gradients of the input and of all parameters."""
    x = x.detach().clone().requires_grad_()
    module.zero_grad()
    torch.manual_seed(3)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y = call(x)
    (y.to(x.dtype) * torch.linspace(-1, 1, y.shape[-1], dtype=x.dtype)).sum().backward()
    return [y.detach(), x.grad, *(parameter.grad for parameter in module.parameters())]


def merges(compiled: Callable[..., object]) -> int:
    """Return how many merged layers the last program has."""
    (trace,) = [t for t in thunder.last_traces(compiled) if "merged_linears" in str(t).split("\n")[0]][:1] or [""]
    return str(trace).count("split_with_sizes")


def compare(module: nn.Module, x: Tensor, autocast: bool = False) -> int:
    """Compare a step with eager's; return how many merged layers there are."""
    compiled = thunder.jit(module, executors=REFERENCE, fullgraph=True)
    exact = copy.deepcopy(module).double()
    truth = step(exact, exact, x.double(), autocast=False)
    eager = [None if t is None else t.clone() for t in step(module, module, x, autocast)]
    ours = step(module, compiled, x, autocast)
    for got, reference, right in zip(ours, eager, truth, strict=True):
        if reference is None:
            assert got is None
            continue
        assert (got.shape, got.dtype, got.stride()) == (reference.shape, reference.dtype, reference.stride())
        scale = float(right.abs().max()) + 1e-30
        error = float((got.double() - right).abs().max()) / scale
        limit = float((reference.double() - right).abs().max()) / scale
        assert error <= 2 * limit + 4 * torch.finfo(torch.bfloat16 if autocast else x.dtype).eps
    return merges(compiled)


@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("name", MODULES)
def test_results_and_gradients(name: str, autocast: bool) -> None:
    torch.manual_seed(0)
    module = MODULES[name]()
    found = compare(module, torch.randn(2, 7, 10 if name == "gated" else 24), autocast)
    # Under autocast a weight that two layers read is cast once, for both: where the first one stands, others are not
    # cast yet.
    assert found == {"reused": 1 if autocast else 2, "tied": 0 if autocast else 1}.get(name, 1)


@pytest.mark.parametrize("rows", [(1, 1), (1, 5), (3, 1)], ids=str)
def test_few_rows(rows: tuple[int, int]) -> None:
    assert compare(Attention(groups=3), torch.randn(*rows, 24)) == 1


def test_frozen_weights_are_apart_from_trained_ones() -> None:
    module = Attention()
    module.query.weight.requires_grad_(False)
    assert compare(module, torch.randn(2, 7, 24)) == 1
    module.key.weight.requires_grad_(False)
    module.value.bias.requires_grad_(False)
    assert compare(module, torch.randn(2, 7, 24), autocast=True) == 1
    assert compare(module.requires_grad_(False), torch.randn(2, 7, 24), autocast=True) == 1


def test_hooks_see_the_gradients_of_their_own_weights() -> None:
    module = Attention()
    seen: list[torch.Size] = []
    module.key.weight.register_hook(lambda gradient: seen.append(gradient.shape))
    module.value.bias.register_hook(lambda gradient: gradient * 2)
    assert compare(module, torch.randn(2, 7, 24)) == 1
    assert set(seen) == {torch.Size([24, 24])}


def test_gradients_of_one_matrix_are_changed_one_by_one() -> None:
    module = Gated()
    compiled = thunder.jit(module, executors=REFERENCE)
    x = torch.randn(4, 10)
    module(x).sum().backward()
    expected = {name: p.grad.clone() for name, p in module.named_parameters()}
    module.zero_grad()
    compiled(x).sum().backward()
    module.gate.weight.grad.zero_()
    compiled(x).sum().backward()
    torch.testing.assert_close(module.gate.weight.grad, expected["gate.weight"])
    torch.testing.assert_close(module.up.weight.grad, 2 * expected["up.weight"])


def test_weights_that_get_no_gradient_are_apart() -> None:
    module = Attention()

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        key = (module.key(x) * 2).detach()
        return (module.query(x) * key).sum(), (module.value(x) * 2).sum()

    compiled = thunder.jit(program, executors=REFERENCE)
    for call in (program, compiled):
        module.zero_grad()
        call(torch.randn(3, 24))[0].backward()
        assert module.query.weight.grad is not None
        assert module.key.weight.grad is None
        assert module.value.weight.grad is None


def test_without_gradients() -> None:
    module = Attention(groups=2)
    compiled = thunder.jit(module, executors=REFERENCE)
    x = torch.randn(2, 7, 24)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))
    assert merges(compiled) == 1


def test_a_result_that_is_given_out_lies_by_itself() -> None:
    module = Gated()
    x = torch.randn(4, 10)

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        gate = module.gate(x)
        return gate, gate * module.up(x)

    compiled = thunder.jit(program, executors=REFERENCE)
    for got, expected in zip(compiled(x), program(x), strict=True):
        torch.testing.assert_close(got, expected)
        assert got.stride() == expected.stride()
        assert got.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
    assert merges(compiled) == 0


def test_a_weight_that_is_written_to_between_its_layers() -> None:
    module = Gated()

    def program(x: Tensor, up: Tensor) -> Tensor:
        gate = F.linear(x, module.gate.weight)
        up.mul_(2)
        return gate * F.linear(x, up)

    x, up = torch.randn(4, 10), torch.randn(35, 10)
    compiled = thunder.jit(program, executors=REFERENCE)
    with torch.no_grad():
        expected = program(x, up.clone())
        torch.testing.assert_close(compiled(x, up.clone()), expected)
        torch.testing.assert_close(compiled(x, up.clone()), expected)


def test_the_pass_can_be_left_out() -> None:
    module = Gated()
    compiled = thunder.jit(module, executors=REFERENCE, passes=["dead_code_elimination"])
    x = torch.randn(4, 10)
    torch.testing.assert_close(compiled(x), module(x))
    assert merges(compiled) == 0


def test_only_targets_that_gain_merge() -> None:
    module = Gated()
    compiled = thunder.jit(module)
    compiled(torch.randn(64, 10))
    assert merges(compiled) == 0


class Layer(nn.Module):
    """A layer with the attention of BERT, which drops, or with groups of heads, and a gate as Llama has it."""

    def __init__(self, groups: int, bias: bool) -> None:
        super().__init__()
        self.attention = Attention(256, 4, groups, bias, dropout=0.1 if bias else 0.0)
        self.gated = Gated(256, 512)

    def forward(self, x: Tensor) -> Tensor:
        y = self.attention(x)
        return y + self.gated(y)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=lambda d: str(d)[6:])
@pytest.mark.parametrize(("groups", "bias"), [(4, True), (4, False), (2, False)])
def test_step_on_a_gpu(groups: int, bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = Layer(groups, bias).cuda()
    x = torch.randn(2, 128, 256, device="cuda")

    def step(call: Callable[[Tensor], Tensor], narrow: bool, x: Tensor) -> list[Tensor]:
        x = x.detach().clone().requires_grad_()
        module.zero_grad()
        torch.manual_seed(3)
        with torch.autocast("cuda", dtype, enabled=narrow):
            y = call(x)
        (y.to(x.dtype) * torch.linspace(-1, 1, 256, dtype=x.dtype, device="cuda")).sum().backward()
        return [y.detach().clone(), x.grad, *(p.grad.clone() for p in module.parameters())]

    compiled = thunder.jit(module, fullgraph=True)
    step(compiled, True, x)
    thunder.wait_until_compiled(compiled)
    ours = step(compiled, True, x)
    eager = step(module, True, x)
    assert merges(compiled) == 2
    # Two for each of the merged layers, for the output of attention and for the last layer.
    assert str(thunder.last_backward_traces(compiled)[-1]).count("aten.mm.") == 8
    # The gradient of the keys' bias is zero, but for rounding.
    rounding = 5e-3 * max(float(reference.norm()) for reference in eager[2:])
    for got, reference in zip(ours, eager, strict=True):
        assert (got.shape, got.dtype, got.stride()) == (reference.shape, reference.dtype, reference.stride())
        assert float((got.double() - reference.double()).norm()) <= 3e-2 * float(reference.norm()) + rounding


@pytest.mark.gpu
def test_the_kernel_of_attention_stays_on_a_gpu() -> None:
    module = Attention(256, 4, 4).cuda()
    x = torch.randn(2, 128, 256, device="cuda")
    kernels = []
    for passes in (None, ["dead_code_elimination"]):
        compiled = thunder.jit(module, passes=passes)
        with torch.autocast("cuda", torch.bfloat16):
            compiled(x)
        text = str(thunder.last_traces(compiled)[-1])
        kernels.append([word.split("(")[0] for word in text.split() if "_scaled_dot_product" in word])
    assert kernels[0] == kernels[1]
