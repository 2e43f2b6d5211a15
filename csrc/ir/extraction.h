#pragma once

#include <string>

#include "ir/trace.h"

namespace thunder::ir {

/// A trace of its own for one symbol: its inputs are the symbol's distinct values, its outputs the results, lists
/// flattened, and values are numbered from zero.
[[nodiscard]] Trace extract(const BoundSymbol& symbol, const Trace& source, std::string name);

}  // namespace thunder::ir
