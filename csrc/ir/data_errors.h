#pragma once

#include "ir/trace.h"

namespace thunder::ir {

/// Whether an operation may raise an error that depends on the data of its arguments: `linalg.inv`, an index.
[[nodiscard]] bool may_raise_for_data(const Trace& trace, const BoundSymbol& symbol);

}  // namespace thunder::ir
