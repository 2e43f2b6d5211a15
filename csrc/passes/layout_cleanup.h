#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "passes/pass.h"

namespace thunder::passes {

/// Leaves out views, transpositions, copies and casts that change nothing, and joins those that follow one another:
/// `view` of `view`, `permute` of `transpose`, `expand` of `expand`, a cast of a cast whose first half loses nothing
/// (bfloat16 to float32 to bfloat16 is nothing at all), `clone` of what nobody writes to.
[[nodiscard]] ir::Trace clean_up_layout(const ir::Trace& trace, FindOperator find_operator);

inline constexpr Pass kLayoutCleanup{"layout_cleanup", &clean_up_layout};

/// The dimensions of the argument that the dimensions of the result of `t`, `transpose` or `permute` are; nullopt: it
/// is none of these.
[[nodiscard]] std::optional<std::vector<std::size_t>> permutation_of(const ir::BoundSymbol& symbol, std::size_t rank);

/// Every value of `from` is one of `to`, and other casts give the same of either.
[[nodiscard]] bool cast_is_exact(ir::Dtype from, ir::Dtype to);

}  // namespace thunder::passes
