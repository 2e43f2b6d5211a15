#include "executors/cpu/destinations.h"

#include <algorithm>
#include <span>

#include "ir/symbol_values.h"
#include "operators/facts.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

bool is_copy(const ir::BoundSymbol& symbol) { return symbol.op->name == "aten::copy_"; }

/// The symbol that copies the value to a tensor just like it; null: there is none.
const ir::BoundSymbol* copy_of(ir::ValueId value, std::span<const ir::BoundSymbol> after, const ir::Trace& trace) {
  const auto copies_it = [&](const ir::BoundSymbol& symbol) {
    return is_copy(symbol) && passes::value_argument(symbol, 1) == value;
  };
  const auto copy = std::ranges::find_if(after, copies_it);
  const ir::ValueId target = copy == after.end() ? ir::kNoValue : passes::value_argument(*copy, 0);
  const bool fits =
      target != ir::kNoValue && passes::same_layout(*trace.tensor_type(target), *trace.tensor_type(value));
  return fits ? &*copy : nullptr;
}

std::vector<std::int32_t> overwritten_inputs(const ir::BoundSymbol& fused, const ir::Trace& trace,
                                             const MemoryUse& memory) {
  const std::vector<ir::ValueId> inputs = ir::distinct_values(fused.arguments);
  const std::vector<ir::ValueId> results = ir::flat_results(fused);
  std::vector<std::int32_t> places(results.size(), -1);
  const auto place = &fused - trace.symbols.data();
  const auto after = std::span(trace.symbols).subspan(static_cast<std::size_t>(place) + 1);
  if (std::ranges::none_of(after, is_copy)) return places;
  const auto& [aliases, uses] = memory;
  for (std::size_t k = 0; k < results.size(); ++k) {
    const ir::BoundSymbol* copy = uses[index_of(results[k])] == 1 ? copy_of(results[k], after, trace) : nullptr;
    if (copy == nullptr) continue;
    const ir::ValueId target = passes::value_argument(*copy, 0);
    const auto input = std::ranges::find(inputs, target);
    bool is_free = input != inputs.end();
    const auto others = std::span(after).first(static_cast<std::size_t>(copy - after.data()));
    for (const ir::BoundSymbol& symbol : others) {
      // A number that is not as it was has the program run again, from its start.
      is_free = is_free && symbol.op->style != ir::CallStyle::kPrimitive;
      // A program that raises an error runs again in eager, from what the inputs held.
      is_free = is_free && !operators::may_raise_for_data(trace, symbol);
      passes::for_each_argument(symbol, [&](ir::ValueId id) { is_free = is_free && !aliases.may_alias(id, target); });
    }
    for (const ir::ValueId id : inputs) is_free = is_free && (id == target || !aliases.may_alias(id, target));
    if (is_free) places[k] = static_cast<std::int32_t>(input - inputs.begin());
  }
  return places;
}

}  // namespace

Destinations destinations_of(const ir::BoundSymbol& fused, const ir::Trace& trace, const MemoryUse& memory) {
  return {overwritten_inputs(fused, trace, memory), wholes_of(fused, trace), cuts_of(fused, trace)};
}

}  // namespace thunder::executors::cpu
