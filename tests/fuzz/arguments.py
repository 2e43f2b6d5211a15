"""Arguments of operators, by the type and the name of the parameter: guesses that eager accepts often enough."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch

from tests.fuzz.inputs import random_dtype
from tests.fuzz.operators import Parameter

_STRINGS = {
    "reduce": ("sum", "prod", "mean", "amax", "amin"),
    "rounding_mode": ("floor", "trunc"),
    "indexing": ("ij", "xy"),
    "norm": ("ortho", "backward", "forward"),
    "side": ("left", "right"),
    "UPLO": ("L", "U"),
    "mode": ("reduced", "complete"),
    "ord": ("fro", "nuc"),
}
_LEFT_TO_DEFAULT = ("generator", "layout", "device", "pin_memory", "memory_format", "names", "out")


class Guesser:
    """Makes the texts of arguments.

    Args:
        source: of random choices.
        sizes: sizes that the program's shapes are made of.
        pick_tensor: returns the name of a tensor that fits a parameter of that name.
    """

    def __init__(self, source: random.Random, sizes: tuple[int, ...], pick_tensor: Callable[[str], str]) -> None:
        self.source = source
        self.sizes = sizes
        self.pick_tensor = pick_tensor

    def text(self, parameter: Parameter, first: torch.Tensor | None) -> str | None:
        """Return an argument, or None for the default. `first` is the tensor that the operator works on, if known."""
        if parameter.optional and (parameter.name in _LEFT_TO_DEFAULT or self.source.random() < 0.5):
            return None
        rank = first.dim() if first is not None else 2
        guess = {
            "Tensor": lambda: self.pick_tensor(parameter.name),
            "List[Tensor]": self._tensors,
            "List[Optional[Tensor]]": self._indices,
            "Scalar": lambda: self._scalar(first),
            "number": lambda: self._scalar(first),
            "int": lambda: self._int(parameter.name, rank),
            "SymInt": lambda: self._int(parameter.name, rank),
            "List[int]": lambda: self._ints(parameter.name, first),
            "List[SymInt]": lambda: self._ints(parameter.name, first),
            "float": lambda: self.source.choice(("0.5", "1.0", "0.1", "2.0", "0.0", "-1.0", "1e-5")),
            "bool": lambda: self.source.choice(("True", "False")),
            "ScalarType": lambda: random_dtype(self.source),
            "str": lambda: repr(self.source.choice(_STRINGS.get(parameter.name, ("none",)))),
            "List[float]": lambda: "[0.5, 1.5]",
            "List[number]": lambda: "[1, 2]",
        }.get(parameter.type)
        return None if guess is None else guess()

    def _tensors(self) -> str:
        first = self.pick_tensor("tensors")
        count = self.source.randrange(1, 4)
        rest = (first if self.source.random() < 0.3 else self.pick_tensor("tensors") for _ in range(count - 1))
        return f"[{', '.join([first, *rest])}]"

    def _indices(self) -> str:
        items = [self.pick_tensor("index") for _ in range(self.source.randrange(1, 3))]
        return f"[{', '.join(items)}]"

    def _scalar(self, first: torch.Tensor | None) -> str:
        choices = ["0", "1", "2", "-1", "3"]
        if first is None or first.is_floating_point() or first.is_complex() or self.source.random() < 0.3:
            choices += ["0.5", "-1.5", "2.0", "1e-3", "True"]
        if first is not None and first.is_complex():
            choices += ["1j", "(0.5-2j)"]
        return self.source.choice(choices)

    def _dim(self, rank: int) -> int:
        return self.source.randrange(-rank, rank) if rank else self.source.choice((0, -1))

    def _int(self, name: str, rank: int) -> str:
        if "dim" in name or name in ("source", "destination", "start_dim", "end_dim"):
            return str(self._dim(rank))
        return str(self.source.choice((0, 1, 2, 3, -1, self.source.choice(self.sizes))))

    def _ints(self, name: str, first: torch.Tensor | None) -> str:
        shape = tuple(first.shape) if first is not None else (2, 3)
        rank = len(shape)
        if name == "dims" and self.source.random() < 0.6:
            return str(self.source.sample(range(rank), rank))
        if "dim" in name or name in ("source", "destination", "axes", "dims"):
            count = self.source.randrange(1, rank + 1) if rank else 0
            return str(self.source.sample(range(rank), count))
        if name in ("size", "shape", "output_size"):
            return str(self._size(shape))
        if "size" in name or "section" in name:
            size = self.source.choice(shape) if shape else 1
            cut = self.source.randrange(size + 1)
            return str([cut, size - cut])
        if name == "pad":
            return str([self.source.choice((0, 0, 1, 1, -1, 2)) for _ in range(2 * self.source.choice((1, 2, rank)))])
        if name in ("repeats", "shifts"):
            return str([self.source.choice((1, 1, 2, 0)) for _ in range(rank)])
        return str([self.source.choice((0, 1, 1, 2)) for _ in range(self.source.choice((1, 2, rank)))])

    def _size(self, shape: tuple[int, ...]) -> list[int]:
        """Return the shape with dimensions split, joined, dropped, grown or left open."""
        size = list(shape)
        for _ in range(self.source.randrange(1, 3)):
            i = self.source.randrange(len(size)) if size else 0
            kind = self.source.randrange(5)
            if kind == 0 and len(size) > 1:
                size[i : i + 2] = [size[i] * (size[i + 1] if i + 1 < len(size) else 1)]
            elif kind == 1 and size:
                size[i] = -1
            elif kind == 2:
                size.insert(i, 1)
            elif kind == 3 and size and size[i] == 1:
                size[i] = self.source.choice(self.sizes)
            elif kind == 4:
                size.insert(0, self.source.choice(self.sizes))
        return size
