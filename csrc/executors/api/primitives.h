#pragma once

#include "ir/trace.h"
#include "runtime/program_builder.h"

namespace thunder::executors {

/// Lowers the primitives that every program may hold, whatever its executors: constants, custom gradients (their value)
/// and checks of what a trace was specialized on. False: it is none of them.
bool lower_primitive(const ir::BoundSymbol& symbol, const ir::Trace& trace, runtime::ProgramBuilder& builder);
[[nodiscard]] bool is_primitive(const ir::Operator& op);

}  // namespace thunder::executors
