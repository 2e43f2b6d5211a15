"""The work of a training step, counted in the traces of a model on the meta device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

import thunder

LIBRARY = "scaling_model"


@torch.library.custom_op(f"{LIBRARY}::attention", mutates_args=())
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Stand for causal attention, which PyTorch decomposes on the meta device."""
    return torch.empty_like(q)


@torch.library.custom_op(f"{LIBRARY}::attention_backward", mutates_args=())
def attention_backward(
    gradient: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, result: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Stand for the derivative of causal attention."""
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


attention.register_fake(lambda q, k, v: torch.empty_like(q))
attention_backward.register_fake(
    lambda gradient, q, k, v, result: (torch.empty_like(q), torch.empty_like(k), torch.empty_like(v))
)
attention.register_autograd(
    lambda ctx, gradient: attention_backward(gradient, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs, output),
)


@dataclass(frozen=True)
class Work:
    """The work of a trace: operations of each matmul, of attention, bytes that fused operations read and write."""

    matmuls: tuple[float, ...]
    attention: float
    traffic: float


@dataclass(frozen=True)
class StepWork:
    """The work of a training step, the bytes it saves for the backward beside parameters, its number of parameters."""

    forward: Work
    backward: Work
    saved: float
    parameters: int


def step_work(name: str, layers: int, batch: int, length: int) -> StepWork:
    """Count what a step of LitGPT's model `name` does, with so many layers and tokens, parameters in bfloat16."""
    from litgpt import GPT, Config

    with torch.device("meta"):
        model = GPT(Config.from_name(name, n_layer=layers, block_size=length)).bfloat16()
        tokens = torch.zeros(batch, length, dtype=torch.long)
    for layer in model.transformer.h:
        layer.attn.scaled_dot_product_attention = lambda q, k, v, mask=None: attention(q, k, v).transpose(1, 2)

    def loss(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    step = thunder.jit(loss)
    step(model, tokens)
    forward, backward = (TraceWork(traces(step)[-1]) for traces in (thunder.last_traces, thunder.last_backward_traces))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return StepWork(forward.work(), backward.work(), forward.saved_bytes(), parameters)


class TraceWork:
    """Counts what a trace does.

    Everything but matmuls, attention and views counts as fused: a value that one fused operation hands to another one
    does not reach memory, one that passes between a fused operation and anything else does, once in each direction.
    """

    def __init__(self, trace: Any) -> None:
        self.trace = trace
        self.origins: dict[str, Any] = {}  # the value whose memory a view shows
        self.fused: set[str] = set()  # results of fused operations
        self.matmuls: list[float] = []
        self.attention = 0.0
        self.traffic: dict[tuple[str, str], int] = {}
        for symbol in trace.bound_symbols:
            self._count(symbol)
        for value in self._origins_of(trace.outputs):
            self._count_traffic("written", value, value.name in self.fused)

    def work(self) -> Work:
        """Return what was counted."""
        return Work(tuple(self.matmuls), self.attention, float(sum(self.traffic.values())))

    def saved_bytes(self) -> float:
        """Return the bytes of the outputs behind the first one which are not inputs."""
        inputs = {value.name for value in self.trace.inputs}
        saved = {value.name: bytes_of(value) for value in self._origins_of(self.trace.outputs[1:])}
        return float(sum(size for name, size in saved.items() if name not in inputs))

    def _count(self, symbol: Any) -> None:
        arguments = list(tensors([list(symbol.args), list(symbol.kwargs.values())]))
        if is_view(symbol):
            self.origins.update((result.name, self._origin(arguments[0])) for result in tensors(symbol.results))
            return
        is_matmul = symbol.name.split(".")[1] in ("mm", "bmm")
        is_attention = symbol.name.startswith(f"{LIBRARY}.")
        if is_matmul:
            self.matmuls.append(2.0 * arguments[0].numel() * arguments[1].shape[-1])
        elif is_attention:
            self.attention += 4.0 * arguments[-1].numel() * arguments[-1].shape[-2]
        else:
            self.fused.update(result.name for result in tensors(symbol.results))
        for value in map(self._origin, arguments):
            if is_matmul or is_attention:
                self._count_traffic("written", value, value.name in self.fused)
            else:
                self._count_traffic("read", value, value.name not in self.fused)

    def _count_traffic(self, direction: str, value: Any, counts: bool) -> None:
        if counts:
            self.traffic[direction, value.name] = bytes_of(value)

    def _origin(self, value: Any) -> Any:
        return self.origins.get(value.name, value)

    def _origins_of(self, values: Any) -> Iterator[Any]:
        return map(self._origin, tensors(values))


def tensors(values: Any) -> Iterator[Any]:
    """Yield the tensors among arguments, results or outputs."""
    if isinstance(values, (list, tuple)):
        for value in values:
            yield from tensors(value)
    elif getattr(values, "is_tensor", False):
        yield values


def bytes_of(value: Any) -> int:
    """Return the bytes of a tensor of a trace."""
    return value.numel() * value.dtype.itemsize


def is_view(symbol: Any) -> bool:
    """Return whether an operation moves no data."""
    namespace, name, overload, *_ = [*symbol.name.split("."), "default"]
    if namespace != "aten":
        return False
    if name in ("reshape", "_unsafe_view"):
        return True
    schema = getattr(getattr(torch.ops.aten, name), overload)._schema
    aliases = [result.alias_info for result in schema.returns]
    return bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)
