#include "operators/reorderings.h"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <numeric>
#include <utility>
#include <variant>

#include "ir/layout.h"

namespace thunder::operators {
namespace {

/// How positive dimensions compare, whatever the symbols are; nullopt: that depends on them.
std::optional<std::strong_ordering> compare(const ir::Dim& left, const ir::Dim& right) {
  if (left == right) return std::strong_ordering::equal;
  if (left.is_concrete() && right.is_concrete()) return left.hint <=> right.hint;
  const auto is_multiple = [](const ir::Dim& larger, const ir::Dim& smaller) {
    const std::optional<ir::Dim> factor = ir::exact_quotient(larger, smaller);
    return factor && ir::least_value(*factor).value_or(1) > 1;
  };
  if (is_multiple(left, right) || ir::least_value(left - right).value_or(0) > 0) return std::strong_ordering::greater;
  if (is_multiple(right, left) || ir::least_value(right - left).value_or(0) > 0) return std::strong_ordering::less;
  return std::nullopt;
}

}  // namespace

bool is_reshape(const ir::Operator& op) {
  return op.name == "aten::view" ? op.overload.empty() : op.name == "aten::reshape" || op.name == "aten::_unsafe_view";
}

// As at::detail::computeStride: runs of dimensions that lie in memory as one are divided anew, from the innermost on.
std::optional<ir::Dims> strides_of_reshape(const ir::TensorType& from, const ir::Dims& sizes) {
  if (std::ranges::find(from.sizes, ir::Dim(0)) != from.sizes.end()) {
    return from.sizes == sizes ? from.strides : ir::contiguous_strides(sizes);
  }
  if (from.sizes.empty()) return ir::Dims(sizes.size(), ir::Dim(1));
  ir::Dims strides(sizes.size());
  std::size_t left = sizes.size();
  ir::Dim run_stride = from.strides.back();
  ir::Dim run_count = 1;
  for (std::size_t dim = from.sizes.size(); dim-- > 0;) {
    run_count *= from.sizes[dim];
    if (dim > 0) {
      const auto stride = compare(from.strides[dim - 1], run_count * run_stride);
      if (from.sizes[dim - 1] == ir::Dim(1) || stride == std::strong_ordering::equal) continue;
      if (!stride) return std::nullopt;
    }
    ir::Dim count = 1;
    auto order = compare(count, run_count);
    while (left > 0 && (order == std::strong_ordering::less || sizes[left - 1] == ir::Dim(1))) {
      strides[--left] = count * run_stride;
      count *= sizes[left];
      order = compare(count, run_count);
    }
    if (!order) return std::nullopt;
    if (order != std::strong_ordering::equal) return ir::contiguous_strides(sizes);
    if (dim > 0) run_stride = from.strides[dim - 1];
    run_count = 1;
  }
  return strides;
}

std::optional<std::vector<std::size_t>> permutation_of(const ir::BoundSymbol& symbol, std::size_t rank) {
  std::vector<std::size_t> order(rank);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto dim = [&](const ir::Argument& argument) {
    const auto* number = argument.get<std::int64_t>();
    return static_cast<std::size_t>(*number < 0 ? *number + static_cast<std::int64_t>(order.size()) : *number);
  };
  const ir::Operator& op = *symbol.op;
  if (op.name == "aten::t") {
    if (order.size() == 2) std::swap(order[0], order[1]);
  } else if (op.name == "aten::transpose" && op.overload == "int") {
    if (!order.empty()) std::swap(order[dim(symbol.arguments[1])], order[dim(symbol.arguments[2])]);
  } else if (op.name == "aten::permute") {
    const auto& dims = std::get<ir::ArgumentList>(symbol.arguments[1].content);
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = dim(dims[i]);
  } else {
    return std::nullopt;
  }
  return order;
}

}  // namespace thunder::operators
