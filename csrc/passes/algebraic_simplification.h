#pragma once

#include "passes/pass.h"

namespace thunder::passes {

/// Leaves out arithmetic that gives its argument, bit for bit, whatever it holds (NaN, infinities, -0.0), in the same
/// dtype and shape: `x * 1`, `x / 1`, `x - 0`, `x ** 1`, `-(-x)`, `~~x`, `where(c, x, x)`. Not `x + 0`, which makes 0.0
/// of -0.0, and nothing of complex numbers, whose products mix parts.
[[nodiscard]] ir::Trace simplify_algebra(const ir::Trace& trace, FindOperator find_operator);

inline constexpr Pass kAlgebraicSimplification{"algebraic_simplification", &simplify_algebra};

}  // namespace thunder::passes
