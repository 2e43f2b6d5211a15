#pragma once

#include <string>

#include "ir/trace.h"

namespace thunder::ir {

/// A trace of its own for one symbol: its inputs are the symbol's distinct values, its outputs the results, lists
/// flattened, and values are numbered from zero.
[[nodiscard]] Trace extract(const BoundSymbol& symbol, const Trace& source, std::string name);

/// A trace with the source's values and context for some of its symbols: without inputs, outputs and conditions on
/// sizes.
[[nodiscard]] Trace empty_part(const Trace& source, std::string step);

}  // namespace thunder::ir
