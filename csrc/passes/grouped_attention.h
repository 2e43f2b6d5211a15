#pragma once

#include "ir/trace.h"
#include "passes/pass.h"

namespace thunder::passes {

/// Attention on a device of that type whose keys and values are repeated for the heads of a group (`repeat_kv` in
/// Hugging Face's models: `unsqueeze`, `expand`, `reshape`) reads them as they were, by `thunder::grouped_attention`.
[[nodiscard]] ir::Trace group_attention(const ir::Trace& trace, ir::DeviceType device, FindOperator find_operator);

inline constexpr const char* kGroupedAttention = "grouped_attention";

}  // namespace thunder::passes
