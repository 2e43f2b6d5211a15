#include "fusion/iteration_space.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace thunder::fusion {

std::vector<std::size_t> memory_order(const ir::TensorType& type) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < type.sizes.size(); ++i) {
    if (type.sizes[i] != ir::Dim(1)) order.push_back(i);
  }
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return type.strides[a].hint > type.strides[b].hint; });
  return order;
}

std::vector<std::size_t> dims_from(std::size_t first, std::size_t count) {
  std::vector<std::size_t> dims(count);
  std::iota(dims.begin(), dims.end(), first);
  return dims;
}

bool have_same_order(const ir::TensorType& left, const ir::TensorType& right) {
  const auto from_last = [](const ir::TensorType& type) {
    std::vector<std::size_t> order = memory_order(type);
    for (std::size_t& dim : order) dim = type.sizes.size() - dim;
    return order;
  };
  return from_last(left) == from_last(right);
}

IterationSpace space_of(const ir::TensorType& type, const ir::Dim& rows, const ir::Dim& before, const ir::Dim& blocks,
                        const ir::Dim& interleaved) {
  IterationSpace space{{}, rows, before, blocks, interleaved};
  const auto cuts = interleaved == ir::Dim(1) ? std::array{before, before * rows}
                                              : std::array{floor_divide(rows, interleaved),
                                                           floor_divide(product_of(type.sizes), interleaved)};
  ir::Dim product = 1;
  for (const std::size_t i : memory_order(type)) {
    ir::Dim rest = type.sizes[i];
    for (const ir::Dim& cut : cuts) {
      const auto part = exact_quotient(cut, product);  // the part of this size in front of the cut
      if (!part || part->hint <= 1 || *part == rest) continue;
      const auto behind = exact_quotient(rest, *part);
      if (!behind || behind->hint < 1) continue;
      space.sizes.push_back(*part);
      rest = *behind;
      product = cut;
    }
    space.sizes.push_back(rest);
    product *= rest;
  }
  return space;
}

namespace {

/// Whether so many elements are as many as those, or more: products of sizes that stand one behind the other.
bool is_multiple(const ir::Dim& elements, const ir::Dim& of) {
  const bool are_numbers = elements.is_concrete() && of.is_concrete();
  return are_numbers ? elements.hint >= of.hint : exact_quotient(elements, of).has_value();
}

}  // namespace

std::vector<std::size_t> column_dims(const ir::TensorType& type, const ir::Dim& rows, const ir::Dim& interleaved) {
  std::vector<std::size_t> dims;
  const ir::Dim begin = floor_divide(rows, interleaved);
  const ir::Dim end = floor_divide(product_of(type.sizes), interleaved);
  ir::Dim before = 1;
  for (const std::size_t dim : memory_order(type)) {
    if (is_multiple(before, begin) && !is_multiple(before, end)) dims.push_back(dim);
    before *= type.sizes[dim];
  }
  return dims;
}

std::optional<ir::Dims> common_refinement(const ir::Dims& left, const ir::Dims& right) {
  const ir::Dim one = 1;
  ir::Dims sizes;
  std::size_t i = left.size();
  std::size_t j = right.size();
  ir::Dim a = one;
  ir::Dim b = one;
  while (true) {
    if (a == one && i > 0) a = left[--i];
    if (b == one && j > 0) b = right[--j];
    if (a == one && b == one) break;
    const ir::Dim part = a.hint <= b.hint ? a : b;
    const auto rest_of_a = exact_quotient(a, part);
    const auto rest_of_b = exact_quotient(b, part);
    if (part == one || !rest_of_a || !rest_of_b) return std::nullopt;
    sizes.push_back(part);
    a = *rest_of_a;
    b = *rest_of_b;
  }
  std::ranges::reverse(sizes);
  return sizes;
}

namespace {

/// How many leading sizes have so many elements; nullopt: none do.
std::optional<std::size_t> leading_sizes(const ir::Dims& sizes, const ir::Dim& count) {
  ir::Dim product = 1;
  for (std::size_t i = 0; i <= sizes.size(); ++i) {
    if (product == count) return i;
    if (i < sizes.size()) product *= sizes[i];
  }
  return std::nullopt;
}

/// The sizes with others in those places; those of columns stay between rows that they were between.
std::optional<ir::Dims> with_rows(const IterationSpace& space, const std::vector<std::size_t>& places,
                                  const ir::Dims& rows) {
  const auto at = [](const auto& sizes, std::size_t i) { return sizes.begin() + static_cast<std::ptrdiff_t>(i); };
  const bool is_split = space.interleaved != ir::Dim(1);
  const ir::Dim blocks = floor_divide(space.rows, space.interleaved);
  const auto split = leading_sizes(rows, is_split ? blocks : ir::Dim(1));
  const auto begin = leading_sizes(space.sizes, is_split ? blocks : space.before);
  if (!split || !begin) return std::nullopt;
  const std::size_t end = space.sizes.size() - (is_split ? places.size() - *begin : 0);
  ir::Dims sizes;
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
  const bool is_split = space.interleaved != ir::Dim(1);
  const auto first = leading_sizes(space.sizes, is_split ? floor_divide(space.rows, space.interleaved) : space.before);
  const auto second =
      leading_sizes(space.sizes, is_split ? floor_divide(space.count(), space.interleaved) : space.before * space.rows);
  if (!first || !second) return std::nullopt;
  std::vector<std::size_t> places(space.sizes.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::erase_if(places, [&](std::size_t i) { return (i >= *first && i < *second) == is_split; });
  return places;
}

std::optional<IterationSpace> join(const IterationSpace& left, const IterationSpace& right) {
  const ir::Dim left_count = left.count();
  const ir::Dim right_count = right.count();
  if (left_count.hint < right_count.hint) return join(right, left);
  const auto is_cut = [](const IterationSpace& space) { return space.rows != ir::Dim(0); };
  const auto has_blocks = [](const IterationSpace& space) { return space.blocks != ir::Dim(1); };
  const IterationSpace& cut = is_cut(left) ? left : right;
  if (has_blocks(left) && has_blocks(right) && left.blocks != right.blocks) return std::nullopt;
  const ir::Dim& blocks = has_blocks(left) ? left.blocks : right.blocks;
  IterationSpace joined{{}, cut.rows, cut.before, blocks, cut.interleaved};
  if (left_count == right_count) {
    const auto is_cut_so = [&](const IterationSpace& space) {
      return space.rows == joined.rows && space.before == joined.before && space.interleaved == joined.interleaved;
    };
    if (is_cut(right) && !is_cut_so(right)) return std::nullopt;
    auto sizes = common_refinement(left.sizes, right.sizes);
    if (!sizes) return std::nullopt;
    joined.sizes = *std::move(sizes);
  } else {
    if (is_cut(right) || (is_cut(left) && left.rows != right_count)) return std::nullopt;
    // One element would make one row of all others, which nothing reduces.
    if (right_count == ir::Dim(1) && !is_cut(left)) return std::nullopt;
    joined.sizes = left.sizes;
    joined.rows = right_count;
    const auto places = row_places(joined);
    if (!places) return std::nullopt;
    ir::Dims own;
    for (const std::size_t i : *places) own.push_back(joined.sizes[i]);
    const auto rows = common_refinement(own, right.sizes);
    auto sizes = rows ? with_rows(joined, *places, *rows) : std::nullopt;
    if (!sizes) return std::nullopt;
    joined.sizes = *std::move(sizes);
  }
  if (is_cut(joined) && !row_places(joined)) return std::nullopt;
  return joined;
}

}  // namespace thunder::fusion
