#include "passes/collective_units.h"

#include <algorithm>
#include <string>
#include <utility>

#include "ir/builder.h"
#include "operators/names.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

bool are_alike(const ir::Trace& trace, ir::ValueId left, ir::ValueId right) {
  const ir::TensorType& one = *trace.tensor_type(left);
  const ir::TensorType& other = *trace.tensor_type(right);
  return one.dtype == other.dtype && one.device == other.device;
}

bool may_share(const ir::Trace& trace, std::uint32_t left, std::uint32_t right, CollectiveOptions options) {
  const ir::BoundSymbol& one = trace.symbols[left];
  const ir::BoundSymbol& other = trace.symbols[right];
  const auto* bucket = one.arguments[options.bucket].get<std::string>();
  if (one.op != other.op || bucket == nullptr || bucket->empty()) return false;
  for (std::size_t i = options.first; i < one.arguments.size(); ++i) {
    if (!(one.arguments[i] == other.arguments[i])) return false;
  }
  return are_alike(trace, value_argument(one, 0), value_argument(other, 0)) &&
         are_alike(trace, single_result(one), single_result(other));
}

}  // namespace

std::vector<CollectiveUnit> make_units(const ir::Trace& trace, const std::vector<CollectiveRequest>& requests,
                                       CollectiveOptions options, bool earliest) {
  std::vector<CollectiveUnit> units;
  for (const CollectiveRequest& request : requests) {
    const auto fits = [&](const CollectiveUnit& unit) {
      return may_share(trace, unit.symbols.front(), request.symbol, options);
    };
    auto unit = std::ranges::find_if(units, fits);
    if (unit == units.end()) unit = units.insert(units.end(), CollectiveUnit{{}, request.place, 0});
    unit->symbols.push_back(request.symbol);
    unit->place = earliest ? std::min(unit->place, request.place) : std::max(unit->place, request.place);
    unit->bytes += request.bytes;
  }
  std::ranges::stable_sort(units, {}, &CollectiveUnit::place);
  return units;
}

std::int64_t largest_unit(const std::vector<CollectiveUnit>& units) {
  std::int64_t most = 0;
  for (const CollectiveUnit& unit : units) most = std::max(most, unit.bytes);
  return most;
}

CollectiveRewriter::CollectiveRewriter(const ir::Trace& trace, FindOperator find_operator, const char* pass)
    : trace_(trace),
      uses_(trace),
      is_replaced_(trace.symbols.size(), false),
      replaced_(trace.value_count()),
      result_(trace.empty_copy(pass)),
      find_operator_(find_operator) {}

bool CollectiveRewriter::is_move(std::uint32_t i) const {
  if (symbol(i).op->name != operators::kCast) return false;
  return argument_type(symbol(i), trace_, 0)->device != type_of(i).device;
}

const ir::TensorType& CollectiveRewriter::type_of(std::uint32_t i) const {
  return *trace_.tensor_type(single_result(symbol(i)));
}

void CollectiveRewriter::start(const char* name, const char* coalesced, ir::ArgumentList given,
                               ir::ArgumentList options, const std::vector<ir::TypePtr>& types) {
  std::vector<ir::ValueId> values;
  for (const ir::TypePtr& type : types) values.push_back(result_.add_value(type));
  const bool is_one = given.size() == 1;
  options.insert(options.begin(), is_one ? given.front() : ir::Argument(std::move(given)));
  ir::ArgumentList results;
  if (is_one) {
    results.emplace_back(values.front());
  } else {
    results.emplace_back(ir::ArgumentList(values.begin(), values.end()));
  }
  const ir::Operator& op = *find_operator_(is_one ? name : coalesced, "");
  ir::add_symbol(result_, op, std::move(options), std::move(results)).location = location_;
  in_flight_ += units_[next_start_].bytes;
  started_.push_back(std::move(values));
  ++next_start_;
}

ir::ValueId CollectiveRewriter::wait(std::size_t k) {
  const ir::ValueId started = started_[next_wait_][k];
  return call(operators::kWaitTensor, "", {ir::Argument(started)}, result_.value(started).type);
}

void CollectiveRewriter::finish() {
  in_flight_ -= units_[next_wait_].bytes;
  ++next_wait_;
}

ir::ValueId CollectiveRewriter::call(const char* name, const char* overload, ir::ArgumentList arguments,
                                     const ir::TypePtr& type) {
  return ir::add_call(result_, *find_operator_(name, overload), std::move(arguments), type, {}, location_);
}

ir::ValueId CollectiveRewriter::cast(ir::ValueId value, ir::Dtype dtype) {
  ir::TensorType type = *result_.tensor_type(value);
  if (type.dtype == dtype) return value;
  type.dtype = dtype;
  return call(operators::kCast, "", {ir::Argument(value), dtype}, ir::make_type(std::move(type)));
}

ir::ValueId CollectiveRewriter::contiguous(ir::ValueId value) {
  const ir::TensorType& type = *result_.tensor_type(value);
  if (ir::is_contiguous(type)) return value;
  return call(operators::kClone, "", {ir::Argument(value), ir::MemoryFormat::kContiguous},
              ir::tensor_type(type.dtype, type.sizes, type.device));
}

ir::ValueId CollectiveRewriter::with_rows(ir::ValueId value, std::int64_t rows) {
  ir::TensorType type = *result_.tensor_type(value);
  const std::int64_t missing = rows - type.sizes[0].hint;
  if (missing == 0) return value;
  type.sizes[0] = ir::Dim(rows);
  if (missing < 0) {
    return call(operators::kSlice, "Tensor", {ir::Argument(value), 0, 0, rows, 1}, ir::make_type(std::move(type)));
  }
  ir::ArgumentList pads(2 * type.sizes.size(), ir::Argument(0));  // those of the last dimension first
  pads.back() = ir::Argument(missing);
  return call(operators::kPad, "", {ir::Argument(value), ir::Argument(std::move(pads)), 0},
              ir::tensor_type(type.dtype, type.sizes, type.device));
}

}  // namespace thunder::passes
