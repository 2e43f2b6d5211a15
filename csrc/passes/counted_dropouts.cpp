#include "passes/counted_dropouts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "ir/builder.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

constexpr std::int64_t kStateNumbers = 4;

ir::Argument numbers(const ir::Dims& dims) {
  ir::ArgumentList list;
  for (const ir::Dim& dim : dims) list.emplace_back(dim.hint);
  return ir::Argument(std::move(list));
}

class Counter {
 public:
  Counter(const ir::Trace& trace, ir::DeviceType device, FindOperator find_operator)
      : trace_(trace),
        device_(device),
        aliases_(trace),
        state_(find_operator("thunder::dropout_state", "")),
        mask_(find_operator("thunder::dropout_mask", "")),
        scaled_(find_operator("aten::native_dropout_backward", "")),
        result_(trace.empty_copy(kCountedDropouts)) {}

  ir::Trace run() {
    for (const ir::BoundSymbol& symbol : trace_.symbols) {
      if (is_counted(symbol)) {
        add_counted(symbol);
      } else {
        result_.add(symbol);
      }
    }
    return std::move(result_);
  }

 private:
  /// Whether PyTorch's kernel goes over a tensor in the order of memory: it takes others by vectors only, which have up
  /// to sixteen elements and begin at multiples of their size.
  [[nodiscard]] bool is_drawn_in_order(ir::ValueId id) const {
    constexpr std::int64_t kLongestVector = 16;
    const ir::TensorType& type = *trace_.tensor_type(id);
    return is_contiguous(type) || (aliases_.is_own_memory(id) && type.storage_offset == ir::Dim(0) &&
                                   element_count(type) % kLongestVector == 0);
  }

  /// A dropout that drops something, of a tensor without gaps, whose results nothing writes to.
  [[nodiscard]] bool is_counted(const ir::BoundSymbol& symbol) const {
    if (symbol.op->name != "aten::native_dropout" || !symbol.op->overload.empty()) return false;
    if (state_ == nullptr || mask_ == nullptr || scaled_ == nullptr) return false;
    const ir::TensorType* input = argument_type(symbol, trace_, 0);
    const auto* p = symbol.arguments[1].get<double>();
    const bool is_training = symbol.arguments[2].is<ir::None>() || symbol.arguments[2] == ir::Argument(true);
    if (input == nullptr || p == nullptr || !(*p > 0 && *p < 1) || !is_training) return false;
    const bool has_numbers = std::ranges::all_of(input->sizes, &ir::Dim::is_concrete) &&
                             std::ranges::all_of(input->strides, &ir::Dim::is_concrete);
    if (input->device.type != device_ || !has_numbers || !is_dense(*input) || element_count(*input) < 2) return false;
    if (!is_drawn_in_order(value_argument(symbol, 0))) return false;
    // Others are computed in double, and what PyTorch compares with is a double then.
    if (!is_float(input) || input->dtype == ir::Dtype::kFloat64) return false;
    return std::ranges::all_of(symbol.results, [&](const ir::Argument& result) {
      const auto* id = result.get<ir::ValueId>();
      if (id == nullptr) return true;
      const ir::TensorType& type = *trace_.tensor_type(*id);
      return type.sizes == input->sizes && type.strides == input->strides && !aliases_.is_written(*id);
    });
  }

  void add_counted(const ir::BoundSymbol& dropout) {
    const ir::TensorType& input = *argument_type(dropout, trace_, 0);
    const double p = *dropout.arguments[1].get<double>();
    const ir::ValueId state =
        result_.add_value(ir::tensor_type(ir::Dtype::kInt64, {kStateNumbers}, input.device), "dropout_state");
    const auto* given = dropout.results[1].get<ir::ValueId>();
    ir::TensorType mask_type = input;
    mask_type.dtype = ir::Dtype::kBool;
    mask_type.requires_grad = false;
    const ir::ValueId mask = given != nullptr ? *given : result_.add_value(ir::make_type(mask_type));
    // Masks depend on the input's address, which is known of the trace's own memory.
    const ir::ValueId dropped = value_argument(dropout, 0);
    const bool is_aligned = aliases_.is_own_memory(dropped) && input.storage_offset == ir::Dim(0);
    add(dropout, state_,
        {numbers(input.sizes), input.dtype, input.device, is_aligned ? ir::Argument() : ir::Argument(dropped)},
        ir::Argument(state));
    add(dropout, mask_, {state, numbers(input.sizes), numbers(input.strides), p}, ir::Argument(mask));
    if (!dropout.results[0].is<ir::ValueId>()) return;
    // As PyTorch's kernel has it: one divided by the rounded probability.
    const double scale = 1.0 / static_cast<double>(static_cast<float>(1 - p));
    add(dropout, scaled_, {dropout.arguments[0], mask, scale}, dropout.results[0]);
  }

  void add(const ir::BoundSymbol& dropout, const ir::Operator* op, ir::ArgumentList arguments, ir::Argument result) {
    ir::BoundSymbol symbol;
    symbol.op = op;
    symbol.arguments = std::move(arguments);
    symbol.results = {std::move(result)};
    symbol.location = dropout.location;
    symbol.comment = dropout.comment;
    result_.add(std::move(symbol));
  }

  const ir::Trace& trace_;
  ir::DeviceType device_;
  AliasAnalysis aliases_;
  const ir::Operator* state_;
  const ir::Operator* mask_;
  const ir::Operator* scaled_;
  ir::Trace result_;
};

}  // namespace

ir::Trace count_dropouts(const ir::Trace& trace, ir::DeviceType device, FindOperator find_operator) {
  return Counter(trace, device, find_operator).run();
}

}  // namespace thunder::passes
