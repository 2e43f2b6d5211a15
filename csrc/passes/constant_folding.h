#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ir/trace.h"
#include "passes/pass.h"

namespace thunder::passes {

/// Runs a trace without inputs; gives one constant of its context for each output.
using RunConstants = std::function<std::vector<ir::ObjectConstant>(const ir::Trace&)>;

/// A constant lives as long as the program: what takes more bytes is computed at each call.
inline constexpr std::int64_t kFoldedBytes = 1 << 20;

/// Computes once what follows from constants alone, and keeps what the rest of the trace reads of it. Outputs, values
/// that are written to or require grad, and results of numbers alone (`zeros`) stay as they are.
[[nodiscard]] ir::Trace fold_constants(const ir::Trace& trace, const RunConstants& run, FindOperator find_operator);

inline constexpr const char* kConstantFolding = "constant_folding";

}  // namespace thunder::passes
