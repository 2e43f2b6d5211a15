#pragma once

#include <optional>

#include "ir/trace.h"

namespace thunder::passes {

/// Answers what executors ask about sizes that are expressions with yes where it is yes for the sizes that were traced,
/// and a condition decides it: operands of elementwise operations are as large as the result, views have as many
/// elements as what they show, and tensors lie without gaps. The trace is right only under these conditions, which it
/// holds from then on, and which a program checks when it is called. nullopt: there is nothing to assume.
[[nodiscard]] std::optional<ir::Trace> assume_sizes(const ir::Trace& trace);

inline constexpr const char* kSizeAssumptions = "size_assumptions";

}  // namespace thunder::passes
