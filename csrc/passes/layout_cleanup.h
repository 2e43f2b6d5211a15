#pragma once

#include "passes/pass.h"

namespace thunder::passes {

/// Leaves out views, transpositions, copies and casts that change nothing, and joins those that follow one another:
/// `view` of `view`, `permute` of `transpose`, `expand` of `expand`, a cast of a cast whose first half loses nothing
/// (bfloat16 to float32 to bfloat16 is nothing at all), `clone` of what nobody writes to.
[[nodiscard]] ir::Trace clean_up_layout(const ir::Trace& trace, FindOperator find_operator);

inline constexpr Pass kLayoutCleanup{"layout_cleanup", &clean_up_layout};

/// Every value of `from` is one of `to`, and other casts give the same of either.
[[nodiscard]] bool cast_is_exact(ir::Dtype from, ir::Dtype to);

}  // namespace thunder::passes
