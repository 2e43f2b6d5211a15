"""Names of Lightning Thunder that this package has not, and what does their work here. See docs/migration.md."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterable
from typing import Any

__all__ = [
    "ATTRIBUTES",
    "MEMBERS",
    "MODULES",
    "OBJECTS",
    "OPTIONS",
    "TORCH_COMPILE_OPTIONS",
    "ForeignModules",
    "attribute_of",
    "missing_attribute",
    "missing_member",
]

_DTYPES = (
    *("bool8", "uint8", "int8", "int16", "int32", "int64", "bfloat16", "float16", "float32", "float64"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "complex32", "complex64", "complex128"),
)
_PROXIES = (
    *("Proxy", "TensorProxy", "NumberProxy", "StringProxy", "IntegerProxy", "FloatProxy", "ComplexProxy"),
    *("TupleProxy", "ListProxy", "DictProxy", "AnyProxy"),
)
_EXECUTOR = "thunder.extend.get_executor says what serves instead"

#: Attributes of the package `thunder`, with what to use instead.
ATTRIBUTES: dict[str, str] = {
    **{name: f"torch.{'bool' if name == 'bool8' else name}: traces have PyTorch's dtypes" for name in _DTYPES},
    **dict.fromkeys(_PROXIES, "values of traces are thunder.trace.Value, tensors under trace torch.Tensor"),
    **{f"{name}_executor": _EXECUTOR for name in ("cudnn", "sdpa", "nvfuser", "apex")},
    "torchcompile_cat_executor": "thunder.extend.get_executor('torchcompile')",
    "torchcompile_xentropy_executor": "thunder.extend.get_executor('torchcompile')",
    "pytorch_executor": "thunder.extend.get_executor('aten')",
    "clang": "torch: traces hold PyTorch's operators",
    "numpy": "NumPy itself: its arrays are followed in jitted functions",
    "torch": "torch: jitted functions and transforms call PyTorch itself",
    "dtypes": "torch's dtypes",
    "devices": "torch.device",
    "TraceCtx": "thunder.Trace",
    "get_compile_data": "thunder.compile_data(fn)",
    "DebugOptions": "traces are always verified; thunder.minify makes a failing program small",
    "set_execution_callback_file": "thunder.last_traces(fn)[-1].python_callable()",
    "get_always_executors": "thunder's own executors always stand behind those that are given",
    "add_executor_lists": "lists of executors are added with +",
    "last_interpreter_log": "thunder.last_prologue_traces(fn) shows what was read, and the lines",
    "last_interpreted_instructions": "dis.dis(fn)",
    "print_last_interpreter_log": "thunder.last_prologue_traces(fn) shows what was read, and the lines",
    "get_auto_registered_torch_op_names": "no operator needs to be registered: PyTorch's dispatcher knows them all",
}

#: Options of `thunder.jit`, with what to use instead.
OPTIONS: dict[str, str] = {
    "langctx": "programs are PyTorch's",
    "interpretation": "the interpreter reads all programs",
    "disable_torch_autograd": "call the function under torch.no_grad()",
    "debug_options": "traces are always verified; thunder.minify makes a failing program small",
    "executors_list": "executors=[…]",
    "early_transforms": "transforms=[…]",
    "use_cudagraphs": "thunder.plugins.ReduceOverhead",
    "skip_inplace_alias_updates": "writes in place are always followed",
    "enable_saved_for_backward_recomputation": "rematerialize=True, the default",
    **dict.fromkeys(
        ("nv_enable_linear", "nv_enable_matmul", "nv_enable_sdpa", "nv_enable_bookend", "nv_enable_embedding"),
        "an option of nvFuser, which thunder has not; leave it out",
    ),
}

#: Options of `torch.compile`, with what to use instead.
TORCH_COMPILE_OPTIONS: dict[str, str] = {
    "backend": 'thunder compiles by itself; executors=["torchcompile"] hands parts of a program to torch.compile',
    "mode": 'thunder.compile(model, plugins="reduce-overhead") and cuda_graphs=True make calls shorter',
    "disable": "leave thunder.jit out",
    "guard_filter_fn": "docs/guards.md says what is guarded",
    "recompile_limit": "docs/guards.md says how many specializations are kept",
}

_TRACES = "traces are thunder.Trace, their operations trace.bound_symbols, changed by trace.edit(…)"
_DERIVATIVES = "thunder.grad and its like; rules by register_implementation(…, grad_transform=…)"
_GRAPHS = "thunder.view(fn) shows traces as a page; thunder.last_kernels(fn) has the sources of kernels"

#: Modules of the package, with what to use instead.
MODULES: dict[str, str] = {
    "thunder.clang": ATTRIBUTES["clang"],
    "thunder.numpy": ATTRIBUTES["numpy"],
    "thunder.torch": ATTRIBUTES["torch"],
    "thunder.common": "thunder.compile_data(fn) and thunder.compile_stats(fn)",
    "thunder.benchmarks": "thunder bench, on the command line",
    "thunder.tests": "the test models of Lightning Thunder are LitGPT's: from litgpt import GPT, Config",
    "thunder.dev_utils": "thunder.profile(fn, *args), and ranges for PyTorch's profilers",
    "thunder.core.baseutils": "Python's and torch's own",
    "thunder.core.compile_data": "thunder.compile_data(fn)",
    "thunder.core.devices": ATTRIBUTES["devices"],
    "thunder.core.dtypes": ATTRIBUTES["dtypes"],
    "thunder.core.interpreter": ATTRIBUTES["last_interpreter_log"],
    "thunder.core.langctxs": OPTIONS["langctx"],
    "thunder.core.module": "thunder.ThunderModule",
    "thunder.core.prims": "torch.ops.aten: traces hold PyTorch's operators",
    "thunder.core.proxies": ATTRIBUTES["TensorProxy"],
    "thunder.core.pytree": "torch.utils._pytree",
    "thunder.core.recipe": "thunder.recipes.BaseRecipe",
    "thunder.core.rematerialization": "rematerialize=True, the default",
    "thunder.core.symbol": _TRACES,
    "thunder.core.trace": _TRACES,
    "thunder.core.utils": "Python's and torch's own",
    "thunder.core.vjp_utils": _DERIVATIVES,
    "thunder.distributed.prims": "torch.ops._c10d_functional: traces hold PyTorch's operators",
    "thunder.dynamo.report": "thunderfx(fn).report() and thunder.minify",
    "thunder.examine.memory_calculation": "thunder.view(fn) shows the memory over a trace",
    "thunder.executors.apexex": _EXECUTOR,
    "thunder.executors.cudnn_layernormex": _EXECUTOR,
    "thunder.executors.cudnnex": _EXECUTOR,
    "thunder.executors.nvfuserex": _EXECUTOR,
    "thunder.executors.pythonex": _EXECUTOR,
    "thunder.executors.sdpaex": _EXECUTOR,
    "thunder.executors.torchex": _EXECUTOR,
    "thunder.executors.transformer_engineex": _EXECUTOR,
    "thunder.executors.triton_crossentropy": _EXECUTOR,
    "thunder.transforms.autocast": "torch.autocast around calls, or thunder.autocast(fn, …)",
    "thunder.transforms.constant_folding": "a pass that always runs",
    "thunder.transforms.cudagraph": "thunder.plugins.ReduceOverhead",
    "thunder.transforms.materialization": "model.to_empty(device=…) before thunder.jit",
    "thunder.transforms.prune_prologue_checks": 'cache="same input", which checks the arguments alone',
    "thunder.transforms.qlora": "examples/extending/lora.py, a transform",
    "thunder.transforms.quantization": "thunder.plugins.Int4Weights",
}

#: Attributes of the package's modules, with what to use instead.
MEMBERS: dict[str, dict[str, str]] = {
    "thunder": ATTRIBUTES,
    "thunder.core": {},
    "thunder.core.options": {"DebugOptions": ATTRIBUTES["DebugOptions"]},
    "thunder.core.transforms": {
        **dict.fromkeys(("grad", "vjp", "value_and_grad", "inline_value_and_grad"), "thunder.grad and its like"),
        **dict.fromkeys(("register_grad", "register_augmented_forward", "register_backward"), _DERIVATIVES),
        **dict.fromkeys(("bsym_list_to_dag", "toposort_bsym_dag", "visitor_transform", "add_transform"), _TRACES),
    },
    "thunder.core.transform_common": dict.fromkeys(("dce", "cse"), "passes that always run: thunder.compile_stats(fn)"),
    "thunder.distributed": {
        "skip_data_parallel_grad_sync": "thunder.distributed.no_sync(model)",
        "set_skip_data_parallel_grad_sync": "thunder.distributed.no_sync(model)",
        "copy_default_process_group": "process_group=torch.distributed.new_group()",
    },
    "thunder.dynamo": dict.fromkeys(
        ("thunder_optimize", "thunder_profile"), "thunder.examine(fn, *args), which measures thunder and eager"
    ),
    "thunder.examine": {
        **dict.fromkeys(("make_trace_dot", "get_nvfuser_fusion_definition", "get_nvfuser_repro"), _GRAPHS),
        "warn_fusions": "print(thunder.fusions(fn))",
    },
    "thunder.executors": {},
    "thunder.executors.torch_compile": {
        "torch_compile_ex": 'executors=["torchcompile"]',
        "torch_compile_cat_ex": 'executors=["torchcompile"], or thunder\'s own fusions',
    },
    "thunder.extend": {
        **dict.fromkeys(
            ("get_always_executors", "set_always_executors", "add_always_executor", "remove_always_executor"),
            "add_default_executor and its like: thunder's own executors always stand behind",
        ),
        "StatefulExecutor": "a transform that adds buffers: examples/extending/amax_history.py",
        "TemporaryExecutor": "thunder.extend.OperatorExecutor, which need not be registered",
        "single_op_executor": "thunder.extend.OperatorExecutor",
        "add_executor_lists": ATTRIBUTES["add_executor_lists"],
    },
    "thunder.transforms": {
        "ConstantFolding": MODULES["thunder.transforms.constant_folding"],
        "LORATransform": MODULES["thunder.transforms.qlora"],
        "MaterializationTransform": MODULES["thunder.transforms.materialization"],
        "PrunePrologueChecks": MODULES["thunder.transforms.prune_prologue_checks"],
        "ExtractionOnlyPrologueTransform": MODULES["thunder.transforms.prune_prologue_checks"],
    },
}


_TRACE_ITSELF = "trace.edit(step), which makes another trace: traces never change"
_SCOPES = "trace.bound_symbols is flat; symbol.nested names what a fusion consists of"
_TIMES = 'compile_stats(fn)["seconds"], which has those of each stage'
_LINES = "symbol.file and symbol.line"
_TENSORS_OF_ARGUMENTS = "symbol.args and symbol.kwargs, through torch.utils._pytree.tree_leaves"
_TENSORS_OF_RESULTS = "symbol.results"
_OPERATIONS = "operations are PyTorch's; symbol.name says which"
_PRINTED = "str(trace), whose lines print the symbols"

#: Attributes of Lightning Thunder's objects, by the class that they have here, with what to use instead.
OBJECTS: dict[str, dict[str, str]] = {
    "Trace": {
        "args": "trace.inputs",
        "kwargs": "trace.inputs",
        "output": "trace.outputs",
        "names": "symbol.results and symbol.args of trace.bound_symbols",
        "fn": "thunder.compile_data(fn).fn",
        "python": "str(trace)",
        "python_ctx": "trace.python_callable()",
        "siginfo": "trace.inputs",
        "provenance": "trace.history",
        "get_provenance": "trace.history",
        "set_provenance": "trace.edit(step), whose step is named in trace.history",
        "tags": "trace.kind",
        "save_trace": "trace.save(file), or str(trace)",
        **dict.fromkeys(("scopes", "peek_scope", "push_scope", "pop_scope"), _SCOPES),
        **dict.fromkeys(
            ("add_bound_symbol", "add_name", "add_object", "make_name", "mark_complete", "complete", "record"),
            _TRACE_ITSELF,
        ),
    },
    "BoundSymbol": {
        "sym": "symbol.name, such as 'aten.linear.default'",
        "id": "symbol.name",
        "output": _TENSORS_OF_RESULTS,
        "subsymbols": "symbol.nested, the names of what a fusion consists of",
        "header": "symbol.comment",
        "executor": "symbol.name, which begins with the executor's",
        "source_filename": "symbol.file",
        "source_positions": "symbol.line",
        "tags": "torch's tags of the operator that symbol.name names",
        "rhs": "symbol.name, symbol.args and symbol.kwargs",
        "from_bsym": "trace.edit(step), which makes another trace",
        "from_bsym_swap_map": "trace.edit(step), which makes another trace",
        "is_prim": _OPERATIONS,
        "meta": _OPERATIONS,
        "python": _PRINTED,
        **dict.fromkeys(("import_ctx", "gather_ctxs", "object_ctx"), "trace.python_callable()"),
        **dict.fromkeys(
            ("flat_args", "flat_proxy_args", "flat_variableified_proxy_args", "has_input", "are_all_args_constant"),
            _TENSORS_OF_ARGUMENTS,
        ),
        **dict.fromkeys(
            ("flat_outs", "flat_proxy_outs", "flat_variableified_proxy_outs", "has_output"), _TENSORS_OF_RESULTS
        ),
    },
    "Value": {
        "true_dtype": "value.dtype",
        "size": "value.shape",
        "prefix": "value.name",
        "proxy_name": "value.name",
        "history": "thunder.last_prologue_traces(fn), which shows where inputs come from",
        "value": "value.name: numbers that are not constants have no value while a program is traced",
        "python_type": "value.is_tensor",
        "grad": "thunder.last_backward_traces(fn)[-1].outputs",
        "tags": "trace.parameters, which names the inputs that are parameters",
        "replace": "trace.edit(step)",
        "replace_name": "trace.edit(step)",
        "variableify": "value.name",
        **dict.fromkeys(
            ("distparallel_type", "ddp_type", "thunder_fsdp_padding_size"), "the module's parameters, which are shards"
        ),
    },
    "CompileData": {
        "is_module": "isinstance(data.fn, torch.nn.Module)",
        "get_compile_option": "data.compile_options, or data.options, which has all of them",
        "processed_function": "data.fn",
        "additional_transforms": "data.transforms",
        "langctx": OPTIONS["langctx"],
        "interpretation": OPTIONS["interpretation"],
        "disable_torch_autograd_support": OPTIONS["disable_torch_autograd"],
        "is_grad_enabled": "torch.is_grad_enabled()",
        "debug_options": OPTIONS["debug_options"],
        "use_rematerialization": "data.options.rematerialize",
        "use_cudagraphs": "data.options.cuda_graphs",
        "process_group_for_ddp": "process_group= of thunder.distributed.ddp",
        "last_compile_reasons": "thunder.explain_misses(fn)",
    },
    "CompileStats": {
        "last_compile_reasons": "thunder.explain_misses(fn)",
        "last_computation": "last_traces[-1].python_callable()",
        "last_prologue": "last_prologue_traces[-1].python_callable()",
        "last_executed": "last_traces[-1].python_callable()",
        "last_interpreter_log": "last_prologue_traces, which shows what was read, and the lines",
        "last_interpreted_instructions": ATTRIBUTES["last_interpreted_instructions"],
        "interpreter_cache": "specializations, their number",
        **dict.fromkeys(
            (
                f"last_{stage}_{end}"
                for stage in (
                    *("trace_host", "trace_cache", "trace_tracing", "trace_host_execution", "lowering", "executor"),
                    *("transformation", "prologue_transformation", "prologue_execution", "computation_execution"),
                )
                for end in ("start", "stop")
            ),
            _TIMES,
        ),
    },
}


def missing_member(kind: str, name: str, names: Iterable[str]) -> AttributeError:
    """Return what the `__getattr__` of a class raises: with what to use instead, or the attributes that there are."""
    from thunder._names import listed  # not needed by `import thunder`

    told = ""
    if name in OBJECTS[kind]:
        told = f"; instead of Lightning Thunder's: {OBJECTS[kind][name]}"
    elif not name.startswith("_"):
        there = [each for each in names if not each.startswith("_")]
        told = listed(name, there, "its attributes")
    return AttributeError(f"{kind!r} object has no attribute {name!r}{told}")


def attribute_of(module: str) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module: it raises, with what to use instead where that is known."""

    def __getattr__(name: str) -> Any:  # noqa: N807
        raise missing_attribute(module, name)

    return __getattr__


def missing_attribute(module: str, name: str) -> Exception:
    """Return what the `__getattr__` of a module, which calls this, raises for a name that the module has not.

    That is an AttributeError, but for `from module import name` an ImportError: there, Python would drop the message of
    an AttributeError.
    """
    instead = MEMBERS[module].get(name) or MODULES.get(f"{module}.{name}")
    told = f"; instead of Lightning Thunder's: {instead}" if instead else ""
    reader = sys._getframe(2)
    if told and reader.f_code.co_code[reader.f_lasti] == dis.opmap["IMPORT_FROM"]:
        return ImportError(f"cannot import name {name!r} from {module!r}{told}", name=name)
    return AttributeError(f"module {module!r} has no attribute {name!r}{told}")


class ForeignModules:
    """The last of Python's finders of modules: imports of Lightning Thunder's modules say what to use instead."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Raise ModuleNotFoundError for a module of Lightning Thunder's; None for all others."""
        if name in MODULES:
            raise ModuleNotFoundError(
                f"No module named {name!r}; instead of Lightning Thunder's: {MODULES[name]}", name=name
            )
