#pragma once

#include "ir/generalization.h"
#include "ir/trace.h"

namespace thunder::tracer {

/// Compares constants that operations make anew at each size: tensors of traces of one family.
[[nodiscard]] ir::AreAlike constants_alike(const ir::TraceContext& context);
/// Whether a trace with symbols consists of operations that compute and reads of data: nothing else is repeated at
/// other sizes, and no tensor is written to whose sizes are symbols.
[[nodiscard]] bool has_only_operations(const ir::Trace& trace);

}  // namespace thunder::tracer
