"""Wrong arguments of public functions: the message names the function, what was expected, what came, and what to do."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder.dynamo import thunderfx
from thunder.extend import OperatorExecutor
from thunder.recipes import BaseRecipe, HFTransformers

LINEAR = torch.nn.Linear(4, 3)
X = torch.ones(2, 4)


class Inside(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.part = thunder.jit(torch.nn.Linear(4, 3))


def plugin(method: str, value: Any) -> type[thunder.Plugin]:
    return type("Given", (thunder.Plugin,), {method: lambda self: value})


class OfConfig(BaseRecipe):
    def setup_attributes(self, model: Any) -> dict[str, Any]:
        return {"config.use_cache": False}


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "option": (lambda: thunder.jit(LINEAR, rematerialise=True), TypeError, "did you mean 'rematerialize'"),
    "option without a like": (lambda: thunder.jit(LINEAR, zzz=True), TypeError, "'zzz'; the options are executors, "),
    "option of compile": (lambda: thunder.compile(LINEAR, dynamik=True), TypeError, "did you mean 'dynamic'"),
    "option of explain": (lambda: thunder.explain_recipe(LINEAR, dynamik=True), TypeError, "did you mean 'dynamic'"),
    "option of a recipe": (
        lambda: thunder.compile(LINEAR, BaseRecipe(rematerialise=True)),
        TypeError,
        "did you mean 'rematerialize'",
    ),
    "option of thunderfx": (lambda: thunderfx(LINEAR, rematerialise=True), TypeError, "did you mean 'rematerialize'"),
    "recipe": (lambda: thunder.compile(LINEAR, "hf_transformers"), ValueError, "did you mean 'hf-transformers'"),
    "recipe of another library": (
        lambda: thunder.compile(LINEAR, HFTransformers()),
        ValueError,
        "expected a transformers.PreTrainedModel, got Linear",
    ),
    "recipe of a type": (lambda: thunder.compile(LINEAR, 3), TypeError, "expected thunder.recipes.BaseRecipe"),
    "plugin": (lambda: thunder.compile(LINEAR, plugins="quantise-int4"), ValueError, "did you mean 'quantize-int4'"),
    "plugin of a type": (lambda: thunder.compile(LINEAR, plugins=3), TypeError, "expected thunder.plugins.Plugin"),
    "plugin without an engine": (lambda: thunder.compile(LINEAR, plugins="fp8"), NotImplementedError, "instead: "),
    "executor's class": (
        lambda: thunder.jit(LINEAR, executors=[OperatorExecutor]),
        TypeError,
        "expected executors or their names, got <class",
    ),
    "text for a list": (
        lambda: thunder.compile(LINEAR, plugin("setup_executors", "aten")()),
        TypeError,
        "expected thunder.recipes.BaseRecipe",
    ),
    "text for executors": (
        lambda: thunder.compile(LINEAR, plugins=plugin("setup_executors", "aten")),
        TypeError,
        "Given: setup_executors: expected a list, got 'aten'",
    ),
    "list of options": (
        lambda: thunder.compile(LINEAR, plugins=plugin("setup_config", ["dynamic"])),
        TypeError,
        "Given: setup_config: expected values by name",
    ),
    "attribute of the model": (
        lambda: thunder.compile(LINEAR, OfConfig()),
        ValueError,
        "setup_attributes: config.use_cache: Linear has no attribute 'config'",
    ),
    "class": (lambda: thunder.compile(torch.nn.Linear), TypeError, "got the class Linear; jit an instance"),
    "text": (lambda: thunder.compile("model"), TypeError, "expected a function or a module, got 'model'"),
    "examined": (lambda: thunder.examine(3, X), TypeError, "thunder.examine: expected a function or a module, got 3"),
    "profiled": (lambda: thunder.profile(3, X), TypeError, "thunder.profile: expected a function or a module, got 3"),
    "calls": (lambda: thunder.profile(LINEAR, X, calls=0), ValueError, "thunder.profile: calls: expected a number"),
    "marked": (lambda: thunder.mark_dynamic(3, 0), TypeError, "thunder.mark_dynamic: expected a tensor, got 3"),
    "marked static": (lambda: thunder.mark_static([], 0), TypeError, "thunder.mark_static: expected a tensor"),
    "dimension": (lambda: thunder.mark_dynamic(X, 5), IndexError, "expected a dimension of a tensor of 2, got 5"),
    "name of a dimension": (lambda: thunder.mark_dynamic(X, "batch"), TypeError, "dim: expected a number, got 'batch'"),
    "grad": (lambda: thunder.grad("f"), TypeError, "expected a function or a module, got 'f'"),
    "traces of a module": (lambda: thunder.last_traces(LINEAR), TypeError, "got the module Linear$"),
    "traces of a function": (
        lambda: thunder.last_traces(torch.relu),
        TypeError,
        "that thunder.jit returned, got <built",
    ),
    "traces of a part": (lambda: thunder.last_traces(Inside()), TypeError, "compiled inside of it: part"),
    "traces of torch.compile": (
        lambda: thunder.compile_stats(torch.compile(LINEAR, backend="thunder")),
        TypeError,
        "give it backend=thunder.dynamo.ThunderCompiler",
    ),
    "traces of thunderfx": (lambda: thunder.fusions(thunderfx(LINEAR)), TypeError, "what thunderfx returned"),
    "viewed before a call": (
        lambda: thunder.view(thunder.jit(LINEAR)),
        ValueError,
        "expected a callable that was called",
    ),
    "what works": (lambda: thunder.minify(LINEAR, X), ValueError, "got Linear, whose results equal eager's"),
}


@pytest.mark.parametrize("name", WRONG)
def test_message(name: str) -> None:
    call, error, words = WRONG[name]
    with pytest.raises(error, match=words):
        call()


def test_options_of_compile_win_over_the_recipe() -> None:
    recipe = BaseRecipe(dynamic=True, cache="no caching")
    compiled = thunder.compile(LINEAR, recipe, dynamic=False)
    options = thunder.compile_data(compiled).compile_options
    assert options == {"dynamic": False, "cache": "no caching"}
    assert recipe.given["dynamic"] is True
    decorated = thunder.compile(fullgraph=True)(lambda x: x + 1)
    assert thunder.compile_data(decorated).compile_options == {"fullgraph": True}


def test_a_jitted_module_may_be_compiled_again() -> None:
    compiled = thunder.compile(thunder.jit(LINEAR), rematerialize=False)
    torch.testing.assert_close(compiled(X), LINEAR(X))
    assert thunder.compile_data(compiled).compile_options == {"rematerialize": False}


def test_a_model_on_the_meta_device_is_examined() -> None:
    with torch.device("meta"):
        model, x = torch.nn.Linear(4, 3), torch.ones(2, 4)
    found = thunder.examine(model, x)
    assert found.compiles
    assert found.difference is None
    assert thunder.compile(model)(x).is_meta
    with pytest.raises(RuntimeError, match="meta"):
        thunder.compile(model)(X)


def test_profile_without_anything_compiled_says_so() -> None:
    assert str(thunder.profile(LINEAR, X)).startswith("no compiled operation ran: expected what thunder.jit returned")


@pytest.mark.parametrize(
    ("base", "name", "meant"),
    [
        (thunder.Transform, "transform_trace_post_optimisation", "transform_trace_post_optimization"),
        (thunder.Plugin, "setup_transform", "setup_transforms"),
        (BaseRecipe, "setup_executor", "setup_executors"),
        (BaseRecipe, "recognises", "recognizes"),
    ],
)
def test_a_misspelt_method_is_warned_of(base: type, name: str, meant: str) -> None:
    with pytest.warns(UserWarning, match=rf"thunder never calls a method '{name}'; did you mean '{meant}'\?"):
        type("Mine", (base,), {name: lambda self: None})


@pytest.mark.parametrize("base", [thunder.Transform, thunder.Plugin, BaseRecipe])
def test_other_methods_are_the_users(base: type) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        type("Mine", (base,), {"transform_weights": None, "setup_everything": None, "count": None})
