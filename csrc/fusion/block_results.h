#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "fusion/roles.h"
#include "ir/trace.h"

namespace thunder::fusion {

// Operations at the end of a fusion say where its results lie: a `copy_` to a tensor that the fusion reads, or to rows
// of it that an index chooses (`index_copy_`), or a slice.

/// Whether an operation at the end of a fusion copies a result of it to a tensor that the fusion reads.
[[nodiscard]] bool is_copy(const BoundSymbol& symbol);
/// Whether it copies a result to rows of such a tensor.
[[nodiscard]] bool is_row_copy(const BoundSymbol& symbol);
/// Where a slice that a fusion ends with begins in the result, by dimension; nullopt: the operation is none.
[[nodiscard]] std::optional<ir::Dims> slice_start(const BoundSymbol& symbol, const Trace& trace);

/// A tensor that a fusion copies a result to.
struct CopyTarget {
  std::size_t input = 0;  ///< its place among the inputs
  ir::ValueId value = ir::kNoValue;
  bool is_read = false;       ///< by what the fusion computes
  bool chooses_rows = false;  ///< an index says to which rows of it
};
[[nodiscard]] std::vector<CopyTarget> copy_targets(const BoundSymbol& fused);
/// The places of those tensors among the inputs.
[[nodiscard]] std::vector<std::size_t> written_inputs(const BoundSymbol& fused);

}  // namespace thunder::fusion
