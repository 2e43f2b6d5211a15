#include "fusion/lowering.h"

#include <algorithm>
#include <numeric>
#include <ranges>
#include <utility>

#include "base/error.h"
#include "fusion/block_results.h"
#include "fusion/operations.h"
#include "ir/symbol_values.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {

namespace {

/// The dimensions from `first` on.
std::vector<std::size_t> dims_from(std::size_t first, std::size_t count) {
  std::vector<std::size_t> dims(count);
  std::iota(dims.begin(), dims.end(), first);
  return dims;
}

}  // namespace

Lowering::Lowering(const BoundSymbol& fused, const Trace& trace, const Strides& strides, const Target& target)
    : fused_(fused), trace_(trace), input_strides_(strides), target_(target) {
  std::uint32_t array = 0;
  for (const ir::ValueId id : ir::distinct_values(fused.arguments)) inputs_.emplace(index_of(id), array++);
  for (const ir::ValueId id : ir::flat_results(fused)) {
    stored_.push_back(id);
    outputs_.emplace(index_of(id), array++);
  }
  std::size_t computing = fused.nested.size();
  while (computing > 0 && is_destination(fused.nested[computing - 1])) --computing;
  find_destinations(std::span(fused.nested).subspan(computing));
  for (const BoundSymbol& symbol : std::span(fused.nested).first(computing)) {
    roles_.push_back(role_of(symbol, trace, target));
  }
}

/// Whether an operation at the end says where a result goes to: copies it, or is a slice of it, which is otherwise
/// unread.
bool Lowering::is_destination(const BoundSymbol& symbol) const {
  if (is_copy(symbol) || is_row_copy(symbol)) return true;
  const ir::ValueId sliced = passes::value_argument(symbol, 0);
  const bool is_kept =
      sliced == ir::kNoValue || inputs_.contains(index_of(sliced)) || outputs_.contains(index_of(sliced));
  return !is_kept && outputs_.contains(index_of(passes::single_result(symbol))) && slice_start(symbol, trace_);
}

/// Where what is copied, or sliced, goes to.
void Lowering::find_destinations(std::span<const BoundSymbol> destinations) {
  auto array = static_cast<std::uint32_t>(inputs_.size() + outputs_.size());
  for (const CopyTarget& target : copy_targets(fused_)) {
    const ir::TensorType& type = *trace_.tensor_type(target.value);
    outputs_.emplace(index_of(target.value), array++);
    stored_.push_back(target.value);
    const Dims& strides = input_strides_[target.input];
    if (!target.chooses_rows && strides != type.strides) copy_strides_.emplace(index_of(target.value), strides);
  }
  for (const BoundSymbol& symbol : destinations) {
    if (is_row_copy(symbol)) add_row_target(symbol);
    if (is_copy(symbol) || is_row_copy(symbol)) continue;
    const ir::ValueId sliced = passes::value_argument(symbol, 0);
    const ir::ValueId result = passes::single_result(symbol);
    slices_.emplace(index_of(sliced), Slice{slice_start(symbol, trace_).value(), &result_type(symbol)});
    outputs_.emplace(index_of(sliced), outputs_.at(index_of(result)));
    std::ranges::replace(stored_, result, sliced);
  }
}

Strides traced_strides(const ir::Trace& region) {
  Strides strides;
  for (const ir::ValueId id : region.inputs) strides.push_back(passes::operand_type(region, id)->strides);
  return strides;
}

std::optional<KernelGraph> Lowering::lower(const BoundSymbol& fused, const Trace& trace, const Strides& strides,
                                           const Target& target) {
  Lowering lowering(fused, trace, strides, target);
  try {
    if (!lowering.find_space() || !lowering.find_domain()) return std::nullopt;
    lowering.lower_symbols();
    lowering.store_results();
  } catch (const Failure&) {
    return std::nullopt;
  }
  for (const CopyTarget& copy : copy_targets(fused)) {
    if (!copy.is_read) continue;
    lowering.graph_->overwrite(static_cast<std::uint32_t>(copy.input), lowering.outputs_.at(index_of(copy.value)));
  }
  return std::move(*lowering.graph_);
}

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

