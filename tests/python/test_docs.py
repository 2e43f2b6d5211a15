"""The pages for users: their code runs, their links lead somewhere, the messages that they name are thunder's."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import thunder
from thunder.recipes import registry

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


# Their code is about a model, or a compiled function, of the reader's.
ABOUT_A_MODEL = ("data_dependence", "getting-started", "guards", "looking-inside", "recipes", "torch-compile")


class MyModel(torch.nn.Linear):
    def __init__(self) -> None:
        super().__init__(16, 4)


def llama() -> torch.nn.Module:
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=32, max_position_embeddings=32, **sizes))


@pytest.mark.parametrize("page", ABOUT_A_MODEL)
def test_code_about_a_model_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_recipes", dict(registry._recipes))
    x = torch.randn(8, 16)
    f = thunder.jit(lambda x: torch.nn.functional.gelu(x) * 2)
    f(x)
    names = {"torch": torch, "thunder": thunder, "x": x, "f": f, "MyModel": MyModel, "__name__": page}
    names["model"] = llama() if page == "recipes" else torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU())
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / f"docs/{page}.md").read_text(encoding="utf8"), re.DOTALL)
    assert blocks
    for block in blocks:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, f"docs/{page}.md", "exec"), names)


def markdown() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", markdown(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", markdown(), ids=lambda path: str(path.relative_to(ROOT)))
def test_sources_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"`([\w/]+/[\w/]+\.(?:cpp|h|py))`", page.read_text(encoding="utf8"))
    missing = [name for name in named if not any((ROOT / folder / name).exists() for folder in ("", "csrc"))]
    assert missing == []


def test_every_source_of_fusion_is_in_its_table() -> None:
    page = (ROOT / "docs/maintainers/design.md").read_text(encoding="utf8")
    table = page.split("| `fusion/` | what |")[1].split("\n\n")[0]
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == {path.stem for path in (ROOT / "csrc/fusion").iterdir() if path.suffix in (".cpp", ".h")}


def test_every_notebook_is_listed() -> None:
    page = (ROOT / "notebooks/README.md").read_text(encoding="utf8")
    assert set(re.findall(r"\]\((\w+\.ipynb)\)", page)) == {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}


def test_readme_is_one_screen() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf8").splitlines()) <= 75


def sources() -> str:
    """Return all sources, with texts that are written in several pieces joined."""
    paths = [path for folder in ("csrc", "thunder", "cmake") for path in (ROOT / folder).rglob("*")]
    text = "".join(path.read_text(encoding="utf8") for path in paths if path.suffix in (".py", ".cpp", ".h", ".cmake"))
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
