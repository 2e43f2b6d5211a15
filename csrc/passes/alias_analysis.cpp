#include "passes/alias_analysis.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "operators/facts.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {

bool is_surely_copy(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  // A view that can be asked for a copy is a cast, and no view of the same bytes as another dtype.
  const bool is_cast = symbol.op->view && std::ranges::any_of(symbol.op->parameters, [](const ir::SchemaValue& value) {
                         return value.name == "copy";
                       });
  if (!is_cast || symbol.arguments.empty() || symbol.results.empty()) return false;
  const ir::TensorType* from = trace.tensor_type(symbol.arguments[0]);
  const ir::TensorType* to = trace.tensor_type(symbol.results[0]);
  return from != nullptr && to != nullptr && from->dtype != to->dtype;
}

AliasAnalysis::AliasAnalysis(const ir::Trace& trace) : parents_(trace.value_count()), facts_(trace.value_count()) {
  std::iota(parents_.begin(), parents_.end(), 0U);
  const auto mark_output = [this](ir::ValueId id) { facts_[set_of(id)].output = true; };
  for (const ir::ValueId input : trace.inputs) facts_[set_of(input)].input = true;
  join_inputs(trace);
  for (const ir::BoundSymbol& symbol : trace.symbols) {
    join_results(trace, symbol);
    for_each_written(symbol, [this](ir::ValueId id) { facts_[set_of(id)].written = true; });
    const ir::ValueId first = value_argument(symbol, 0);
    const bool reads_position =
        copies_memory(*symbol.op) || operators::has_fact(*symbol.op, operators::Fact::kReadsStrides);
    if (first != ir::kNoValue && reads_position) facts_[set_of(first)].position_read = true;
    if (symbol.op->style != ir::CallStyle::kReturn) continue;
    for (const ir::Argument& argument : symbol.arguments) ir::for_each_value(argument, mark_output);
  }
  for (const ir::Argument& output : trace.outputs) ir::for_each_value(output, mark_output);
}

void AliasAnalysis::join_inputs(const ir::Trace& trace) {
  std::unordered_map<std::uint32_t, ir::ValueId> first;
  for (std::size_t i = 0; i < trace.memory_of_inputs.size(); ++i) {
    join(first.emplace(trace.memory_of_inputs[i], trace.inputs[i]).first->second, trace.inputs[i]);
  }
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
  facts_[kept].constant |= facts_[joined].constant;
  facts_[kept].position_read |= facts_[joined].position_read;
}

// A result joins the arguments of its alias set; a view whose schema says no more joins all arguments.
void AliasAnalysis::join_results(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  const ir::Operator& op = *symbol.op;
  const bool is_primitive = op.style == ir::CallStyle::kPrimitive;
  if (is_primitive) {
    for (const ir::Argument& result : symbol.results) {
      ir::for_each_value(result, [&](ir::ValueId id) { facts_[set_of(id)].constant = true; });
    }
  }
  const bool joins_all = is_primitive || operators::has_fact(op, operators::Fact::kMayReturnArgument);
  if ((!op.view && !op.mutates && !joins_all) || is_surely_copy(trace, symbol)) return;
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
    if (found || (alias_set.empty() && !op.view && !joins_all)) continue;
    for (const ir::Argument& argument : symbol.arguments) join_with(argument);
  }
}

std::vector<std::uint32_t> AliasAnalysis::last_uses(const ir::Trace& trace) const {
  std::vector<std::uint32_t> last(facts_.size(), 0);
  for (std::uint32_t i = 0; i < trace.symbols.size(); ++i) {
    if (trace.symbols[i].op->style == ir::CallStyle::kComment) continue;
    const auto use = [&](ir::ValueId id) { last[set_of(id)] = i; };
    for (const ir::Argument& argument : trace.symbols[i].arguments) ir::for_each_value(argument, use);
    for (const ir::Argument& result : trace.symbols[i].results) ir::for_each_value(result, use);
  }
  for (const ir::Argument& output : trace.outputs) {
    ir::for_each_value(output, [&](ir::ValueId id) { last[set_of(id)] = ir::kNoPlace; });
  }
  for (std::uint32_t i = 0; i < trace.symbols.size(); ++i) {
    const ir::BoundSymbol& symbol = trace.symbols[i];
    if (!operators::has_fact(*symbol.op, operators::Fact::kAsynchronous)) continue;
    const std::uint32_t wait = wait_for(trace, i);
    const auto extend = [&](ir::ValueId id) { last[set_of(id)] = std::max(last[set_of(id)], wait); };
    for_each_argument(symbol, extend);
    for_each_result(symbol, extend);
  }
  return last;
}

std::uint32_t AliasAnalysis::wait_for(const ir::Trace& trace, std::uint32_t i) const {
  std::uint32_t last = i;
  for_each_result(trace.symbols[i], [&](ir::ValueId result) {
    const auto waits = [&](const ir::BoundSymbol& symbol) {
      const ir::ValueId waited = value_argument(symbol, 0);
      return operators::has_fact(*symbol.op, operators::Fact::kWaits) && waited != ir::kNoValue &&
             may_alias(waited, result);
    };
    const auto begin = trace.symbols.begin();
    const auto wait = std::find_if(begin + i, trace.symbols.end(), waits);
    last = wait == trace.symbols.end() ? ir::kNoPlace : std::max(last, static_cast<std::uint32_t>(wait - begin));
  });
  return last;
}

}  // namespace thunder::passes
