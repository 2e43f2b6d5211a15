#pragma once

#include "ir/trace.h"
#include "tracer/trace_node.h"

namespace thunder::transforms {

/// Whether eager saves a value of the operation for its backward that the program has written over since. PyTorch
/// itself tells, for tensors of the same metadata: the derivatives of a trace may read others, as they are formulas for
/// all data, and do not know of operators that write to their argument (`elu_` saves its result, `elu` its argument).
[[nodiscard]] bool saves_written(const tracer::TraceNode& node, const ir::Trace& trace);

}  // namespace thunder::transforms
