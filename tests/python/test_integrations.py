"""Training programs of other libraries in examples/integrations, each of which compares with eager."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import runpy
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/integrations"
NEEDS = {
    "accelerate_loop": "accelerate",
    "diffusers_denoising": "diffusers",
    "fabric_loop": "lightning",
    "hugging_face_trainer": "accelerate",
    "lightning_trainer": "lightning",
    "litgpt_training": "litgpt",
    "peft_lora": "peft",
    "pytorch_geometric": "torch_geometric",
    "timm_training": "timm",
}


def test_every_example_says_what_it_needs() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(NEEDS)


@pytest.mark.parametrize("name", NEEDS)
@pytest.mark.filterwarnings("ignore")
def test_example_is_as_eager(name: str) -> None:
    if importlib.util.find_spec(NEEDS[name]) is None:
        pytest.skip(f"needs {NEEDS[name]}: pip install --no-deps -r requirements/integrations.txt")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    torch.set_grad_enabled(True)
    assert "losses, eager and compiled:" in printed.getvalue()
