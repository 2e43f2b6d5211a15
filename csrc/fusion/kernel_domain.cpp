// The rows and columns that a kernel goes over, and where in memory its operands lie along these.
#include <algorithm>
#include <numeric>
#include <ranges>
#include <utility>

#include "fusion/lowering.h"
#include "ir/symbol_values.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {

/// Finds the space that all symbols go over together.
bool Lowering::find_space() {
  std::vector<IterationSpace> spaces;
  for (const FusionRole& role : roles_) {
    if (role.kind == FusionRole::Kind::kNone) return false;
    spaces.push_back(space_of(*trace_.tensor_type(role.over), role.rows, role.before, role.blocks, role.interleaved));
  }
  std::ranges::stable_sort(spaces, [](const auto& a, const auto& b) { return a.count().hint > b.count().hint; });
  std::optional<IterationSpace> joined = spaces.front();
  for (std::size_t i = 1; i < spaces.size() && joined; ++i) joined = join(*joined, spaces[i]);
  if (!joined) return false;
  space_ = *std::move(joined);
  places_.resize(space_.sizes.size());
  std::iota(places_.begin(), places_.end(), std::size_t{0});
  rows_ = space_.rows == Dim(0) ? places_ : row_places(space_).value();
  std::ranges::stable_partition(places_, [&](std::size_t i) { return std::ranges::find(rows_, i) != rows_.end(); });
  return true;
}

template <typename T>
std::vector<T> Lowering::rows_first(const std::vector<T>& by_size) const {
  std::vector<T> sorted;
  for (const std::size_t i : places_) sorted.push_back(by_size[i]);
  return sorted;
}

/// How far apart, in the memory of an input, neighbours along each size of the space are, the rows' first.
Dims Lowering::strides_over_space(ir::ValueId id, const BoundSymbol& reader, std::size_t argument) const {
  const FusionRole& role = this->role(reader);
  const ir::TensorType& over = *trace_.tensor_type(role.over);
  const ir::TensorType& type = *passes::operand_type(trace_, id);
  if (role.kind == FusionRole::Kind::kView && type.sizes != over.sizes) {
    // The elements in their order, under the sizes of the result.
    if (!ir::is_contiguous(type) || !ir::is_contiguous(over)) throw Failure{};
    return strides_over_space(over, over.strides, over, dims_from(0, over.sizes.size()));
  }
  const bool by_rows = (role.by_rows >> argument & 1U) != 0;
  const bool by_channels = (role.by_channels >> argument & 1U) != 0;
  const std::size_t missing = by_rows ? 0 : by_channels ? 1 : over.sizes.size() - type.sizes.size();
  std::vector<std::size_t> dims = dims_from(missing, type.sizes.size());
  if (by_rows) {  // they are those of `over` that are not columns
    const std::vector<std::size_t> columns = column_dims(over, role.rows, role.interleaved);
    dims = dims_from(0, over.sizes.size());
    std::erase_if(dims, [&](std::size_t dim) { return std::ranges::find(columns, dim) != columns.end(); });
  }
  return strides_over_space(type, input_strides_[inputs_.at(index_of(id))], over, dims);
}

/// The strides, over the space, of a tensor with those strides whose dimensions are the dimensions `dims` of `over`.
Dims Lowering::strides_over_space(const ir::TensorType& type, const Dims& strides, const ir::TensorType& over,
                                  const std::vector<std::size_t>& dims) const {
  Dims result(space_.sizes.size(), 0);
  for_each_dim(over, [&](std::size_t dim, std::span<const std::size_t> places) {
    const auto own = static_cast<std::size_t>(std::ranges::find(dims, dim) - dims.begin());
    Dim stride = 0;
    if (own < type.sizes.size() && own < dims.size() && type.sizes[own] != Dim(1)) stride = strides[own];
    for (const std::size_t place : std::views::reverse(places)) {
      result[place] = stride;
      stride *= space_.sizes[place];
    }
  });
  return rows_first(result);
}

/// Calls `visit` for each dimension with the places of the space's sizes that it is made of.
template <typename Visitor>
void Lowering::for_each_dim(const ir::TensorType& over, Visitor visit) const {
  const bool over_rows = product_of(over.sizes) != space_.count();
  const std::vector<std::size_t> places = over_rows ? rows_ : dims_from(0, space_.sizes.size());
  std::size_t first = 0;
  for (const std::size_t dim : memory_order(over)) {
    std::size_t last = first;
    for (Dim product = 1; product != over.sizes[dim]; ++last) {
      if (last == places.size()) throw Failure{};  // sizes of the space are no pieces of the dimension
      product *= space_.sizes[places[last]];
    }
    visit(dim, std::span(places).subspan(first, last - first));
    first = last;
  }
}

