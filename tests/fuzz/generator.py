"""Random programs. Each statement is run in eager as it is made: what eager accepts is well typed."""

from __future__ import annotations

import dataclasses
import random
import re
import warnings
from typing import Any

import torch

from tests.fuzz import inputs
from tests.fuzz.arguments import Guesser
from tests.fuzz.operators import Operator, operators
from tests.fuzz.samples import sample_call
from thunder._minify.straight_line import Line, StraightLine

_MAX_ELEMENTS = 600
_INDEX_NAMES = ("index", "indices", "target", "sorted_sequence")
_LONG_ROWS = (32, 40, 67)
_KINDS = ("pure", "view", "write", "out", "infix", "index", "assign", "sample", "number")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a program's contents, chosen from its seed.

    Attributes:
        requires_grad: inputs that may be differentiated are.
        writes: in-place operations and `out=`.
        numbers: numbers read from data.
        randomness: random operations.
        length: number of statements.
    """

    requires_grad: bool
    writes: bool
    numbers: bool
    randomness: bool
    length: int


@dataclasses.dataclass(frozen=True)
class Generated:
    """A program, the expressions of its inputs, and the seed from which all follows."""

    seed: int
    program: StraightLine
    expressions: tuple[str, ...]
    settings: Settings

    def make_inputs(self, device: str = "cpu") -> list[torch.Tensor]:
        """Return fresh inputs, always the same."""
        return inputs.make(self.expressions, self.seed, self.settings.requires_grad, device)


class _Writer:
    def __init__(self, seed: int, settings: Settings) -> None:
        self.seed = seed
        self.source = random.Random(seed)
        self.settings = settings
        self.values: dict[str, Any] = {}
        self.expressions: list[str] = []
        self.lines: list[str] = []
        self.sizes = tuple(self.source.sample((2, 3, 4, 5), 2))
        if self.source.random() < 0.25:  # rows that are long enough for the kernels that copy them
            self.sizes = (*self.sizes, self.source.choice(_LONG_ROWS))
        self.guess = Guesser(self.source, self.sizes, self.pick)
        self.count = 0
        weights = {"pure": 30, "view": 16, "infix": 12, "index": 8, "sample": 10}
        if settings.writes:
            weights |= {"write": 14, "out": 3, "assign": 6}
        if settings.numbers:
            weights |= {"number": 3}
        self.weights = [weights.get(kind, 0) for kind in _KINDS]

    # --- values

    def add_input(self, expression: str) -> str:
        name = f"x{len(self.expressions)}"
        self.expressions.append(expression)
        made = inputs.make(tuple(self.expressions), self.seed, self.settings.requires_grad)
        self.values[name] = made[-1]
        return name

    def fresh(self) -> str:
        shape = inputs.random_shape(self.source, self.sizes)
        dtype = inputs.random_dtype(self.source)
        return self.add_input(inputs.laid_out(self.source, shape, dtype, self.settings.writes))

    def tensors(self) -> list[str]:
        return [name for name, value in self.values.items() if isinstance(value, torch.Tensor)]

    def pick(self, parameter: str) -> str:
        """Return the name of a tensor, recent ones more often; a new input now and then."""
        if parameter in _INDEX_NAMES and self.source.random() < 0.7:
            shape = inputs.random_shape(self.source, self.sizes)
            return self.add_input(inputs.tensor(shape, "torch.int64", below=2))
        if parameter in ("mask", "condition") and self.source.random() < 0.5:
            return self.add_input(inputs.tensor(inputs.random_shape(self.source, self.sizes), "torch.bool"))
        known = self.tensors()
        if not known or (self.source.random() < 0.15 and len(self.expressions) < 6):
            return self.fresh()
        return self.source.choice(known[-4:] if self.source.random() < 0.5 else known)

    # --- statements

    def call(self, operator: Operator) -> str:
        first = self.pick("self") if operator.parameters and operator.parameters[0].type == "Tensor" else None
        if operator.kind == "write" and first is not None:
            self.require_separate_elements(first)
        spelling = self.source.choice(operator.spellings)
        positional, keywords, skipped = [], [], False
        for i, parameter in enumerate(operator.parameters):
            text = first if i == 0 and first is not None else self.guess.text(parameter, self.values.get(first or ""))
            if text is None:
                skipped = True
            elif skipped or parameter.keyword_only:
                keywords.append(f"{parameter.name}={text}")
            else:
                positional.append(text)
        if operator.kind == "out":
            targets = [self.pick("out") for _ in operator.outputs]
            for target in targets:
                self.require_separate_elements(target)
            read = {self.memory_of(word) for word in re.findall(r"\w+", " ".join(positional + keywords))}
            if read & set(map(self.memory_of, targets)):
                raise ValueError  # what a kernel reads that it writes to is not defined
            if first and self.values[targets[0]].dtype != self.values[first].dtype:
                raise ValueError  # some kernels compute in the dtype of `out=`
            keywords.append(f"out={targets[0] if len(targets) == 1 else '(' + ', '.join(targets) + ')'}")
        if operator.name == "view" and "torch.bool" in positional:
            raise ValueError  # bytes that are neither True nor False
        receiver = f"{positional.pop(0)}" if spelling.startswith(".") else ""
        attribute = receiver and not callable(getattr(torch.Tensor, operator.name))
        return f"{receiver}{spelling}" + ("" if attribute else f"({', '.join(positional + keywords)})")

    def require_separate_elements(self, name: str) -> None:
        """Raise ValueError where elements share memory: what a write does then depends on the kernel."""
        value = self.values[name]
        places = torch.zeros(value.shape, dtype=torch.int64)
        for dim, (size, stride) in enumerate(zip(value.shape, value.stride(), strict=True)):
            places += stride * torch.arange(size).view([-1 if d == dim else 1 for d in range(value.dim())])
        if places.unique().numel() < value.numel():
            raise ValueError

    def memory_of(self, name: str) -> int:
        value = self.values.get(name)
        return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else id(self)

    def operator(self, kind: str) -> str:
        table = operators()[kind]
        while True:
            operator = self.source.choice(table[self.source.choice(list(table))])
            if self.settings.randomness or not operator.random:
                return self.call(operator)

    def infix(self) -> str:
        left = self.pick("self")
        right = self.pick("other") if self.source.random() < 0.6 else self.guess._scalar(self.values[left])
        if self.source.random() < 0.15:
            left, right = right, left
        choices = ["+", "-", "*", "/", "@", "**", "//", "%", "<", ">=", "==", "!=", "&", "|", "^"]
        return f"{left} {self.source.choice(choices)} {right}"

    def subscript(self, name: str) -> str:
        value = self.values[name]
        items = []
        for size in value.shape[: self.source.randrange(1, value.dim() + 1) if value.dim() else 0]:
            kind = self.source.random()
            if kind < 0.3:
                items.append(str(self.source.randrange(-size, size)) if size else ":")
            elif kind < 0.65:
                bounds = [self.source.choice(("", "1", "-1", "0", "2")) for _ in range(2)]
                items.append(f"{bounds[0]}:{bounds[1]}" + self.source.choice(("", "", "::2"[1:])))
            elif kind < 0.8:
                items.append(":")
            elif kind < 0.9 and size:
                items.append(str([self.source.randrange(size) for _ in range(self.source.randrange(1, 4))]))
            else:
                below = max(size, 1)
                shape = (self.source.choice(self.sizes),) if self.source.random() < 0.8 else ()
                items.append(self.add_input(inputs.tensor(shape, "torch.int64", below)))
        if self.source.random() < 0.1:
            items.insert(self.source.randrange(len(items) + 1), "None")
        if self.source.random() < 0.1:
            items.insert(self.source.randrange(len(items) + 1), "...")
        if not items or self.source.random() < 0.06:
            return self.pick("mask") if self.source.random() < 0.5 else "..."
        return ", ".join(items)

    def statement(self) -> str:
        """Return a statement; `?` stands for a new name."""
        kind = self.source.choices(_KINDS, self.weights)[0]
        if kind in ("pure", "view", "write", "out"):
            text = self.operator(kind)
            if kind == "write" and self.source.random() < 0.5:
                return text
            return f"? = {text}"
        if kind == "infix":
            if self.settings.writes and self.source.random() < 0.25:
                operation = self.source.choice(("+=", "-=", "*=", "/=", "&=", "|="))
                target = self.pick("self")
                self.require_separate_elements(target)
                return f"{target} {operation} {self.pick('other')}"
            return f"? = {self.infix()}"
        if kind == "index":
            name = self.pick("self")
            return f"? = {name}[{self.subscript(name)}]"
        if kind == "assign":
            name = self.pick("self")
            self.require_separate_elements(name)
            value = self.pick("value") if self.source.random() < 0.5 else self.guess._scalar(self.values[name])
            return f"{name}[{self.subscript(name)}] = {value}"
        if kind == "number":
            return f"? = {self.pick('self')}.sum().item()"
        return f"? = {sample_call(self.source, self.settings, self)}"

    def try_statement(self) -> bool:
        """Make a statement; False when eager refuses it, and nothing is left of it."""
        known_inputs, known_values = len(self.expressions), dict(self.values)
        versions = {name: value._version for name, value in self.values.items() if isinstance(value, torch.Tensor)}
        shapes = {name: value.shape for name, value in self.values.items() if isinstance(value, torch.Tensor)}
        try:
            text = self.statement()
            name = f"v{self.count}"
            namespace = {"torch": torch, **self.values}
            exec(text.replace("?", name), namespace)
            made = namespace.get(name)
            text = text.replace("?", self._unpacked(name, made))
            namespace = {**namespace, **dict(self._made(name, made))}
            if not all(map(_is_plain, namespace.values())) or self._resized(shapes):
                raise ValueError
        except Exception:
            self.values = known_values
            del self.expressions[known_inputs:]
            if any(self.values[name]._version != version for name, version in versions.items()):
                raise
            return False
        self.count += 1
        self.lines.append(text)
        keep = ("torch", "__builtins__", name)
        self.values = {key: value for key, value in namespace.items() if key not in keep or isinstance(value, float)}
        self.values.update(self._made(name, made))
        return True

    def _resized(self, shapes: dict[str, torch.Size]) -> bool:
        """Whether an `out=` was resized that others share memory with: what these are then is not defined."""
        resized = [self.values[name] for name, shape in shapes.items() if self.values[name].shape != shape]
        memory = [value.untyped_storage().data_ptr() for value in map(self.values.get, self.tensors())]
        return any(memory.count(value.untyped_storage().data_ptr()) > 1 for value in resized)

    @staticmethod
    def _made(name: str, made: Any) -> list[tuple[str, Any]]:
        if isinstance(made, torch.Tensor | bool | int | float):
            return [(name, made)]
        if isinstance(made, tuple | list):
            if not made or not all(isinstance(item, torch.Tensor) for item in made):
                raise ValueError
            return [(f"{name}_{i}", item) for i, item in enumerate(made)]
        if made is None:
            return []
        raise ValueError

    @classmethod
    def _unpacked(cls, name: str, made: Any) -> str:
        names = [made_name for made_name, _ in cls._made(name, made)] or [name]
        return ", ".join(names) + ("," if isinstance(made, tuple | list) and len(names) == 1 else "")


def _is_plain(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return True
    plain = type(value) is torch.Tensor and value.layout == torch.strided and not value.is_quantized
    plain = plain and min(value.shape, default=0) >= 0  # as `as_strided` with a negative size gives
    return plain and value.numel() <= _MAX_ELEMENTS and value.dim() <= 6


def _settings(source: random.Random) -> Settings:
    return Settings(
        requires_grad=source.random() < 0.5,
        writes=source.random() < 0.6,
        numbers=source.random() < 0.1,
        randomness=source.random() < 0.15,
        length=source.choice((1, 2, 3, 4, 6, 8, 12)),
    )


def generate(seed: int) -> Generated | None:
    """Return the program of a seed; None when none was found that eager runs."""
    settings = _settings(random.Random(~seed))
    writer = _Writer(seed, settings)
    for _ in range(writer.source.randrange(1, 4)):
        writer.fresh()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(40 * settings.length):
            if len(writer.lines) == settings.length:
                break
            try:
                writer.try_statement()
            except Exception:
                return None
    results = [name for name in writer.tensors() if name.startswith("v")]
    if not results:
        return None
    kept = [name for name in results[:-1] if writer.source.random() < 0.4] + results[-1:]
    if writer.source.random() < 0.2:
        kept.append("x0")
    names = tuple(f"x{i}" for i in range(len(writer.expressions)))
    program = StraightLine(names, tuple(map(Line.of, writer.lines)), tuple(kept))
    return Generated(seed, program, tuple(writer.expressions), settings)
