#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "ir/trace.h"
#include "runtime/autograd_node.h"
#include "transforms/grad.h"

namespace thunder::compile {

/// Drops the saved values that the backward trace does not read from its inputs and from the forward's outputs.
[[nodiscard]] std::pair<ir::Trace, ir::Trace> drop_unused_saved_values(const ir::Trace& forward,
                                                                       const ir::Trace& backward,
                                                                       std::size_t output_count);

/// How the autograd node treats outputs and saved values: which of them are inputs or share memory with inputs or
/// outputs. `program.forward` and `program.backward` are left alone.
void describe_boundary(const ir::Trace& forward, const ir::Trace& backward, const transforms::ForwardBackward& gradient,
                       runtime::DifferentiableProgram& program);

}  // namespace thunder::compile
