#pragma once

#include <cstdint>
#include <vector>

#include "ir/trace.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {

/// The order in which symbols of a trace must stand: which ones each comes after. Symbols are named by their positions.
class SymbolOrder {
 public:
  explicit SymbolOrder(const ir::Trace& trace);

  /// The symbol that gives a value; kNoPlace: an input.
  [[nodiscard]] std::uint32_t maker(ir::ValueId id) const { return uses_.maker(id); }
  [[nodiscard]] const ir::Uses& uses() const { return uses_; }

  /// Calls `visit` with each symbol that symbol `i` comes after: those that make what it reads, and of the symbols that
  /// keep their places among one another the one before it.
  template <typename Visitor>
  void for_each_before(std::uint32_t i, Visitor&& visit) const {
    const auto look = [&](std::uint32_t before) {
      if (before != kNoPlace) visit(before);
    };
    look(previous_ordered_[i]);
    for_each_argument(trace_.symbols[i], [&](ir::ValueId id) { look(maker(id)); });
  }

 private:
  const ir::Trace& trace_;
  ir::Uses uses_;
  std::vector<std::uint32_t> previous_ordered_;
};

}  // namespace thunder::passes
