"""Questions about a tensor besides its data get eager's answer, on inputs that differ in one fact."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder

pytestmark = pytest.mark.filterwarnings("ignore")


def written():
    return torch.ones(2, 3).mul_(1)


def made_in_inference_mode():
    with torch.inference_mode():
        return torch.ones(2, 3)


def retained():
    tensor = torch.ones(2, 3, requires_grad=True) * 1
    tensor.retain_grad()
    return tensor


def hooked():
    tensor = torch.ones(2, 3, requires_grad=True)
    tensor.register_hook(lambda gradient: gradient)
    return tensor


def differentiated():
    tensor = torch.ones(2, 3, requires_grad=True)
    tensor.sum().backward()
    return tensor


def named():
    tensor = torch.ones(2, 3)
    tensor.label = "a"
    return tensor


KINDS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.ones(2, 3),
    "part": lambda: torch.ones(7)[1:].view(2, 3),
    "beginning": lambda: torch.ones(7)[:6].view(2, 3),
    "written": written,
    "inference": made_in_inference_mode,
    "expanded": lambda: torch.ones(1, 3).expand(2, 3),
    "parameter": lambda: nn.Parameter(torch.ones(2, 3), requires_grad=False),
    "leaf": lambda: torch.ones(2, 3, requires_grad=True),
    "computed": lambda: torch.ones(2, 3, requires_grad=True) * 1,
    "sine": lambda: torch.ones(2, 3, requires_grad=True).sin(),
    "retained": retained,
    "hooked": hooked,
    "differentiated": differentiated,
    "complex": lambda: torch.ones(2, 3, dtype=torch.complex64),
    "conjugate": lambda: torch.ones(2, 3, dtype=torch.complex64).conj(),
    "negative": lambda: torch.ones(2, 3, dtype=torch.complex64).conj().imag,
    "shared": lambda: torch.ones(2, 3).share_memory_(),
    "named": named,
}
PAIRS = [("plain", kind) for kind in KINDS if kind not in ("plain", "complex")]
PAIRS += [("part", "plain"), ("inference", "plain"), ("conjugate", "complex"), ("leaf", "computed"), ("leaf", "hooked")]
PAIRS += [("computed", "leaf"), ("computed", "sine"), ("computed", "retained"), ("leaf", "differentiated")]

# Addresses, random numbers and what depends on everything that holds the tensor.
ELSEWHERE = {"__hash__", "__repr__", "__sizeof__", "_cdata", "_use_count"}
ELSEWHERE |= {"const_data_ptr", "data_ptr", "mutable_data_ptr"}
QUESTIONS = [
    "isinstance(x, torch.FloatTensor)",
    "isinstance(x, (int, torch.DoubleTensor, torch.FloatTensor))",
    "issubclass(type(x), nn.Parameter)",
    "torch.is_conj(x), torch.is_neg(x), torch.is_inference(x)",
    "x.storage_offset(), x[1].storage_offset(), x.t().storage_offset(), (x + 1).storage_offset()",
    "x[1].is_inference(), (x + 1).is_inference()",
    "x.view(6)._version, x[0]._is_view(), x[0]._base is x, x.is_set_to(x.view(2, 3))",
    "x.untyped_storage().nbytes(), x.storage().size()",
    "x.data_ptr() == x.detach().data_ptr(), x[1].data_ptr() - x.data_ptr()",
    "getattr(x, 'label', None), vars(x), x.__dict__",
    "torch._C.TensorBase.storage_offset(x), object.__getattribute__(x, '_version')",
    "x.is_contiguous(memory_format=torch.contiguous_format), x.stride(), x.element_size(), x.layout",
]


def answer(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return "a tensor"
    if isinstance(value, list | tuple):
        return type(value), [answer(item) for item in value]
    plain = (int, float, str, type, type(None), dict, torch.dtype, torch.layout, torch.device)
    return value if isinstance(value, plain) else type(value)


def ask(function: Callable[..., Any], kind: str) -> Any:
    tensor = KINDS[kind]()
    try:
        return answer(function(tensor))
    except Exception as error:
        return type(error)


def question(text: str) -> Callable[[torch.Tensor], Any]:
    return eval(f"lambda x: ({text})", {"torch": torch, "nn": nn})


@functools.cache
def questions() -> list[tuple[str, Callable[[torch.Tensor], Any]]]:
    """Return all attributes of tensors and methods without arguments that give something else than tensors."""
    found = []
    for name in dir(torch.Tensor):
        if name in ELSEWHERE:
            continue
        is_method = callable(getattr(torch.Tensor, name))
        function = question(f"x.{name}()" if is_method else f"x.{name}")
        answers = [ask(function, kind) for kind in ("plain", "leaf", "computed", "named")]
        if any(got != "a tensor" and not (isinstance(got, type) and issubclass(got, Exception)) for got in answers):
            found.append((name, function))
    return found + [(text, question(text)) for text in QUESTIONS]


@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_answers_are_those_of_eager(kinds):
    wrong = []
    for name, function in questions():
        compiled = thunder.jit(function)
        for kind in (*kinds, kinds[0]):
            expected = ask(function, kind)
            if expected == ask(function, kind) and ask(compiled, kind) != expected:
                wrong.append((name, kind, expected))
    assert wrong == []


def test_inputs_that_begin_elsewhere_share_what_does_not_ask():
    compiled = thunder.jit(lambda x: x + 1)
    for kind in ("plain", "part"):
        compiled(KINDS[kind]())
    assert thunder.cache_misses(compiled) == 1


def test_the_place_that_is_asked_for_is_guarded():
    compiled = thunder.jit(lambda x: x * x.storage_offset(), fullgraph=True)
    for offset in (0, 2, 1, 2):
        assert torch.equal(compiled(torch.ones(5)[offset:][:2]), torch.full((2,), float(offset)))
    assert thunder.cache_misses(compiled) == 3


@pytest.mark.parametrize("text", ["x._version", "x._base", "x.untyped_storage()", "x.is_set_to(x)", "x.t()._version"])
def test_what_a_trace_cannot_know_is_refused(text):
    with pytest.raises(NotImplementedError):
        thunder.jit(question(text), fullgraph=True)(torch.ones(2))


def test_classes_that_ask_for_the_dtype_match_patterns():
    def function(x):
        match x:
            case torch.DoubleTensor():
                return x * 2
            case torch.FloatTensor():
                return x * 3
        return x

    compiled = thunder.jit(function, fullgraph=True)
    for dtype in (torch.float32, torch.float64, torch.float16):
        x = torch.ones(2, dtype=dtype)
        assert torch.equal(compiled(x), function(x))
