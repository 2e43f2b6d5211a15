#pragma once

#include "passes/grouped_keys.h"

namespace thunder::compile {

/// Whether PyTorch runs attention with fewer heads of keys and values by the fused kernel that it would run it by with
/// as many.
[[nodiscard]] bool takes_groups(const ir::Trace& trace, const passes::GroupedAttention& attention);

}  // namespace thunder::compile
