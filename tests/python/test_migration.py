"""Lightning Thunder's public names: each row of docs/migration.md, checked."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from thunder._elsewhere import MEMBERS, MODULES, OBJECTS
from thunder.extend import FusionExecutor, OperatorExecutor, get_executor

PAGE = Path(__file__).resolve().parents[2] / "docs/migration.md"


def compiled(**options: Any) -> Any:
    """Return a jitted function that was called twice."""
    f = thunder.jit(lambda x: (x.sin() * 2).cos(), **options)
    x = torch.ones(3, requires_grad=True)
    f(x).sum().backward()
    f(x)
    return f


def printed(function: Callable[..., Any], *args: Any) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        function(*args)
    return stream.getvalue()


def answered(name: str) -> bool:
    """Whether an attribute of the package that is not there says what to use instead."""
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; instead of Lightning Thunder's: ."):
        getattr(thunder, name)
    return True


def not_imported(module: str) -> bool:
    """Whether an import of a module that is not there says what to use instead."""
    with pytest.raises(ModuleNotFoundError, match=f"'{module}'; instead of Lightning Thunder's: ."):
        importlib.import_module(module)
    return True


def refused(**option: Any) -> bool:
    """Whether an option that is not there says what to use instead."""
    with pytest.raises(TypeError, match=f"option '{next(iter(option))}' of Lightning Thunder: ."):
        thunder.jit(torch.sin, **option)
    return True


def no_executor(name: str) -> bool:
    with pytest.raises(ValueError, match=f"Lightning Thunder's '{name}': ."):
        get_executor(name)
    return True


def missing_engine(plugin: str) -> bool:
    """Whether a plugin works, or names what to use instead."""
    try:
        thunder.compile(torch.nn.Linear(2, 2), plugins=plugin)
    except NotImplementedError as error:
        return "; instead: " in str(error)
    except (RuntimeError, ValueError) as error:  # its engine asks for a process group or a GPU
        return bool(str(error))
    return True


class Sine(OperatorExecutor):
    def __init__(self) -> None:
        super().__init__("migration_tests", version="1")
        self.register_operator("sine", like=torch.sin, fn=torch.sin, replaces=torch.sin)


def runs_sine() -> bool:
    f = thunder.jit(torch.sin, executors=[Sine()])
    f(torch.ones(2))
    return "migration_tests.sine" in str(thunder.last_traces(f)[-1])


def derivative_by_hand(name: str, several: bool = False) -> bool:
    from thunder.core.transforms import get_grad, put_grad, put_grads

    executor = OperatorExecutor(name)

    def tripled(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x)
        if several:
            put_grads((x, 3), [3 * get_grad(y), None])
        else:
            put_grad(x, 3 * get_grad(y))
        return y

    executor.register_implementation(torch.sin, grad_transform=tripled)
    x = torch.ones(2, requires_grad=True)
    thunder.jit(torch.sin, executors=[executor])(x).sum().backward()
    return bool(torch.equal(x.grad, torch.full((2,), 3.0)))


def registered(function: Callable[[Any], Any]) -> bool:
    executor = thunder.extend.register_executor(OperatorExecutor("migration_registry_tests"))
    defaults = thunder.get_default_executors()
    try:
        function(executor)
        return True
    finally:
        thunder.extend.set_default_executors(defaults)
        thunder.extend.deregister_executor(executor)


def fx() -> Any:
    torch._dynamo.reset()
    f = thunder.dynamo.thunderfx(lambda x: x.sin().cos())
    f(torch.ones(2, requires_grad=True)).sum().backward()
    return f


LINEAR = torch.nn.Linear(2, 2)

CHECKS: dict[str, Callable[[], Any]] = {
    # --- compiling
    "thunder.jit": lambda: compiled(),
    "thunder.compile": lambda: thunder.compile(LINEAR)(torch.ones(1, 2)) is not None,
    "jit(executors=)": lambda: compiled(executors=["cpu", "aten"]),
    "jit(transforms=)": lambda: compiled(transforms=[thunder.Transform()]),
    "jit(cache=None)": lambda: thunder.cache_option(compiled(cache=None)) is thunder.CACHE_OPTIONS.CONSTANT_VALUES,
    "jit(cache=)": lambda: compiled(cache="no caching") and compiled(cache=thunder.CACHE_OPTIONS.SAME_INPUT),
    "jit(sharp_edges=)": lambda: compiled(sharp_edges=thunder.SHARP_EDGES_OPTIONS.ERROR),
    "jit(langctx=)": lambda: refused(langctx=None),
    "jit(interpretation=)": lambda: refused(interpretation="translate functions"),
    "jit(disable_torch_autograd=)": lambda: refused(disable_torch_autograd=True),
    "jit(debug_options=)": lambda: refused(debug_options=None),
    "jit(executors_list=)": lambda: refused(executors_list=[]),
    "jit(use_cudagraphs=)": lambda: refused(use_cudagraphs=True),
    "jit(skip_inplace_alias_updates=)": lambda: refused(skip_inplace_alias_updates=True),
    "jit(nv_enable_linear=)": lambda: refused(nv_enable_linear=True) and refused(nv_enable_matmul=True),
    "thunder.grad": lambda: torch.equal(thunder.grad(torch.sin)(torch.tensor(0.0)), torch.tensor(1.0)),
    "thunder.trace": lambda: (
        len(thunder.trace()(torch.sin, torch.ones(2)).bound_symbols)
        == len(thunder.Trace.of_function(torch.sin, torch.ones(2)).bound_symbols)
        == 1
    ),
    # --- looking at it
    "thunder.last_traces": lambda: str(thunder.last_traces(compiled())[-1]),
    "thunder.last_backward_traces": lambda: str(thunder.last_backward_traces(compiled())[-1]),
    "thunder.last_prologue_traces": lambda: str(thunder.last_prologue_traces(compiled())[-1]),
    "thunder.cache_hits": lambda: thunder.cache_hits(compiled()) == 1,
    "thunder.cache_misses": lambda: thunder.cache_misses(compiled()) == 1,
    "thunder.cache_option": lambda: thunder.cache_option(compiled()) == "constant values",
    "thunder.compile_data": lambda: thunder.compile_data(compiled(cache="no caching")).compile_options["cache"],
    "thunder.get_compile_data": lambda: answered("get_compile_data"),
    "thunder.compile_stats": lambda: thunder.compile_stats(compiled()).cache_hits == 1,
    "compile_stats(fn).last_traces": lambda: thunder.compile_stats(compiled()).last_traces[-1].bound_symbols,
    "thunder.list_transforms": lambda: thunder.list_transforms(compiled()) == [],
    "thunder.last_compile_options": lambda: (
        "cache='no caching'" in printed(thunder.last_compile_options, compiled(cache="no caching"))
    ),
    "thunder.last_interpreter_log": lambda: answered("last_interpreter_log"),
    "thunder.last_interpreted_instructions": lambda: answered("last_interpreted_instructions"),
    "thunder.print_last_interpreter_log": lambda: answered("print_last_interpreter_log"),
    "thunder.get_auto_registered_torch_op_names": lambda: answered("get_auto_registered_torch_op_names"),
    "thunder.set_execution_callback_file": lambda: answered("set_execution_callback_file"),
    "thunder.DebugOptions": lambda: answered("DebugOptions"),
    "thunder.examine.examine": lambda: "compiled" in printed(thunder.examine.examine, torch.sin, torch.ones(2)),
    "thunder.examine.get_fusions": lambda: len(thunder.examine.get_fusions(thunder.last_traces(compiled())[-1])) == 1,
    "thunder.examine.get_fusion_symbols": lambda: (
        thunder.examine.get_fusion_symbols(thunder.last_traces(compiled())[-1])[0].nested
    ),
    # --- traces
    "trace.python_callable()": lambda: thunder.last_traces(compiled())[-1].python_callable(),
    "trace.bound_symbols": lambda: thunder.last_traces(compiled())[0].bound_symbols[0].name == "aten.sin.default",
    "trace.args, trace.output": lambda: thunder.last_traces(compiled())[0].inputs,
    "thunder.TensorProxy": lambda: answered("TensorProxy") and answered("NumberProxy") and answered("AnyProxy"),
    "thunder.float32": lambda: answered("float32") and answered("bool8") and answered("complex64"),
    "thunder.dtypes": lambda: answered("dtypes") and answered("devices"),
    "thunder.torch": lambda: answered("torch") and answered("numpy") and answered("clang"),
    "thunder.core.proxies, symbol, trace, …": lambda: (
        not_imported("thunder.core.proxies") and not_imported("thunder.core.symbol") and not_imported("thunder.torch")
    ),
    "thunder.core.trace.TraceCtx": lambda: answered("TraceCtx") and not_imported("thunder.core.trace"),
    # --- modules
    "ThunderModule": lambda: isinstance(thunder.jit(LINEAR), thunder.ThunderModule),
    "ThunderModule.get_parameter": lambda: thunder.jit(LINEAR).get_parameter("weight") is LINEAR.weight,
    "ThunderModule.original_state_dict": lambda: thunder.jit(LINEAR).original_state_dict(),
    "ThunderModule.load_original_state_dict": lambda: thunder.jit(LINEAR).load_original_state_dict(LINEAR.state_dict()),
    "ThunderModule.no_sync": lambda: callable(thunder.distributed.no_sync),
    # --- transforms
    "thunder.Transform": lambda: thunder.Transform is thunder.transforms.Transform,
    "thunder.core.transform_common.Transform": lambda: (
        __import__("thunder.core.transform_common").core.transform_common.Transform
    ),
    "Transform.transform_module": lambda: thunder.Transform.transform_module,
    "Transform.transform_traces_pre_prologue": lambda: thunder.Transform.transform_traces_pre_prologue,
    "Transform.transform_trace_post_optimization": lambda: thunder.Transform.transform_trace_post_optimization,
    "Transform.transform_state_dict_for_submodule": lambda: thunder.Transform.transform_state_dict_for_submodule,
    "Transform.reverse_transform_state_dict_for_submodule": (
        lambda: thunder.Transform.reverse_transform_state_dict_for_submodule
    ),
    "thunder.core.transforms.get_grad, put_grad, put_grads": lambda: (
        derivative_by_hand("migration_grad_tests") and derivative_by_hand("migration_grads_tests", several=True)
    ),
    "thunder.core.transforms.register_grad": lambda: "register_grad" in MEMBERS["thunder.core.transforms"],
    "thunder.transforms.autocast": lambda: (
        thunder.autocast(lambda x: x @ x, device_type="cpu", dtype=torch.bfloat16)(torch.ones(2, 2)).dtype
        is torch.bfloat16
    ),
    "thunder.transforms.ConstantFolding": lambda: "constant_folding" in thunder.compile_stats(compiled())["seconds"],
    "thunder.transforms.quantization.BitsAndBytesLinearQuant4bit": lambda: (
        thunder.jit(LINEAR, transforms=[thunder.plugins.Int4Weights()])(torch.ones(1, 2)).shape
    ),
    "thunder.transforms.LORATransform": lambda: (PAGE.parents[1] / "examples/extending/lora.py").exists(),
    "thunder.transforms.MaterializationTransform": lambda: torch.nn.Linear(2, 2, device="meta").to_empty(device="cpu"),
    "thunder.transforms.PrunePrologueChecks": lambda: compiled(cache="same input"),
    "thunder.transforms.cudagraph.CUDAGraphTransform": lambda: missing_engine("reduce-overhead"),
    # --- executors
    "thunder.get_executor": lambda: thunder.get_executor("aten").name == "aten",
    "thunder.get_all_executors": lambda: len(thunder.get_all_executors()) >= 4,
    "thunder.get_default_executors": lambda: thunder.get_default_executors()[0].name == "cpu",
    "thunder.get_always_executors": lambda: answered("get_always_executors"),
    "thunder.resolve_executors": lambda: [each.name for each in thunder.resolve_executors(["aten"])] == ["aten"],
    "thunder.add_executor_lists": lambda: answered("add_executor_lists"),
    "thunder.nvfuser_executor": lambda: answered("nvfuser_executor") and no_executor("nvfuser"),
    "thunder.cudnn_executor": lambda: answered("cudnn_executor") and no_executor("cudnn"),
    "thunder.sdpa_executor": lambda: answered("sdpa_executor") and no_executor("sdpa"),
    "thunder.pytorch_executor": lambda: answered("pytorch_executor") and no_executor("torch"),
    "executor torchcompile": lambda: get_executor("torchcompile").name == "torchcompile",
    "executor torchcompile_cat": lambda: no_executor("torchcompile_cat") and no_executor("torchcompile_xentropy"),
    "executor python": lambda: no_executor("python"),
    "executor apex": lambda: no_executor("apex"),
    "executor triton": lambda: no_executor("triton"),
    "executor transformer_engine": lambda: no_executor("transformer_engine"),
    "executor bitsandbytes": lambda: no_executor("bitsandbytes"),
    "executor fa3": lambda: no_executor("fa3"),
    # --- extending
    "thunder.Executor": lambda: thunder.Executor is thunder.extend.Executor,
    "extend.OperatorExecutor": runs_sine,
    "extend.OperatorExecutor.register_operator": runs_sine,
    "extend.OperatorExecutor.register_implementation": lambda: derivative_by_hand("migration_rule_tests"),
    "extend.FusionExecutor": lambda: FusionExecutor("migration_fusion_tests").fusion_pass,
    "extend.StatefulExecutor": lambda: thunder.transforms.add_parameter,
    "extend.register_executor": lambda: registered(lambda executor: get_executor(executor.name)),
    "extend.deregister_executor": lambda: registered(lambda executor: None),
    "extend.add_default_executor": lambda: registered(thunder.add_default_executor),
    "extend.remove_default_executor": lambda: registered(lambda _: thunder.extend.remove_default_executor("cpu")),
    "extend.set_default_executors": lambda: registered(lambda each: thunder.extend.set_default_executors([each])),
    "extend.add_always_executor": lambda: not hasattr(thunder.extend, "add_always_executor"),
    # --- recipes and plugins
    "thunder.Recipe": lambda: thunder.Recipe is thunder.recipes.BaseRecipe,
    "thunder.Plugin": lambda: thunder.Plugin is thunder.plugins.Plugin,
    "recipes.BaseRecipe": lambda: thunder.compile(LINEAR, recipe=thunder.recipes.BaseRecipe()),
    "recipes.HFTransformers": lambda: thunder.recipes.get_recipe_class("hf-transformers"),
    "recipes.register_recipe": lambda: thunder.recipes.register_recipe,
    "recipes.get_recipes": lambda: "hf-transformers" in thunder.recipes.get_recipes(),
    "recipes.get_recipe_class": lambda: thunder.recipes.get_recipe_class("default") is thunder.recipes.BaseRecipe,
    "Recipe.setup_lookasides": lambda: not hasattr(thunder.Plugin, "setup_lookasides"),
    "plugins.ReduceOverhead": lambda: missing_engine("reduce-overhead"),
    "plugins.DDP": lambda: missing_engine("ddp"),
    "plugins.FSDP": lambda: missing_engine("fsdp"),
    "plugins.FP8": lambda: missing_engine("fp8"),
    "plugins.QuantizeInt4": lambda: thunder.compile(torch.nn.Linear(64, 2), plugins="quantize-int4"),
    "plugins.register_plugin": lambda: thunder.plugins.register_plugin,
    "plugins.get_plugin": lambda: thunder.plugins.get_plugin("fp8") is thunder.plugins.FP8,
    "plugins.get_plugin_names": lambda: "fp8" in thunder.plugins.get_plugin_names(),
    # --- torch.compile
    "dynamo.thunderfx": lambda: fx().last_traces[0].kind == "forward",
    "dynamo.ThunderCompiler": lambda: fx().backend.subgraph_infos[0].thunder_compiled_fns,
    "dynamo.ThunderFXCompiledObject": lambda: fx().last_backward_traces,
    "dynamo.report": lambda: "thunder: 2 operations" in fx().report(),
    "dynamo.thunder_optimize, thunder_profile": lambda: thunder.examine(torch.sin, torch.ones(2)).seconds,
    # --- distributed
    "distributed.FSDPType": lambda: [each.name for each in thunder.distributed.FSDPType] == ["ZERO2", "ZERO3"],
    "distributed.FSDPBucketingStrategy": lambda: len(thunder.distributed.FSDPBucketingStrategy) == 3,
    "distributed.column_parallel, row_parallel": lambda: callable(thunder.distributed.column_parallel),
    "distributed.ddp": lambda: missing_engine("ddp"),
    "distributed.fsdp": lambda: missing_engine("fsdp"),
}


def rows() -> list[str]:
    lines = [line for line in PAGE.read_text(encoding="utf8").splitlines() if line.startswith("| `")]
    return [re.findall(r"^\| `([^`]+)`", line)[0] for line in lines]


def test_page_and_checks_have_the_same_rows() -> None:
    assert sorted(rows()) == sorted(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_row_holds(name: str) -> None:
    assert CHECKS[name]()


@pytest.mark.parametrize("module", MODULES)
def test_modules_that_are_not_here_say_what_to_use(module: str) -> None:
    assert not_imported(module)


@pytest.mark.parametrize(("module", "name"), [(module, name) for module in MEMBERS for name in MEMBERS[module]])
def test_names_that_are_not_here_say_what_to_use(module: str, name: str) -> None:
    found = importlib.import_module(module)
    assert not hasattr(found, name)
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'; instead of Lightning Thunder's: ."):
        getattr(found, name)
    with pytest.raises(ImportError, match=rf"import name '{name}' from '{module}'; instead of Lightning Thunder's: ."):
        exec(f"from {module} import {name}")


@pytest.mark.parametrize("module", [name for name in MODULES if name.rpartition(".")[0] in MEMBERS])
def test_modules_that_are_not_here_are_not_imported_from_their_packages(module: str) -> None:
    package, _, name = module.rpartition(".")
    if hasattr(importlib.import_module(package), name):  # a function that is called as the module is
        return
    with pytest.raises(ImportError, match=rf"import name '{name}' from '{package}'; instead of Lightning Thunder's: ."):
        exec(f"from {package} import {name}")


@functools.cache
def objects() -> dict[str, Any]:
    f = compiled()
    trace = thunder.last_traces(f)[0]
    return {
        "Trace": trace,
        "BoundSymbol": trace.bound_symbols[0],
        "Value": trace.inputs[0],
        "CompileData": thunder.compile_data(f),
        "CompileStats": thunder.compile_stats(f),
    }


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in OBJECTS for name in OBJECTS[kind]])
def test_attributes_that_are_not_here_say_what_to_use(kind: str, name: str) -> None:
    assert not hasattr(objects()[kind], name)
    with pytest.raises(AttributeError, match=rf"'{kind}' .*'{name}'; instead of Lightning Thunder's: ."):
        getattr(objects()[kind], name)


@pytest.mark.parametrize("kind", OBJECTS)
def test_attributes_of_nobody_list_those_that_there_are(kind: str) -> None:
    there = {"Trace": "bound_symbols", "BoundSymbol": "results", "Value": "shape"}.get(kind, "cache_hits")
    there = "cache_option" if kind == "CompileData" else there
    with pytest.raises(
        AttributeError, match=rf"'{kind}' object has no attribute 'zzz'; its attributes are .*\b{there}"
    ):
        _ = objects()[kind].zzz
    with pytest.raises(AttributeError, match=r"no attribute '_zzz'$"):
        _ = objects()[kind]._zzz


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        ("BoundSymbol", "result", "results"),
        ("Value", "shap", "shape"),
        ("Trace", "bound_symbol", "bound_symbols"),
        ("CompileData", "option", "options"),
        ("CompileStats", "cache_hit", "cache_hits"),
    ],
)
def test_misspelt_attributes_suggest_the_right_one(kind: str, name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"did you mean '{meant}'"):
        getattr(objects()[kind], name)


def test_entries_of_statistics_that_are_not_there_list_those_that_are() -> None:
    with pytest.raises(KeyError, match=r"nope.*the entries are calls, .*seconds"):
        objects()["CompileStats"]["nope"]
    with pytest.raises(KeyError, match="did you mean 'cache_hits'"):
        objects()["CompileStats"]["cache_hit"]
    assert objects()["CompileStats"].get("nope") is None


@pytest.mark.parametrize("kind", ["CompileData", "CompileStats", "Trace"])
def test_objects_with_told_attributes_are_copied(kind: str) -> None:
    assert copy.copy(objects()[kind]) == objects()[kind]
    assert type(copy.deepcopy(objects()[kind])) in (type(objects()[kind]), dict)


@pytest.mark.parametrize("module", ["thunder", *MEMBERS])
def test_names_of_nobody_are_missed_as_ever(module: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'zzz'$"):
        _ = importlib.import_module(module).zzz
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'thunder\.zzz'"):
        importlib.import_module("thunder.zzz")
