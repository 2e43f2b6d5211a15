"""`thunder.view`: one page about a compiled callable."""

from __future__ import annotations

import html
import json
import os
import pathlib
from typing import Any

from thunder._arguments import shown
from thunder.options import require_bool
from thunder.viewing.data import collect

__all__ = ["View", "view"]

_TEMPLATE = pathlib.Path(__file__).with_name("page.html")


class View:
    """A page in HTML that needs nothing else; notebooks show it.

    Attributes:
        data: what it shows.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    @property
    def html(self) -> str:
        """The page."""
        # Inside of a script no text may look like the end of it.
        content = json.dumps(self.data).replace("<", "\\u003c")
        page = _TEMPLATE.read_text(encoding="utf8")
        return page.replace("@NAME@", html.escape(self.data["name"])).replace("@DATA@", content)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, for a browser to open."""
        pathlib.Path(path).write_text(self.html, encoding="utf8")

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self.html)}" width="100%" height="700" style="border:0"></iframe>'

    def __repr__(self) -> str:
        return f"<thunder.View of {self.data['name']}; save(path) writes it>"


def view(fn: Any, path: str | os.PathLike[str] | None = None, *, measure: bool = False) -> View:
    """Return a page that shows the last compilation of `fn`: source, traces of all stages, fusions, memory.

    A click on a line of the program shows its operations in all stages, one on an operation its line, one on a fusion
    the CUDA C++ of its kernel: of a fusion of the CPU, the kernel that a GPU would run for it.

    Args:
        fn: what `thunder.jit` returned, called at least once.
        path: a file to write the page to.
        measure: run each fusion by itself, and show how long it takes.

    Raises:
        ValueError: `fn` was not called yet.
        TypeError: `fn` was not made by `thunder.jit`.
        OSError: the file cannot be written.

    Example:
        >>> import torch, thunder
        >>> @thunder.jit
        ... def f(x):
        ...     return torch.sin(x)
        >>> y = f(torch.ones(2))
        >>> thunder.view(f)
        <thunder.View of f; save(path) writes it>
    """
    require_bool("measure", measure, function="thunder.view")
    if path is not None and not isinstance(path, str | os.PathLike):
        raise TypeError(f"thunder.view: path: expected the path of a file, got {shown(path)}")
    page = View(collect(fn, measure))
    if path is not None:
        page.save(path)
    return page
