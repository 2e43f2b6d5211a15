"""Traces are stored in files and loaded again, the same to the letter."""

from __future__ import annotations

import copy
import io
import pathlib
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import thunder
from thunder import Trace
from thunder._check import load_extension

HEADER = 28  # bytes: "thundrtr", version, size, checksum


def stages(compiled: Any) -> list[Trace]:
    queries = (
        thunder.last_traces,
        thunder.last_backward_traces,
        thunder.last_prologue_traces,
        thunder.last_epilogue_traces,
    )
    return [trace for query in queries for trace in query(compiled)]


def stored(trace: Trace) -> bytes:
    file = io.BytesIO()
    trace.save(file)
    return file.getvalue()


def loaded(content: bytes, **objects: Any) -> Trace:
    return Trace.load(io.BytesIO(content), objects)


def example(function: Any = lambda x: torch.nn.functional.gelu(x @ x).sum()) -> Any:
    compiled = thunder.jit(function)
    compiled(torch.ones(3, 3, requires_grad=True))
    return compiled


def test_every_stage_is_loaded_as_it_was_stored(tmp_path: pathlib.Path) -> None:
    traces = stages(example())
    assert {trace.kind for trace in traces} == {"computation", "forward", "backward", "prologue", "epilogue"}
    for i, trace in enumerate(traces):
        trace.save(tmp_path / f"{i}.trace")
        again = Trace.load(str(tmp_path / f"{i}.trace"))
        assert str(again) == str(trace)
        assert (again.kind, again.name, again.history) == (trace.kind, trace.name, trace.history)
        assert [str(symbol) for symbol in again.bound_symbols] == [str(symbol) for symbol in trace.bound_symbols]


def test_loaded_trace_computes_the_same() -> None:
    x = torch.randn(3, 3)
    trace = thunder.last_traces(example())[0]
    assert torch.equal(loaded(stored(trace)).python_callable()(x)[0], trace.python_callable()(x)[0])


def test_loaded_trace_is_edited() -> None:
    trace = loaded(stored(Trace.of_function(lambda x: (x.sin() + 1,), torch.ones(2))))
    edit = trace.edit("cosine")
    edit.replace(trace.bound_symbols[0], lambda x: x.cos())
    assert "aten.cos" in str(edit.finish())


@pytest.mark.parametrize(
    "constant",
    [
        torch.tensor([1, 2, 3]),
        torch.tensor(1.5),
        torch.randn(3, 4).T,
        torch.randn(2, 1, 3).expand(2, 4, 3),
        torch.randn(4, 6)[:, ::2],
        torch.zeros(0, 3),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j, float("nan")]),
        torch.tensor([1.5, -0.0, float("inf")], dtype=torch.bfloat16),
        torch.tensor([1.5, 2], dtype=torch.float8_e4m3fn),
    ],
    ids=lambda t: f"{t.dtype}-{tuple(t.shape)}-{t.stride()}",
)
def test_constants_keep_their_contents(constant: torch.Tensor) -> None:
    trace = Trace.of_function(lambda x: (x, torch.ops.aten.alias(constant)), torch.ones(2))
    again = loaded(stored(trace))
    assert str(again) == str(trace)
    (before,), (after,) = (
        [value for value in each.native.context().values() if isinstance(value, torch.Tensor)]
        for each in (trace, again)
    )
    assert after.data_ptr() != before.data_ptr() or after.numel() == 0
    assert (after.dtype, after.shape, after.stride()) == (before.dtype, before.shape, before.stride())
    assert torch.equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (before, after)))


def test_default_generators_are_those_of_the_process() -> None:
    trace = Trace.of_function(lambda x: (x + torch.rand(2, generator=torch.default_generator),), torch.ones(2))
    again = loaded(stored(trace))
    assert again.missing_objects == {}
    numbers = []
    for each in (trace, again):
        torch.manual_seed(3)
        numbers.append(each.python_callable()(torch.ones(2))[0])
    assert torch.equal(*numbers)


def test_objects_of_the_process_are_missing_until_they_are_given() -> None:
    module = torch.nn.Linear(2, 2)
    compiled = thunder.jit(module)
    compiled(torch.ones(2))
    trace = thunder.last_prologue_traces(compiled)[-1]
    content = stored(trace)
    again = loaded(content)
    assert str(again) == str(trace)
    assert again.missing_objects
    name, what = next(iter(again.missing_objects.items()))
    with pytest.raises(ValueError, match=f"{name}: .* was not stored with the trace; give it to Trace.load"):
        again.python_callable()
    objects = {name: trace.native.context()[name] for name in again.missing_objects}
    whole = loaded(content, **objects)
    assert whole.missing_objects == {}
    assert whole.native.context() == trace.native.context()
    whole.python_callable()
    assert what


