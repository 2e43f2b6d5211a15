#include "tracer/custom_gradient.h"

#include <algorithm>
#include <memory>
#include <unordered_set>
#include <utility>

#include "ir/builder.h"
#include "ir/substitution.h"
#include "ir/symbol_values.h"

namespace thunder::tracer {
std::vector<ir::ValueId> free_values(const CustomGradient& gradient) {
  std::unordered_set<std::uint32_t> known{index_of(ir::kNoValue)};
  for (const ir::ValueId cotangent : gradient.cotangents) known.insert(index_of(cotangent));
  std::vector<ir::ValueId> result;
  const auto use = [&](ir::ValueId id) {
    if (known.insert(index_of(id)).second) result.push_back(id);
  };
  for (const ir::BoundSymbol& symbol : gradient.symbols) {
    for (const ir::Argument& argument : symbol.arguments) ir::for_each_value(argument, use);
    for (const ir::Argument& made : symbol.results) {
      ir::for_each_value(made, [&](ir::ValueId id) { known.insert(index_of(id)); });
    }
  }
  std::ranges::for_each(gradient.gradients, use);
  return result;
}

const ir::Operator* custom_gradient_operator() {
  static const ir::Operator* const kRow = new ir::Operator(
      ir::parse_operator("prims::custom_gradient(Tensor[] values, Tensor[] reads, object gradient) -> Tensor[]",
                         ir::CallStyle::kPrimitive));
  return kRow;
}

std::optional<ir::Trace> without_custom_gradients(const ir::Trace& trace) {
  const auto is_custom = [](const ir::BoundSymbol& symbol) { return symbol.op == custom_gradient_operator(); };
  if (std::ranges::none_of(trace.symbols, is_custom)) return std::nullopt;
  ir::Trace result = trace.empty_copy("drop_custom_gradients");
  ir::Substitution values(trace.value_count());
  for (ir::BoundSymbol symbol : trace.symbols) {
    values.apply(symbol);
    if (!is_custom(symbol)) {
      result.add(std::move(symbol));
      continue;
    }
    for_each_handed_on(symbol, [&](ir::ValueId from, ir::ValueId to) { values.set(from, to); });
  }
  values.apply(result.outputs);
  return result;
}

const CustomGradient& custom_gradient_of(const ir::BoundSymbol& symbol, const ir::Trace& trace) {
  const auto object = std::get<ir::ObjectConstant>(symbol.arguments.at(2).content);
  return *static_cast<const CustomGradient*>(trace.context()->owner_of(object, ir::ObjectKind::kCustomGradient).get());
}

}  // namespace thunder::tracer
