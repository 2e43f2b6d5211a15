#pragma once

#include "fusion/partition.h"
#include "fusion/target.h"
#include "ir/trace.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {

using ir::BoundSymbol;
using ir::Trace;
using passes::argument_type;
using passes::is_contiguous;
using passes::is_float;
using passes::only_of;
using passes::result_type;
using passes::wrap_dim;

/// Roles of symbols, by the shape of their work. Each gives no role where the tensors are not what it expects.

/// One result whose elements follow from those of the arguments that broadcast to it.
[[nodiscard]] FusionRole element_role(const BoundSymbol& symbol, const Trace& trace, double work, const Target& target);
/// A role that gives the elements of its argument under other sizes.
[[nodiscard]] FusionRole view_role(const BoundSymbol& symbol, const Trace& trace);
/// A reduction over `dims` of argument 0 (empty: all) to one result.
[[nodiscard]] FusionRole reduction_role(const BoundSymbol& symbol, const Trace& trace, const ir::Argument& dims,
                                        bool rows_only, const Target& target);
/// Results whose elements, or rows, follow from the rows of `over`, which are so many.
[[nodiscard]] FusionRole rows_role(const BoundSymbol& symbol, const Trace& trace, ir::ValueId over, const ir::Dim& rows,
                                   double work);
/// The role of results whose elements, or rows, follow from rows that the last `row_dims` dimensions make.
[[nodiscard]] FusionRole row_role(const BoundSymbol& symbol, const Trace& trace, ir::ValueId over, std::size_t row_dims,
                                  double work);

/// The role of results whose elements, or rows, follow from rows along dimension `dim`, wherever that stands. There is
/// no role where interleaved rows are too long, or too few.
[[nodiscard]] FusionRole dim_role(const BoundSymbol& symbol, const Trace& trace, ir::ValueId over, std::int64_t dim,
                                  double work, const Target& target);

}  // namespace thunder::fusion
