#pragma once

#include "passes/pass.h"

namespace thunder::passes {

/// Computes equal expressions once: same operator, same arguments, same types, nothing written in between to what they
/// read. Operations that are random, write, or have an effect stay, as do those whose results are written to later; two
/// outputs never become the same memory.
[[nodiscard]] ir::Trace eliminate_common_subexpressions(const ir::Trace& trace);

inline constexpr Pass kCommonSubexpressionElimination{
    "common_subexpression_elimination",
    [](const ir::Trace& trace, FindOperator) { return eliminate_common_subexpressions(trace); }};

}  // namespace thunder::passes
