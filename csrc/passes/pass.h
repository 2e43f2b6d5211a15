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

/// The effect of one pass on one trace, as the runner in `compile/` notes it.
struct PassStatistics {
  std::string pass;
  std::string trace;
  double seconds = 0;
  std::size_t symbols_before = 0;
  std::size_t symbols_after = 0;
};

}  // namespace thunder::passes
