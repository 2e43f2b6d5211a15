#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "ir/trace.h"

namespace thunder::operators {

/// Whether an operator gives the elements of a tensor, in their order, other sizes: `view`, `reshape`, `_unsafe_view`.
[[nodiscard]] bool is_reshape(const ir::Operator& op);

/// The strides of what a reshape gives for other sizes: those of a view, or of a copy where there is no such view;
/// nullopt: symbols decide which of them it is.
[[nodiscard]] std::optional<ir::Dims> strides_of_reshape(const ir::TensorType& from, const ir::Dims& sizes);

/// The dimensions of the argument that the dimensions of the result of `t`, `transpose` or `permute` are; nullopt: it
/// is none of these.
[[nodiscard]] std::optional<std::vector<std::size_t>> permutation_of(const ir::BoundSymbol& symbol, std::size_t rank);

}  // namespace thunder::operators
