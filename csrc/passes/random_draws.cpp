#include "passes/random_draws.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "operators/facts.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

/// The type of `torch.Generator.get_state()`, which lies on the CPU; none where generators are not known.
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

/// Size, stride, dtype and device of memory without gaps; none of other memory.
std::optional<ir::ArgumentList> layout_of(const ir::TensorType& type) {
  auto sizes = numbers(type.sizes);
  auto strides = numbers(type.strides);
  if (!sizes || !strides || !is_dense(type) || !state_type(type.device)) return std::nullopt;
  return ir::ArgumentList{*std::move(sizes), *std::move(strides), type.dtype, type.device};
}

/// How a trace reads and writes each value, and the memory behind it.
class Draws {
 public:
  explicit Draws(const ir::Trace& trace)
      : trace_(trace),
        aliases_(trace),
        uses_(trace),
        writes_(trace.value_count(), 0),
        is_uninitialized_(trace.value_count(), false) {
    for (const ir::BoundSymbol& symbol : trace.symbols) {
      for_each_written(symbol, [&](ir::ValueId id) { ++writes_[aliases_.set_of(id)]; });
      if (!operators::has_fact(*symbol.op, operators::Fact::kIsUninitialized)) continue;
      for_each_result(symbol, [&](ir::ValueId id) { is_uninitialized_[ir::index_of(id)] = true; });
    }
  }

  // Arguments of the operation with a state; none where it would not give the same, or the result is written to.

  [[nodiscard]] std::optional<ir::ArgumentList> of_bernoulli(const ir::BoundSymbol& symbol) const {
    return writes_to(symbol.results[0]) == 0 ? layout_and_probability(symbol) : std::nullopt;
  }

  [[nodiscard]] std::optional<ir::ArgumentList> of_fill(const ir::BoundSymbol& symbol) const {
    const ir::ValueId target = value_argument(symbol, 0);
    const bool is_fresh = target != ir::kNoValue && is_uninitialized_[ir::index_of(target)] && uses_.count(target) == 1;
    return is_fresh && writes_to(symbol.results[0]) == 1 ? layout_and_probability(symbol) : std::nullopt;
  }

  [[nodiscard]] std::optional<ir::ArgumentList> of_dropout(const ir::BoundSymbol& symbol) const {
    const ir::ValueId input = value_argument(symbol, 0);
    const auto* p = symbol.arguments[1].get<double>();
    const ir::Argument& train = symbol.arguments[2];
    const bool is_training = train.is<ir::None>() || train == ir::Argument(true);
    if (input == ir::kNoValue || p == nullptr || !(*p > 0 && *p < 1) || !is_training) return std::nullopt;
    const ir::TensorType& type = *trace_.tensor_type(input);
    const auto is_like_input = [&](const ir::Argument& result) {
      const ir::TensorType& other = *trace_.tensor_type(*result.get<ir::ValueId>());
      return other.sizes == type.sizes && other.strides == type.strides && writes_to(result) == 0;
    };
    const bool is_plain = ir::is_floating_point(type.dtype) && element_count(type) > 0 && layout_of(type) &&
                          std::ranges::all_of(symbol.results, is_like_input);
    return is_plain ? std::optional(ir::ArgumentList{input, *p}) : std::nullopt;
  }

 private:
  [[nodiscard]] int writes_to(const ir::Argument& result) const {
    return writes_[aliases_.set_of(*result.get<ir::ValueId>())];
  }

  /// The layout of the result, then p and the generator of a symbol with the arguments (tensor, p, generator).
  [[nodiscard]] std::optional<ir::ArgumentList> layout_and_probability(const ir::BoundSymbol& symbol) const {
    auto arguments = layout_of(*trace_.tensor_type(single_result(symbol)));
    if (!arguments || !symbol.arguments[1].is<double>()) return std::nullopt;
    arguments->insert(arguments->end(), symbol.arguments.begin() + 1, symbol.arguments.end());
    return arguments;
  }

  const ir::Trace& trace_;
  AliasAnalysis aliases_;
  ir::Uses uses_;
  std::vector<int> writes_;  ///< by alias set
  std::vector<bool> is_uninitialized_;
};

/// An operation that draws, and what takes its place.
struct Draw {
  std::string_view name;
  std::string_view overload;
  std::optional<ir::ArgumentList> (Draws::*arguments)(const ir::BoundSymbol&) const;
  const char* with_state;
  const char* from_state;   ///< takes the state, the layout of the first result, and the probability
  std::size_t drawn;        ///< the result that is drawn again
  std::size_t probability;  ///< among the arguments of `with_state`

  [[nodiscard]] bool replaces(const ir::Operator& op) const { return op.name == name && op.overload == overload; }
  [[nodiscard]] bool puts(const ir::Operator& op) const { return op.name == with_state; }
};

constexpr Draw kDraws[] = {
    {"aten::bernoulli", "p", &Draws::of_bernoulli, "thunder::bernoulli_with_state", "thunder::bernoulli_from_state", 0,
     4},
    {"aten::bernoulli_", "float", &Draws::of_fill, "thunder::bernoulli_with_state", "thunder::bernoulli_from_state", 0,
     4},
    {"aten::native_dropout", "", &Draws::of_dropout, "thunder::native_dropout_with_state",
     "thunder::native_dropout_mask_from_state", 1, 1},
};

const Draw* find_draw(const ir::Operator& op, bool (Draw::*knows)(const ir::Operator&) const) {
  const auto* found = std::ranges::find_if(kDraws, [&](const Draw& draw) { return op.random && (draw.*knows)(op); });
  return found == std::end(kDraws) ? nullptr : found;
}

}  // namespace

ir::Trace with_generator_states(const ir::Trace& trace, FindOperator find_operator) {
  const Draws draws(trace);
  ir::Trace result = trace;
  for (ir::BoundSymbol& symbol : result.symbols) {
    const Draw* draw = find_draw(*symbol.op, &Draw::replaces);
    const ir::Operator* op = draw == nullptr ? nullptr : find_operator(draw->with_state, "");
    auto arguments = op == nullptr ? std::nullopt : (draws.*draw->arguments)(symbol);
    if (!arguments) continue;
    const ir::Device device = trace.tensor_type(*symbol.results[0].get<ir::ValueId>())->device;
    symbol.op = op;
    symbol.nested.clear();
    symbol.arguments = *std::move(arguments);
    symbol.results.emplace_back(result.add_value(ir::make_type(*state_type(device)), "generator_state"));
  }
  return result;
}

std::optional<DrawnValue> drawn_with_state(const ir::BoundSymbol& symbol) {
  const Draw* draw = find_draw(*symbol.op, &Draw::puts);
  if (draw == nullptr) return std::nullopt;
  return DrawnValue{*symbol.results[draw->drawn].get<ir::ValueId>(), *symbol.results.back().get<ir::ValueId>()};
}

ir::BoundSymbol drawn_again(const ir::BoundSymbol& symbol, const ir::Trace& trace, FindOperator find_operator) {
  const Draw& draw = *find_draw(*symbol.op, &Draw::puts);
  ir::BoundSymbol again = symbol;
  again.op = find_operator(draw.from_state, "");
  again.arguments = *layout_of(*trace.tensor_type(*symbol.results[0].get<ir::ValueId>()));
  again.arguments.insert(again.arguments.begin(), symbol.results.back());
  again.arguments.push_back(symbol.arguments[draw.probability]);
  again.results = {symbol.results[draw.drawn]};
  return again;
}

}  // namespace thunder::passes
