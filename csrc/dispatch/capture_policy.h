#pragma once

#include "interpreter/provenance/tracker.h"

namespace thunder::dispatch {

/// What a trace does with code that it must not look into, and with functions that mean something else inside a trace
/// (`torch.compiler.is_compiling`). One table each, in the source.
[[nodiscard]] interpreter::Treatment treatment_of(PyCodeObject* code);
/// Whether these are the globals of a module of PyTorch, of the standard library, or written in C.
[[nodiscard]] bool is_library(PyObject* globals);
/// False with an exception set when a function of the tables cannot be found.
void add_substitutes(interpreter::TrackerOptions& options);

}  // namespace thunder::dispatch
