#pragma once

#include <cstddef>
#include <cstdint>

#include "ir/trace.h"
#include "runtime/graph_runner.h"

namespace thunder::compile {

using runtime::GraphFacts;

/// The facts of a program, by its final trace. An operation that is not known to launch kernels only is an obstacle, as
/// is one of the first `own_outputs` outputs that shares memory.
[[nodiscard]] GraphFacts graph_facts(const ir::Trace& final, std::size_t own_outputs = SIZE_MAX);

}  // namespace thunder::compile
