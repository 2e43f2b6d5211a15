#pragma once

#include "passes/pass.h"

namespace thunder::passes {

/// Moves copies to the caller's memory to the end, where nothing in between touches that memory or an effect could see
/// it: no fusion goes across a write.
[[nodiscard]] ir::Trace write_late(const ir::Trace& trace, FindOperator find_operator);

inline constexpr Pass kLateWrites{"late_writes", &write_late};

}  // namespace thunder::passes
