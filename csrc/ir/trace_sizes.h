#pragma once

#include <cstdint>
#include <vector>

#include "ir/trace.h"

namespace thunder::ir {

/// A symbol of a trace, as the size of an input.
struct SymbolSource {
  std::uint32_t symbol = 0;
  std::uint32_t input = 0;  ///< place among the inputs
  std::uint32_t dim = 0;
};
/// For each symbol the first place where it is the size of an input by itself, by symbol.
[[nodiscard]] std::vector<SymbolSource> symbol_sources(const Trace& trace);

/// The symbols that types of values, and arguments, depend on, ascending.
[[nodiscard]] std::vector<std::uint32_t> symbols_of(const Trace& trace);

/// The trace for certain sizes: every expression is replaced by its number.
[[nodiscard]] Trace at_sizes(const Trace& trace, SymbolValues symbols);

}  // namespace thunder::ir
