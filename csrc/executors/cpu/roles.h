#pragma once

#include <optional>

#include "bridge/stretch.h"
#include "executors/tiles/tile_op.h"
#include "ir/trace.h"
#include "passes/fusion_partition.h"

namespace thunder::executors::cpu {

using ir::BoundSymbol;
using ir::Trace;
using passes::FusionRole;

using bridge::kLeastStretch;

/// Roles of symbols, by the shape of their work. Each gives no role where the tensors are not what it expects.

/// One result whose elements follow from those of the arguments that broadcast to it.
[[nodiscard]] FusionRole element_role(const BoundSymbol& symbol, const Trace& trace, double work);
/// The same elements under other sizes.
[[nodiscard]] FusionRole view_role(const BoundSymbol& symbol, const Trace& trace);
/// A reduction over `dims` of argument 0 (empty: all) to one result.
[[nodiscard]] FusionRole reduction_role(const BoundSymbol& symbol, const Trace& trace, const ir::Argument& dims,
                                        bool rows_only);
/// Results whose elements, or rows, follow from the rows of `over`, which are so many.
[[nodiscard]] FusionRole rows_role(const BoundSymbol& symbol, const Trace& trace, ir::ValueId over, std::int64_t rows,
                                   double work);
/// The same, of rows that the last `row_dims` dimensions make.
[[nodiscard]] FusionRole row_role(const BoundSymbol& symbol, const Trace& trace, ir::ValueId over, std::size_t row_dims,
                                  double work);

/// The same, of rows along dimension `dim`, wherever that stands. There is no role where rows side by side are too
/// long, or too few.
[[nodiscard]] FusionRole dim_role(const BoundSymbol& symbol, const Trace& trace, ir::ValueId over, std::int64_t dim,
                                  double work);

/// How memory holds a dtype; nullopt: no tile is made of it.
[[nodiscard]] std::optional<Storage> storage_of(ir::Dtype dtype);
/// Of a floating-point dtype; false for null, which is no tensor.
[[nodiscard]] bool is_float(const ir::TensorType* type);
/// What stands in a list by itself; any other argument as it is.
[[nodiscard]] const ir::Argument& only_of(const ir::Argument& argument);
/// Of argument `i`; null where that is no tensor.
[[nodiscard]] const ir::TensorType* argument_type(const BoundSymbol& symbol, const Trace& trace, std::size_t i);
/// Of the only result; null where there is none.
[[nodiscard]] const ir::TensorType* result_type(const BoundSymbol& symbol, const Trace& trace);

/// `dim` of a tensor of that rank, counted from the front.
[[nodiscard]] std::size_t wrap_dim(std::int64_t dim, std::size_t rank);
[[nodiscard]] bool is_contiguous(const ir::TensorType& type);

}  // namespace thunder::executors::cpu
