#include "tracer/numbers.h"

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ir/builder.h"
#include "tracer/custom_gradient.h"

namespace thunder::tracer {
namespace {

const ir::Operator* make_primitive(std::string_view schema) {
  return new ir::Operator(ir::parse_operator(schema, ir::CallStyle::kPrimitive));
}

}  // namespace

const ir::Operator* item_operator() {
  static const ir::Operator* const kRow = make_primitive("prims::item(Tensor value) -> Scalar");
  return kRow;
}

const ir::Operator* number_operator() {
  static const ir::Operator* const kRow =
      make_primitive("prims::number(str operation, Scalar left, Scalar right) -> Scalar");
  return kRow;
}

namespace {

/// Divisors that are sizes are conditions of the trace.
bool raises_nothing(std::string_view operation) {
  constexpr std::array<std::string_view, 7> kNames{"+", "-", "*", "/", "neg", "int", "float"};
  return std::ranges::find(kNames, operation) != kNames.end();
}

}  // namespace

void drop_unused_numbers(ir::Trace& trace) {
  // A backward of the program's own may take what nobody else does.
  const auto is_backward = [](const ir::BoundSymbol& symbol) { return symbol.op == custom_gradient_operator(); };
  if (std::ranges::any_of(trace.symbols, is_backward)) return;
  std::set<ir::ValueId> of_sizes;
  std::vector<bool> may_drop;
  for (const ir::BoundSymbol& symbol : trace.symbols) {
    bool is_of_sizes = symbol.op == number_operator() && raises_nothing(*symbol.arguments[0].get<std::string>());
    for (const ir::Argument& argument : symbol.arguments) {
      const auto* id = argument.get<ir::ValueId>();
      is_of_sizes = is_of_sizes && (id == nullptr || of_sizes.contains(*id));
    }
    may_drop.push_back(is_of_sizes);
    if (is_of_sizes) of_sizes.insert(*symbol.results[0].get<ir::ValueId>());
  }
  std::set<ir::ValueId> used;
  const auto use = [&](const ir::Argument& argument) {
    ir::for_each_value(argument, [&](ir::ValueId id) { used.insert(id); });
  };
  const std::function<void(const ir::BoundSymbol&)> use_all = [&](const ir::BoundSymbol& symbol) {
    std::ranges::for_each(symbol.arguments, use);
    std::ranges::for_each(symbol.nested, use_all);
  };
  std::ranges::for_each(trace.outputs, use);
  std::vector<ir::BoundSymbol> kept;
  for (std::size_t i = trace.symbols.size(); i-- > 0;) {
    ir::BoundSymbol& symbol = trace.symbols[i];
    if (may_drop[i] && !used.contains(*symbol.results[0].get<ir::ValueId>())) continue;
    use_all(symbol);
    kept.push_back(std::move(symbol));
  }
  std::ranges::reverse(kept);
  trace.symbols = std::move(kept);
}

bool is_number(const ir::Trace& trace, ir::ValueId id) {
  return std::holds_alternative<ir::ScalarKind>(*trace.value(id).type);
}

}  // namespace thunder::tracer
