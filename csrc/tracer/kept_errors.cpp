#include "tracer/kept_errors.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "ir/symbol_values.h"
#include "operators/facts.h"
#include "tracer/operators.h"

namespace thunder::tracer {
namespace {

/// The first tensor among results; kNoValue: there is none.
ir::ValueId first_tensor(const ir::Trace& trace, const ir::BoundSymbol& symbol) {
  for (const ir::ValueId id : ir::flat_results(symbol)) {
    if (id != ir::kNoValue && trace.tensor_type(id) != nullptr) return id;
  }
  return ir::kNoValue;
}

/// An operation without a result that needs `value`, and asks nothing of it.
ir::BoundSymbol need(ir::ValueId value, const ir::SourceLocation& location) {
  ir::BoundSymbol symbol;
  symbol.op = find_operator("aten::_assert_tensor_metadata", "");
  symbol.arguments.assign(symbol.op->parameters.size(), ir::Argument(ir::None{}));
  symbol.arguments[0] = ir::Argument(value);
  symbol.location = location;
  symbol.comment = "it may raise an error";
  return symbol;
}

}  // namespace

void keep_errors(ir::Trace& trace) {
  std::vector<bool> needed(trace.value_count(), false);
  const auto add_needs = [&](const ir::ArgumentList& arguments) {
    for (const ir::Argument& argument : arguments) {
      ir::for_each_value(argument, [&](ir::ValueId id) { needed[ir::index_of(id)] = true; });
    }
  };
  const auto is_needed = [&](ir::ValueId id) { return id != ir::kNoValue && needed[ir::index_of(id)]; };
  add_needs(trace.outputs);
  std::vector<ir::ValueId> kept(trace.symbols.size(), ir::kNoValue);
  bool has_kept = false;
  for (std::size_t i = trace.symbols.size(); i-- > 0;) {
    const ir::BoundSymbol& symbol = trace.symbols[i];
    bool runs = symbol.op->mutates || symbol.op->effect || std::ranges::any_of(ir::flat_results(symbol), is_needed);
    if (!runs) {
      const ir::ValueId result = first_tensor(trace, symbol);
      runs = result != ir::kNoValue && operators::may_raise_for_data(trace, symbol);
      if (runs) kept[i] = result;
      has_kept |= runs;
    }
    if (runs) add_needs(symbol.arguments);
  }
  if (!has_kept) return;
  std::vector<ir::BoundSymbol> symbols = std::exchange(trace.symbols, {});
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    const ir::SourceLocation location = symbols[i].location;
    trace.add(std::move(symbols[i]));
    if (kept[i] != ir::kNoValue) trace.add(need(kept[i], location));
  }
}

}  // namespace thunder::tracer
