#pragma once

#include <Python.h>

#include "interpreter/provenance/tracker.h"

namespace thunder::dispatch {

/// Adds substitutes for PyTorch's legacy `vmap`, and for its loading of batching rules.
void add_functional_substitutes(interpreter::TrackerOptions& options);

/// Adds what `thunder.transforms.functional` is made of to `module`: recording a function as a trace of its own,
/// transforming that trace, and replaying it where the function was called. 0 or -1 with an exception.
int init_functional(PyObject* module);

}  // namespace thunder::dispatch
