#pragma once

#include <vector>

#include "ir/trace.h"
#include "passes/pass.h"

namespace thunder::passes {

/// The operations that a backward may recompute instead of having their results saved.
enum class Recompute : std::uint8_t {
  kNothing,
  kFree,  ///< views and constants: operations that cost no pass over data
  /// Also pointwise operations, casts, norms, softmax, gathers and random masks, but on a GPU not for what a library
  /// reads; never matmuls, convolutions, attention.
  kFast,
  kMemory,  ///< also for what a library reads on a GPU
};

/// Whether `symbol` may run again in a backward, with the same results.
[[nodiscard]] bool may_recompute(const ir::BoundSymbol& symbol, Recompute policy);

/// The symbol of `trace` as it runs a second time: without effects on what outlives it.
[[nodiscard]] ir::BoundSymbol recomputed(const ir::BoundSymbol& symbol, const ir::Trace& trace,
                                         FindOperator find_operator);
/// The values that it reads when it does.
[[nodiscard]] std::vector<ir::ValueId> read_again(const ir::BoundSymbol& symbol);

}  // namespace thunder::passes
