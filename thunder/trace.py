"""Traces, seen and rewritten from Python."""

from __future__ import annotations

import functools
import html
import io
import os
import pathlib
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, SupportsIndex, overload

import torch
from torch.utils import _pytree as pytree

from thunder._arguments import require_callable, shown
from thunder._check import load_extension
from thunder._elsewhere import missing_member
from thunder._printed_source import define_function

__all__ = ["BoundSymbol", "Trace", "TraceEdit", "Traces", "Value", "part_of"]

_trace = load_extension().trace

if TYPE_CHECKING:

    class Value:
        """A value of a trace: a tensor without data."""

        name: str
        shape: tuple[int, ...]
        dtype: torch.dtype
        device: torch.device
        requires_grad: bool
        ndim: int
        is_tensor: bool  # False for numbers, which have none of the above but a name

        def stride(self) -> tuple[int, ...]:
            """Return the strides."""

        def dim(self) -> int:
            """Return `ndim`."""

        def numel(self) -> int:
            """Return the number of elements."""

    class BoundSymbol:
        """An operation of a trace, applied to arguments."""

        index: int
        name: str
        args: tuple[Any, ...]
        kwargs: dict[str, Any]
        results: list[Any]
        file: str | None
        line: int
        comment: str
        nested: list[str]

        def kernels(self, *, on_gpu: bool = False) -> list[tuple[Any, ...]]:
            """Return the kernels of a block: (beginning, text, launches, whether it is compiled, operations).

            `on_gpu`: those that its operations would have on a GPU, for the traced sizes, which nobody launches.
            """

        def timing(self, rounds: int) -> tuple[float, float] | None:
            """Return the seconds of a fusion run by itself and of a copy of as many bytes, where that is possible."""

else:
    BoundSymbol = _trace.BoundSymbol
    Value = _trace.Value


def _missing(value: Any, name: str) -> Any:
    """Raise AttributeError, with what serves instead."""
    raise missing_member(type(value).__name__, name, dir(type(value)))


for _cls in (BoundSymbol, Value):
    setattr(_cls, "__getattr__", _missing)  # noqa: B010