Value Lowering::load(ir::ValueId id, const BoundSymbol& reader, std::size_t argument) {
  return graph_->load(access_of(inputs_.at(index_of(id)), passes::operand_type(trace_, id)->dtype,
                                strides_over_space(id, reader, argument)));
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

Value Lowering::assemble(const BoundSymbol& symbol) {
  const BufferRegions regions = buffer_regions_of(symbol, trace_).value();
  const ir::TensorType& joined = result_type(symbol);
  Access access;
  access.dtype = joined.dtype;
  access.run = run_;
  for (const BufferRegion& part : regions.parts) {
    const auto intervals = intervals_over_space(part, joined);
    access.parts.push_back(part_of(inputs_.at(index_of(part.value)), intervals.value()));
  }
  const auto covers = [&](const BufferRegion& part) {
    for (std::size_t i = 0; i < part.start.size(); ++i) {
      const Dim end = part.start[i] + part.sizes[i];
      const bool reaches_end = end == joined.sizes[i] ||
                               (end.is_concrete() && joined.sizes[i].is_concrete() && end.hint > joined.sizes[i].hint);
      if (!part.start[i].is_concrete() || part.start[i].hint > 0 || !reaches_end) return false;
    }
    return true;
  };
  std::optional<Value> fill;
  if (regions.fill && !covers(regions.parts[0])) fill = number(compute_type(access.dtype), *regions.fill);
  return graph_->assemble(std::move(access), fill);
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

Value Lowering::gather(const BoundSymbol& symbol, std::size_t i, Value rows) {
  const auto id = std::get<ir::ValueId>(symbol.arguments.at(i).content);
  const ir::TensorType& type = *trace_.tensor_type(id);
  const Dims& strides = input_strides_[inputs_.at(index_of(id))];
  Access table;
  table.array = inputs_.at(index_of(id));
  table.dtype = type.dtype;
  table.inner_stride = strides[1];
  table.table_rows = type.sizes[0];
  table.table_stride = strides[0];
  return graph_->gather(std::move(table), graph_->expand_rows(rows));
}

Value Lowering::random(const BoundSymbol& symbol, std::size_t i) {
  const auto state = inputs_.find(index_of(std::get<ir::ValueId>(symbol.arguments.at(i).content)));
  const bool is_of_elements = product_of(result_type(symbol).sizes) == space_.count();
  if (state == inputs_.end() || !is_of_elements) throw Failure{};
  return graph_->random(state->second);
}

const ir::TensorType* Lowering::type(const BoundSymbol& symbol, std::size_t argument) const {
  return argument_type(symbol, trace_, argument);
}

const ir::TensorType& Lowering::result_type(const BoundSymbol& symbol, std::size_t result) const {
  return *trace_.tensor_type(std::get<ir::ValueId>(symbol.results.at(result).content));
}

ComputeType Lowering::result_type_of(const BoundSymbol& symbol, std::size_t result) const {
  return compute_type(result_type(symbol, result).dtype);
}

ComputeType Lowering::common_type(const BoundSymbol& symbol, std::size_t count) const {
  const auto rank = [](ComputeType type) {
    return type == ComputeType::kBool ? 0 : type == ComputeType::kInteger ? 1 : type == ComputeType::kFloat ? 2 : 3;
  };
  ComputeType common = ComputeType::kBool;
  bool has_dimensions = false;
  for (const bool with_dimensions : {true, false}) {
    for (std::size_t i = 0; i < count; ++i) {
      ComputeType given = ComputeType::kBool;
      if (const ir::TensorType* tensor = type(symbol, i)) {
        if (tensor->sizes.empty() == with_dimensions) continue;
        given = compute_type(tensor->dtype);
        has_dimensions = has_dimensions || with_dimensions;
      } else if (with_dimensions) {
        continue;
      } else if (symbol.arguments[i].is<double>()) {
        given = ComputeType::kFloat;
      } else if (symbol.arguments[i].is<std::int64_t>()) {
        given = ComputeType::kInteger;
      }
      // A tensor without dimensions, or a number, does not widen the type within its kind.
      const bool gives_way = !with_dimensions && has_dimensions && rank(common) >= 2 && rank(given) >= 2;
      if (rank(given) > rank(common) && !gives_way) common = given;
    }
  }
  return common;
}

bool Lowering::is_loaded_row(const BoundSymbol& symbol, std::size_t i) {
  const auto* id = symbol.arguments.at(i).get<ir::ValueId>();
  if (id == nullptr || made_.contains(index_of(*id))) return false;
  const ir::Dtype dtype = passes::operand_type(trace_, *id)->dtype;
  return ir::is_half(dtype) && graph_->extent(load(*id, symbol, i)) == Extent::kRows;
}

Value Lowering::number(ComputeType type, double value) {
  if (type == ComputeType::kInteger) return graph_->integer(static_cast<std::int64_t>(value));
  return graph_->constant(type, value);
}

Value Lowering::argument(const BoundSymbol& symbol, std::size_t i, ComputeType type) {
  const ir::Argument& given = only_of(symbol.arguments.at(i));
  if (const auto* integer = given.get<std::int64_t>()) {
    return type == ComputeType::kInteger ? graph_->integer(*integer) : number(type, static_cast<double>(*integer));
  }
  if (const auto* real = given.get<double>()) return number(type, *real);
  if (const auto* flag = given.get<bool>()) return number(type, *flag ? 1 : 0);
  if (const auto* size = given.get<Dim>()) return number(type, *size);
  const auto id = std::get<ir::ValueId>(given.content);
  const auto found = made_.find(index_of(id));
  if (found == made_.end()) return graph_->convert(load(id, symbol, i), type);
  const Made& made = found->second;
  return graph_->convert(made.rounding ? rounded(made.value, *made.rounding) : made.value, type);
}

Value Lowering::rounded(Value value, ir::Dtype dtype) {
  return ir::is_half(dtype) ? graph_->round(value, dtype) : value;
}

Value Lowering::rounded_argument(const BoundSymbol& symbol, std::size_t i, ComputeType type) {
  const auto* id = symbol.arguments.at(i).get<ir::ValueId>();
  const auto made = id == nullptr ? made_.end() : made_.find(index_of(*id));
  if (made == made_.end()) return argument(symbol, i, type);
  return graph_->convert(rounded(made->second.value, trace_.tensor_type(*id)->dtype), type);
}

Value Lowering::apply(ElementOp op, std::span<const Value> arguments) { return graph_->element(op, arguments); }

Value Lowering::apply_if_given(ElementOp op, Value value, const BoundSymbol& symbol, std::size_t i) {
  const bool is_given = i < symbol.arguments.size() && !symbol.arguments[i].is<ir::None>();
  return is_given ? apply(op, {value, argument(symbol, i, graph_->type(value))}) : value;
}

bool Lowering::is_read(const BoundSymbol& symbol, std::size_t result) const {
  return symbol.results.at(result).is<ir::ValueId>();
}

void Lowering::set(const BoundSymbol& symbol, std::size_t result, Value value) {
  const auto* id = symbol.results.at(result).get<ir::ValueId>();
  if (id == nullptr) return;
  const ir::Dtype dtype = trace_.tensor_type(*id)->dtype;
  value = graph_->convert(value, compute_type(dtype));
  // Integers wrap around at the width that they have in memory.
  const bool is_integer = compute_type(dtype) == ComputeType::kInteger;
  if (is_integer && dtype != ir::Dtype::kInt64) value = graph_->round(value, dtype);
  made_.insert_or_assign(index_of(*id), Made{value, std::nullopt});
}

void Lowering::set_rounded(const BoundSymbol& symbol, Value value, ir::Dtype dtype) {
  set(symbol, 0, value);
  if (const auto* id = symbol.results.at(0).get<ir::ValueId>()) made_.at(index_of(*id)).rounding = dtype;
}

std::optional<std::uint32_t> Lowering::array_of(const BoundSymbol& symbol, std::size_t result) const {
  const auto* id = symbol.results.at(result).get<ir::ValueId>();
  const auto found = id == nullptr ? outputs_.end() : outputs_.find(index_of(*id));
  return found == outputs_.end() ? std::nullopt : std::make_optional(found->second);
}

void Lowering::set_column_sum(const BoundSymbol& symbol, std::size_t result, Value value, const ir::SizeRatio& scale) {
  const auto array = array_of(symbol, result);
  if (!array) return;
  graph_->column_sum(graph_->expand(value), *array, result_type(symbol, result).dtype, scale, role(symbol).blocks);
}

void Lowering::set_column_moments(const BoundSymbol& symbol, std::optional<std::size_t> mean, std::size_t variance,
                                  Value value, const ir::SizeRatio& scale) {
  const auto mean_array = mean ? array_of(symbol, *mean) : std::nullopt;
  const auto variance_array = array_of(symbol, variance);
  if (!mean_array && !variance_array) return;
  const ir::Dtype dtype = type(symbol, 0)->dtype;  // the results have it, too
  graph_->column_moments(graph_->expand(value), mean_array, variance_array, dtype, scale, role(symbol).blocks);
}

std::uint32_t Lowering::set_total(const BoundSymbol& symbol, std::size_t result, Value value,
                                  const ir::SizeRatio& scale, std::optional<std::uint32_t> divisor) {
  // One element of what the symbol goes over for each that the sum takes.
  const bool is_rows = product_of(trace_.tensor_type(role(symbol).over)->sizes) == space_.rows;
  const bool by_rows = is_rows || role(symbol).by_rows != 0;
  value = by_rows ? graph_->expand_rows(value) : graph_->expand(value);
  const auto array = array_of(symbol, result);
  const ir::Dtype dtype = array ? result_type(symbol, result).dtype : ir::Dtype::kFloat32;
  return graph_->total(value, array, dtype, scale, divisor);
}

void Lowering::lower_symbols() {
  for (const BoundSymbol& symbol : computing()) {
    const Operation* operation = find_operation(*symbol.op);
    THUNDER_CHECK(operation != nullptr, "fusion", symbol.op->name + " was fused, but has no lowering");
    operation->lower(*this, symbol);
  }
}

void Lowering::store_results() {
  for (const ir::ValueId id : stored_) {
    const auto made = made_.find(index_of(id));
    if (made == made_.end()) continue;  // a sum
    const ir::TensorType& type = *trace_.tensor_type(id);
    Value value = made->second.value;
    // A value of rows, or a number, as the elements of what is larger.
    const bool is_rows = space_.rows != Dim(0) && product_of(type.sizes) == space_.rows;
    if (!is_rows) value = graph_->expand(value);
    if (is_rows && graph_->extent(value) == Extent::kConstant) value = graph_->expand_rows(value);
    const std::uint32_t array = outputs_.at(index_of(id));
    const ir::Dtype dtype = type.dtype;
    if (const auto slice = slices_.find(index_of(id)); slice != slices_.end()) {
      Access access;
      access.dtype = dtype;
      access.run = run_;
      access.parts = {part_of(array, intervals_over_space(slice->second, type).value())};
      graph_->store(value, std::move(access));
      continue;
    }
    if (const auto target = row_targets_.find(index_of(id)); target != row_targets_.end()) {
      store_in_rows(value, array, type, target->second);
      continue;
    }
    const auto copied = copy_strides_.find(index_of(id));
    if (copied == copy_strides_.end()) {
      graph_->store(value, array, dtype);
      continue;
    }
    Access access =
        access_of(array, dtype, strides_over_space(type, copied->second, type, dims_from(0, type.sizes.size())));
    if (access.inner_stride != Dim(1) || access.run != Dim(0)) throw Failure{};
    graph_->store(value, std::move(access));
  }
}

}  // namespace thunder::fusion
