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

IterationSpace space_of(const ir::TensorType& type, std::int64_t rows, std::int64_t before, std::int64_t blocks) {
  IterationSpace space{{}, rows, before, blocks};
  std::int64_t product = 1;
  for (const std::size_t i : memory_order(type)) {
    std::int64_t rest = type.sizes[i].hint;
    for (const std::int64_t cut : {before, before * rows}) {
      const std::int64_t part = cut % product == 0 ? cut / product : 0;  // of this size that is in front of the cut
      if (part <= 1 || part >= rest || rest % part != 0) continue;
      space.sizes.push_back(part);
      rest /= part;
      product = cut;
    }
    space.sizes.push_back(rest);
    product *= rest;
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

namespace {

/// How many leading sizes have so many elements; nullopt: none do.
std::optional<std::size_t> leading_sizes(const std::vector<std::int64_t>& sizes, std::int64_t count) {
  std::int64_t product = 1;
  for (std::size_t i = 0; i <= sizes.size(); ++i) {
    if (product == count) return i;
    if (i < sizes.size()) product *= sizes[i];
  }
  return std::nullopt;
}

}  // namespace

std::optional<SizeRange> row_sizes(const IterationSpace& space) {
  const auto begin = leading_sizes(space.sizes, space.before);
  const auto end = leading_sizes(space.sizes, space.before * space.rows);
  return begin && end ? std::make_optional(SizeRange{*begin, *end}) : std::nullopt;
}

std::optional<IterationSpace> join(const IterationSpace& left, const IterationSpace& right) {
  const std::int64_t left_count = left.count();
  const std::int64_t right_count = right.count();
  if (left_count < right_count) return join(right, left);
  const IterationSpace& with_rows = left.rows != 0 ? left : right;
  if (left.blocks != 1 && right.blocks != 1 && left.blocks != right.blocks) return std::nullopt;
  IterationSpace joined{{}, with_rows.rows, with_rows.before, std::max(left.blocks, right.blocks)};
  if (left_count == right_count) {
    if (right.rows != 0 && (right.rows != joined.rows || right.before != joined.before)) return std::nullopt;
    auto sizes = common_refinement(left.sizes, right.sizes);
    if (!sizes) return std::nullopt;
    joined.sizes = *std::move(sizes);
  } else {
    if (right.rows != 0 || (left.rows != 0 && left.rows != right_count)) return std::nullopt;
    joined.sizes = left.sizes;
    joined.rows = right_count;
    const auto range = row_sizes(joined);
    if (!range) return std::nullopt;
    const auto at = [&](std::size_t i) { return joined.sizes.begin() + static_cast<std::ptrdiff_t>(i); };
    const auto rows = common_refinement({at(range->begin), at(range->end)}, right.sizes);
    if (!rows) return std::nullopt;
    const auto behind = joined.sizes.erase(at(range->begin), at(range->end));
    joined.sizes.insert(behind, rows->begin(), rows->end());
  }
  if (joined.rows != 0 && !row_sizes(joined)) return std::nullopt;
  return joined;
}

}  // namespace thunder::passes
