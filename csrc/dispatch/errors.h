#pragma once

#include <Python.h>

namespace thunder::dispatch {

/// Turns the C++ exception that is being handled into the pending Python exception: UserError by its kind,
/// InternalError into `thunder.errors.InternalError`, PyTorch's as PyTorch does it. A Python exception that is pending
/// already stays.
void set_python_error();

}  // namespace thunder::dispatch
