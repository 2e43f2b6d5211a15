#pragma once

#include <cstdint>
#include <optional>

#include "ir/trace.h"
#include "passes/pass.h"

namespace thunder::passes {

/// The linear layers that a target runs faster as one.
struct MergeRule {
  /// Multiplications of one layer, above which the library is as fast for each by itself. Merged layers have four times
  /// as many at most: their results are in memory at once.
  double most_multiplications = 0;
  std::int64_t least_rows = 1;      ///< rows of the input, below which the time goes into reading weights
  std::int64_t least_columns = 1;   ///< columns of the input, below which joining the gradients costs more
  std::int64_t width_multiple = 1;  ///< columns of each result: its rows begin where vectors and matmuls can read them
  bool copies_weights = false;      ///< also where weights are not cast: each call copies them then
};

/// Linear layers that read one input (queries, keys and values; gates of a feed-forward network) as one: the weights
/// are joined, and cast together where autocast casts them; the results are columns of one matrix. So the derivative is
/// one matmul for the input and one for all weights. Only layers whose weights are either all trained or none, and
/// whose results nothing sees the strides of: the caller gets none of them.
///
/// nullopt: there are no two such layers whose inputs are `accepted`.
[[nodiscard]] std::optional<ir::Trace> merge_linears(const ir::Trace& trace, const MergeRule& rule,
                                                     bool (*accepts)(const ir::TensorType& type),
                                                     FindOperator find_operator);

inline constexpr const char* kMergedLinears = "merged_linears";

}  // namespace thunder::passes
