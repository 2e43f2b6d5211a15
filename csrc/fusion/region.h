#pragma once

#include <string_view>

#include "ir/trace.h"

namespace thunder::fusion {

/// `prims.fused("cpu", [tensors])`, a block: operations that an executor runs as one.
[[nodiscard]] const ir::Operator* fused_operator();
/// Whether the symbol is a block of that executor.
[[nodiscard]] bool is_fused_by(const ir::BoundSymbol& symbol, std::string_view executor);

/// The fused symbol alone, in a trace of its own with values numbered from zero.
[[nodiscard]] ir::Trace region_of(const ir::BoundSymbol& fused, const ir::Trace& trace);

}  // namespace thunder::fusion
