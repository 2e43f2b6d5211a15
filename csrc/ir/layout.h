#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ir/type.h"

namespace thunder::ir {

/// Where sizes are expressions, of the sizes that were traced.
[[nodiscard]] std::int64_t element_count(const TensorType& type);
/// Bytes of the elements; zero for null, which is no tensor.
[[nodiscard]] std::int64_t size_in_bytes(const TensorType* type);

/// The strides of a contiguous tensor; dimensions without elements count as one.
[[nodiscard]] Dims contiguous_strides(const Dims& sizes);
/// The dimensions from the one with the largest stride on.
[[nodiscard]] std::vector<std::size_t> dims_by_stride(const TensorType& type);
/// The strides of a tensor without gaps whose dimensions lie in memory in this order, from the outermost on.
[[nodiscard]] Dims strides_in_order(const Dims& sizes, std::span<const std::size_t> order);

/// Whether two dimensions count as equal. `std::equal_to`: they are, whatever the symbols.
using EqualDims = std::function<bool(const Dim& left, const Dim& right)>;
[[nodiscard]] bool is_contiguous(const TensorType& type, const EqualDims& are_equal = std::equal_to<Dim>());
/// Every element has a place of its own, and there are no gaps: the strides are those of some order of the dimensions.
[[nodiscard]] bool is_dense(const TensorType& type, const EqualDims& are_equal = std::equal_to<Dim>());

/// Equal as memory: everything but who wants a gradient and where in its storage it begins.
[[nodiscard]] bool same_layout(const TensorType& left, const TensorType& right);

}  // namespace thunder::ir
