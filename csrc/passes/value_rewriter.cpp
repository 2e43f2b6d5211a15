#include "passes/value_rewriter.h"

#include <utility>

#include "passes/symbol_facts.h"

namespace thunder::passes {

ValueRewriter::ValueRewriter(const ir::Trace& trace, const char* step, FindOperator find_operator)
    : trace_(trace),
      result_(trace.empty_copy(step)),
      aliases_(trace),
      replaced_(trace.value_count()),
      find_operator_(find_operator),
      makers_(trace.value_count(), 0),
      is_output_(trace.value_count(), false),
      is_input_(trace.value_count(), false) {
  for (const ir::Argument& output : trace.outputs) {
    ir::for_each_value(output, [&](ir::ValueId id) { is_output_[ir::index_of(id)] = true; });
  }
  for (const ir::ValueId input : trace.inputs) is_input_[ir::index_of(input)] = true;
  result_.symbols.reserve(trace.symbols.size());  // `maker` hands out pointers
}

const ir::BoundSymbol* ValueRewriter::maker(ir::ValueId id) const {
  const std::uint32_t position = id == ir::kNoValue ? 0 : makers_[ir::index_of(id)];
  return position == 0 ? nullptr : &result_.symbols[position - 1];
}

bool ValueRewriter::may_stand_for(ir::ValueId kept, ir::ValueId dropped) const {
  if (aliases_.is_written(kept) || aliases_.is_written(dropped)) return false;
  const bool to_caller = is_output_[ir::index_of(dropped)];
  if (to_caller && (is_input_[ir::index_of(kept)] || is_output_[ir::index_of(kept)])) return false;
  if (aliases_.may_alias(kept, dropped)) return true;
  if (!aliases_.touches_output(dropped)) return !aliases_.is_position_read(dropped) || is_all_of_own_memory(kept);
  // The caller may write to what it gets: it must not share memory that it did not share. And it may ask for the offset
  // and for the size of the storage.
  return is_all_of_own_memory(kept) && !aliases_.touches_output(kept);
}

bool ValueRewriter::is_all_of_own_memory(ir::ValueId id) const {
  const ir::BoundSymbol* symbol = maker(id);
  if (symbol == nullptr || !aliases_.is_own_memory(id)) return false;
  const ir::Operator& op = *symbol->op;
  const bool may_share = operators::is_view(op) || operators::has_fact(op, operators::Fact::kMayReturnArgument);
  return is_surely_copy(result_, *symbol) || (!may_share && !copies_memory(op));
}

ir::Trace ValueRewriter::run(Rule (*find_rule)(const ir::Operator& op)) {
  for (const ir::BoundSymbol& symbol : trace_.symbols) {
    ir::BoundSymbol& copy = result_.add(symbol);
    replaced_.apply(copy);
    const ir::ValueId result = single_result(copy);
    const Rule rule = result == ir::kNoValue || !is_pure(copy) ? nullptr : find_rule(*copy.op);
    const ir::ValueId equal = rule == nullptr || !is_constant_memory(result) ? ir::kNoValue : rule(copy, *this);
    if (equal != ir::kNoValue && may_stand_for(equal, result)) {
      replaced_.set(result, equal);
      aliases_.join(equal, result);
      is_output_[ir::index_of(equal)] = is_output_[ir::index_of(equal)] || is_output_[ir::index_of(result)];
      result_.symbols.pop_back();
      continue;
    }
    const auto position = static_cast<std::uint32_t>(result_.symbols.size());
    for_each_result(copy, [&](ir::ValueId id) { makers_[ir::index_of(id)] = position; });
  }
  replaced_.apply(result_.outputs);
  return std::move(result_);
}

}  // namespace thunder::passes
