#include "passes/recomputation.h"

#include "operators/facts.h"
#include "passes/random_draws.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

/// Whether it takes running statistics besides the input, the weight and the bias.
bool has_running_statistics(const ir::BoundSymbol& batch_norm) { return batch_norm.arguments.size() == 8; }

/// Its statistics are those of the batch; the running ones are written once only.
bool is_training_batch_norm(const ir::BoundSymbol& symbol) {
  if (!operators::has_fact(*symbol.op, operators::Fact::kIsBatchNorm) || symbol.op->mutates) return false;
  return !has_running_statistics(symbol) || symbol.arguments[5] == ir::Argument(true);
}

}  // namespace

std::vector<ir::ValueId> read_again(const ir::BoundSymbol& symbol) {
  const bool skips_statistics = is_training_batch_norm(symbol) && has_running_statistics(symbol);
  std::vector<ir::ValueId> values;
  for (std::size_t i = 0; i < symbol.arguments.size(); ++i) {
    if (skips_statistics && (i == 3 || i == 4)) continue;
    ir::for_each_value(symbol.arguments[i], [&](ir::ValueId id) { values.push_back(id); });
  }
  return values;
}

bool may_recompute(const ir::BoundSymbol& symbol, Recompute policy) {
  if (policy == Recompute::kNothing) return false;
  if (is_constant(symbol)) return true;
  if (drawn_with_state(symbol)) return policy >= Recompute::kFast;
  if (policy >= Recompute::kFast && is_training_batch_norm(symbol)) return true;
  if (!is_pure(symbol)) return false;
  return operators::is_view(*symbol.op) ||
         (policy >= Recompute::kFast && operators::has_fact(*symbol.op, operators::Fact::kIsCheap));
}

ir::BoundSymbol recomputed(const ir::BoundSymbol& symbol, const ir::Trace& trace, FindOperator find_operator) {
  ir::BoundSymbol copy = symbol;
  copy.nested.clear();
  copy.comment = "recomputed";
  if (drawn_with_state(symbol)) return drawn_again(copy, trace, find_operator);
  if (!is_training_batch_norm(symbol)) return copy;
  const ir::ArgumentList& all = symbol.arguments;
  if (!has_running_statistics(symbol)) return copy;
  copy.op = find_operator("aten::_native_batch_norm_legit", "no_stats");
  copy.results.resize(3);  // without the next running statistics
  copy.arguments = {all[0], all[1], all[2], all[5], all[6], all[7]};
  return copy;
}

}  // namespace thunder::passes
