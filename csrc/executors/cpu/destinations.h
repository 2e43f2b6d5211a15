#pragma once

#include <cstdint>
#include <vector>

#include "executors/cpu/roles.h"

namespace thunder::executors::cpu {

/// For each result of a fusion the place among its inputs of a tensor; -1: there is none.
using Destinations = std::vector<std::int32_t>;

/// Of a fused symbol of the trace: where each result may be computed. All that happens to it is that it is copied to
/// that tensor, and nobody looks at the tensor's memory before.
[[nodiscard]] Destinations destinations_of(const BoundSymbol& fused, const Trace& trace);

}  // namespace thunder::executors::cpu
