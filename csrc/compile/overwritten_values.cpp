#include "compile/overwritten_values.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/uses.h"
#include "operators/facts.h"
#include "passes/alias_analysis.h"
#include "tracer/symbols.h"

namespace thunder::compile {
namespace {

/// The last `copy_` to each alias set, as one more than its position.
std::unordered_map<std::uint32_t, std::size_t> last_copies(const ir::Trace& trace,
                                                           const passes::AliasAnalysis& aliases) {
  std::unordered_map<std::uint32_t, std::size_t> copies;
  for (std::size_t i = 0; i < trace.symbols.size(); ++i) {
    const ir::BoundSymbol& symbol = trace.symbols[i];
    const auto* target =
        operators::has_fact(*symbol.op, operators::Fact::kCopies) ? symbol.arguments.at(0).get<ir::ValueId>() : nullptr;
    if (target != nullptr && aliases.touches_input(*target)) copies[aliases.set_of(*target)] = i + 1;
  }
  return copies;
}

ir::BoundSymbol saved_copy(ir::ValueId value, ir::ValueId copy) {
  ir::BoundSymbol symbol = tracer::clone_symbol(value, copy);
  symbol.comment = "saved before it is written to";
  return symbol;
}

}  // namespace

ir::Trace copy_overwritten_saved_values(const ir::Trace& forward, std::size_t output_count) {
  const passes::AliasAnalysis aliases(forward);
  const auto copies = last_copies(forward, aliases);
  if (copies.empty()) return forward;
  const ir::Uses uses(forward);
  ir::Trace result = forward;
  std::unordered_map<std::size_t, std::vector<ir::BoundSymbol>> added;  // by the position that they come before
  for (std::size_t i = output_count; i < result.outputs.size(); ++i) {
    const auto* saved = result.outputs[i].get<ir::ValueId>();
    if (saved == nullptr) continue;
    const auto copy = copies.find(aliases.set_of(*saved));
    const std::size_t behind = uses.maker(*saved) == ir::kNoPlace ? 0 : uses.maker(*saved) + std::size_t{1};
    if (copy == copies.end() || behind >= copy->second) continue;
    const ir::ValueId clone = result.add_value(result.value(*saved).type);
    added[behind].push_back(saved_copy(*saved, clone));
    result.outputs[i] = clone;
  }
  std::vector<ir::BoundSymbol> symbols;
  for (std::size_t i = 0; i <= forward.symbols.size(); ++i) {
    if (const auto found = added.find(i); found != added.end()) {
      for (ir::BoundSymbol& symbol : found->second) symbols.push_back(std::move(symbol));
    }
    if (i < forward.symbols.size()) symbols.push_back(forward.symbols[i]);
  }
  result.symbols = std::move(symbols);
  return result;
}

}  // namespace thunder::compile
