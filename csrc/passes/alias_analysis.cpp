#include "passes/alias_analysis.h"

#include <numeric>
#include <utility>

namespace thunder::passes {

AliasAnalysis::AliasAnalysis(const ir::Trace& trace) : parents_(trace.value_count()), facts_(trace.value_count()) {
  std::iota(parents_.begin(), parents_.end(), 0U);
  const auto mark_output = [this](ir::ValueId id) { facts_[set_of(id)].output = true; };
  for (const ir::ValueId input : trace.inputs) facts_[set_of(input)].input = true;
  for (const ir::BoundSymbol& symbol : trace.symbols) {
    join_results(symbol);
    for_each_written(symbol, [this](ir::ValueId id) { facts_[set_of(id)].written = true; });
    if (symbol.op->style != ir::CallStyle::kReturn) continue;
    for (const ir::Argument& argument : symbol.arguments) ir::for_each_value(argument, mark_output);
  }
  for (const ir::Argument& output : trace.outputs) ir::for_each_value(output, mark_output);
}

std::uint32_t AliasAnalysis::set_of(ir::ValueId id) const {
  std::uint32_t set = ir::index_of(id);
  while (parents_[set] != set) set = parents_[set] = parents_[parents_[set]];
  return set;
}

void AliasAnalysis::join(ir::ValueId a, ir::ValueId b) {
  std::uint32_t kept = set_of(a);
  std::uint32_t joined = set_of(b);
  if (kept == joined) return;
  if (joined < kept) std::swap(kept, joined);
  parents_[joined] = kept;
  facts_[kept].written |= facts_[joined].written;
  facts_[kept].input |= facts_[joined].input;
  facts_[kept].output |= facts_[joined].output;
}

// A result joins the arguments of its alias set; a view whose schema says no more joins all arguments.
void AliasAnalysis::join_results(const ir::BoundSymbol& symbol) {
  const ir::Operator& op = *symbol.op;
  if (!op.view && !op.mutates) return;
  for (std::size_t r = 0; r < symbol.results.size(); ++r) {
    const std::string alias_set = r < op.results.size() ? op.results[r].alias_set : std::string();
    const auto join_with = [&](const ir::Argument& argument) {
      ir::for_each_value(symbol.results[r], [&](ir::ValueId result) {
        ir::for_each_value(argument, [&](ir::ValueId source) { join(result, source); });
      });
    };
    bool found = false;
    for (std::size_t a = 0; a < symbol.arguments.size() && a < op.parameters.size(); ++a) {
      if (alias_set.empty() || op.parameters[a].alias_set != alias_set) continue;
      join_with(symbol.arguments[a]);
      found = true;
    }
    if (found || (alias_set.empty() && !op.view)) continue;
    for (const ir::Argument& argument : symbol.arguments) join_with(argument);
  }
}

}  // namespace thunder::passes
