#pragma once

#include <cstdint>
#include <vector>

#include "executors/cpu/roles.h"
#include "executors/cpu/wholes.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {

/// Where the results of a fusion may be computed.
struct Destinations {
  /// For each result the place among the inputs of a tensor that it is copied to; nobody looks at that tensor's memory
  /// before, and that is all that happens to the result. -1: there is none.
  std::vector<std::int32_t> inputs;
  std::vector<Whole> wholes;
  std::vector<Cut> cuts;
};

/// Who reads and shares the memory of a trace's values.
struct MemoryUse {
  passes::AliasAnalysis aliases;
  std::vector<std::uint32_t> uses;  ///< of each value

  explicit MemoryUse(const Trace& trace) : aliases(trace), uses(passes::use_counts(trace)) {}
};

/// Of a fused symbol of the trace.
[[nodiscard]] Destinations destinations_of(const BoundSymbol& fused, const Trace& trace, const MemoryUse& memory);

}  // namespace thunder::executors::cpu
