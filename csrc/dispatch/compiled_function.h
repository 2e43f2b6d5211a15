#pragma once

#include <Python.h>

namespace thunder::dispatch {

/// The callable that a `CompiledFunction`, or a function made by `torch.compile` or `torch.compiler.disable`, wraps
/// (borrowed); null for every other object.
PyObject* wrapped_callable(PyObject* object);

/// Adds `CompiledFunction(callable, options)` and the type of its traces to `module`; 0 or -1 with an exception.
int init_dispatch(PyObject* module);

}  // namespace thunder::dispatch
