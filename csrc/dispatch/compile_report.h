#pragma once

#include <Python.h>

#include "compile/compiler.h"

namespace thunder::dispatch {

// For `thunder.inspect`: what a compilation did, as lists of tuples. Null with a Python exception set.

/// (pass, trace, seconds, symbols before, symbols after), in the order in which they ran.
[[nodiscard]] PyObject* report_passes(const compile::Compiled& computation);
/// (operation, rule, reason, file, line) for each operation that was differentiated.
[[nodiscard]] PyObject* report_rules(const compile::Compiled& computation);

}  // namespace thunder::dispatch