/// Where a part of `over` stands along each size of the space, the rows' first. nullopt: a piece of a dimension that is
/// several sizes there is no piece of each.
std::optional<std::vector<Interval>> Lowering::intervals_over_space(const std::vector<Interval>& by_dim,
                                                                    const ir::TensorType& over) const {
  std::vector<Interval> result(space_.sizes.size());
  bool fits = product_of(over.sizes) == space_.count() && space_.interleaved == Dim(1);
  for (std::size_t dim = 0; dim < over.sizes.size(); ++dim) {
    // A dimension of one index is nowhere in the space, which so cannot say which index of the part that is, or that
    // the part has none there.
    const bool is_all_of_part = by_dim[dim].begin == Dim(0) && by_dim[dim].end == Dim(1);
    fits = fits && (over.sizes[dim] != Dim(1) || is_all_of_part);
  }
  for_each_dim(over, [&](std::size_t dim, std::span<const std::size_t> places) {
    Interval rest = by_dim[dim];
    if (rest.end - rest.begin == Dim(1)) rest.stride = 0;
    for (const std::size_t place : std::views::reverse(places)) {
      const Dim& size = space_.sizes[place];
      const auto begin = exact_quotient(rest.begin, size);
      const auto end = exact_quotient(rest.end, size);
      if (place == places.front()) {
        result[place] = rest;
      } else if (begin && end) {
        result[place] = {0, size, rest.stride};
        rest = {*begin, *end, rest.stride * size};
      } else {
        const bool are_numbers = rest.begin.is_concrete() && rest.end.is_concrete() && size.is_concrete();
        const Dim index = rest.begin.hint / size.hint;
        const Dim first = index * size;
        fits = fits && are_numbers && rest.begin.hint >= 0 && rest.end.hint <= (first + size).hint;
        result[place] = {rest.begin - first, rest.end - first, rest.stride};
        rest = {index, index + 1, 0};
      }
    }
  });
  return fits ? std::make_optional(rows_first(result)) : std::nullopt;
}

std::optional<std::vector<Interval>> Lowering::intervals_over_space(const BufferRegion& part,
                                                                    const ir::TensorType& over) const {
  const Dims strides = part.in_result(input_strides_[inputs_.at(index_of(part.value))], 0);
  std::vector<Interval> by_dim;
  for (std::size_t i = 0; i < strides.size(); ++i) {
    by_dim.push_back({part.start[i], part.start[i] + part.sizes[i], strides[i]});
  }
  return intervals_over_space(by_dim, over);
}

std::optional<std::vector<Interval>> Lowering::intervals_over_space(const Slice& slice,
                                                                    const ir::TensorType& over) const {
  std::vector<Interval> by_dim;
  for (std::size_t i = 0; i < slice.start.size(); ++i) {
    by_dim.push_back({slice.start[i], slice.start[i] + slice.type->sizes[i], slice.type->strides[i]});
  }
  return intervals_over_space(by_dim, over);
}

/// The intervals of all parts that are joined, or stored. nullopt: one cannot be read, or stored, in this space.
std::optional<std::vector<std::vector<Interval>>> Lowering::find_parts() const {
  std::vector<std::vector<Interval>> parts;
  const auto add = [&](std::optional<std::vector<Interval>> part) {
    if (part) parts.push_back(*std::move(part));
    return part.has_value();
  };
  for (const BoundSymbol& symbol : computing()) {
    const auto regions = buffer_regions_of(symbol, trace_);
    for (std::size_t i = 0; regions && i < regions->parts.size(); ++i) {
      if (!add(intervals_over_space(regions->parts[i], result_type(symbol)))) return std::nullopt;
    }
  }
  for (const auto& [value, slice] : slices_) {
    if (!add(intervals_over_space(slice, *trace_.tensor_type(ir::ValueId{value})))) return std::nullopt;
  }
  return parts;
}

