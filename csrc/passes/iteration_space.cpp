#include "passes/iteration_space.h"

#include <algorithm>

namespace thunder::passes {

std::vector<std::size_t> memory_order(const ir::TensorType& type) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < type.sizes.size(); ++i) {
    if (type.sizes[i].hint != 1) order.push_back(i);
  }
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return type.strides[a].hint > type.strides[b].hint; });
  return order;
}

IterationSpace space_of(const ir::TensorType& type, std::int64_t rows) {
  IterationSpace space{{}, rows};
  std::int64_t product = 1;
  for (const std::size_t i : memory_order(type)) {
    const std::int64_t size = type.sizes[i].hint;
    const std::int64_t part = rows % product == 0 ? rows / product : 0;  // of this size that belongs to the rows
    if (part > 1 && part < size && size % part == 0) {
      space.sizes.push_back(part);
      space.sizes.push_back(size / part);
    } else {
      space.sizes.push_back(size);
    }
    product *= size;
  }
  return space;
}

std::optional<std::vector<std::int64_t>> common_refinement(const std::vector<std::int64_t>& left,
                                                           const std::vector<std::int64_t>& right) {
  std::vector<std::int64_t> sizes;
  std::size_t i = left.size();
  std::size_t j = right.size();
  std::int64_t a = 1;
  std::int64_t b = 1;
  while (true) {
    if (a == 1 && i > 0) a = left[--i];
    if (b == 1 && j > 0) b = right[--j];
    if (a == 1 && b == 1) break;
    const std::int64_t part = std::min(a, b);
    if (part == 1 || a % part != 0 || b % part != 0) return std::nullopt;
    sizes.push_back(part);
    a /= part;
    b /= part;
  }
  std::ranges::reverse(sizes);
  return sizes;
}

std::optional<std::size_t> leading_sizes(const std::vector<std::int64_t>& sizes, std::int64_t rows) {
  std::int64_t product = 1;
  for (std::size_t i = 0; i <= sizes.size(); ++i) {
    if (product == rows) return i;
    if (i < sizes.size()) product *= sizes[i];
  }
  return std::nullopt;
}

std::optional<IterationSpace> join(const IterationSpace& left, const IterationSpace& right) {
  const std::int64_t left_count = left.count();
  const std::int64_t right_count = right.count();
  if (left_count < right_count) return join(right, left);
  IterationSpace joined;
  if (left_count == right_count) {
    if (left.rows != 0 && right.rows != 0 && left.rows != right.rows) return std::nullopt;
    auto sizes = common_refinement(left.sizes, right.sizes);
    if (!sizes) return std::nullopt;
    joined = {*std::move(sizes), left.rows != 0 ? left.rows : right.rows};
  } else {
    if (right.rows != 0 || (left.rows != 0 && left.rows != right_count)) return std::nullopt;
    const auto split = leading_sizes(left.sizes, right_count);
    if (!split) return std::nullopt;
    const auto middle = left.sizes.begin() + static_cast<std::ptrdiff_t>(*split);
    auto sizes = common_refinement({left.sizes.begin(), middle}, right.sizes);
    if (!sizes) return std::nullopt;
    sizes->insert(sizes->end(), middle, left.sizes.end());
    joined = {*std::move(sizes), right_count};
  }
  if (joined.rows != 0 && !leading_sizes(joined.sizes, joined.rows)) return std::nullopt;
  return joined;
}

}  // namespace thunder::passes