class Trace:
    """One stage of a compiled program. `str(trace)` is a Python program; `python_callable()` runs it.

    A trace never changes: `edit()` makes another one. Reading it copies nothing but what is read.

    Attributes:
        name: the name of the function in the program: "computation", "backward", "backward_2" of a third segment, …
        kind: which trace of a compiled program it is, whatever its name: "prologue", "computation", "forward",
            "backward", "epilogue"; "part" where it is none of these, such as one that `of_function` gives.
    """

    def __init__(
        self,
        native: Any,
        saved: tuple[int, int | None] = (0, 0),
        stored: Sequence[tuple[Sequence[str], torch.Tensor | None]] = (),
        module: Any = None,
        stores: Mapping[str, tuple[int, torch.Tensor]] | None = None,
    ) -> None:
        self._native = native
        self._module = module  # that an epilogue belongs to
        self._stores = dict(stores or {})
        self._saved = saved
        self._stored = list(stored)  # for each input its names in the module, and the tensor behind it

    @classmethod
    def of_function(cls, function: Callable[..., Any], *examples: torch.Tensor, name: str = "computation") -> Trace:
        """Return the trace of a function of tensors.

        The function is called once, with trace tensors that have the metadata of `examples` and no data; its Python
        runs as it is, unlike in `thunder.jit`. It returns a tensor, or a container of tensors.

        Raises:
            TypeError: `function` is not callable, or one of `examples` is no tensor.

        Example:
            >>> import torch, thunder
            >>> trace = thunder.Trace.of_function(lambda x: torch.relu(x.sin()), torch.ones(3))
            >>> [symbol.name for symbol in trace.bound_symbols]
            ['aten.sin.default', 'aten.relu.default']
        """
        require_callable("thunder.Trace.of_function", function)
        for example in examples:
            if not isinstance(example, torch.Tensor):
                raise TypeError(
                    f"thunder.Trace.of_function: expected tensors, got {shown(example)}; other arguments are given by "
                    "a lambda or functools.partial"
                )
        return cls(_trace.record(name, list(examples), lambda tensors: pytree.tree_leaves(function(*tensors))))

    @property
    def native(self) -> Any:
        """The extension module's object for this trace."""
        return self._native

    @property
    def name(self) -> str:
        """The name of the function in the program."""
        return str(self._native.name)

    @property
    def kind(self) -> str:
        """Which trace of a compiled program it is."""
        return str(self._native.kind)

    @property
    def history(self) -> list[str]:
        """The passes and transforms that made this trace from the recorded one, oldest first."""
        return list(self._native.history)

    @functools.cached_property
    def _view(self) -> Any:
        return _trace.View(self._native)

    @property
    def inputs(self) -> list[Value]:
        """The values that the program takes."""
        return list(self._view.inputs)

    @property
    def outputs(self) -> list[Any]:
        """The values that the program returns; None and constants where there is no value."""
        return list(self._view.outputs)

    @property
    def saved(self) -> list[Value]:
        """The values that a forward trace saves for the backward: its last outputs, with parameters and arguments.

        Of the traces that `Transform.transform_trace_post_optimization` gets, also those that a backward trace reads:
        its first inputs. Empty for other traces.
        """
        values = self.inputs if self.kind == "backward" else self.outputs
        return list(values[slice(*self._saved)])

    def saving_from(self, output: int) -> Trace:
        """Return the same trace, as one whose outputs from a number on are those that it saves."""
        return Trace(self._native, (output, None), self._stored, self._module, self._stores)

    @property
    def parameters(self) -> dict[str, Value]:
        """The inputs that are parameters or buffers of the module that is called, by name; tied ones by each of theirs.

        Empty but in `Transform.transform_traces_pre_prologue`.
        """
        values = self.inputs
        return {name: values[i] for i, (names, _) in enumerate(self._stored) for name in names}

    @property
    def module(self) -> Any:
        """The module that is called, of an epilogue in `Transform.transform_traces_pre_prologue`; else None."""
        return self._module

    @property
    def stores(self) -> dict[str, tuple[int, torch.Tensor]]:
        """The buffers that edits of this epilogue store outputs in, by name, with the output's index and the buffer."""
        return dict(self._stores)

    @property
    def bound_symbols(self) -> Sequence[BoundSymbol]:
        """The operations, in order of execution.

        Each has a `name` ("aten.linear.default"), `args`, `kwargs` and `results`, in which values of the trace are
        `Value`s (with `name`, `shape`, `dtype`, `device`, `requires_grad`), and the `file` and `line` that called it. A
        fusion (`name` is "prims.fused") has the names of its operations in `nested`.
        """
        return BoundSymbols(self._view)

    def edit(self, step: str) -> TraceEdit:
        """Return an object that collects changes; `step` is the new trace's last entry in the history.

        Raises:
            TypeError: `step` is no string.
        """
        if not isinstance(step, str):
            raise TypeError(f"thunder.Trace.edit: step: expected a name, got {shown(step)}")
        return TraceEdit(self, step)

    def __str__(self) -> str:
        return str(self._native)

    def __repr__(self) -> str:
        return f"<thunder.Trace {self.name!r}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def __getattr__(self, name: str) -> Any:
        raise missing_member("Trace", name, dir(Trace))

    def __copy__(self) -> Trace:
        return self  # a trace never changes

    def __deepcopy__(self, memo: dict[int, Any]) -> Trace:
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            "a thunder.Trace is not pickled, as it holds objects of the process: trace.save(file) stores it"
        )

    def save(self, file: str | os.PathLike[str] | BinaryIO) -> None:
        """Store the trace in a file (a path, or an object with `write`), from which `Trace.load` makes it again.

        The file holds data alone, nothing that is ever run: operators by their names and schemas, types, lines, and the
        contents of tensors that the trace holds as constants. Other objects of the process, such as a module that a
        prologue checks, are left out: the loaded trace names them in `missing_objects`.

        Example:
            >>> import io, torch, thunder
            >>> compiled = thunder.jit(torch.sin)
            >>> compiled(torch.zeros(2))
            tensor([0., 0.])
            >>> trace, file = thunder.last_traces(compiled)[-1], io.BytesIO()
            >>> trace.save(file)
            >>> str(thunder.Trace.load(io.BytesIO(file.getvalue()))) == str(trace)
            True

        Raises:
            TypeError: `file` is neither of the two.
            OSError: the file cannot be written.
        """
        _require_file("save", file, "write")
        content = _trace.store(self._native)
        if isinstance(file, (str, os.PathLike)):
            pathlib.Path(file).write_bytes(content)
        else:
            file.write(content)

    @classmethod
    def load(cls, file: str | os.PathLike[str] | BinaryIO, objects: Mapping[str, Any] | None = None) -> Trace:
        """Return the trace that `save` stored in a file: a path, or an object with `read`.

        Args:
            file: what `save` wrote.
            objects: the objects that were left out, or some of them, by name: `{"object3": model}`.

        Raises TypeError for what is no file; ValueError for a file that is damaged or cut off, is of another version of
        the format, names an operator that this process does not know or knows with another schema, or holds a tensor of
        a device that is not there; and for a name in `objects` that is not among the trace's `missing_objects`.
        """
        _require_file("load", file, "read")
        if objects is not None and not isinstance(objects, Mapping):
            raise TypeError(f"thunder.Trace.load: objects: expected a dict of objects by name, got {shown(objects)}")
        content: Any = pathlib.Path(file).read_bytes() if isinstance(file, (str, os.PathLike)) else file.read()
        if isinstance(content, str):
            raise TypeError(f"thunder.Trace.load: expected bytes, got {shown(content)}; open the file with mode 'rb'")
        if not isinstance(content, (bytes, bytearray, memoryview)):
            raise TypeError(f"thunder.Trace.load: expected bytes, got {shown(content)}")
        return cls(_trace.load(bytes(content), dict(objects or {})))

    @property
    def missing_objects(self) -> dict[str, str]:
        """The objects that were not stored with a loaded trace, by name: what they were, and a line that uses them."""
        return dict(_trace.missing_objects(self._native))

    def python_callable(self) -> Callable[..., Any]:
        """Return the function that the printed program defines.

        Objects that have no Python literal, such as a guarded module, come from the trace itself. The function takes
        and returns what the program's signature and comments say; it computes the same numbers as the compiled trace.

        Raises ValueError for a loaded trace that lacks objects: see `missing_objects`.
        """
        for name, what in self.missing_objects.items():
            raise ValueError(f"{name}: {what} was not stored with the trace; give it to Trace.load in `objects`")
        return define_function(str(self), self.name, f"thunder trace {self.name}", dict(self._native.context()))


