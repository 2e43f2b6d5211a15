"""Random programs whose Python depends on the data of tensors, for test_random_reads.py."""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable
from typing import Any

import torch

# {t}, {u}: a tensor; {n}, {m}: a number; {i}: an int read from a tensor. The first word: what the line defines.
LINES = (
    "tensor {} = torch.tanh({t}) + {u}",
    "tensor {} = torch.sin({t}) * {u}",
    "tensor {} = {t} * {n}",
    "tensor {} = {t} - {n}",
    "tensor {} = {t}[{t} > 0].sum() + {u}",
    "tensor {} = torch.full_like({t}, {n}) + torch.tensor(float({m}))",
    "tensor {} = torch.where({t} > {n}, {t}, {m})",
    "number {} = {t}.sum().item()",
    "number {} = {t}.max().item()",
    "number {} = {n} * {m} + 1",
    "number {} = -{n}",
    "number {} = abs({n})",
    "number {} = max({n}, {m})",
    "int {} = int(({t} > 0).sum())",
    "int {} = {t}.argmax().item()",
    "- state.append({n})",
    "- x = x + {t} * 0.5",
)
BLOCKS = (
    "if {t}.sum() > 0:",
    "if {n} > 0.5:",
    "if {i}:",
    "for _ in range(min({i}, 3)):",
    "for value in x.tolist()[:2]:",
)


class Source:
    """Makes the text of one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names: dict[str, list[str]] = {"tensor": ["x", "y"], "number": ["0.5", "-2"], "int": ["n"]}
        self.count = 0
        self.lines = ["def program(state, x, y):", "    n = int((y > 0).sum())"]

    def fill(self, template: str) -> str:
        numbers = self.names["number"] + self.names["int"]
        choose = self.random.choice
        tensors = self.names["tensor"]
        return template.format(
            f"v{self.count}", t=choose(tensors), u=choose(tensors), n=choose(numbers), m=choose(numbers),
            i=choose(self.names["int"]),
        )  # fmt: skip

    def add_line(self, depth: int) -> None:
        kind, template = self.random.choice(LINES).split(" ", 1)
        self.lines.append("    " * depth + self.fill(template))
        if kind in self.names:
            self.names[kind].append(f"v{self.count}")
        self.count += 1

    def add_block(self, depth: int) -> None:
        self.lines.append("    " * depth + self.fill(self.random.choice(BLOCKS)))
        outside = {kind: list(names) for kind, names in self.names.items()}
        for _ in range(self.random.randint(1, 3)):
            self.add_statement(depth + 1)
        self.lines.append("    " * (depth + 1) + self.fill("x = x + {t}"))
        self.names = outside

    def add_statement(self, depth: int) -> None:
        if depth < 3 and self.random.random() < 0.2:
            self.add_block(depth)
        else:
            self.add_line(depth)

    def finish(self) -> str:
        results = [*self.names["tensor"][-3:], *self.names["number"][-2:], *self.names["int"][-2:]]
        return "\n".join([*self.lines, f"    return {', '.join(results)}, state", ""])


def make_program(seed: int) -> Callable[..., Any]:
    """Return a function `program(state, x, y)` of a list and two vectors."""
    source = Source(seed)
    for _ in range(source.random.randint(5, 12)):
        source.add_statement(1)
    text, name = source.finish(), f"<random program {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    namespace: dict[str, Any] = {"torch": torch}
    exec(compile(text, name, "exec"), namespace)
    return namespace["program"]  # type: ignore[no-any-return]
