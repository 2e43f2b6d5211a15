#pragma once

#include "fusion/lowering.h"
#include "fusion/roles.h"

namespace thunder::fusion {

/// The work for each element, in elementwise operations, of what needs rows more than once.
inline constexpr double kRowWork = 8;

[[nodiscard]] Value sum_of_rows(Lowering& lowering, Value value);
[[nodiscard]] Value mean_of_rows(Lowering& lowering, Value value, const ir::Dim& columns);
/// Rows along `dim` of the result.
[[nodiscard]] FusionRole rows_along_role(const BoundSymbol& symbol, const Trace& trace, std::size_t dim_argument,
                                         const Target& target);
/// The log-softmax of a symbol's first argument.
[[nodiscard]] Value log_probabilities(Lowering& lowering, const BoundSymbol& symbol);

}  // namespace thunder::fusion
