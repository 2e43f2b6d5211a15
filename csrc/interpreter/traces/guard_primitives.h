#pragma once

#include "interpreter/python/python_ref.h"
#include "ir/trace.h"

namespace thunder::interpreter {

/// The operator row of `thunder.prims.<name>`; null when there is none.
[[nodiscard]] const ir::Operator* primitive(std::string_view name);
/// All rows by name, for the test that compares them with `thunder/prims.py`.
[[nodiscard]] std::vector<const ir::Operator*> primitives();

/// A constant of a trace: a literal where Python has one, an `object<i>` otherwise.
[[nodiscard]] ir::Argument to_argument(py::Borrowed constant, ir::TraceContext& context);

}  // namespace thunder::interpreter
