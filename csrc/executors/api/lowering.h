#pragma once

#include <span>
#include <vector>

#include "executors/api/executor.h"
#include "ir/trace.h"
#include "runtime/program.h"

namespace thunder::executors {

/// A trace whose symbols are all calls of the dispatcher, as a program of these calls.
[[nodiscard]] runtime::Program lower_operators(const ir::Trace& trace);

/// For each symbol the first executor that claims it; null for what runs nothing: comments, `return`, constants.
/// Throws InternalError for a symbol that nobody claims.
struct Claims {
  std::vector<const Executor*> of_symbol;
};
[[nodiscard]] Claims claim_trace(const ir::Trace& trace, std::span<const Executor* const> executors);

/// The trace as a program, with one output for each value or constant of `trace.outputs`. `waits`: see
/// `runtime::ProgramBuilder`; the kernels that are requested here are there, too.
[[nodiscard]] runtime::Program lower_trace(const ir::Trace& trace, const Claims& claims, bool waits = false);
[[nodiscard]] runtime::Program lower_trace(const ir::Trace& trace, std::span<const Executor* const> executors,
                                           bool waits = false);

}  // namespace thunder::executors
