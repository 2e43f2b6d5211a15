"""Straight-line programs as text: what is made smaller."""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from thunder._printed_source import define_function

__all__ = ["Line", "StraightLine"]


@dataclasses.dataclass(frozen=True)
class Line:
    """One statement.

    Attributes:
        text: its Python text, without indentation.
        targets: names that it binds.
        reads: names that it reads.
    """

    text: str
    targets: tuple[str, ...]
    reads: tuple[str, ...]

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def of(cls, text: str) -> Line:
        """Return the line with this text."""
        names = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)]
        targets = (node.id for node in names if isinstance(node.ctx, ast.Store))
        reads = (node.id for node in names if isinstance(node.ctx, ast.Load))
        return cls(text, tuple(dict.fromkeys(targets)), tuple(sorted(set(reads))))

    def renamed(self, names: Mapping[str, str]) -> Line:
        """Return the line reading `names[name]` where it read `name`."""
        tree = ast.parse(self.text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                node.id = names.get(node.id, node.id)
        return Line.of(ast.unparse(tree))


@dataclasses.dataclass(frozen=True)
class StraightLine:
    """A function without control flow: parameters, statements, and the names that it returns.

    Attributes:
        parameters: names of the arguments.
        lines: statements, in order.
        results: names that are returned in a tuple.
        constants: what the statements name and no literal stands for.
    """

    parameters: tuple[str, ...]
    lines: tuple[Line, ...]
    results: tuple[str, ...]
    constants: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, constants: Mapping[str, Any] | None = None) -> StraightLine:
        """Return the program that the first function in `text` is. `del` statements are left out.

        Raises ValueError where the function branches or returns other than names and None.
        """
        tree = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
        lines = []
        for node in tree.body[:-1]:
            if not isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.With | ast.Delete):
                raise ValueError(f"expected straight-line code, got {ast.unparse(node)}")
            if not isinstance(node, ast.Delete):
                lines.append(Line.of(ast.unparse(node).replace(":\n    ", ": ")))
        returned = tree.body[-1]
        if not isinstance(returned, ast.Return):
            raise ValueError(f"expected a return at the end, got {ast.unparse(returned)}")
        items = returned.value.elts if isinstance(returned.value, ast.Tuple | ast.List) else [returned.value]
        results = tuple(dict.fromkeys(node.id for node in items if isinstance(node, ast.Name)))
        return cls(tuple(argument.arg for argument in tree.args.args), tuple(lines), results, constants or {})

    def text(self, name: str = "program") -> str:
        """Return the Python text of the function."""
        body = [*(line.text for line in self.lines), f"return ({''.join(f'{result}, ' for result in self.results)})"]
        return "\n".join([f"def {name}({', '.join(self.parameters)}):", *(f"    {line}" for line in body), ""])

    def function(self, name: str = "program") -> Callable[..., Any]:
        """Return the function."""
        import torch

        from thunder import prims

        namespace: dict[str, Any] = {"torch": torch, "prims": prims, **self.constants}
        return define_function(self.text(name), name, "minify", namespace)

    def used(self) -> frozenset[str]:
        """Return the names that statements or the return read."""
        return frozenset(self.results).union(*(line.reads for line in self.lines))

    def with_lines(self, lines: Iterable[Line]) -> StraightLine:
        """Return the program with other statements."""
        return dataclasses.replace(self, lines=tuple(lines))