def _require_file(function: str, file: object, method: str) -> None:
    """Raise TypeError unless `file` is a path or a binary file."""
    if isinstance(file, io.TextIOBase):
        raise TypeError(f"thunder.Trace.{function}: expected a binary file, got {shown(file)}; open it with mode 'b'")
    if not isinstance(file, (str, os.PathLike)) and not callable(getattr(file, method, None)):
        raise TypeError(f"thunder.Trace.{function}: expected a path or a file with {method}, got {shown(file)}")


def part_of(trace: Trace, symbols: Sequence[BoundSymbol], name: str) -> Trace:
    """Return symbols of a trace, in its order, as a trace of their own, which takes what they read from others."""
    native, _, _ = _trace.region(trace._view, [symbol.index for symbol in symbols], name)
    return Trace(native)


class Traces(list[Trace]):
    """The stages of a trace, as recorded first, as executed last; where it is empty, an index says why."""

    def __init__(self, traces: Iterable[Trace] = (), missing: str = "") -> None:
        super().__init__(traces)
        self._missing = missing

    @overload
    def __getitem__(self, index: SupportsIndex) -> Trace: ...

    @overload
    def __getitem__(self, index: slice) -> list[Trace]: ...

    def __getitem__(self, index: Any) -> Any:
        if not self and not isinstance(index, slice) and self._missing:
            raise IndexError(f"there are no traces: {self._missing}")
        return super().__getitem__(index)


