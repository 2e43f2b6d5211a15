"""Makes a failing script small: statements go, blocks give way to what they hold, expressions to their parts."""

from __future__ import annotations

import ast
import copy
import time
from collections.abc import Callable, Iterator

_BLOCKS = ("body", "orelse", "finalbody", "handlers")


def shrink(text: str, fails: Callable[[str], bool], seconds: float) -> str:
    """Return the smallest script found for which `fails` holds, as it does for `text`."""
    end = time.monotonic() + seconds
    changed = True
    while changed:
        changed = False
        for edits in (_without_statements, _without_blocks, _with_less):
            at = 0
            while time.monotonic() < end:
                candidate = _edited(text, edits, at)
                if candidate is None:
                    break
                if candidate != text and fails(candidate):
                    text, changed = candidate, True
                else:
                    at += 1
    return text


def _edited(text: str, edits: Callable[[ast.AST], Iterator[Callable[[], None]]], number: int) -> str | None:
    """Return the script after the edit of that number, counted from the end; None behind the last."""
    tree = ast.parse(text)
    every = list(edits(tree))
    if number >= len(every):
        return None
    every[len(every) - 1 - number]()
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _statement_lists(tree: ast.AST) -> Iterator[tuple[ast.AST, str, list[ast.stmt]]]:
    for node in ast.walk(tree):
        for field in _BLOCKS:
            block = getattr(node, field, None)
            if isinstance(block, list) and block:
                yield node, field, block


def _without_statements(tree: ast.AST) -> Iterator[Callable[[], None]]:
    """Yield what deletes a statement or a clause; several at once come last, so that they are tried first."""
    sizes: list[tuple[int, Callable[[], None]]] = []
    for node, field, block in _statement_lists(tree):
        if field == "handlers" and not getattr(node, "finalbody", None) and len(block) == 1:
            continue
        for size in (1, 2, 4, 8, 16):
            for start in range(0, len(block) - size + 1, max(size // 2, 1)):

                def delete(
                    block: list[ast.stmt] = block, start: int = start, size: int = size, field: str = field
                ) -> None:
                    is_empty = size == len(block) and field == "body"
                    block[start : start + size] = [ast.Pass()] if is_empty else []

                if not (size == len(block) == 1 and isinstance(block[0], ast.Pass)):
                    sizes.append((size, delete))
    sizes.sort(key=lambda pair: pair[0])
    yield from (delete for _, delete in sizes)


def _without_blocks(tree: ast.AST) -> Iterator[Callable[[], None]]:
    """Yield what puts the body of a compound statement, or one of its clauses, in its place."""
    for _, field, block in _statement_lists(tree):
        if field == "handlers":
            continue
        for statement in block:
            if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                continue
            for inner in _BLOCKS[:3]:
                body = getattr(statement, inner, None)
                if isinstance(body, list) and body:

                    def hoist(
                        block: list[ast.stmt] = block, old: ast.stmt = statement, new: list[ast.stmt] = body
                    ) -> None:
                        at = block.index(old)
                        block[at : at + 1] = new

                    yield hoist


def _with_less(tree: ast.AST) -> Iterator[Callable[[], None]]:
    """Yield what takes an element out of a list, call or definition, or puts a part of an expression in its place."""
    for node in ast.walk(tree):
        for field in ("elts", "args", "keywords", "decorator_list", "bases"):
            items = getattr(node, field, None)
            if isinstance(items, list) and not (isinstance(node, ast.List) and isinstance(items[0:1], ast.Constant)):
                for at in range(len(items)):
                    yield lambda items=items, at=at: items.__delitem__(at)  # type: ignore[misc]
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                for part in _parts(value):
                    yield lambda node=node, field=field, part=part: setattr(node, field, copy.deepcopy(part))  # type: ignore[misc]


def _parts(value: ast.expr) -> Iterator[ast.expr]:
    if isinstance(value, ast.Call):
        yield from value.args
        if isinstance(value.func, ast.Attribute):
            yield value.func.value
    elif isinstance(value, ast.BinOp):
        yield from (value.left, value.right)
    elif isinstance(value, ast.IfExp):
        yield from (value.body, value.orelse)
    elif isinstance(value, ast.Subscript | ast.Attribute):
        yield value.value
    elif isinstance(value, ast.Tuple | ast.List) and len(value.elts) == 1:
        yield value.elts[0]
