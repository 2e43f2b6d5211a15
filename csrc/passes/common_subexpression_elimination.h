#pragma once

#include "passes/pass.h"

namespace thunder::passes {

/// Computes equal expressions once: same operator, same arguments, same types, nothing written in between to what they
/// read. What is random, writes, or has an effect stays, as does what is written to later; two outputs never become
/// the same memory.
[[nodiscard]] ir::Trace eliminate_common_subexpressions(const ir::Trace& trace);

inline constexpr Pass kCommonSubexpressionElimination{
    "common_subexpression_elimination",
    [](const ir::Trace& trace, FindOperator) { return eliminate_common_subexpressions(trace); }};

}  // namespace thunder::passes
