#pragma once

#include <span>
#include <vector>

#include "runtime/instruction.h"
#include "runtime/program_call.h"

namespace thunder::runtime {

/// A call through the C++ function of an operator. No function when the operator is not in the table of
/// `unboxed_operators.cpp`, or an operand that is no tensor is not a constant.
[[nodiscard]] BoundFunction bind_unboxed(const c10::OperatorHandle& op, const std::vector<ResolvedOperand>& operands,
                                         const std::vector<ResultRegisters>& results);

}  // namespace thunder::runtime
