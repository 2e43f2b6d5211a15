#pragma once

#include "executors/tiles/tile_op.h"
#include "ir/trace.h"
#include "passes/fusion_partition.h"

namespace thunder::executors::cpu {

/// Roles of symbols, by the shape of their work. Each gives no role where the tensors are not what it expects.

/// One result whose elements follow from those of the arguments that broadcast to it.
[[nodiscard]] passes::FusionRole element_role(const ir::BoundSymbol& symbol, const ir::Trace& trace, double work);
/// The same elements under other sizes.
[[nodiscard]] passes::FusionRole view_role(const ir::BoundSymbol& symbol, const ir::Trace& trace);
/// A reduction over `dims` of argument 0 (empty: all) to one result.
[[nodiscard]] passes::FusionRole reduction_role(const ir::BoundSymbol& symbol, const ir::Trace& trace,
                                                const ir::Argument& dims, bool rows_only);
/// Results whose rows follow from rows of `over`, whose last `row_dims` dimensions are columns.
[[nodiscard]] passes::FusionRole row_role(const ir::BoundSymbol& symbol, const ir::Trace& trace, ir::ValueId over,
                                          std::size_t row_dims, double work);

/// `dim` of a tensor of that rank, counted from the front.
[[nodiscard]] std::size_t wrap_dim(std::int64_t dim, std::size_t rank);
[[nodiscard]] bool is_contiguous(const ir::TensorType& type);

}  // namespace thunder::executors::cpu
