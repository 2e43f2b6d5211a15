#pragma once

#include <cstddef>
#include <limits>

#include "passes/pass.h"

namespace thunder::passes {

/// Computes equal expressions once: same operator, same arguments, same types, nothing written in between to what they
/// read. Operations that are random, write, or have an effect stay, as do those whose results are written to later. Two
/// outputs become the same memory only where the caller gets neither: it gets the first `caller_outputs`, and the
/// others are saved for a backward.
[[nodiscard]] ir::Trace eliminate_common_subexpressions(
    const ir::Trace& trace, std::size_t caller_outputs = std::numeric_limits<std::size_t>::max());

inline constexpr Pass kCommonSubexpressionElimination{
    "common_subexpression_elimination",
    [](const ir::Trace& trace, FindOperator) { return eliminate_common_subexpressions(trace); }};

}  // namespace thunder::passes
