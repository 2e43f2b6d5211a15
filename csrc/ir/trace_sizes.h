#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ir/trace.h"

namespace thunder::ir {

/// A symbol of a trace, as the size of an input.
struct SymbolSource {
  std::uint32_t symbol = 0;
  std::uint32_t input = 0;  ///< place among the inputs
  std::uint32_t dim = 0;
  std::int64_t factor = 1;  ///< the size is so many times the symbol
};
/// For each symbol the first place where it is the size of an input, by itself or times a number, by symbol.
[[nodiscard]] std::vector<SymbolSource> symbol_sources(const Trace& trace);

/// The operator with which a program makes sure of the sizes of a tensor, `(tensor, sizes)`: symbols among them that
/// are the size of no input stand for what it finds.
inline constexpr std::string_view kShapeCheck = "prims::check_shape";
/// A symbol of a trace, as a size that follows from data.
struct FoundSymbol {
  std::uint32_t symbol = 0;
  std::size_t check = 0;  ///< place of the check that finds it among the operations
  ValueId value = kNoValue;
  std::uint32_t dim = 0;
};
/// The symbols that are the size of no input, each where it is found first.
[[nodiscard]] std::vector<FoundSymbol> found_symbols(const Trace& trace);

/// Adds those conditions to a trace whose symbols are all sizes of its inputs.
void add_known_conditions(std::span<const Condition> conditions, Trace& trace);

/// By input, whether a symbol is read from its sizes.
[[nodiscard]] std::vector<bool> gives_symbols(const Trace& trace);

/// The symbols that types of values, arguments and conditions depend on, ascending.
[[nodiscard]] std::vector<std::uint32_t> symbols_of(const Trace& trace);

/// The values that the symbols had when the trace was recorded, by index.
[[nodiscard]] std::vector<std::int64_t> traced_symbols(const Trace& trace);

/// The trace for certain sizes: every expression is replaced by its number.
[[nodiscard]] Trace at_sizes(const Trace& trace, SymbolValues symbols);

/// Makes a trace right only where the condition holds: writes its sizes in fewer words, and notes the condition, unless
/// the sizes of its inputs say so now.
void assume(Trace& trace, const Condition& condition);

}  // namespace thunder::ir