class BoundSymbols(Sequence[BoundSymbol]):
    """The operations of a trace, each looked up when it is asked for."""

    def __init__(self, view: Any) -> None:
        self._view = view

    def __len__(self) -> int:
        return len(self._view)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._view.symbol(i) for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"the trace has {len(self)} symbols, got index {index}")
        return self._view.symbol(index % len(self))

    def __iter__(self) -> Iterator[BoundSymbol]:
        return (self._view.symbol(i) for i in range(len(self)))


class TraceEdit:
    """Changes to a trace, made at once by `finish`.

    Symbols and values are those of the trace as it was. Functions are called once, with trace tensors for the values
    among their arguments, and what they do with torch is inserted; they return tensors, or containers of tensors.
    """

    def __init__(self, trace: Trace, step: str) -> None:
        self._trace = trace
        self._edit: Any = _trace.Edit(trace._view, step)
        self._step = step
        self._stored = list(trace._stored)
        self._removed_inputs: set[int] = set()
        self._stores = trace.stores

    @property
    def _native(self) -> Any:
        """The extension module's object, until `finish` has moved its changes into a trace."""
        if self._edit is None:
            raise RuntimeError(f"{self._step}: this edit is finished; trace.edit(…) begins another one")
        return self._edit

    def insert_before(self, symbol: BoundSymbol, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Insert what `function(*args, **kwargs)` does in front of a symbol; return its results, as values."""
        return self._insert(self._index_of(symbol), function, args, kwargs)

    def insert_after(self, symbol: BoundSymbol, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Insert what `function(*args, **kwargs)` does behind a symbol; return its results, as values."""
        return self._insert(self._index_of(symbol) + 1, function, args, kwargs)

    def insert_first(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Insert what `function(*args, **kwargs)` does at the start; return its results, as values."""
        return self._insert(0, function, args, kwargs)

    def insert_last(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Insert what `function(*args, **kwargs)` does at the end; return its results, as values."""
        return self._insert(len(self._trace._view), function, args, kwargs)

    def replace(self, symbol: BoundSymbol, function: Callable[..., Any]) -> None:
        """Put what `function(*symbol.args, **symbol.kwargs)` does in the place of a symbol.

        Raises ValueError, naming the symbol, unless its results have the symbol's shapes, dtypes and devices.
        """
        returned = self._insert(self._index_of(symbol), function, symbol.args, symbol.kwargs)
        new, old = pytree.tree_leaves(returned), pytree.tree_leaves(symbol.results)
        if len(new) != len(old):
            raise ValueError(self._message(symbol, f"expected {len(old)} results, got {len(new)}"))
        for before, after in zip(old, new, strict=True):
            if before is None:
                continue
            if after is None or any(getattr(before, what) != getattr(after, what) for what in _METADATA):
                raise ValueError(self._message(symbol, f"expected a result like {before!r}, got {after!r}"))
            self._native.substitute(before, after)
        self._native.remove(self._index_of(symbol))

    def remove(self, symbol: BoundSymbol) -> None:
        """Remove a symbol. What read its results needs others: see `substitute`."""
        self._native.remove(self._index_of(symbol))

    def substitute(self, old: Value, new: Value) -> None:
        """Let the trace's symbols and outputs read `new` in the place of `old`.

        What the edit inserts reads the values that it was given: give it `new` where it shall read that.

        Raises:
            TypeError: they are no values of traces.
            ValueError: `new` is `old`, or something that `old` is read in the place of.
        """
        for value in (old, new):
            self._require_value(value)
        self._native.substitute(old, new)

    def set_output(self, index: int, value: Value) -> None:
        """Return another value as output `index`.

        Raises:
            TypeError: it is no value of a trace.
            IndexError: there is no such output.
        """
        self._require_value(value)
        self._require_index(index, self._native.output_count(), "output")
        self._native.set_output(index, value)

    def set_input(self, index: int, like: Value | torch.Tensor) -> Value:
        """Take a value of the type of `like` (a tensor, or a value of any trace) as input `index`; return it.

        What read the input that was there needs a substitute.

        Raises:
            TypeError: `like` is neither.
            IndexError: there is no such input.
        """
        self._require_like(like)
        self._require_index(index, self._native.input_count(), "input")
        value: Value = self._native.set_input(index, like)
        return value

    def take_stored(self, value: Value) -> Value:
        """Take an input, a parameter that a transform replaced, as the module holds it; return it.

        Before, the input has shape and dtype of what the program sees. What read it needs a substitute.
        """
        index = next((i for i, known in enumerate(self._trace.inputs) if known == value), len(self._stored))
        stored = self._stored[index][1] if index < len(self._stored) else None
        if stored is None:
            raise ValueError(f"{self._step}: expected an input behind which the module holds a tensor, got {value!r}")
        return self.set_input(index, stored)

    def add_input(self, like: Value | torch.Tensor) -> Value:
        """Take a value of the type of `like` (a tensor, or a value of any trace) as the last input; return it.

        What the prologue returns has to agree: see `add_tensor`. Raises TypeError where `like` is neither.
        """
        self._require_like(like)
        value: Value = self._native.add_input(like)
        self._stored += [((), None)] * (len(self._trace.inputs) + 1 - len(self._stored))
        return value

    def remove_input(self, index: int) -> None:
        """Take an input away, which nothing may read. What the prologue returns has to agree: see `remove_output`."""
        self._require_index(index, self._native.input_count(), "input")
        self._native.remove_input(index)
        self._removed_inputs.add(index)

    def add_tensor(self, tensor: torch.Tensor) -> Value:
        """Return a tensor, this very one at each run, as one output more, the last; return the value.

        In a prologue: the computation takes it at each call (`add_input`). Gradients go to it if it is a leaf that
        requires grad.
        """
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{self._step}: expected a tensor, got {shown(tensor)}")
        value: Value = self._native.add_tensor(tensor)
        return value

    def remove_output(self, index: int) -> None:
        """Return an output less. Raises IndexError where there is no such output."""
        self._require_index(index, self._native.output_count(), "output")
        self._native.remove_output(index)

    def add_output(self, value: Value) -> int:
        """Return a value besides, as the last output; return its index. In a computation, for the epilogue to `store`.

        The value does not require grad: `insert_last(torch.detach, …)`.
        """
        index: int = self._native.add_output(value)
        return index

    def store(self, name: str, output: int) -> None:
        """Let the module's buffer `name` be output `output` of the computation after each call. In an epilogue.

        The output is one that was added (`add_output`), and like the buffer in shape, dtype and device. The module gets
        a new tensor, as by `module.name = value`; calls that raise store nothing. Raises ValueError where the module
        has no such buffer.
        """
        if self._trace.kind != "epilogue":
            raise ValueError(f"{self._step}: expected an epilogue, got a {self._trace.kind}")
        buffer = find_buffer(self._trace._module, name)
        if buffer is None:
            raise ValueError(f"{self._step}: {name!r}: expected the name of a buffer of the module that is called")
        self._native.store(store_buffer, self._trace._module, name, output)
        self._stores[name] = output, buffer

    def fuse(self, symbols: Sequence[BoundSymbol], name: str, compiler: Callable[[Trace], Callable[..., Any]]) -> None:
        """Make one operation of several, which stands where the last of them stood.

        Args:
            symbols: in the order of the trace.
            name: shown in the printed trace.
            compiler: gets the symbols as a trace of their own; returns a function that takes its inputs and returns its
                outputs: a tensor, or a tuple of several.

        Raises:
            TypeError: an argument is of another kind, or the compiler returned no function.
            ValueError: there are no symbols.
        """
        if not isinstance(name, str):
            raise TypeError(f"{self._step}: fuse: name: expected a name, got {shown(name)}")
        if not symbols:
            raise ValueError(f"{self._step}: fuse: expected one symbol or more, got none")
        positions = [self._index_of(symbol) for symbol in symbols]
        native, inputs, outputs = _trace.region(self._trace._view, positions, "fusion")
        compiled = compiler(Trace(native))
        if not callable(compiled):
            raise TypeError(f"{self._step}: fuse: expected a compiler that returns a function, got {shown(compiled)}")
        self._native.fuse(positions, inputs, outputs, compiled, name)

    def finish(self) -> Trace:
        """Return the changed trace, verified. No other change can follow.

        Raises:
            ValueError: the trace cannot run; the message names the symbol.
            RuntimeError: it was called before.
        """
        native, self._edit = self._native, None
        stored = [each for i, each in enumerate(self._stored) if i not in self._removed_inputs]
        return Trace(native.finish(), self._trace._saved, stored, self._trace._module, self._stores)

    def _require_value(self, value: object) -> None:
        if not isinstance(value, Value):
            raise TypeError(
                f"{self._step}: expected a value of the trace (symbol.results[0], or what an insertion returned), "
                f"got {shown(value)}"
            )

    def _require_like(self, like: object) -> None:
        if not isinstance(like, Value | torch.Tensor):
            raise TypeError(f"{self._step}: expected a value of a trace or a tensor, got {shown(like)}")

    def _require_index(self, index: object, count: int, what: str) -> None:
        if not isinstance(index, int) or not 0 <= index < count:
            raise IndexError(f"{self._step}: expected an {what} from 0 to {count - 1}, got {shown(index)}")

    def _index_of(self, symbol: BoundSymbol) -> int:
        if not isinstance(symbol, BoundSymbol):
            raise TypeError(f"{self._step}: expected a symbol among trace.bound_symbols, got {shown(symbol)}")
        index: int = symbol.index
        ours = self._trace.bound_symbols
        if index >= len(ours) or ours[index].name != symbol.name:
            raise ValueError(f"{self._step}: expected a symbol of the edited trace, got one of another: {symbol}")
        return index

    def _insert(self, position: int, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        require_callable(self._step, function)
        leaves, spec = pytree.tree_flatten((list(args), dict(kwargs)))
        values = list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, Value)))
        structure: list[Any] = []

        def call(tensors: list[torch.Tensor]) -> list[Any]:
            known = dict(zip(values, tensors, strict=True))
            filled = [known[leaf] if isinstance(leaf, Value) else leaf for leaf in leaves]
            positional, keywords = pytree.tree_unflatten(filled, spec)
            results: list[Any]
            results, result_spec = pytree.tree_flatten(function(*positional, **keywords))
            structure.append(result_spec)
            return results

        results = self._native.insert(position, values, call)
        return pytree.tree_unflatten(results, structure[0])

    def _message(self, symbol: BoundSymbol, what: str) -> str:
        where = f" ({symbol.file}:{symbol.line})" if symbol.file else ""
        return f"{self._step}: {what}, at: {symbol}{where}"


def find_buffer(module: Any, name: str) -> torch.Tensor | None:
    """Return a buffer of a module, or None where there is no such buffer."""
    path, _, local = name.rpartition(".")
    try:
        return module.get_submodule(path)._buffers.get(local)
    except AttributeError:
        return None


def store_buffer(module: torch.nn.Module, name: str, value: torch.Tensor) -> None:
    """Let a buffer of a module be another tensor. Called by epilogues."""
    path, _, local = name.rpartition(".")
    buffers = module.get_submodule(path)._buffers
    if local not in buffers:
        raise RuntimeError(f"thunder.jit: a transform stores the buffer {name}, which the module has no longer")
    buffers[local] = value


_METADATA = ("shape", "dtype", "device")


class _Callable(types.ModuleType):
    """Lets `thunder.trace()(fn, *tensors)`, as Lightning Thunder has it, return the trace of a function."""

    def __call__(self) -> Callable[..., Trace]:
        return Trace.of_function


sys.modules[__name__].__class__ = _Callable
