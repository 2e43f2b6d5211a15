"""Models with random weights that the benchmarks train."""

from __future__ import annotations

import argparse
import functools
import re
from collections.abc import Callable
from typing import Any

import common
import torch
import transformers

Inputs = dict[str, torch.Tensor]
Builder = Callable[[], tuple[torch.nn.Module, Inputs]]


def _language(model: str, config: str, *, batch: int, length: int, **sizes: Any) -> tuple[torch.nn.Module, Inputs]:
    configuration = getattr(transformers, config)(use_cache=False, **sizes)
    tokens = torch.randint(0, configuration.vocab_size - 1, (batch, length))
    return getattr(transformers, model)(configuration), {"input_ids": tokens, "labels": tokens}


def _vision(model: str, config: str, *, batch: int, **sizes: Any) -> tuple[torch.nn.Module, Inputs]:
    labels = torch.zeros(batch, dtype=torch.long)
    images = torch.randn(batch, 3, 224, 224)
    return getattr(transformers, model)(getattr(transformers, config)(**sizes)), {
        "pixel_values": images,
        "labels": labels,
    }


def _quickstart(batch: int) -> tuple[torch.nn.Module, Inputs]:
    tokens = torch.randint(0, 2048, (batch, 128))
    return common.llama(4, 256, vocabulary=2048), {"input_ids": tokens, "labels": tokens}


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return the options of a program that trains them."""
    result = common.parser(description)
    result.add_argument("--models", default="", help="regular expression of the models to run")
    result.add_argument("--batch", type=int, default=1, help="how many times the small batches")
    return result


def chosen(arguments: argparse.Namespace) -> dict[str, Builder]:
    """Return builders of the models that the options name, by name; each gives the same model every time."""

    def build(make: Builder) -> tuple[torch.nn.Module, Inputs]:
        torch.manual_seed(0)
        model, inputs = make()
        return model.to(arguments.device), {key: value.to(arguments.device) for key, value in inputs.items()}

    known = models(arguments.batch).items()
    return {name: functools.partial(build, make) for name, make in known if re.search(arguments.models, name)}


def compare(arguments: argparse.Namespace, builders: dict[str, Builder], run: Callable[[Any, Inputs], Any]) -> None:
    """Time `run(model, inputs)` of each model, compilers in turns, and write the figures."""
    torch.set_num_threads(arguments.threads)
    rows = []
    for name, build in builders.items():
        model, inputs = build()
        calls, first = {}, {}
        for compiler in arguments.compilers:
            candidate = common.compiled(compiler, model)
            calls[compiler] = functools.partial(run, candidate, inputs)
            first[compiler] = common.seconds(calls[compiler])
            common.settle(compiler, candidate)
            common.seconds(calls[compiler], 2)
        for compiler, figure in common.take_turns(calls, count=1, rounds=arguments.rounds).items():
            rows.append({"name": name, "compiler": compiler, **figure, "first_s": first[compiler]})
            common.report(rows[-1])
    common.write(arguments, rows)


def models(factor: int = 1) -> dict[str, Builder]:
    """Return builders by name, of models and small batches, `factor` times as large."""
    two, four = 2 * factor, 4 * factor
    return {
        f"llama 4x256, {four}x128 tokens": lambda: _quickstart(four),
        f"gpt2 6x384, {two}x128 tokens": lambda: _language(
            "GPT2LMHeadModel", "GPT2Config", batch=two, length=128, n_layer=6, n_embd=384, n_head=6, vocab_size=4096,
            attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0,
        ),
        f"bert 6x384, {four}x128 tokens": lambda: _language(
            "BertForMaskedLM", "BertConfig", batch=four, length=128, num_hidden_layers=6, hidden_size=384,
            intermediate_size=1536, num_attention_heads=6, vocab_size=4096,
        ),
        f"vit-small, {two} images": lambda: _vision(
            "ViTForImageClassification", "ViTConfig", batch=two, hidden_size=384, num_attention_heads=6,
            intermediate_size=1536,
        ),
        f"resnet50, {two} images": lambda: _vision("ResNetForImageClassification", "ResNetConfig", batch=two),
        f"convnext-tiny, {two} images": lambda: _vision("ConvNextForImageClassification", "ConvNextConfig", batch=two),
    }  # fmt: skip
