#include "passes/dead_code_elimination.h"

#include <algorithm>
#include <vector>

#include "operators/facts.h"

namespace thunder::passes {
namespace {

bool is_comment(const ir::BoundSymbol& symbol) { return symbol.op->style == ir::CallStyle::kComment; }

bool always_runs(const ir::Operator& op, const DeadCodeOptions& options) {
  return op.mutates || op.effect || op.style == ir::CallStyle::kReturn || operators::communicates(op) ||
         operators::has_fact(op, operators::Fact::kIsUnknown) || (op.random && options.preserve_random_stream);
}

}  // namespace

ir::Trace eliminate_dead_code(const ir::Trace& trace, const DeadCodeOptions& options) {
  std::vector<bool> needed(trace.value_count(), false);
  const auto need = [&](const ir::ArgumentList& arguments) {
    for (const ir::Argument& argument : arguments) {
      ir::for_each_value(argument, [&](ir::ValueId id) { needed[ir::index_of(id)] = true; });
    }
  };
  const auto is_needed = [&](const ir::Argument& argument) {
    bool any = false;
    ir::for_each_value(argument, [&](ir::ValueId id) { any = any || needed[ir::index_of(id)]; });
    return any;
  };
  const auto names_dead_value = [&](const ir::Argument& argument) {
    bool any = false;
    ir::for_each_value(argument, [&](ir::ValueId id) { any = any || !needed[ir::index_of(id)]; });
    return any;
  };

  need(trace.outputs);
  std::vector<bool> keep(trace.symbols.size(), false);
  for (std::size_t i = trace.symbols.size(); i-- > 0;) {
    const ir::BoundSymbol& symbol = trace.symbols[i];
    if (is_comment(symbol)) continue;
    keep[i] = always_runs(*symbol.op, options) || std::ranges::any_of(symbol.results, is_needed);
    if (keep[i]) need(symbol.arguments);
  }

  ir::Trace result = trace.empty_copy(kDeadCodeElimination.name);
  result.symbols.reserve(trace.symbols.size());
  for (std::size_t i = 0; i < trace.symbols.size(); ++i) {
    const ir::BoundSymbol& symbol = trace.symbols[i];
    if (is_comment(symbol) ? std::ranges::none_of(symbol.arguments, names_dead_value) : keep[i]) result.add(symbol);
  }
  return result;
}

}  // namespace thunder::passes
