#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "executors/cpu/roles.h"
#include "runtime/program_builder.h"

namespace thunder::executors::cpu {

/// A contiguous tensor whose parts along a dimension are results of a fusion, in order.
struct Whole {
  std::vector<std::uint32_t> parts;   ///< places among the results
  std::vector<std::int64_t> offsets;  ///< in elements, of each part
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;  ///< of each part, too
};

/// Where the results of a fusion may be computed.
struct Destinations {
  /// For each result the place among the inputs of a tensor that it is copied to; nobody looks at that tensor's memory
  /// before, and that is all that happens to the result. -1: there is none.
  std::vector<std::int32_t> inputs;
  std::vector<Whole> wholes;  ///< all that happens to their parts is that they are put together
};

/// Of a fused symbol of the trace.
[[nodiscard]] Destinations destinations_of(const BoundSymbol& fused, const Trace& trace);

// A `SingleOperation`: puts parts together that a fusion computed side by side. There is nothing left to do then.
[[nodiscard]] bool takes_cat(const BoundSymbol& symbol, const Trace& trace);
void lower_cat(const BoundSymbol& symbol, const Trace& trace, runtime::ProgramBuilder& builder);

}  // namespace thunder::executors::cpu
