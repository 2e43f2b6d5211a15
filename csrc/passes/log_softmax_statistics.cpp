#include "passes/log_softmax_statistics.h"

#include <algorithm>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "operators/names.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

constexpr std::size_t kDim = 1;

class Saver {
 public:
  Saver(const ir::Trace& trace, ir::DeviceType device, std::size_t first_saved, ir::FindOperator find_operator)
      : trace_(trace),
        device_(device),
        first_saved_(std::min(first_saved, trace.outputs.size())),
        find_operator_(find_operator),
        aliases_(trace),
        result_(trace.empty_copy(kLogSoftmaxStatistics)) {}

  ir::Trace run() {
    for (const ir::BoundSymbol& symbol : trace_.symbols) {
      if (is_saved_log_softmax(symbol)) {
        add_with_statistics(symbol);
      } else {
        result_.add(symbol);
        save_cast(symbol);
      }
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool is_saved_log_softmax(const ir::BoundSymbol& symbol) const {
    if (symbol.op->name != "aten::_log_softmax" || !symbol.op->overload.empty()) return false;
    const ir::ValueId input = value_argument(symbol, 0);
    const ir::ValueId result = single_result(symbol);
    if (input == ir::kNoValue || result == ir::kNoValue || !symbol.arguments[kDim].is<std::int64_t>()) return false;
    const ir::TensorType* type = trace_.tensor_type(result);
    const std::int64_t dim = *symbol.arguments[kDim].get<std::int64_t>();
    const bool has_rows = is_float(type) && type->device.type == device_ && !type->sizes.empty() &&
                          (dim == -1 || dim + 1 == static_cast<std::int64_t>(type->sizes.size()));
    const std::span outputs = trace_.outputs;
    const auto holds = [&](std::span<const ir::Argument> some) {
      return std::ranges::find(some, ir::Argument(result)) != some.end();
    };
    return has_rows && is_contiguous(*type) && is_float(trace_.tensor_type(input)) &&
           holds(outputs.subspan(first_saved_)) && !holds(outputs.first(first_saved_)) && !aliases_.is_written(input) &&
           !aliases_.is_written(result);
  }

  void add_with_statistics(const ir::BoundSymbol& symbol) {
    location_ = symbol.location;
    const ir::ValueId result = single_result(symbol);
    const ir::TensorType& type = *trace_.tensor_type(result);
    const bool is_double = type.dtype == ir::Dtype::kFloat64;
    const ir::Dtype wide = is_double ? ir::Dtype::kFloat64 : ir::Dtype::kFloat32;
    const ir::ValueId x = cast(value_argument(symbol, 0), wide);
    ir::BoundSymbol computed = symbol;
    computed.arguments = {ir::Argument(x), symbol.arguments[kDim], ir::Argument(false)};
    ir::ValueId wide_result = result;
    if (type.dtype != wide) {
      wide_result = result_.add_value(with_dtype(type, wide));
      computed.results = {ir::Argument(wide_result)};
    }
    result_.add(std::move(computed));
    if (wide_result != result) {
      ir::BoundSymbol& narrowed =
          add_symbol(result_, *find_operator_(operators::kCast, ""),
                     {ir::Argument(wide_result), ir::Argument(type.dtype)}, {ir::Argument(result)});
      narrowed.location = location_;
    }
    const ir::ValueId shifted =
        call("aten::sub", "Tensor", {ir::Argument(x), largest(x, symbol.arguments[kDim])}, with_dtype(type, wide));
    const ir::ValueId again =
        call("aten::add", "Tensor", {ir::Argument(shifted), largest(wide_result, symbol.arguments[kDim])},
             with_dtype(type, wide));
    save(result, cast(again, type.dtype));
  }

  /// A saved cast of the result is cast from what is saved in its place.
  void save_cast(const ir::BoundSymbol& symbol) {
    const auto found = instead_.find(value_argument(symbol, 0));
    const ir::ValueId result = single_result(symbol);
    if (symbol.op->name != operators::kCast || found == instead_.end() || result == ir::kNoValue) return;
    location_ = symbol.location;
    save(result, cast(found->second, trace_.tensor_type(result)->dtype));
  }

  /// The largest element of each row, which are the last dimension.
  ir::Argument largest(ir::ValueId of, const ir::Argument& dim) {
    ir::TensorType rows = *result_.tensor_type(of);
    rows.sizes.back() = 1;
    rows.strides = ir::contiguous_strides(rows.sizes);
    rows.storage_offset = 0;
    return ir::Argument(call("aten::amax", "",
                             {ir::Argument(of), ir::Argument(ir::ArgumentList{dim}), ir::Argument(true)},
                             ir::make_type(std::move(rows))));
  }

  static ir::TypePtr with_dtype(ir::TensorType type, ir::Dtype dtype) {
    type.dtype = dtype;
    return ir::make_type(std::move(type));
  }

  ir::ValueId cast(ir::ValueId value, ir::Dtype dtype) {
    const ir::TensorType& type = *result_.tensor_type(value);
    if (type.dtype == dtype) return value;
    return call(operators::kCast, "", {ir::Argument(value), ir::Argument(dtype)}, with_dtype(type, dtype));
  }

  void save(ir::ValueId value, ir::ValueId instead) {
    instead_.emplace(value, instead);
    for (ir::Argument& output : std::span(result_.outputs).subspan(first_saved_)) {
      if (output == ir::Argument(value)) output = ir::Argument(instead);
    }
  }

  ir::ValueId call(const char* name, const char* overload, ir::ArgumentList arguments, const ir::TypePtr& type) {
    return ir::add_call(result_, *find_operator_(name, overload), std::move(arguments), type, {}, location_);
  }

  const ir::Trace& trace_;
  ir::DeviceType device_;
  std::size_t first_saved_;
  ir::FindOperator find_operator_;
  AliasAnalysis aliases_;
  ir::Trace result_;
  ir::SourceLocation location_;
  std::unordered_map<ir::ValueId, ir::ValueId> instead_;  ///< saved value -> what is saved in its place
};

}  // namespace

ir::Trace save_log_softmax_statistics(const ir::Trace& trace, ir::DeviceType device, std::size_t first_saved,
                                      ir::FindOperator find_operator) {
  return Saver(trace, device, first_saved, find_operator).run();
}

}  // namespace thunder::passes
