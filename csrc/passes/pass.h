#pragma once

#include <cstddef>
#include <string>

#include "ir/trace.h"

namespace thunder::passes {

using ir::FindOperator;

/// A rewrite of a trace. `name` is its entry in the history of the trace that it returns, and what switches it off.
struct Pass {
  const char* name;
  ir::Trace (*run)(const ir::Trace&, FindOperator);
};

/// What the runner in `compile/` notes of one pass over one trace.
struct PassStatistics {
  std::string pass;
  std::string trace;
  double seconds = 0;
  std::size_t symbols_before = 0;
  std::size_t symbols_after = 0;
};

}  // namespace thunder::passes
