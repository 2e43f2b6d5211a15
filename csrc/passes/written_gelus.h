#pragma once

#include "passes/pass.h"

namespace thunder::passes {

/// A GELU that a program writes out, `0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))` (GPT-2's models),
/// as the operator `gelu(x, approximate="tanh")`: its derivative is one operation of `x`, too.
[[nodiscard]] ir::Trace recognize_gelus(const ir::Trace& trace, FindOperator find_operator);

inline constexpr const char* kWrittenGelus = "written_gelus";

}  // namespace thunder::passes
