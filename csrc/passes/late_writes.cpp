#include <utility>
#include <vector>

#include "operators/facts.h"
#include "passes/alias_analysis.h"
#include "passes/pass.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {

extern const Pass kLateWrites;

namespace {

/// Which copies may come last: by position.
std::vector<bool> find_late(const ir::Trace& trace) {
  const AliasAnalysis aliases(trace);
  std::vector<bool> is_late(trace.symbols.size(), false);
  std::vector<bool> touched(trace.value_count(), false);  // by alias set: by what stays, further down
  std::vector<bool> written(trace.value_count(), false);
  for (std::size_t i = trace.symbols.size(); i-- > 0;) {
    const ir::BoundSymbol& symbol = trace.symbols[i];
    const bool is_barrier =
        symbol.op->effect || operators::communicates(*symbol.op) || symbol.op->style == ir::CallStyle::kReturn;
    if (is_barrier) break;
    const ir::ValueId target = value_argument(symbol, 0);
    const ir::ValueId source = value_argument(symbol, 1);
    is_late[i] = operators::has_fact(*symbol.op, operators::Fact::kCopies) && single_result(symbol) == ir::kNoValue &&
                 source != ir::kNoValue && !touched[aliases.set_of(target)] && !written[aliases.set_of(source)];
    if (is_late[i]) continue;
    const auto touch = [&](ir::ValueId id) { touched[aliases.set_of(id)] = true; };
    for_each_argument(symbol, touch);
    for_each_result(symbol, touch);
    for_each_written(symbol, [&](ir::ValueId id) { written[aliases.set_of(id)] = true; });
  }
  return is_late;
}

ir::Trace write_late(const ir::Trace& trace, FindOperator /*find_operator*/) {
  const std::vector<bool> is_late = find_late(trace);
  ir::Trace result = trace.empty_copy(kLateWrites.name);
  for (const bool late : {false, true}) {
    for (std::size_t i = 0; i < is_late.size(); ++i) {
      if (is_late[i] == late) result.add(trace.symbols[i]);
    }
  }
  return result;
}

}  // namespace

/// Moves copies to the caller's memory to the end, where nothing in between touches that memory or an effect could see
/// it: no fusion goes across a write.
constexpr Pass kLateWrites{"late_writes", &write_late};

}  // namespace thunder::passes
