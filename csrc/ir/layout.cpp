#include "ir/layout.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

namespace thunder::ir {
namespace {

/// Its stride means nothing.
bool has_one_index(const Dim& size) { return size == Dim(0) || size == Dim(1); }

}  // namespace

std::int64_t element_count(const TensorType& type) {
  std::int64_t count = 1;
  for (const Dim& size : type.sizes) count *= size.hint;
  return count;
}

std::int64_t size_in_bytes(const TensorType* type) {
  return type == nullptr ? 0 : element_count(*type) * size_of(type->dtype);
}

Dims contiguous_strides(const Dims& sizes) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  return strides_in_order(sizes, order);
}

std::vector<std::size_t> dims_by_stride(const TensorType& type) {
  std::vector<std::size_t> order(type.strides.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t dim) { return type.strides[dim].hint; });
  return order;
}

Dims strides_in_order(const Dims& sizes, std::span<const std::size_t> order) {
  Dims strides(sizes.size());
  Dim step = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[*dim] = step;
    if (sizes[*dim] != Dim(0)) step *= sizes[*dim];
  }
  return strides;
}

bool is_contiguous(const TensorType& type, const EqualDims& are_equal) {
  const Dims strides = contiguous_strides(type.sizes);
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (!has_one_index(type.sizes[i]) && !are_equal(type.strides[i], strides[i])) return false;
  }
  return true;
}

bool is_dense(const TensorType& type, const EqualDims& are_equal) {
  std::vector<std::pair<Dim, Dim>> dims;  // (stride, size)
  for (std::size_t i = 0; i < type.sizes.size(); ++i) {
    if (!has_one_index(type.sizes[i])) dims.emplace_back(type.strides[i], type.sizes[i]);
  }
  std::ranges::sort(dims, {}, [](const auto& dim) { return std::pair(dim.first.hint, dim.second.hint); });
  Dim step = 1;
  for (const auto& [stride, size] : dims) {
    if (!are_equal(stride, step)) return false;
    step *= size;
  }
  return true;
}

bool same_layout(const TensorType& left, const TensorType& right) {
  return left.dtype == right.dtype && left.device == right.device && left.layout == right.layout &&
         left.sizes == right.sizes && left.strides == right.strides;
}

}  // namespace thunder::ir
