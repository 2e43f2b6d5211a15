#pragma once

#include <string>
#include <vector>

#include "bindings/python_values.h"
#include "ir/operator.h"

namespace thunder::bindings {

/// The rows of all primitives that traces may have.
[[nodiscard]] std::vector<const ir::Operator*> primitive_operators();

/// Functions that store and load traces: `save` and `load` of thunder.trace.Trace.
void define_trace_file(python::module_& module);

}  // namespace thunder::bindings
