#pragma once

#include <cstdint>
#include <vector>

#include "ir/trace.h"
#include "runtime/program_builder.h"

namespace thunder::executors::cpu {

/// A contiguous tensor whose parts along a dimension are results of a fusion, in order. All that happens to them is
/// that a `cat` puts them together.
struct Whole {
  std::vector<std::uint32_t> parts;   ///< places among the results
  std::vector<std::int64_t> offsets;  ///< in elements, of each part
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;  ///< of each part, too
};

/// Those of a fused symbol of the trace.
[[nodiscard]] std::vector<Whole> wholes_of(const ir::BoundSymbol& fused, const ir::Trace& trace);

// A `SingleOperation`: such a `cat`. Where the fusion computed the parts side by side, there is nothing left to do.
[[nodiscard]] bool takes_cat(const ir::BoundSymbol& symbol, const ir::Trace& trace);
void lower_cat(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder);

}  // namespace thunder::executors::cpu
