#include "passes/random_draws.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

constexpr const char* kWithState = "thunder::bernoulli_with_state";
constexpr const char* kFromState = "thunder::bernoulli_from_state";

/// Of `torch.Generator.get_state()`, which lies on the CPU; none where generators are not known.
std::optional<ir::TensorType> state_type(ir::Device device) {
  constexpr std::int64_t kMersenneTwister = 5056;
  constexpr std::int64_t kPhilox = 16;
  if (device.type == ir::DeviceType::kOther) return std::nullopt;
  ir::TensorType type;
  type.dtype = ir::Dtype::kUint8;
  if (device.type == ir::DeviceType::kMeta) type.device = device;
  type.sizes = {device.type == ir::DeviceType::kCuda ? kPhilox : kMersenneTwister};
  type.strides = {1};
  return type;
}

std::optional<ir::ArgumentList> numbers(const ir::Dims& dims) {
  if (!std::ranges::all_of(dims, &ir::Dim::is_concrete)) return std::nullopt;
  ir::ArgumentList list;
  for (const ir::Dim& dim : dims) list.emplace_back(dim.hint);
  return list;
}

/// What a trace does to each value, and to the memory behind it.
class Draws {
 public:
  explicit Draws(const ir::Trace& trace)
      : trace_(trace),
        aliases_(trace),
        reads_(use_counts(trace)),
        writes_(trace.value_count(), 0),
        is_uninitialized_(trace.value_count(), false) {
    for (const ir::BoundSymbol& symbol : trace.symbols) {
      for_each_written(symbol, [&](ir::ValueId id) { ++writes_[aliases_.set_of(id)]; });
      const std::string_view name = symbol.op->name;
      const bool is_empty = name.starts_with("aten::empty") || name.starts_with("aten::new_empty");
      if (is_empty) for_each_result(symbol, [&](ir::ValueId id) { is_uninitialized_[ir::index_of(id)] = true; });
    }
  }

  /// The draw with its state as a second result, whose type is `state`; none where it is no draw or not the only write.
  [[nodiscard]] std::optional<ir::BoundSymbol> with_state(const ir::BoundSymbol& symbol, const ir::Operator* op) const {
    const ir::ValueId result = single_result(symbol);
    const ir::ValueId target = value_argument(symbol, 0);
    if (result == ir::kNoValue || target == ir::kNoValue || !draws(symbol, result, target)) return std::nullopt;
    if (!symbol.arguments[1].is<double>()) return std::nullopt;
    const ir::TensorType& type = *trace_.tensor_type(result);
    auto sizes = numbers(type.sizes);
    auto strides = numbers(type.strides);
    if (!sizes || !strides || !is_dense(type) || !state_type(type.device)) return std::nullopt;
    ir::BoundSymbol drawing = symbol;
    drawing.op = op;
    drawing.nested.clear();
    drawing.arguments = {*sizes, *strides, type.dtype, type.device, symbol.arguments[1], symbol.arguments[2]};
    return drawing;
  }

 private:
  [[nodiscard]] bool draws(const ir::BoundSymbol& symbol, ir::ValueId result, ir::ValueId target) const {
    const int writes = writes_[aliases_.set_of(result)];
    if (symbol.op->name == "aten::bernoulli") return symbol.op->overload == "p" && writes == 0;
    return symbol.op->name == "aten::bernoulli_" && symbol.op->overload == "float" && writes == 1 &&
           is_uninitialized_[ir::index_of(target)] && reads_[ir::index_of(target)] == 1;
  }

  const ir::Trace& trace_;
  AliasAnalysis aliases_;
  std::vector<std::uint32_t> reads_;
  std::vector<int> writes_;  ///< by alias set
  std::vector<bool> is_uninitialized_;
};

}  // namespace

ir::Trace with_generator_states(const ir::Trace& trace, FindOperator find_operator) {
  const ir::Operator* op = find_operator(kWithState, "");
  if (op == nullptr) return trace;
  const Draws draws(trace);
  ir::Trace result = trace;
  for (ir::BoundSymbol& symbol : result.symbols) {
    auto drawing = draws.with_state(symbol, op);
    if (!drawing) continue;
    const ir::Device device = trace.tensor_type(single_result(symbol))->device;
    drawing->results.emplace_back(result.add_value(ir::make_type(*state_type(device)), "generator_state"));
    symbol = *std::move(drawing);
  }
  return result;
}

bool gives_generator_state(const ir::BoundSymbol& symbol) { return symbol.op->name == kWithState; }

ir::BoundSymbol drawn_again(const ir::BoundSymbol& symbol, FindOperator find_operator) {
  ir::BoundSymbol again = symbol;
  again.op = find_operator(kFromState, "");
  again.arguments.insert(again.arguments.begin(), symbol.results[1]);
  again.arguments.pop_back();  // the generator
  again.results.pop_back();    // the state
  return again;
}

}  // namespace thunder::passes
