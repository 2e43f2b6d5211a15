#pragma once

#include <vector>

#include "ir/trace.h"

namespace thunder::ir {

/// The distinct values among arguments, in order of first appearance.
[[nodiscard]] std::vector<ValueId> distinct_values(const ArgumentList& arguments);
/// The values that a symbol gives, lists flattened; kNoValue for None.
[[nodiscard]] std::vector<ValueId> flat_results(const BoundSymbol& symbol);

}  // namespace thunder::ir
