#pragma once

#include "interpreter/provenance/tracker.h"

namespace thunder::dispatch {

/// How a trace runs a code object: interpreted or, where it must not look into it, natively. The source has a table.
/// `counts_hooks`: the numbers of handles of hooks are read and written as other objects are; see `keeps_hook_number`.
[[nodiscard]] interpreter::Treatment treatment_of(PyCodeObject* code, bool counts_hooks);
/// Whether these are the globals of a module of PyTorch, of the standard library, or written in C.
[[nodiscard]] bool is_library(PyObject* globals);
/// Adds substitutes for functions that mean something else inside a trace (`torch.compiler.is_compiling`). Leaves an
/// exception set when a function of the table in the source cannot be found.
void add_substitutes(interpreter::TrackerOptions& options);

}  // namespace thunder::dispatch
