#include "passes/symbol_order.h"

#include <utility>

namespace thunder::passes {

SymbolOrder::SymbolOrder(const ir::Trace& trace)
    : trace_(trace), uses_(trace), previous_ordered_(trace.symbols.size(), kNoPlace) {
  std::uint32_t last_ordered = kNoPlace;
  for (std::uint32_t i = 0; i < trace.symbols.size(); ++i) {
    const ir::Operator& op = *trace.symbols[i].op;
    const bool is_ordered = operators::may_have_effects(op) || op.style == ir::CallStyle::kReturn;
    if (is_ordered) previous_ordered_[i] = std::exchange(last_ordered, i);
  }
}

}  // namespace thunder::passes
