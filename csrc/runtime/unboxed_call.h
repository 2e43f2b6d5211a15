#pragma once

#include <span>
#include <vector>

#include "runtime/instruction.h"
#include "runtime/program_builder.h"

namespace thunder::runtime {

/// A call straight through the C++ signature of the operator. No function when the table has no such signature or an
/// operand that is no tensor is not a constant.
[[nodiscard]] BoundFunction bind_unboxed(const c10::OperatorHandle& op, const std::vector<ResolvedOperand>& operands,
                                         const std::vector<ResultRegisters>& results);

}  // namespace thunder::runtime
