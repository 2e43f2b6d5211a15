"""The pages for users: their code runs, their links lead somewhere, the messages that they name are thunder's."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/train.md", "docs/fine-tune.md", "docs/generate.md")


@pytest.mark.parametrize("page", PAGES)
def test_code_on_the_page_runs(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf8"), re.DOTALL)
    assert blocks
    namespace: dict[str, Any] = {"__name__": page}
    for block in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block, page, "exec"), namespace)
        for line, comment in re.findall(r"^print\((.*)\)  # (\d.*)$", block, re.MULTILINE):
            assert comment.split(":")[0] in printed.getvalue().splitlines(), line
    torch.set_grad_enabled(True)


def markdown() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", markdown(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_readme_is_one_screen() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf8").splitlines()) <= 75


def sources() -> str:
    """Return all sources, with texts that are written in several pieces joined."""
    paths = [path for folder in ("csrc", "thunder") for path in (ROOT / folder).rglob("*")]
    text = "".join(path.read_text(encoding="utf8") for path in paths if path.suffix in (".py", ".cpp", ".h"))
    return re.sub(r'"\s*f?"', "", text)


def messages() -> list[str]:
    text = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf8")
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


@pytest.fixture(scope="module")
def all_sources() -> str:
    return sources()


@pytest.mark.parametrize("message", messages())
def test_message_is_thunders(message: str, all_sources: str) -> None:
    assert message in all_sources
