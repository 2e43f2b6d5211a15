#pragma once

#include <functional>

#include "ir/trace.h"

namespace thunder::passes {

/// Attention whose keys and values have fewer heads than its queries: their types.
struct GroupedAttention {
  const ir::BoundSymbol* symbol;  ///< with as many heads of each
  ir::TensorType key;
  ir::TensorType value;
};

/// Whether the kernel that would run the attention takes fewer heads of keys and values, too.
using TakesGroups = std::function<bool(const GroupedAttention& attention)>;

/// Attention on a device whose keys and values were repeated for groups of queries (`repeat_kv` of Transformers:
/// `unsqueeze`, `expand`, `reshape`) takes them as they are (`enable_gqa`), where the kernel does: the repeated ones
/// are not written, nor are their gradients added up. Only without a mask, and where nothing is dropped.
[[nodiscard]] ir::Trace group_keys(const ir::Trace& trace, ir::DeviceType device, const TakesGroups& takes_groups);

inline constexpr const char* kGroupedKeys = "grouped_keys";

}  // namespace thunder::passes
