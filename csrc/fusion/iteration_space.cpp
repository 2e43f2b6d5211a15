#include "fusion/iteration_space.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace thunder::fusion {

std::vector<std::size_t> memory_order(const ir::TensorType& type) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < type.sizes.size(); ++i) {
    if (type.sizes[i].hint != 1) order.push_back(i);
  }
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return type.strides[a].hint > type.strides[b].hint; });
  return order;
}

bool have_same_order(const ir::TensorType& left, const ir::TensorType& right) {
  const auto from_last = [](const ir::TensorType& type) {
    std::vector<std::size_t> order = memory_order(type);
    for (std::size_t& dim : order) dim = type.sizes.size() - dim;
    return order;
  };
  return from_last(left) == from_last(right);
}

IterationSpace space_of(const ir::TensorType& type, std::int64_t rows, std::int64_t before, std::int64_t blocks,
                        std::int64_t side_by_side) {
  IterationSpace space{{}, rows, before, blocks, side_by_side};
  std::int64_t count = 1;
  for (const ir::Dim& size : type.sizes) count *= size.hint;
  const auto cuts =
      side_by_side == 1 ? std::array{before, before * rows} : std::array{rows / side_by_side, count / side_by_side};
  std::int64_t product = 1;
  for (const std::size_t i : memory_order(type)) {
    std::int64_t rest = type.sizes[i].hint;
    for (const std::int64_t cut : cuts) {
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

std::vector<std::size_t> column_dims(const ir::TensorType& type, std::int64_t rows, std::int64_t side_by_side) {
  std::vector<std::size_t> dims;
  std::int64_t before = 1;
  std::int64_t count = 1;
  for (const ir::Dim& size : type.sizes) count *= size.hint;
  for (const std::size_t dim : memory_order(type)) {
    if (before >= rows / side_by_side && before < count / side_by_side) dims.push_back(dim);
    before *= type.sizes[dim].hint;
  }
  return dims;
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

/// The sizes with others in those places; those of columns stay between rows that they were between.
std::optional<std::vector<std::int64_t>> with_rows(const IterationSpace& space, const std::vector<std::size_t>& places,
                                                   const std::vector<std::int64_t>& rows) {
  const auto at = [](const auto& sizes, std::size_t i) { return sizes.begin() + static_cast<std::ptrdiff_t>(i); };
  const bool is_split = space.side_by_side != 1;
  const auto split = leading_sizes(rows, is_split ? space.rows / space.side_by_side : 1);
  const auto begin = leading_sizes(space.sizes, is_split ? space.rows / space.side_by_side : space.before);
  if (!split || !begin) return std::nullopt;
  const std::size_t end = space.sizes.size() - (is_split ? places.size() - *begin : 0);
  std::vector<std::int64_t> sizes;
  if (is_split) {
    sizes.assign(rows.begin(), at(rows, *split));
    sizes.insert(sizes.end(), at(space.sizes, *begin), at(space.sizes, end));
    sizes.insert(sizes.end(), at(rows, *split), rows.end());
  } else {
    sizes.assign(space.sizes.begin(), at(space.sizes, *begin));
    sizes.insert(sizes.end(), rows.begin(), rows.end());
    sizes.insert(sizes.end(), at(space.sizes, *begin + places.size()), space.sizes.end());
  }
  return sizes;
}

}  // namespace

std::optional<std::vector<std::size_t>> row_places(const IterationSpace& space) {
  const bool is_split = space.side_by_side != 1;
  const auto first = leading_sizes(space.sizes, is_split ? space.rows / space.side_by_side : space.before);
  const auto second =
      leading_sizes(space.sizes, is_split ? space.count() / space.side_by_side : space.before * space.rows);
  if (!first || !second) return std::nullopt;
  std::vector<std::size_t> places(space.sizes.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::erase_if(places, [&](std::size_t i) { return (i >= *first && i < *second) == is_split; });
  return places;
}

std::optional<IterationSpace> join(const IterationSpace& left, const IterationSpace& right) {
  const std::int64_t left_count = left.count();
  const std::int64_t right_count = right.count();
  if (left_count < right_count) return join(right, left);
  const IterationSpace& cut = left.rows != 0 ? left : right;
  if (left.blocks != 1 && right.blocks != 1 && left.blocks != right.blocks) return std::nullopt;
  IterationSpace joined{{}, cut.rows, cut.before, std::max(left.blocks, right.blocks), cut.side_by_side};
  if (left_count == right_count) {
    const auto is_cut_so = [&](const IterationSpace& space) {
      return space.rows == joined.rows && space.before == joined.before && space.side_by_side == joined.side_by_side;
    };
    if (right.rows != 0 && !is_cut_so(right)) return std::nullopt;
    auto sizes = common_refinement(left.sizes, right.sizes);
    if (!sizes) return std::nullopt;
    joined.sizes = *std::move(sizes);
  } else {
    if (right.rows != 0 || (left.rows != 0 && left.rows != right_count)) return std::nullopt;
    joined.sizes = left.sizes;
    joined.rows = right_count;
    const auto places = row_places(joined);
    if (!places) return std::nullopt;
    std::vector<std::int64_t> own;
    for (const std::size_t i : *places) own.push_back(joined.sizes[i]);
    const auto rows = common_refinement(own, right.sizes);
    auto sizes = rows ? with_rows(joined, *places, *rows) : std::nullopt;
    if (!sizes) return std::nullopt;
    joined.sizes = *std::move(sizes);
  }
  if (joined.rows != 0 && !row_places(joined)) return std::nullopt;
  return joined;
}

}  // namespace thunder::fusion
