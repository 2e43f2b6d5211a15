#include "fusion/lowering.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "fusion/block_results.h"
#include "fusion/operations.h"
#include "ir/symbol_values.h"
#include "passes/symbol_facts.h"

namespace thunder::fusion {

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

Value Lowering::load(ir::ValueId id, const BoundSymbol& reader, std::size_t argument) {
  return graph_->load(access_of(inputs_.at(index_of(id)), passes::operand_type(trace_, id)->dtype,
                                strides_over_space(id, reader, argument)));
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
