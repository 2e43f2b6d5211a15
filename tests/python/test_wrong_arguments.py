"""Wrong arguments of public functions: the message names the function, what was expected, what came, and what to do."""

from __future__ import annotations

import time
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


def called(compiled: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", thunder.EagerFallbackWarning)
        compiled(X)
    return compiled


class OfConfig(BaseRecipe):
    def setup_attributes(self, model: Any) -> dict[str, Any]:
        return {"config.use_cache": False}


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "option": (lambda: thunder.jit(LINEAR, rematerialise=True), TypeError, "did you mean 'rematerialize'"),
    "option without a like": (lambda: thunder.jit(LINEAR, zzz=True), TypeError, "'zzz'; the options are executors, "),
    "option of torch.compile": (
        lambda: thunder.jit(LINEAR, backend="inductor"),
        TypeError,
        "option 'backend' of torch.compile: thunder compiles by itself",
    ),
    "mode of torch.compile": (
        lambda: thunder.compile(LINEAR, mode="max-autotune"),
        TypeError,
        "'mode' of torch.compile",
    ),
    "field of Options": (
        lambda: thunder.Options(fullgrph=True),
        TypeError,
        "Options: .* mean 'fullgraph'",
    ),
    "option of compile": (lambda: thunder.compile(LINEAR, dynamik=True), TypeError, "did you mean 'dynamic'"),
    "dynamic": (lambda: thunder.jit(LINEAR, dynamic="yes"), TypeError, "dynamic: expected a bool or None, got 'yes'"),
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
        "expected executors or their names, got the class OperatorExecutor; give an instance",
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
    "modules": (lambda: thunder.jit([LINEAR]), TypeError, "which is not callable; jit each of them"),
    "call of a decorator": (lambda: thunder.jit(None)(X), TypeError, r"a Tensor of shape \(2, 4\).*for a model"),
    "options as a dict": (lambda: thunder.jit(LINEAR, options={"dynamic": True}), TypeError, r"jit\(fn, \*\*options\)"),
    "choice": (lambda: thunder.jit(LINEAR, sharp_edges="eror"), ValueError, "did you mean 'error'"),
    "executor": (lambda: thunder.jit(LINEAR, executors=["torch-compile"]), ValueError, "did you mean 'torchcompile'"),
    "text": (lambda: thunder.compile("model"), TypeError, "expected a function or a module, got 'model'"),
    "examined": (lambda: thunder.examine(3, X), TypeError, "thunder.examine: expected a function or a module, got 3"),
    "profiled": (lambda: thunder.profile(3, X), TypeError, "thunder.profile: expected a function or a module, got 3"),
    "profiled class": (lambda: thunder.profile(torch.nn.Linear, X), TypeError, "the class Linear; give an instance"),
    "calls of text": (lambda: thunder.profile(LINEAR, X, calls="3"), TypeError, "calls: expected a number, got '3'"),
    "examination's measure": (
        lambda: thunder.examine(LINEAR, X, measure="a"),
        TypeError,
        "thunder.examine: measure: expected a bool, got 'a'",
    ),
    "examination's options": (
        lambda: thunder.examine(LINEAR, X, options={}),
        TypeError,
        "thunder.examine: options: expected thunder.Options, got {}",
    ),
    "measure of fusions": (
        lambda: thunder.fusions(called(thunder.jit(LINEAR)), measure=1),
        TypeError,
        "thunder.fusions: measure: expected a bool, got 1",
    ),
    "path of a page": (
        lambda: thunder.view(called(thunder.jit(LINEAR)), 3),
        TypeError,
        "thunder.view: path: expected the path of a file, got 3",
    ),
    "examined class": (lambda: thunder.examine(torch.nn.Linear, X), TypeError, "the class Linear; give an instance"),
    "minified": (lambda: thunder.minify(None), TypeError, "thunder.minify: expected a function or a module, got None"),
    "explained": (lambda: thunder.explain_recipe(None), TypeError, "thunder.explain_recipe: expected a function or a"),
    "of thunderfx": (lambda: thunderfx(None), TypeError, "thunder.dynamo.thunderfx: expected a function or a module"),
    "vjp": (lambda: thunder.vjp(None, X), TypeError, "thunder.vjp: expected a function or a module, got None"),
    "class of vmap": (lambda: thunder.vmap(torch.nn.Linear), TypeError, "the class Linear; give an instance"),
    "traced": (lambda: thunder.Trace.of_function(3, X), TypeError, "expected a function or a module, got 3"),
    "traced number": (lambda: thunder.Trace.of_function(torch.add, X, 3), TypeError, "expected tensors, got 3; other"),
    "fusions of a tensor": (
        lambda: thunder.examine.get_fusions(X),
        TypeError,
        r"expected a thunder.Trace, got a Tensor of shape \(2, 4\)",
    ),
    "4 bits of a function": (
        lambda: thunder.compile(torch.sin, plugins="quantize-int4"),
        TypeError,
        "QuantizeInt4: expected a module",
    ),
    "calls": (lambda: thunder.profile(LINEAR, X, calls=0), ValueError, "thunder.profile: calls: expected a number"),
    "marked": (lambda: thunder.mark_dynamic(3, 0), TypeError, "thunder.mark_dynamic: expected a tensor, got 3"),
    "marked static": (lambda: thunder.mark_static([], 0), TypeError, "thunder.mark_static: expected a tensor"),
    "dimension": (lambda: thunder.mark_dynamic(X, 5), IndexError, "expected a dimension of a tensor of 2, got 5"),
    "bound of a size": (lambda: thunder.mark_dynamic(X, 0, min=1.5), TypeError, "min: expected an int, got 1.5"),
    "negative bound": (lambda: thunder.mark_dynamic(X, 0, max=-1), ValueError, "max: expected a size, got -1"),
    "true dimension": (lambda: thunder.mark_dynamic(X, True), TypeError, "dim: expected an int, got True"),
    "name of a dimension": (lambda: thunder.mark_dynamic(X, "batch"), TypeError, "dim: expected an int, got 'batch'"),
    "grad": (lambda: thunder.grad("f"), TypeError, "thunder.grad: expected a function or a module, got 'f'"),
    "hessian": (lambda: thunder.hessian(3), TypeError, "thunder.hessian: expected a function or a module, got 3"),
    "executor of no kind": (lambda: thunder.get_executor(3), TypeError, "expected an executor or its name, got 3"),
    "executors of no kind": (lambda: thunder.resolve_executors("cpu"), TypeError, "expected a list of executors"),
    "name of a recipe": (
        lambda: thunder.recipes.register_recipe(3, BaseRecipe),
        TypeError,
        "thunder.recipes: expected a name, got 3",
    ),
    "traces of a module": (
        lambda: thunder.last_traces(LINEAR),
        TypeError,
        "thunder.last_traces: expected a callable that thunder.jit returned, got the module Linear; thunder.jit leaves",
    ),
    "page of a function": (
        lambda: thunder.view(plugin),
        TypeError,
        "thunder.view: expected .* got the function plugin; thunder.jit leaves it as it is",
    ),
    "traces of a method": (
        lambda: thunder.fusions(thunder.jit(LINEAR).forward),
        TypeError,
        "thunder.fusions: .* got the method forward of a compiled module; ask the module itself",
    ),
    "traces of a tensor": (lambda: thunder.compile_stats(X), TypeError, r"got a Tensor of shape \(2, 4\)$"),
    "traces before a call": (
        lambda: thunder.last_traces(thunder.jit(LINEAR))[-1],
        IndexError,
        "there are no traces: it was not called yet",
    ),
    "backward without gradients": (
        lambda: thunder.last_backward_traces(called(thunder.jit(torch.sin)))[-1],
        IndexError,
        "it has no backward, as nothing required grad",
    ),
    "traces of what ran in eager": (
        lambda: thunder.last_traces(called(thunder.jit(lambda x: x * time.time())))[0],
        IndexError,
        "no call of it was compiled: thunder.explain_misses tells why",
    ),
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


def test_a_model_that_has_nothing_to_quantize_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="has no torch.nn.Linear with an even number of inputs"):
        thunder.compile(torch.nn.Linear(5, 3), plugins="quantize-int4")


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
