#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/trace.h"

namespace thunder::compile {

/// Facts that decide whether a program may be recorded as a CUDA graph, which launches the same kernels on the same
/// addresses each time.
struct GraphFacts {
  std::string obstacle{};       ///< why it may not be; empty: it may
  std::vector<bool> written{};  ///< by input: the program writes to its memory
  std::int64_t bytes = 0;       ///< size of all results: no more than this is kept for the graph
};

/// The facts of a program, by its final trace. An operation that is not known to launch kernels only is an obstacle.
[[nodiscard]] GraphFacts graph_facts(const ir::Trace& final);

}  // namespace thunder::compile
