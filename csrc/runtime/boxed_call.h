#pragma once

#include <span>
#include <vector>

#include "runtime/instruction.h"
#include "runtime/program_call.h"

namespace thunder::runtime {

/// A call through the stack: any operator, or an executor's kernel.
[[nodiscard]] BoundFunction bind_boxed(const ProgramCall& call, std::vector<ResolvedOperand> operands,
                                       std::vector<ResultRegisters> results);

}  // namespace thunder::runtime
