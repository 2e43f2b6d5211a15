#pragma once

#include "passes/grouped_keys.h"

namespace thunder::compile {

/// Whether PyTorch runs attention with fewer heads of keys and values by the fused kernel that it would run it by with
/// as many.
[[nodiscard]] bool takes_groups(const ir::Trace& trace, const passes::GroupedAttention& attention);

/// Whether PyTorch runs each attention of a trace by the kernel that it runs it by in another trace, whose values are
/// the same ones with other strides.
[[nodiscard]] bool runs_by_equal_kernels(const ir::Trace& trace, const ir::Trace& other);

}  // namespace thunder::compile
