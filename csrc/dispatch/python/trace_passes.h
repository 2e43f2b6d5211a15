#pragma once

#include <Python.h>

namespace thunder::dispatch {

/// Adds `pass_names()` and `run_pass(trace, name)` to `module`: single passes, for tests that choose their order.
/// 0 or -1 with an exception.
int init_trace_passes(PyObject* module);

}  // namespace thunder::dispatch