def test_given_objects_are_named_and_of_the_right_kind() -> None:
    trace = thunder.last_prologue_traces(example())[-1]
    with pytest.raises(ValueError, match=r"objects: expected names among .*, got object99"):
        loaded(stored(trace), object99=1)
    generator = torch.Generator()
    drawn = Trace.of_function(lambda x: torch.rand(2, generator=generator) + x, torch.ones(2))
    name = next(iter(loaded(stored(drawn)).missing_objects))
    with pytest.raises(TypeError, match=f"{name}: expected a generator of torch, .*, got an object of type 'int'"):
        loaded(stored(drawn), **{name: 3})
    assert loaded(stored(drawn), **{name: generator}).missing_objects == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: b"", "expected what thunder stored, got 0 bytes"),
        (lambda content: b"PK\x03\x04" + content, "of something else"),
        (lambda content: content[:-1], "bytes behind the header"),
        (lambda content: content + b"x", "bytes behind the header"),
        (lambda content: content[:8] + b"\xff\x00\x00\x00" + content[12:], "got 255, of a newer thunder"),
        (lambda content: content[:HEADER] + content[HEADER + 1 :] + b"x", "the checksum is another one"),
    ],
    ids=["empty", "other file", "cut off", "longer", "newer", "damaged"],
)
def test_files_that_are_no_traces_are_refused(change: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loaded(change(stored(thunder.last_traces(example())[-1])))


def test_operator_that_is_not_known_is_named() -> None:
    trace = Trace.of_function(lambda x: (x.sin(),), torch.ones(2))
    content = stored(trace)
    other = bytearray(content)
    at = content.index(b"aten::sin")
    other[at : at + 9] = b"mine::sin"
    while at >= 0:
        at = other.find(b"aten::sin", at)
        if at >= 0:
            other[at : at + 9] = b"mine::sin"
    checksum = 0xCBF29CE484222325
    for byte in other[HEADER:]:
        checksum = (checksum ^ byte) * 0x100000001B3 % 2**64
    other[20:28] = checksum.to_bytes(8, "little")
    with pytest.raises(ValueError, match="expected an operator that is known here, got mine::sin; import the module"):
        loaded(bytes(other))


def test_another_process_loads_the_same_text(tmp_path: pathlib.Path) -> None:
    trace = thunder.last_backward_traces(example())[-1]
    trace.save(tmp_path / "backward.trace")
    script = f"import thunder; print(thunder.Trace.load({str(tmp_path / 'backward.trace')!r}), end='')"
    again = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert again.stdout == str(trace)


def test_all_traces_of_the_tests_are_stored_and_loaded() -> None:
    traces = load_extension().trace
    traces.take_round_trips()
    made = stages(example())
    count, failures = traces.take_round_trips()
    assert count >= len(made)
    assert failures == []


def test_same_trace_gives_the_same_bytes() -> None:
    first, second = (Trace.of_function(lambda x: (x.sin() * 2,), torch.ones(2)) for _ in range(2))
    assert stored(first) == stored(second)
    assert stored(loaded(stored(first))) == stored(first)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(x)
        return x.sin(), y * 2

    @staticmethod
    def backward(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, None]:
        return first * ctx.saved_tensors[0].cos() * 2 + second * torch.tensor([3.0]), None


def with_gradients_of_its_own(x: torch.Tensor) -> torch.Tensor:
    first, second = Doubled.apply(x, x.exp())
    return checkpoint(lambda t: t.sin().exp(), first + second, use_reentrant=False).sum()


def test_gradients_of_the_program_are_stored() -> None:
    trace = thunder.last_traces(example(with_gradients_of_its_own))[0]
    again = loaded(stored(trace))
    assert "custom_gradient" in str(trace)
    assert again.missing_objects == {}
    assert str(again) == str(trace)
    assert stored(again) == stored(trace)
    x = torch.randn(3, 3)
    torch.testing.assert_close(again.python_callable()(x)[0], with_gradients_of_its_own(x))


@pytest.mark.parametrize("file", [None, 3, io.StringIO()])
def test_traces_are_stored_in_files_alone(file: Any) -> None:
    (trace, *_) = stages(example())
    with pytest.raises(TypeError, match=r"thunder\.Trace\.save: expected a "):
        trace.save(file)
    with pytest.raises(TypeError, match=r"thunder\.Trace\.load: expected a "):
        Trace.load(file)


class Source:
    def __init__(self, content: Any) -> None:
        self.content = content

    def read(self) -> Any:
        return self.content


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_traces_are_loaded_from_any_bytes(kind: Any) -> None:
    (trace, *_) = stages(example())
    file: Any = Source(kind(stored(trace)))
    assert str(Trace.load(file)) == str(trace)


@pytest.mark.parametrize(("content", "message"), [("text", "open the file with mode 'rb'"), (None, "got None$")])
def test_what_is_read_that_is_no_bytes_is_refused(content: Any, message: str) -> None:
    file: Any = Source(content)
    with pytest.raises(TypeError, match=message):
        Trace.load(file)


def test_files_that_cannot_be_written_or_read_raise(tmp_path: pathlib.Path) -> None:
    (trace, *_) = stages(example())
    with pytest.raises(FileNotFoundError):
        trace.save(tmp_path / "no/such/folder")
    with pytest.raises(FileNotFoundError):
        Trace.load(tmp_path / "no_such_file")


def test_objects_of_a_loaded_trace_are_given_by_name() -> None:
    (trace, *_) = stages(example())
    with pytest.raises(TypeError, match="objects: expected a dict of objects by name, got 3"):
        Trace.load(io.BytesIO(stored(trace)), 3)


def test_traces_are_stored_and_not_pickled() -> None:
    (trace, *_) = stages(example())
    with pytest.raises(TypeError, match=r"trace\.save\(file\) stores it"):
        pickle.dumps(trace)
    assert copy.copy(trace) is copy.deepcopy(trace) is trace
