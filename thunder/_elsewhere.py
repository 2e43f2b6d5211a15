"""Names of Lightning Thunder that this package has not, and what does their work here. See docs/migration.md."""

from __future__ import annotations

__all__ = ["ATTRIBUTES", "OPTIONS"]

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
