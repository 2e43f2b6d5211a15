#include "executors/cpu/destinations.h"

#include <algorithm>
#include <span>

#include "ir/symbol_values.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::executors::cpu {
namespace {

bool is_copy(const BoundSymbol& symbol) { return symbol.op->name == "aten::copy_"; }

bool reads(const BoundSymbol& symbol, ir::ValueId value) {
  bool found = false;
  passes::for_each_argument(symbol, [&](ir::ValueId id) { found = found || id == value; });
  return found;
}

/// The only one of the symbols that reads the value, if that copies it to a tensor just like it; else null.
const BoundSymbol* only_copy(ir::ValueId value, std::span<const BoundSymbol> after, const Trace& trace) {
  const auto reads_it = [&](const BoundSymbol& symbol) { return reads(symbol, value); };
  const auto first = std::ranges::find_if(after, reads_it);
  if (first == after.end() || !is_copy(*first) || std::any_of(first + 1, after.end(), reads_it)) return nullptr;
  bool is_output = false;
  for (const ir::Argument& output : trace.outputs) {
    ir::for_each_value(output, [&](ir::ValueId id) { is_output = is_output || id == value; });
  }
  const ir::ValueId target = passes::value_argument(*first, 0);
  const bool is_source = passes::value_argument(*first, 1) == value && target != ir::kNoValue && target != value;
  const bool fits =
      !is_output && is_source && passes::same_layout(*trace.tensor_type(target), *trace.tensor_type(value));
  return fits ? &*first : nullptr;
}

}  // namespace

Destinations destinations_of(const BoundSymbol& fused, const Trace& trace) {
  const std::vector<ir::ValueId> inputs = ir::distinct_values(fused.arguments);
  const std::vector<ir::ValueId> results = ir::flat_results(fused);
  Destinations places(results.size(), -1);
  const auto place = &fused - trace.symbols.data();
  const auto after = std::span(trace.symbols).subspan(static_cast<std::size_t>(place) + 1);
  if (std::ranges::none_of(after, is_copy)) return places;
  const passes::AliasAnalysis aliases(trace);
  for (std::size_t k = 0; k < results.size(); ++k) {
    const BoundSymbol* copy = only_copy(results[k], after, trace);
    if (copy == nullptr) continue;
    const ir::ValueId target = passes::value_argument(*copy, 0);
    const auto input = std::ranges::find(inputs, target);
    bool is_free = input != inputs.end();
    const auto others = std::span(after).first(static_cast<std::size_t>(copy - after.data()));
    for (const BoundSymbol& symbol : others) {
      // A number that is not as it was has the program run again, from its start.
      is_free = is_free && symbol.op->style != ir::CallStyle::kPrimitive;
      passes::for_each_argument(symbol, [&](ir::ValueId id) { is_free = is_free && !aliases.may_alias(id, target); });
    }
    for (const ir::ValueId id : inputs) is_free = is_free && (id == target || !aliases.may_alias(id, target));
    if (is_free) places[k] = static_cast<std::int32_t>(input - inputs.begin());
  }
  return places;
}

}  // namespace thunder::executors::cpu
