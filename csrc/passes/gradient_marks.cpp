#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "ir/substitution.h"
#include "operators/names.h"
#include "passes/pass.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {

extern const Pass kGradientMarks;

namespace {

bool is_mark(const ir::BoundSymbol& symbol) {
  if (symbol.op->name == operators::kReplicatedTogether) return true;
  return std::ranges::find(operators::kGradientMarks, std::string_view(symbol.op->name)) !=
         operators::kGradientMarks.end();
}

/// Lets what read the results of a mark read its first argument, of lists one by one.
void hand_on(const ir::BoundSymbol& mark, const ir::Argument& given, ir::Substitution& replaced) {
  if (mark.op->name != operators::kReplicatedTogether) {
    replaced.set(single_result(mark), given);
    return;
  }
  const auto& results = *mark.results[0].get<ir::ArgumentList>();
  const auto& arguments = *given.get<ir::ArgumentList>();
  for (std::size_t i = 0; i < results.size(); ++i) replaced.set(*results[i].get<ir::ValueId>(), arguments[i]);
}

ir::Trace drop_marks(const ir::Trace& trace, FindOperator /*find_operator*/) {
  if (std::ranges::none_of(trace.symbols, is_mark)) return trace;
  ir::Trace result = trace.empty_copy(kGradientMarks.name);
  ir::Substitution replaced(trace.value_count());
  for (const ir::BoundSymbol& symbol : trace.symbols) {
    ir::BoundSymbol copy = symbol;
    replaced.apply(copy);
    if (is_mark(symbol)) {
      hand_on(symbol, copy.arguments[0], replaced);
    } else {
      result.add(std::move(copy));
    }
  }
  replaced.apply(result.outputs);
  return result;
}

}  // namespace

/// Drops operations that only say how a gradient is computed, and hand their first argument on.
constexpr Pass kGradientMarks{"gradient_marks", &drop_marks};

}  // namespace thunder::passes