/// Joins sizes that every input steps through as through one, and cuts what is left into rows and columns.
bool Lowering::find_domain() {
  const Dim one = 1;
  std::vector<Dims> accesses;
  for (const BoundSymbol& symbol : computing()) {
    for (std::size_t a = 0; a < symbol.arguments.size(); ++a) {
      if ((role(symbol).gathered >> a & 1U) != 0) continue;
      ir::for_each_value(symbol.arguments[a], [&](ir::ValueId id) {
        if (inputs_.contains(index_of(id))) accesses.push_back(strides_over_space(id, symbol, a));
      });
    }
  }
  const Dims parts = rows_first(space_.sizes);
  std::vector<bool> is_cut(parts.size(), false);  // where a part begins or ends
  const auto stood = find_parts();
  if (!stood) return false;
  for (const std::vector<Interval>& part : *stood) {
    accesses.emplace_back();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      accesses.back().push_back(part[i].stride);
      is_cut[i] = is_cut[i] || part[i].begin != Dim(0) || part[i].end != parts[i];
    }
  }
  for (const auto& [value, strides] : copy_strides_) {
    const ir::TensorType& type = *trace_.tensor_type(ir::ValueId{value});
    if (space_.before != one || space_.interleaved != one || product_of(type.sizes) != space_.count()) return false;
    accesses.push_back(strides_over_space(type, strides, type, dims_from(0, type.sizes.size())));
  }
  if (!add_row_accesses(accesses)) return false;
  const std::size_t count = parts.size();
  const std::size_t split = rows_.size();
  Dims sizes;
  std::size_t outer_sizes = 0;
  joined_.assign(count, 0);
  for (std::size_t i = 0; i < count; ++i) {
    const bool are_neighbours = i > 0 && i != split && places_[i] == places_[i - 1] + 1 && !is_cut[i];
    const bool joins = are_neighbours && std::ranges::all_of(accesses, [&](const auto& strides) {
                         return strides[i - 1] == strides[i] * parts[i];
                       });
    if (joins) {
      sizes.back() *= parts[i];
    } else {
      sizes.push_back(parts[i]);
    }
    joined_[i] = sizes.size() - 1;
    if (i < split) outer_sizes = sizes.size();
  }
  if (space_.rows == Dim(0)) outer_sizes = sizes.empty() ? 0 : sizes.size() - 1;
  if (sizes.size() > outer_sizes + (space_.interleaved == one ? 2 : 1)) return false;
  if (space_.interleaved != one && sizes[outer_sizes - 1] != space_.interleaved) return false;
  outer_count_ = outer_sizes;
  KernelDomain domain;
  domain.outer.assign(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(outer_sizes));
  for (std::size_t i = outer_sizes; i < sizes.size(); ++i) domain.columns *= sizes[i];
  if (sizes.size() > outer_sizes + 1) run_ = sizes.back();
  domain.splits_columns = space_.rows == Dim(0);
  if (space_.before != one) domain.run = run_;
  domain.interleaved = space_.interleaved != one;
  domain.blocks = domain.interleaved     ? floor_divide(space_.rows, space_.interleaved)
                  : space_.blocks != one ? space_.blocks
                                         : repeated_blocks(sizes, accesses);
  graph_ = std::make_unique<KernelGraph>(std::move(domain));
  return true;
}

/// Into how many blocks to cut the rows, so that what is the same row for each is read where it lies; 1: none is.
Dim Lowering::repeated_blocks(const Dims& sizes, const std::vector<Dims>& accesses) const {
  if (outer_count_ != 2 || run_ != Dim(0) || (sizes[1] * sizes[2]).hint < target_.least_repeated_block) return 1;
  const bool repeats = std::ranges::any_of(accesses, [&](const auto& strides) {
    const Access access = access_of(0, ir::Dtype::kFloat32, strides);
    return access.outer_strides[0] != Dim(0) && access.outer_strides[1] == Dim(0) && access.inner_stride == Dim(1);
  });
  return repeats ? sizes[0] : Dim(1);
}

Access Lowering::access_of(std::uint32_t array, ir::Dtype dtype, const Dims& strides) const {
  Access access;
  access.array = array;
  access.dtype = dtype;
  access.outer_strides.assign(outer_count_, 0);
  for (std::size_t i = 0; i < strides.size(); ++i) {  // the last of those that are joined counts
    if (joined_[i] < outer_count_) {
      access.outer_strides[joined_[i]] = strides[i];
    } else if (run_ != Dim(0) && joined_[i] == outer_count_) {
      access.run_stride = strides[i];
    } else {
      access.inner_stride = strides[i];
    }
  }
  if (access.run_stride != access.inner_stride * run_) access.run = run_;
  if (access.inner_stride == Dim(0) && access.run_stride == Dim(0)) access.extent = Extent::kRows;
  return access;
}

/// Joins the intervals of sizes that are one size of the domain: all but the first of them must be complete.
Part Lowering::part_of(std::uint32_t array, const std::vector<Interval>& intervals) const {
  Part part{array, std::vector<Interval>(outer_count_), {0, 1, 0}, {0, 1, 0}};
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    Interval& joined = joined_[i] < outer_count_                      ? part.outer[joined_[i]]
                       : run_ != Dim(0) && joined_[i] == outer_count_ ? part.runs
                                                                      : part.columns;
    const bool is_first = i == 0 || joined_[i] != joined_[i - 1];
    joined = is_first ? intervals[i]
                      : Interval{joined.begin * intervals[i].end, joined.end * intervals[i].end, intervals[i].stride};
  }
  return part;
}

}  // namespace thunder::fusion
