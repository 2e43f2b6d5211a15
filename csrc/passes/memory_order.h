#pragma once

#include "passes/pass.h"

namespace thunder::passes {

/// Moves operations down to just before the first one that needs them, where that shortens the life of more memory than
/// it lengthens. The order is kept of whatever is random, writes, has an effect or reads what is written to. Returns
/// the trace as it was unless the estimated peak falls. `inputs_die`: see `estimate_peak_memory`.
[[nodiscard]] ir::Trace order_for_memory(const ir::Trace& trace, bool inputs_die);

inline constexpr Pass kForwardMemoryOrder{
    "memory_order", [](const ir::Trace& trace, FindOperator) { return order_for_memory(trace, false); }};
inline constexpr Pass kBackwardMemoryOrder{
    "memory_order", [](const ir::Trace& trace, FindOperator) { return order_for_memory(trace, true); }};

}  // namespace thunder::passes
