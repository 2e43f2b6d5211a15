#pragma once

#include <cstdint>
#include <vector>

#include "executors/cpu/wholes.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {

using fusion::Destinations;

/// Who reads and shares the memory of a trace's values.
struct MemoryUse {
  passes::AliasAnalysis aliases;
  std::vector<std::uint32_t> uses;  ///< of each value

  explicit MemoryUse(const ir::Trace& trace) : aliases(trace), uses(passes::use_counts(trace)) {}
};

/// Of a fused symbol of the trace.
[[nodiscard]] Destinations destinations_of(const ir::BoundSymbol& fused, const ir::Trace& trace,
                                           const MemoryUse& memory);

}  // namespace thunder::executors::cpu
