#pragma once

#include "ir/trace.h"

namespace thunder::executors::aten {

/// Whether the operation is done sooner than a second thread is woken, by the sizes of the trace.
[[nodiscard]] bool is_small(const ir::BoundSymbol& symbol, const ir::Trace& trace);

}  // namespace thunder::executors::aten
